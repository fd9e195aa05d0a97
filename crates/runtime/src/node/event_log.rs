//! Logs the events of a node: elections, snapshots, a slow disk. Once a second it reads what the
//! roles report, and writes one line for each role that has changed. So there are at most as many
//! lines a second as roles, and a line covers everything that happened in that second.

use crate::status::LogStatus;
use ionian_kernel::id::Round;
use ionian_kernel::layout::Address;
use ionian_kernel::status::{Agreement, Leads, Status};
use ionian_kernel::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// When records wait this long for the disk, it is logged: leaders are suspected soon after.
const SLOW: Duration = Duration::from_millis(300);

/// The time between two lines about the same problem, or about an event that recurs by design.
const APART: Duration = Duration::from_secs(60);

/// See the top of this file.
#[derive(Default)]
pub(crate) struct EventLog {
    next_check: Instant,
    leaders: BTreeMap<Address, Leader>,
    /// How many snapshots of peers each replica has installed.
    installed: BTreeMap<Address, u64>,
    /// What comparing states has shown last.
    agreements: BTreeMap<Address, Agreement>,
    /// How many snapshots this node has stored.
    snapshots: u64,
    stored: Repeated,
    slow: Repeated,
    /// Since when records wait for the disk, and the longest wait since the last second.
    waits_since: Option<Instant>,
    longest_wait: Duration,
    /// The longest such wait since the last line.
    slowest: Duration,
}

/// What a leader reported last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Leader {
    leads: Leads,
    /// Its round, in its own part of the log if the log has several.
    round: u64,
}

/// An event that is logged at most once every [`APART`].
#[derive(Default)]
struct Repeated {
    count: u64,
    next: Instant,
}

impl Repeated {
    /// How often it has happened since the last line, if another line is due.
    fn due(&mut self, now: Instant) -> Option<u64> {
        let due = self.count > 0 && self.next <= now;
        due.then(|| {
            self.next = now + APART;
            core::mem::take(&mut self.count)
        })
    }
}

impl EventLog {
    /// Records wait for the disk.
    pub(crate) fn records_wait(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// The records that waited are on disk.
    pub(crate) fn records_durable(&mut self, now: Instant) {
        if let Some(since) = self.waits_since.take() {
            self.longest_wait = self.longest_wait.max(now.since(since));
        }
    }

    /// Logs what has changed, once a second.
    pub(crate) fn log_changes(
        &mut self,
        now: Instant,
        kinds: &[&str],
        roles: &dyn Fn() -> Vec<(Address, Status)>,
        log: &dyn Fn() -> LogStatus,
    ) {
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_EVERY;
        for (address, status) in roles() {
            let lines = [
                self.leader(address, &status),
                self.replica(address, &status),
            ];
            let kind = kinds[usize::from(address.kind)];
            for line in lines.into_iter().flatten() {
                tracing::info!("{kind} {} {line}", address.index);
            }
            if let Some(line) = self.divergence(address, &status) {
                tracing::error!(id = "E0205", "{kind} {} {line}", address.index);
            }
        }
        if let Some(line) = self.snapshots(now, &log()) {
            tracing::info!("{line}");
        }
        if let Some(line) = self.disk(now) {
            tracing::warn!(id = "E0201", "{line}");
        }
    }

    fn leader(&mut self, address: Address, status: &Status) -> Option<String> {
        let leads = status.leads?;
        let round = status.round.map_or(0, Round::number);
        let now = Leader { leads, round };
        let before = self.leaders.insert(address, now).unwrap_or_default();
        let stood = leads.elections.saturating_sub(before.leads.elections);
        let text = match (before.leads.own, leads.own) {
            (false, true) => format!("leads, in round {round}"),
            (true, false) => {
                format!(
                    "leads no longer: round {round} belongs to another leader, or no write quorum answers"
                )
            }
            (true, true) if round != before.round => format!("leads in another round, {round}"),
            (false, false) if stood > 0 => {
                format!("is a candidate and does not lead yet, in round {round}")
            }
            (false, false) if round != before.round => {
                format!("follows another leader, in round {round}")
            }
            _ if leads.parts() != before.leads.parts() => {
                format!("leads {} parts of the log", leads.parts())
            }
            _ => return None,
        };
        let elections = if stood > 1 {
            format!(", after {stood} elections in a second")
        } else {
            String::new()
        };
        Some(format!("{text}{elections}"))
    }

    fn replica(&mut self, address: Address, status: &Status) -> Option<String> {
        let installed = status.snapshots_installed?;
        let before = self.installed.insert(address, installed).unwrap_or(0);
        let executed = status.executed.unwrap_or_default().0;
        (installed > before).then(|| {
            format!("was far behind and has installed a peer's snapshot: it is at slot {executed}")
        })
    }

    fn divergence(&mut self, address: Address, status: &Status) -> Option<&'static str> {
        let shown = status.agreement?;
        let before = self.agreements.insert(address, shown).unwrap_or_default();
        (shown > before).then_some(match shown {
            Agreement::Equal => return None,
            Agreement::OthersDiverged => {
                "has executed the log with other results than a minority of the replicas, which have diverged"
            }
            Agreement::Undecided => {
                "has executed the log with other results than another replica, and no result has a majority"
            }
            Agreement::Diverged => {
                "has diverged: most replicas have executed the log with other results. It does nothing more until the node restarts"
            }
        })
    }

