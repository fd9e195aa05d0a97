//! Which faults come when: decided by the seed alone.

use crate::loss::Loss;
use ionian_kernel::random::Random;
use std::time::Duration;

/// What is done to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL to these nodes at once; each is started again after its own time.
    Kill(Vec<(usize, Duration)>),
    /// SIGTERM to this node, which is started again after this time.
    Terminate(usize, Duration),
    /// SIGSTOP to these nodes at once; SIGCONT after each one's own time.
    Pause(Vec<(usize, Duration)>),
    /// This node is started anew on a file system that takes no file longer than this many KiB,
    /// until it notices or this time is over.
    FullDisk(usize, u64, Duration),
    /// A new node takes the place of this one.
    Replace(usize),
    /// This node's log loses a part while it is down; then the part is put back, or a new node
    /// takes its place.
    Lose(usize, Loss, Remedy),
    /// For so long nothing goes from the first of each pair of nodes to the second.
    Cut(Vec<(usize, usize)>, Duration),
    /// This node's clock jumps by this number of milliseconds; at most one clock is wrong at a
    /// time.
    Clock(usize, i64),
    /// SIGTERM to one node after the other, each of which is started again and serves before the
    /// next is stopped.
    Roll,
}

/// What is done about a log that has lost a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    PutBack,
    Replace,
}

/// Kinds of faults that a user can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// kill -9 of one node, of several, of all
    Kill,
    /// An orderly end, and a start
    Terminate,
    /// SIGSTOP, and SIGCONT after a while
    Pause,
    /// A file system that takes no more
    FullDisk,
    /// `ionian member replace`
    Replace,
    /// A log that loses a file, or its end, while its node is down
    Lose,
    /// Ways from a node to another that are cut in one direction
    Cut,
    /// A node that finds its clock wrong by up to a month when it starts
    Clock,
    /// All nodes stopped in order, one after the other, with clients that may lose no reply
    Roll,
}

/// An endless list of faults.
pub(crate) struct Schedule {
    random: Random,
    nodes: usize,
    kinds: Vec<Kind>,
    /// The mean time from one fault to the next.
    gap: Duration,
}

impl Schedule {
    pub(crate) fn new(seed: u64, nodes: usize, kinds: &[Kind], gap: Duration) -> Self {
        let kinds = kinds.to_vec();
        Schedule {
            random: Random::new(seed),
            nodes,
            kinds,
            gap,
        }
    }

    /// How long to wait, and what comes then; nothing when no kind of fault is chosen.
    pub(crate) fn next(&mut self) -> Option<(Duration, Fault)> {
        let total: u64 = self.kinds.iter().map(|kind| weight(*kind)).sum();
        if total == 0 {
            return None;
        }
        let gap = self.random.between(
            self.gap.as_micros() as u64 / 4,
            self.gap.as_micros() as u64 * 7 / 4,
        );
        let mut dice = self.random.below(total);
        let kind = self
            .kinds
            .iter()
            .copied()
            .find(|kind| match dice.checked_sub(weight(*kind)) {
                Some(rest) => {
                    dice = rest;
                    false
                }
                None => true,
            });
        Some((
            Duration::from_micros(gap),
            self.fault(kind.expect("the dice is below the total")),
        ))
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        let node = self.random.below(self.nodes as u64) as usize;
        match kind {
            Kind::Kill => Fault::Kill(self.victims()),
            Kind::Terminate => Fault::Terminate(node, self.absence()),
            Kind::Pause => Fault::Pause(self.victims()),
            Kind::FullDisk => {
                // From less than a node begins with up to a whole segment of its log, small ones as
                // often as large.
                let kib = 64 << self.random.below(9);
                Fault::FullDisk(
                    node,
                    self.random.between(kib / 2, kib),
                    Duration::from_secs(5),
                )
            }
            Kind::Replace => Fault::Replace(node),
            Kind::Lose => {
                let loss = Loss::ALL[self.random.below(Loss::ALL.len() as u64) as usize];
                let replaces = self.kinds.contains(&Kind::Replace) && self.random.once_in(2);
                Fault::Lose(
                    node,
                    loss,
                    if replaces {
                        Remedy::Replace
                    } else {
                        Remedy::PutBack
                    },
                )
            }
            Kind::Cut => self.cut(node),
            Kind::Clock => Fault::Clock(node, self.jump_ms()),
            Kind::Roll => Fault::Roll,
        }
    }

    /// Mostly one, at times some, at times all.
    fn victims(&mut self) -> Vec<(usize, Duration)> {
        let count = match self.random.below(20) {
            0..14 => 1,
            14..17 => self.random.between(1, self.nodes as u64) as usize,
            _ => self.nodes,
        };
        let mut nodes: Vec<usize> = (0..self.nodes).collect();
        let mut victims = Vec::new();
        for _ in 0..count {
            let node = nodes.swap_remove(self.random.below(nodes.len() as u64) as usize);
            victims.push((node, self.absence()));
        }
        victims
    }

