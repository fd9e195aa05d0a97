//! All that a run has found, as one document.

use super::arguments::Load;
use super::round::Round;
use super::workload::Mix;
use ionian_harness::host::Machine;
use ionian_harness::numbers::median;
use ionian_program::Level;
use serde::Serialize;

/// What a run has found. Its JSON is for programs: names stay, others may be added.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// The version of Ionian.
    pub(crate) version: &'static str,
    /// Whether it was built with optimization: figures of another build mean nothing.
    pub(crate) optimized: bool,
    /// The profile that it was built with: `dist` is that of packages.
    pub(crate) profile: &'static str,
    /// The command, as it was typed.
    pub(crate) command: String,
    /// Where.
    pub(crate) machine: Machine,
    /// What was asked.
    pub(crate) asked: Asked,
    /// Who was measured.
    pub(crate) sides: Vec<Measured>,
    /// The first in terms of the second, if there are two.
    pub(crate) ratios: Option<Ratios>,
}

/// What was asked, and how.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Asked {
    /// Keys, skew, reads and values.
    #[serde(flatten)]
    pub(crate) mix: Mix,
    /// How fresh reads must be, if it was said.
    pub(crate) level: Option<&'static str>,
    /// Connections; none through lanes.
    pub(crate) clients: Option<usize>,
    /// Commands that each sends at once.
    pub(crate) pipeline: u64,
    /// Commands that were to be begun in a second; none in a closed loop.
    pub(crate) rate: Option<f64>,
    /// Requests on their way through the lane.
    pub(crate) in_flight: Option<usize>,
    /// Seconds before those that count.
    pub(crate) warm_up: f64,
    /// Seconds that count, in each round.
    pub(crate) seconds: f64,
    /// Threads of the generator.
    pub(crate) threads: usize,
    /// What decided which keys are asked for.
    pub(crate) seed: u64,
}

impl Asked {
    pub(crate) fn new(load: &Load) -> Self {
        let Load {
            servers,
            asks,
            course,
        } = load;
        Asked {
            mix: asks.mix(),
            level: asks.level.map(Level::name),
            clients: (!servers.lanes).then(|| asks.clients()),
            pipeline: asks.pipeline(),
            rate: asks.rate,
            in_flight: servers.lanes.then(|| asks.in_flight()),
            warm_up: course.warm_up,
            seconds: course.seconds,
            threads: course.threads(),
            seed: asks.seed,
        }
    }
}

/// One of those that were measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// What it is called.
    pub(crate) name: String,
    /// The processes whose time was counted, in the order of `processor_us`.
    pub(crate) processes: Vec<String>,
    /// Every round.
    pub(crate) rounds: Vec<Round>,
}

/// The smallest, the median and the largest of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The smallest.
    pub(crate) min: f64,
    /// The median.
    pub(crate) median: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of what is there; none of none.
    pub(crate) fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values: Vec<f64> = values
            .into_iter()
            .collect::<Option<Vec<f64>>>()
            .filter(|values| !values.is_empty())?;
        let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        let (min, max) = values.iter().fold((least, most), |(min, max), value| {
            (min.min(*value), max.max(*value))
        });
        Some(Spread {
            min,
            median: median(&values),
            max,
        })
    }
}

/// The first in terms of the second, round by round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratios {
    /// Of commands a second.
    pub(crate) per_second: Spread,
    /// Of the median of the latency.
    pub(crate) p50: Spread,
    /// Of the servers' processor time for each command; none when it is not known of both.
    pub(crate) servers_us: Option<Spread>,
}

impl Ratios {
    /// Of rounds that were measured one after the other.
    pub(crate) fn of(sides: &[Measured]) -> Option<Self> {
        let [first, second] = sides else { return None };
        let ratio = |field: fn(&Round) -> Option<f64>| {
            let rounds = first.rounds.iter().zip(&second.rounds);
            Spread::of(rounds.map(|(first, second)| Some(field(first)? / field(second)?)))
        };
        Some(Ratios {
            per_second: ratio(|round| Some(round.per_second))?,
            p50: ratio(|round| Some(round.latency_ms.p50))?,
            servers_us: ratio(|round| round.servers_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_of_what_is_known() {
        let spread = Spread::of([3.0, 1.0, 2.0].map(Some)).unwrap();
        assert_eq!(
            spread,
            Spread {
                min: 1.0,
                median: 2.0,
                max: 3.0
            }
        );
        assert_eq!(Spread::of([Some(1.0), None]), None);
        assert_eq!(Spread::of([]), None);
    }
}
