//! The figures of the last hour: a ring of bounded size.

use crate::figures::{Figures, KINDS, NAMES};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// How far back it goes, in seconds.
pub(crate) const SECONDS: u32 = 3600;

/// The most points of one answer. More samples than these are put together.
pub(crate) const POINTS: u32 = 240;

/// What the figures of a ring are of.
#[derive(Debug)]
pub(crate) struct History {
    /// Samples with the second of each, the oldest first.
    samples: VecDeque<(u32, Figures)>,
    capacity: usize,
}

impl History {
    /// A ring for one sample in this many seconds.
    pub(crate) fn every(seconds: u32) -> Self {
        History {
            samples: VecDeque::new(),
            capacity: (SECONDS / seconds) as usize,
        }
    }

    /// Adds the figures of this second, counted from any fixed moment.
    pub(crate) fn push(&mut self, second: u32, figures: Figures) {
        if self.samples.len() == self.capacity {
            self.samples.pop_front();
        }
        self.samples.push_back((second, figures));
    }

    /// Forgets the figures of roles: their kinds were not known.
    pub(crate) fn clear_roles(&mut self) {
        for (_, Figures(values)) in &mut self.samples {
            values[NAMES.len()..].fill(f32::NAN);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The last `seconds` before `now` as JSON: the length of a step in seconds, and for each
    /// figure a value for each step, `null` where nothing is known. Of several samples in one step
    /// rates are averaged; of times, lags and utilizations the largest counts.
    pub(crate) fn answer(&self, now: u32, seconds: u32, kinds: &[String]) -> Value {
        let seconds = seconds.clamp(1, SECONDS);
        let step = seconds.div_ceil(POINTS);
        let steps = seconds.div_ceil(step);
        // Steps begin at multiples of their length, so that points do not change when time goes on.
        let end = now / step + 1;
        let mut found = vec![Step::default(); steps as usize];
        for (second, figures) in &self.samples {
            let place = (second / step + steps).checked_sub(end);
            if let Some(step) = place.and_then(|place| found.get_mut(place as usize)) {
                step.take(figures);
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
    fn two_rings_of_an_hour_take_less_than_a_mebibyte() {
        let mut bytes = 0;
        for seconds in [1, 2] {
            let mut ring = History::every(seconds);
            for second in 0..3 * SECONDS {
                ring.push(second, figures(1.0, 1.0));
            }
            assert_eq!(ring.samples.len(), (SECONDS / seconds) as usize);
            assert_eq!(ring.samples.back().unwrap().0, 3 * SECONDS - 1);
            bytes += ring.samples.capacity() * size_of::<(u32, Figures)>();
        }
        assert!(bytes < 1 << 20, "{bytes}");
    }

    #[test]
    fn answer_has_a_value_for_each_step_and_null_for_gaps() {
        let mut ring = History::every(1);
        for (second, writes) in [(100, 1.0), (101, 2.0), (103, 4.5)] {
            ring.push(second, figures(writes, f32::NAN));
        }
        let answer = ring.answer(104, 5, &[]);
        assert_eq!(
            answer,
            json!({ "step_s": 1, "points": 5, "ago_s": 0,
                "series": { "write": [1.0, 2.0, null, 4.5, null] } })
        );
        let none = ring.answer(104 + SECONDS, SECONDS, &[]);
        assert_eq!(none["series"], json!({}));
    }

    #[test]
    fn an_hour_has_few_points_with_means_of_rates_and_the_largest_times() {
        let mut ring = History::every(1);
        for second in 0..SECONDS {
            ring.push(second, figures((second % 3) as f32, second as f32));
        }
        let answer = ring.answer(SECONDS - 1, 1_000_000, &["a".into()]);
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
