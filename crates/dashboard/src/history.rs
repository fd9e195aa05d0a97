//! The figures of the last hour, and coarse ones of the last day: rings of bounded size.

use crate::figures::{Figures, KINDS, NAMES};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// How far back it goes in detail, in seconds.
pub(crate) const HOUR: u32 = 3600;

/// How far back it goes, in seconds.
pub(crate) const DAY: u32 = 24 * HOUR;

/// Of this many seconds the day has one sample.
const COARSE: u32 = 120;

/// The most points of one answer. More samples than these are put together.
pub(crate) const POINTS: u32 = 240;

/// What the figures of a ring are of.
#[derive(Debug)]
pub(crate) struct History {
    /// Samples of the last hour.
    fine: Ring,
    /// Samples of the last day.
    coarse: Ring,
    /// What the next coarse sample is made of: its number, counted from the same moment, and the
    /// samples so far.
    next: Option<(u32, Step)>,
    /// A sample stands for the time since the one before, for at most this many seconds.
    reach: u32,
}

/// Samples with the second of each, the oldest first.
#[derive(Debug)]
struct Ring {
    samples: VecDeque<(u32, Figures)>,
    capacity: usize,
}

impl Ring {
    fn new(capacity: u32) -> Self {
        Ring {
            samples: VecDeque::new(),
            capacity: capacity as usize,
        }
    }

    fn push(&mut self, second: u32, figures: Figures) {
        if self.samples.len() == self.capacity {
            self.samples.pop_front();
        }
        self.samples.push_back((second, figures));
    }
}

impl History {
    /// For one sample in this many seconds at most. A sample stands for the time since the one
    /// before, if that was not more than `reach` seconds ago.
    pub(crate) fn every(seconds: u32, reach: u32) -> Self {
        History {
            fine: Ring::new(HOUR / seconds),
            coarse: Ring::new(DAY / COARSE),
            next: None,
            reach,
        }
    }

    /// Adds the figures of this second, counted from any fixed moment.
    pub(crate) fn push(&mut self, second: u32, figures: Figures) {
        self.fine.push(second, figures);
        let number = second / COARSE;
        let begun = self.next.take();
        let mut step = match begun {
            Some((same, step)) if same == number => step,
            Some((earlier, step)) => {
                self.coarse.push(earlier * COARSE, step.figures());
                Step::default()
            }
            None => Step::default(),
        };
        step.take(&figures);
        self.next = Some((number, step));
    }

