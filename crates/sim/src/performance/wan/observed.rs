//! What came of an experiment.

use super::super::Latency;
use ionian_kernel::layout::NodeId;
use ionian_kernel::status::Leads;

/// Between the begin and the end of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// How long that was, microseconds.
    pub elapsed_us: u64,
    /// Of each source, in the order of the experiment.
    pub sources: Vec<Series>,
    /// The part of the time that each node was busy.
    pub utilization: Vec<(NodeId, f64)>,
    /// Bytes per second on the wire from each node to each other, headers included.
    pub bytes_per_second: Vec<(NodeId, NodeId, f64)>,
    /// What each leader leads at the end, and how many elections it has begun since the start.
    pub leads: Vec<Leads>,
    /// The messages that went from one node to another.
    pub flows: Vec<Flow>,
}

/// Messages of one name from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The role that receives them and the message: `acceptor::Phase2a`.
    pub name: &'static str,
    /// How many.
    pub messages: u64,
    /// The bytes of the largest.
    pub largest: usize,
}

/// What the clients of one source got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Their answers, in the order in which they came.
    pub answers: Vec<Answer>,
    /// The number of requests that were refused.
    pub refused: u64,
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it came, microseconds from the start.
    pub at_us: u64,
    /// How long after it was asked for, microseconds.
    pub latency_us: u64,
}

impl Observed {
    /// Answers per second to all sources.
    pub fn answers_per_second(&self) -> f64 {
        self.sources
            .iter()
            .map(|series| series.answers.len())
            .sum::<usize>() as f64
            * 1e6
            / self.elapsed_us as f64
    }

    /// Answers per second to one source.
    pub fn of_source(&self, source: usize) -> f64 {
        self.sources[source].answers.len() as f64 * 1e6 / self.elapsed_us as f64
    }

    /// Of all answers.
    pub fn latency_us(&self) -> Latency {
        latency_us(self.sources.iter().flat_map(Series::latencies).collect())
    }
}

fn latency_us(mut all: Vec<u64>) -> Latency {
    all.sort_unstable();
    Latency::of_sorted(&all, 1.0)
}

impl Series {
    /// Of all its answers.
    pub fn latency_us(&self) -> Latency {
        latency_us(self.latencies().collect())
    }

    /// How long each answer took, microseconds.
    pub fn latencies(&self) -> impl Iterator<Item = u64> {
        self.answers.iter().map(|answer| answer.latency_us)
    }

    /// Answers per second in each interval of this length, with the middle of the interval, from
    /// one time to another, all microseconds.
    pub fn over_time(&self, from_us: u64, until_us: u64, interval_us: u64) -> Vec<(u64, f64)> {
        let mut counts = vec![0u64; ((until_us - from_us) / interval_us) as usize];
        for answer in &self.answers {
            let interval = answer
                .at_us
                .checked_sub(from_us)
                .map(|since| (since / interval_us) as usize);
            if let Some(count) = interval.and_then(|interval| counts.get_mut(interval)) {
                *count += 1;
            }
        }
        let middle = |interval: u64| from_us + interval * interval_us + interval_us / 2;
        let per_second = |count: u64| count as f64 * 1e6 / interval_us as f64;
        (0..)
            .zip(counts)
            .map(|(interval, count)| (middle(interval), per_second(count)))
            .collect()
    }
}