    /// What goes from this node to another one, from it to all, or from all to it.
    fn cut(&mut self, node: usize) -> Fault {
        let others: Vec<usize> = (0..self.nodes).filter(|other| *other != node).collect();
        let ways = match self.random.below(4) {
            _ if others.is_empty() => Vec::new(),
            0 => others.iter().map(|other| (node, *other)).collect(),
            1 => others.iter().map(|other| (*other, node)).collect(),
            _ => vec![(
                node,
                others[self.random.below(others.len() as u64) as usize],
            )],
        };
        Fault::Cut(ways, Duration::from_millis(self.random.between(300, 8000)))
    }

    /// From a tenth of a second to a month, ahead or behind.
    fn jump_ms(&mut self) -> i64 {
        const MONTH_MS: u64 = 30 * 86_400_000;
        let most = (200_u64 << self.random.below(25)).min(MONTH_MS);
        let ms = self.random.between(most / 2, most) as i64;
        if self.random.once_in(2) { ms } else { -ms }
    }

    /// How long a node is away: short enough that no node notices, or long enough that another node
    /// leads.
    fn absence(&mut self) -> Duration {
        let (low, high) = match self.random.below(10) {
            0..5 => (10, 300),
            5..9 => (300, 1500),
            _ => (1500, 5000),
        };
        Duration::from_millis(self.random.between(low, high))
    }
}

fn weight(kind: Kind) -> u64 {
    match kind {
        Kind::Kill => 60,
        Kind::Terminate => 5,
        Kind::Pause => 18,
        Kind::Cut => 12,
        Kind::FullDisk => 12,
        Kind::Replace | Kind::Roll | Kind::Lose | Kind::Clock => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn list(seed: u64, kinds: &[Kind]) -> Vec<(Duration, Fault)> {
        let mut schedule = Schedule::new(seed, 3, kinds, Duration::from_secs(1));
        std::iter::from_fn(|| schedule.next()).take(500).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
        assert_eq!(
            list(1, Kind::value_variants()),
            list(1, Kind::value_variants())
        );
        assert_ne!(
            list(1, Kind::value_variants()),
            list(2, Kind::value_variants())
        );
        assert_eq!(list(1, &[]), []);
    }

    #[test]
    fn every_chosen_kind_comes_and_at_times_all_nodes_are_killed() {
        let faults: Vec<Fault> = list(1, Kind::value_variants())
            .into_iter()
            .map(|(_, fault)| fault)
            .collect();
        let some = |wanted: fn(&Fault) -> bool| assert!(faults.iter().any(wanted));
        some(|fault| matches!(fault, Fault::Kill(victims) if victims.len() == 3));
        some(|fault| matches!(fault, Fault::Kill(victims) if victims.len() == 1));
        some(|fault| matches!(fault, Fault::Terminate(..)));
        some(|fault| matches!(fault, Fault::Pause(victims) if victims.len() == 3));
        some(|fault| matches!(fault, Fault::FullDisk(..)));
        some(|fault| matches!(fault, Fault::Replace(_)));
        some(|fault| matches!(fault, Fault::Roll));
        some(|fault| matches!(fault, Fault::Clock(_, ms) if *ms > 3_600_000));
        some(|fault| matches!(fault, Fault::Clock(_, ms) if *ms < -3_600_000));
        some(|fault| matches!(fault, Fault::Clock(_, ms) if ms.abs() < 60_000));
        some(|fault| matches!(fault, Fault::Cut(ways, _) if ways.len() == 1));
        some(
            |fault| matches!(fault, Fault::Cut(ways, _) if ways.len() == 2 && ways[0].0 == ways[1].0),
        );
        some(
            |fault| matches!(fault, Fault::Cut(ways, _) if ways.len() == 2 && ways[0].1 == ways[1].1),
        );
        let losses: Vec<Fault> = list(1, &[Kind::Lose, Kind::Replace])
            .into_iter()
            .map(|(_, fault)| fault)
            .collect();
        for (loss, remedy) in Loss::ALL
            .into_iter()
            .flat_map(|loss| [(loss, Remedy::PutBack), (loss, Remedy::Replace)])
        {
            assert!(
                losses.iter().any(
                    |fault| matches!(fault, Fault::Lose(_, l, r) if (*l, *r) == (loss, remedy))
                )
            );
        }
        let put_back = |fault: &Fault| matches!(fault, Fault::Lose(_, _, Remedy::PutBack));
        assert!(
            list(1, &[Kind::Lose])
                .iter()
                .all(|(_, fault)| put_back(fault)),
            "nothing may be replaced"
        );
        assert!(
            list(1, &[Kind::Pause])
                .iter()
                .all(|(_, fault)| matches!(fault, Fault::Pause(_)))
        );
    }
}