    /// Forgets the figures of roles: their kinds were not known.
    pub(crate) fn clear_roles(&mut self) {
        let kept = self.fine.samples.iter_mut().chain(&mut self.coarse.samples);
        let kept = kept.map(|(_, figures)| figures);
        let next = self.next.iter_mut().map(|(_, step)| &mut step.figures);
        for Figures(values) in kept.chain(next) {
            values[NAMES.len()..].fill(f32::NAN);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.fine.samples.len()
    }

    /// Samples that reach so far back, each with the first and the last second that it stands for.
    fn samples(&self, seconds: u32) -> Vec<(u32, u32, Figures)> {
        if seconds > HOUR {
            let next = self.next.as_ref();
            let next = next.map(|(number, step)| (number * COARSE, step.figures()));
            let all = self.coarse.samples.iter().copied().chain(next);
            return all
                .map(|(second, figures)| (second, second + COARSE - 1, figures))
                .collect();
        }
        let mut before = None;
        let samples = self.fine.samples.iter();
        let since = samples.map(|(second, figures)| {
            let earlier = before.replace(*second).map(|before: u32| before + 1);
            let near = earlier.filter(|first| second.saturating_sub(*first) < self.reach);
            (near.unwrap_or(*second).min(*second), *second, *figures)
        });
        since.collect()
    }

    /// The last `seconds` before `now` as JSON: the length of a step in seconds, and for each
    /// figure a value for each step, `null` where nothing is known. Of several samples in one step
    /// rates are averaged; of times, lags and utilizations the largest counts.
    pub(crate) fn answer(&self, now: u32, seconds: u32, kinds: &[String]) -> Value {
        let seconds = seconds.clamp(1, DAY);
        let step = seconds.div_ceil(POINTS);
        let steps = seconds.div_ceil(step);
        // Steps begin at multiples of their length, so that points do not change when time goes on.
        let end = now / step + 1;
        let mut found = vec![Step::default(); steps as usize];
        for (first, last, figures) in self.samples(seconds) {
            for place in first / step..=last / step {
                let place = (place + steps).checked_sub(end);
                if let Some(step) = place.and_then(|place| found.get_mut(place as usize)) {
                    step.take(&figures);
                }
            }
        }
        let names = NAMES.iter().map(|name| name.to_string());
        let roles = kinds.iter().take(KINDS).map(|kind| format!("role.{kind}"));
        let mut series = Map::new();
        for (place, name) in names.chain(roles).enumerate() {
            let values = found.iter().map(|step| step.value(place));
            let values: Vec<Value> = values.map(rounded).collect();
            if values.iter().any(|value| !value.is_null()) {
                series.insert(name, values.into());
            }
        }
        json!({ "step_s": step, "points": steps, "ago_s": now % step, "series": series })
    }
}

/// The samples of one step.
#[derive(Clone, Copy, Debug)]
struct Step {
    figures: Figures,
    /// How many samples are known, of each rate.
    known: [u32; AVERAGED],
}

/// The first figures are averaged.
const AVERAGED: usize = 5;

impl Default for Step {
    fn default() -> Self {
        Step {
            figures: Figures::default(),
            known: [0; AVERAGED],
        }
    }
}

impl Step {
    fn take(&mut self, Figures(values): &Figures) {
        let Figures(own) = &mut self.figures;
        for (place, (own, value)) in own.iter_mut().zip(values).enumerate() {
            match self.known.get_mut(place) {
                Some(known) if !value.is_nan() => {
                    *own = if *known == 0 { *value } else { *own + *value };
                    *known += 1;
                }
                Some(_) => {}
                // `max` takes the one that is a number.
                None => *own = own.max(*value),
            }
        }
    }

    /// All values.
    fn figures(&self) -> Figures {
        Figures(std::array::from_fn(|place| self.value(place)))
    }