    fn snapshots(&mut self, now: Instant, log: &LogStatus) -> Option<String> {
        self.stored.count += log.snapshots - core::mem::replace(&mut self.snapshots, log.snapshots);
        let count = self.stored.due(now)?;
        let mib = log.bytes >> 20;
        Some(match count {
            1 => format!("a snapshot of this node's state is on disk; the log holds {mib} MiB"),
            _ => format!(
                "{count} snapshots of this node's state are on disk since the last such line; the log holds {mib} MiB"
            ),
        })
    }

    fn disk(&mut self, now: Instant) -> Option<String> {
        let under_way = self
            .waits_since
            .map_or(Duration::ZERO, |since| now.since(since));
        let longest = core::mem::take(&mut self.longest_wait).max(under_way);
        if longest >= SLOW {
            self.slow.count += 1;
            self.slowest = self.slowest.max(longest);
        }
        let count = self.slow.due(now)?;
        let seconds = core::mem::take(&mut self.slowest).as_secs_f64();
        Some(format!(
            "the disk is slow: records have waited {seconds:.1} s to be written, which was too long in {count} of the seconds since the last such line"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::{Epoch, LeaderId, Slot};

    const SECOND: u64 = 1_000_000;

    const ADDRESS: Address = Address { kind: 3, index: 1 };

    fn leader(own: bool, (count, id): (u64, u8), elections: u64) -> Status {
        let round = Round::new(Epoch::default(), count, LeaderId(id));
        Status {
            leads: Some(Leads {
                own,
                elections,
                others: 0,
            }),
            round: Some(round),
            ..Status::default()
        }
    }

    #[test]
    fn what_becomes_of_a_leader_is_told_once() {
        let mut event_log = EventLog::default();
        let mut line_for = |status| event_log.leader(ADDRESS, &status).unwrap_or_default();
        assert_eq!(line_for(leader(false, (0, 0), 0)), "");
        assert_eq!(
            line_for(leader(false, (1, 0), 0)),
            "follows another leader, in round 64"
        );
        assert_eq!(line_for(leader(false, (1, 0), 0)), "");
        assert_eq!(
            line_for(leader(false, (3, 1), 2)),
            "is a candidate and does not lead yet, in round 193, after 2 elections in a second"
        );
        assert_eq!(line_for(leader(true, (3, 1), 2)), "leads, in round 193");
        assert_eq!(
            line_for(leader(true, (4, 1), 3)),
            "leads in another round, 257"
        );
        assert_eq!(
            line_for(leader(false, (5, 0), 3)),
            "leads no longer: round 320 belongs to another leader, or no write quorum answers"
        );
        let mut both = leader(true, (5, 1), 4);
        assert_eq!(line_for(both.clone()), "leads, in round 321");
        both.leads.as_mut().unwrap().others = 1;
        assert_eq!(line_for(both), "leads 2 parts of the log");
    }

    #[test]
    fn snapshots_are_told_of_once_a_minute_and_those_of_peers_always() {
        let mut event_log = EventLog::default();
        let mut stored = |second, snapshots| {
            let log = LogStatus {
                snapshots,
                bytes: 5 << 20,
                ..LogStatus::default()
            };
            event_log
                .snapshots(Instant(second * SECOND), &log)
                .unwrap_or_default()
        };
        assert_eq!(stored(1, 0), "");
        assert_eq!(
            stored(2, 1),
            "a snapshot of this node's state is on disk; the log holds 5 MiB"
        );
        assert_eq!([stored(3, 2), stored(61, 9)], ["", ""]);
        let many = "8 snapshots of this node's state are on disk since the last such line; the log holds 5 MiB";
        assert_eq!([stored(62, 9), stored(500, 9)], [many, ""]);
        let installed = Status {
            snapshots_installed: Some(1),
            executed: Some(Slot(77)),
            ..Status::default()
        };
        let line = "was far behind and has installed a peer's snapshot: it is at slot 77";
        assert_eq!(
            event_log.replica(ADDRESS, &installed).as_deref(),
            Some(line)
        );
        assert_eq!(event_log.replica(ADDRESS, &installed), None);
    }

    #[test]
    fn a_slow_disk_is_told_of_at_once_while_it_hangs_too_and_then_once_a_minute() {
        let mut event_log = EventLog::default();
        event_log.records_wait(Instant(SECOND));
        event_log.records_wait(Instant(SECOND + 1000));
        event_log.records_durable(Instant(SECOND + 299_000));
        assert_eq!(event_log.disk(Instant(2 * SECOND)), None, "that is usual");
        event_log.records_wait(Instant(2 * SECOND));
        let line = event_log.disk(Instant(5 * SECOND)).unwrap();
        assert!(
            line.contains("records have waited 3.0 s")
                && line
                    .ends_with("which was too long in 1 of the seconds since the last such line"),
            "{line}"
        );
        assert_eq!(event_log.disk(Instant(6 * SECOND)), None);
        event_log.records_durable(Instant(9 * SECOND));
        assert_eq!(event_log.disk(Instant(9 * SECOND)), None);
        let line = event_log.disk(Instant(70 * SECOND)).unwrap();
        assert!(line.contains("records have waited 7.0 s"), "{line}");
        assert_eq!(event_log.disk(Instant(500 * SECOND)), None);
    }
}
