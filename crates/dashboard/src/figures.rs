//! What charts draw of one moment: of one node, or of the cluster.

use ionian_planner::live::rates::{Counts, FAMILIES, Rates};

/// The most kinds of roles that are drawn. A protocol has at most this many.
pub(crate) const KINDS: usize = 16;

/// The figures that every moment has, by their names in JSON; those of roles follow.
pub(crate) const NAMES: [&str; 12] = [
    "read",
    "write",
    "transaction",
    "admin",
    "failed",
    "read_p50_us",
    "read_p99_us",
    "write_p50_us",
    "write_p99_us",
    "sync_p99_us",
    "lag_slots",
    "busiest_loop",
];

/// Figures by the order of [`NAMES`], then the utilization of the busiest instance of each kind of
/// role. Not a number: unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures(pub(crate) [f32; NAMES.len() + KINDS]);

impl Default for Figures {
    fn default() -> Self {
        Figures([f32::NAN; NAMES.len() + KINDS])
    }
}

/// The family of reads and that of writes, by their places.
const READ: usize = 0;
const WRITE: usize = 1;

impl Figures {
    /// Those of nodes with these rates. `kinds` are the protocol's, `lag` is the largest.
    pub(crate) fn of(nodes: &[&Rates], kinds: &[String], lag: Option<u64>) -> Self {
        let mut figures = Figures::default();
        let Figures(values) = &mut figures;
        if nodes.is_empty() {
            return figures;
        }
        let sum = |of: &dyn Fn(&Rates) -> f64| nodes.iter().map(|rates| of(rates)).sum::<f64>();
        for (place, value) in values.iter_mut().enumerate().take(FAMILIES.len()) {
            *value = sum(&|rates| rates.commands[place]) as f32;
        }
        values[4] = sum(&|rates| rates.failed) as f32;
        let times = |family: usize| together(nodes.iter().map(|it| &it.service[family]));
        let quantile =
            |counts: &Counts, share| counts.quantile(share).map_or(f32::NAN, |us| us as f32);
        let (reads, writes) = (times(READ), times(WRITE));
        values[5] = quantile(&reads, 0.5);
        values[6] = quantile(&reads, 0.99);
        values[7] = quantile(&writes, 0.5);
        values[8] = quantile(&writes, 0.99);
        // The slowest disk, not all of them together.
        let syncs = nodes.iter().map(|rates| quantile(&rates.syncs, 0.99));
        values[9] = syncs.fold(f32::NAN, f32::max);
        values[10] = lag.map_or(f32::NAN, |lag| lag as f32);
        let loops = nodes.iter().flat_map(|rates| &rates.loops);
        values[11] = loops.map(|(_, busy)| *busy as f32).fold(f32::NAN, f32::max);
        for (kind, value) in kinds.iter().zip(&mut values[NAMES.len()..]) {
            let roles = nodes.iter().flat_map(|rates| &rates.roles);
            let of_kind = roles.filter(|(role, ..)| role == kind);
            *value = of_kind
                .map(|(.., busy)| *busy as f32)
                .fold(f32::NAN, f32::max);
        }
        figures
    }
}

/// The counts of several nodes.
pub(crate) fn together<'a>(nodes: impl Iterator<Item = &'a Counts>) -> Counts {
    nodes.fold(Counts::default(), |mut all, counts| {
        all.add(counts);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_added_and_utilizations_are_those_of_the_busiest() {
        let rates = |writes, busy| Rates {
            loops: vec![(0, busy)],
            roles: vec![("b".into(), 0, busy / 2.0), ("b".into(), 1, busy / 4.0)],
            commands: [1.0, writes, 0.0, 0.0],
            ..Rates::default()
        };
        let (one, other) = (rates(10.0, 0.5), rates(30.0, 0.25));
        let kinds = ["a".to_owned(), "b".to_owned()];
        let Figures(found) = Figures::of(&[&one, &other], &kinds, Some(7));
        assert_eq!(found[..5], [2.0, 40.0, 0.0, 0.0, 0.0]);
        assert!(
            found[5..10].iter().all(|value| value.is_nan()),
            "nothing was timed"
        );
        assert_eq!(found[10..12], [7.0, 0.5]);
        assert!(found[12].is_nan(), "there is no instance of the first kind");
        assert_eq!(found[13], 0.25);
        assert!(
            Figures::of(&[], &kinds, None)
                .0
                .iter()
                .all(|value| value.is_nan())
        );
    }
}
