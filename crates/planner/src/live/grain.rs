//! Whether the work of a role comes in pieces that are small enough for a promise.
//!
//! What one node more brings is computed as if the work of a role was divided evenly over its
//! instances, however many there are. Under load commands come together in large messages: a
//! gateway whose clients wait for the same batch sends all their next commands at once. Where there
//! are hardly more such messages than instances, one more instance is idle in turn. Where a message
//! takes very long, other roles repeat what it holds before it is answered, and the load changes
//! with the load.

use super::rates::{Counts, Rates};

/// Messages for each instance, the new one included, that must be under way at a time.
const UNDER_WAY: f64 = 2.0;

/// The longest that a message may take on average, in microseconds: a tenth of the time after which
/// a batcher proposes again what was not chosen.
const LONGEST_US: f64 = 25_000.0;

/// Why the gain of one more of these nodes, which have the same role, cannot be computed; `None` if
/// it can, or if nothing is known of the latency of commands.
pub(super) fn too_coarse(all: &[(&str, &Rates)], sharing: &[&Rates]) -> Option<String> {
    let mut service = Counts::default();
    all.iter()
        .for_each(|(_, rates)| service.add(&rates.all_service()));
    let latency_us = service.quantile(0.5)?;
    let pieces = |rates: &Rates| rates.messages + rates.requests;
    let a_second: f64 = sharing.iter().map(|it| pieces(it)).sum();
    let busy: f64 = sharing.iter().map(|it| it.loops[0].1).sum();
    let (under_way, instances) = (a_second * latency_us / 1e6, sharing.len() + 1);
    let takes_us = busy * 1e6 / a_second.max(f64::MIN_POSITIVE);
    let why = if under_way < UNDER_WAY * instances as f64 {
        format!(
            "commands come there in few large messages, {under_way:.1} at a time, and one of \
             {instances} instances that has none is idle"
        )
    } else if takes_us > LONGEST_US {
        format!(
            "a message takes {:.0} ms there, and what takes so long is sent again before it is \
             answered",
            takes_us / 1000.0
        )
    } else {
        return None;
    };
    Some(format!("what a node more brings cannot be computed: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes that get this number of messages a second, under commands that take at most `bucket`.
    fn why(messages: f64, nodes: usize, bucket: usize) -> Option<String> {
        let mut times = vec![0; bucket + 1];
        times[bucket] = 100;
        let mut rates = Rates {
            loops: vec![(0, 0.9)],
            messages,
            ..Rates::default()
        };
        rates.service[1] = Counts::between(&[], &times);
        let sharing = vec![&rates; nodes];
        too_coarse(&[("n0", &rates)], &sharing)
    }

    #[test]
    fn there_must_be_more_messages_under_way_than_instances() {
        // The median of the bucket from 51.2 to 102.4 ms is 76.8 ms.
        let few = why(38.0, 2, 11).unwrap();
        assert!(
            few.ends_with("5.8 at a time, and one of 3 instances that has none is idle"),
            "{few}"
        );
        assert_eq!(why(40.0, 2, 11), None);
    }

    #[test]
    fn a_message_must_not_take_as_long_as_the_patience_of_other_roles() {
        let long = why(35.0, 40, 11).unwrap();
        assert!(long.contains("a message takes 26 ms there"), "{long}");
        assert_eq!(why(37.0, 1, 16), None);
        let unknown = Rates {
            loops: vec![(0, 0.9)],
            ..Rates::default()
        };
        assert_eq!(too_coarse(&[("n0", &unknown)], &[&unknown]), None);
    }
}