    fn value(&self, place: usize) -> f32 {
        let value = self.figures.0[place];
        match self.known.get(place) {
            Some(known) => value / *known as f32,
            None => value,
        }
    }
}

/// With few digits, because a chart shows no more.
fn rounded(value: f32) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let digits = match value.abs() {
        large if large >= 1000.0 => 1.0,
        middle if middle >= 1.0 => 100.0,
        _ => 10_000.0,
    };
    json!((f64::from(value) * digits).round() / digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(writes: f32, p99: f32) -> Figures {
        let mut figures = Figures::default();
        figures.0[1] = writes;
        figures.0[8] = p99;
        figures
    }

    #[test]
    fn the_histories_of_node_and_cluster_take_less_than_a_mebibyte() {
        let mut bytes = 0;
        for seconds in [1, 2] {
            let mut history = History::every(seconds, 1);
            for second in 0..DAY + 2 * HOUR {
                history.push(second, figures(1.0, 1.0));
            }
            assert_eq!(history.len(), (HOUR / seconds) as usize);
            assert_eq!(history.coarse.samples.len(), (DAY / COARSE) as usize);
            assert_eq!(history.fine.samples.back().unwrap().0, DAY + 2 * HOUR - 1);
            for ring in [&history.fine, &history.coarse] {
                bytes += ring.samples.capacity() * size_of::<(u32, Figures)>();
            }
            bytes += size_of::<History>();
        }
        assert!(bytes < 1 << 20, "{bytes}");
    }

    #[test]
    fn a_day_has_means_of_rates_and_the_largest_times_up_to_now() {
        let mut history = History::every(1, 1);
        for second in 0..DAY {
            history.push(second, figures((second % 2) as f32, second as f32));
        }
        let answer = history.answer(DAY - 1, u32::MAX, &[]);
        assert_eq!(
            (&answer["step_s"], &answer["points"]),
            (&json!(360), &json!(240))
        );
        let series = |name: &str| answer["series"][name].as_array().unwrap().clone();
        assert!(series("write").iter().all(|value| *value == json!(0.5)));
        let times = series("write_p99_us");
        assert_eq!((&times[0], &times[239]), (&json!(359.0), &json!(86_399.0)));
        // Older than a day.
        let none = history.answer(2 * DAY, DAY, &[]);
        assert_eq!(none["series"], json!({}));
    }

    #[test]
    fn what_was_not_known_leaves_a_gap_in_the_day() {
        let mut history = History::every(1, 1);
        let hours = [1..2, 3..4].into_iter().flatten();
        for second in hours.flat_map(|hour| hour * HOUR..(hour + 1) * HOUR) {
            history.push(second, figures(7.0, f32::NAN));
        }
        let answer = history.answer(4 * HOUR - 1, DAY, &[]);
        let known = answer["series"]["write"].as_array().unwrap();
        let known: Vec<bool> = known.iter().map(|value| *value == json!(7.0)).collect();
        let hours: Vec<bool> = known
            .chunks(10)
            .map(|hour| hour.iter().all(|it| *it))
            .collect();
        let expected: Vec<bool> = (0..24).map(|hour| [21, 23].contains(&hour)).collect();
        assert_eq!(hours, expected);
        assert_eq!(known.iter().filter(|it| **it).count(), 20);
    }

    #[test]
    fn a_sample_stands_for_the_time_since_the_one_before() {
        let mut history = History::every(2, 30);
        for (second, writes) in [(10, 1.0), (40, 2.0), (71, 3.0)] {
            history.push(second, figures(writes, f32::NAN));
        }
        let answer = history.answer(99, 100, &[]);
        let values = answer["series"]["write"].as_array().unwrap();
        let seconds = |of: f64| -> Vec<usize> {
            let all = values.iter().enumerate();
            all.filter(|(_, it)| **it == json!(of))
                .map(|(at, _)| at)
                .collect()
        };
        assert_eq!(seconds(1.0), [10]);
        assert_eq!(seconds(2.0), (11..=40).collect::<Vec<_>>());
        // The one before was too long ago.
        assert_eq!(seconds(3.0), [71]);
    }

    #[test]
    fn answer_has_a_value_for_each_step_and_null_for_gaps() {
        let mut ring = History::every(1, 1);
        for (second, writes) in [(100, 1.0), (101, 2.0), (103, 4.5)] {
            ring.push(second, figures(writes, f32::NAN));
        }
        let answer = ring.answer(104, 5, &[]);
        assert_eq!(
            answer,
            json!({ "step_s": 1, "points": 5, "ago_s": 0,
                "series": { "write": [1.0, 2.0, null, 4.5, null] } })
        );
        let none = ring.answer(104 + HOUR, HOUR, &[]);
        assert_eq!(none["series"], json!({}));
    }

    #[test]
    fn an_hour_has_few_points_with_means_of_rates_and_the_largest_times() {
        let mut ring = History::every(1, 1);
        for second in 0..HOUR {
            ring.push(second, figures((second % 3) as f32, second as f32));
        }
        let answer = ring.answer(HOUR - 1, HOUR, &["a".into()]);
        assert_eq!(
            (&answer["step_s"], &answer["points"]),
            (&json!(15), &json!(240))
        );
        let writes = answer["series"]["write"].as_array().unwrap();
        assert!(writes.len() == 240 && writes.iter().all(|value| *value == json!(1.0)));
        let times = answer["series"]["write_p99_us"].as_array().unwrap();
        assert_eq!((&times[0], &times[239]), (&json!(14.0), &json!(3599.0)));
    }
}
