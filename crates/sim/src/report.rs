//! What a run, or many of them, came to.

use crate::event::Micros;
use std::collections::BTreeMap;
use std::fmt;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The layout is no deployment of the protocol.
    Layout,
    /// A role panicked: an assertion, most likely.
    Panic,
    /// An invariant of the protocol did not hold.
    Invariant,
    /// Two replicas executed different things.
    Divergence,
    /// A command was executed twice, or never sent.
    ExactlyOnce,
    /// An acknowledged write was never executed.
    LostWrite,
    /// A refused command had an effect.
    Refused,
    /// Answers that no order of the operations explains.
    Linearizability,
    /// A lane saw the log go backwards.
    Sequential,
    /// A read of something that was never the state.
    Eventual,
    /// A request was answered twice, or by an answer that is none.
    Reply,
    /// A message that does not survive the codec, or goes to an instance that is not there.
    Message,
    /// A record that cannot be recovered.
    Recovery,
    /// The healed cluster did not finish its work.
    Liveness,
    /// Nothing was acknowledged in the whole run.
    Idle,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was wrong.
    pub kind: FailureKind,
    /// Told to people.
    pub message: String,
    /// When, in simulated time.
    pub at: Micros,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} at {:.3} s: {}",
            self.kind,
            self.at as f64 / 1e6,
            self.message
        )
    }
}

impl std::error::Error for Failure {}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened, counted.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Report {
            $($(#[$doc])* pub $name: u64,)*
            /// The roles' own figures by name: added up over instances and runs, and the largest.
            pub figures: BTreeMap<&'static str, (u64, u64)>,
            /// The rare [branches](ionian_kernel::protocol::Protocol::branches) of the protocol,
            /// with the number of runs in which each was taken.
            pub branches: BTreeMap<&'static str, u64>,
        }

        impl Report {
            /// Adds another run's.
            pub fn merge(&mut self, other: &Report) {
                $(self.$name += other.$name;)*
                for (name, (sum, largest)) in &other.figures {
                    let figure = self.figures.entry(name).or_default();
                    *figure = (figure.0.saturating_add(*sum), figure.1.max(*largest));
                }
                for (branch, runs) in &other.branches {
                    *self.branches.entry(branch).or_default() += runs;
                }
            }

            fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Runs.
    runs,
    /// Runs without faults.
    calm_runs,
    /// Runs that failed.
    failed_runs,
    /// Requests that clients made.
    requests,
    /// Requests that the service answered.
    acknowledged,
    /// Of these, while there were faults.
    acknowledged_under_faults,
    /// Requests refused because too many were in flight.
    refused_busy,
    /// Requests refused without effect.
    refused_unavailable,
    /// Requests given up with unknown effect.
    refused_unknown,
    /// Writes sent as reads and refused.
    refused_not_a_read,
    /// Requests refused for their size.
    refused_too_large,
    /// Requests that the state machine failed on.
    refused_failed,
    /// Changes of the membership, or their end, that an operator asked for.
    changes_asked,
    /// Epochs that began: each change that was begun, finished or abandoned is one.
    epochs,
    /// Nodes that a change removed.
    left,
    /// Requests whose own node crashed.
    lost_with_lane,
    /// Messages between nodes, each destination node counted.
    messages_sent,
    /// Bytes of these.
    bytes_sent,
    /// Messages lost, for whatever reason.
    messages_dropped,
    /// Messages that arrived twice.
    messages_duplicated,
    /// Crashes of one node.
    crashes,
    /// Times that a node stopped, or could not start, because its disk failed.
    disk_errors,
    /// Crashed nodes that came back.
    restarts,
    /// Nodes stopped for a while.
    pauses,
    /// Nodes that were to lead nothing for a while.
    drains,
    /// Partitions.
    partitions,
    /// Links made slow.
    slow_links,
    /// Cuts of some links.
    cuts,
    /// Nodes that stayed deaf or mute when all else was healed.
    left_apart,
    /// Times that messages of some kinds began to be lost or held back.
    meddlings,
    /// Nodes that lost their memory after another had lost its own and was whole again.
    crashes_in_turn,
    /// Machines that were lost for good.
    lost_machines,
    /// Machines that began with an empty disk under a number that another one had before.
    new_machines,
    /// Disks that were lost, and replaced by empty ones.
    lost_disks,
    /// Records appended.
    records,
    /// Syncs of a disk.
    fsyncs,
    /// Snapshots that roles began to store.
    snapshots,
    /// Snapshots that found no room.
    refused_snapshots,
    /// Records that a crash took with it.
    torn_records,
    /// Logs whose torn end was cut off.
    torn_logs,
    /// Logs that were found without their oldest segments.
    truncated_logs,
    /// Records that the logs of all nodes have at the end.
    kept_records,
    /// Keys whose history was too long to check.
    unchecked_keys,
    /// Events.
    events,
    /// Simulated time in microseconds.
    simulated_us,
}

impl Report {
    /// Notes that a rare branch was taken in this run.
    pub(crate) fn reach(&mut self, branch: &'static str) {
        self.branches.insert(branch, 1);
    }

    /// The rare branches that no run has taken.
    pub fn unreached(&self) -> impl Iterator<Item = &'static str> {
        self.branches
            .iter()
            .filter(|(_, runs)| **runs == 0)
            .map(|(branch, _)| *branch)
    }

    /// Notes a figure of one role instance.
    pub(crate) fn figure(&mut self, name: &'static str, value: u64) {
        let figure = self.figures.entry(name).or_default();
        *figure = (figure.0.saturating_add(value), figure.1.max(value));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pair in self.counters().chunks(2) {
            for (name, value) in pair {
                write!(f, "  {:<26}{value:>12}  ", name.replace('_', " "))?;
            }
            writeln!(f)?;
        }
        if !self.figures.is_empty() {
            writeln!(
                f,
                "  {:<36}{:>14}{:>14}",
                "figures of the roles", "sum", "largest"
            )?;
        }
        for (name, (sum, largest)) in &self.figures {
            writeln!(f, "  {name:<36}{sum:>14}{largest:>14}")?;
        }
        let reached = self.branches.values().filter(|runs| **runs > 0).count();
        if !self.branches.is_empty() {
            writeln!(
                f,
                "  {reached} of {} rare branches were reached; not reached:",
                self.branches.len()
            )?;
        }
        for branch in self.unreached() {
            writeln!(f, "    {branch}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up_and_can_be_read() {
        let mut one = Report {
            runs: 1,
            crashes: 2,
            ..Report::default()
        };
        one.figure("leader changes", 3);
        one.figure("leader changes", 1);
        let mut both = one.clone();
        both.merge(&one);
        assert_eq!(
            (both.runs, both.crashes, both.figures["leader changes"]),
            (2, 4, (8, 3))
        );
        both.branches = BTreeMap::from([("a", 0), ("b", 1)]);
        let mut third = Report::default();
        third.branches.insert("a", 0);
        third.reach("b");
        both.merge(&third);
        assert_eq!(
            (both.branches["b"], both.unreached().collect::<Vec<_>>()),
            (2, vec!["a"])
        );
        let text = both.to_string();
        assert!(text.contains("1 of 2 rare branches"), "{text}");
        assert!(
            text.contains("acknowledged under faults") && text.contains("leader changes"),
            "{text}"
        );
    }
}
