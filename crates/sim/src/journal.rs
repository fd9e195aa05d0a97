//! A record of what every copy of the replicated machine executed. Each copy is wrapped: the
//! wrapper reports every command, and fails if the copy's order differs from that of another copy.

use crate::trace::{hash_bytes, mix};
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire_struct;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

mod recorded;

pub(crate) use recorded::{Recorded, told_time};

/// The order in which a protocol's replicas execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// All commands in the same order everywhere.
    #[default]
    Total,
    /// The same order everywhere for commands on the same key (EPaxos, P-SMR).
    PerKey,
}

/// The stream of all commands with [`Order::Total`].
const ALL: u64 = 0;

/// The stream of the commands that write everything, if only the order per key is promised. They
/// are also in the stream of each key that was written before.
const EVERYTHING: u64 = 1;

/// Marks the streams of commands that write nothing, if only the order per key is promised: they
/// commute with each other, so each has its own stream.
const LONE: u64 = 1 << 63;

/// One executed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    pub(crate) command: u64,
    reply: u64,
    /// The time in the log at which the first copy executed it.
    pub(crate) now: Timestamp,
    /// Whether all copies execute it at the same time in the log: not if it may execute out of
    /// order.
    pub(crate) is_timed: bool,
    /// The hash of this command and all before it.
    chain: u64,
    /// The first copy that executed it.
    by: usize,
}

/// The position of one copy in one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    stream: u64,
    length: u64,
    chain: u64,
}

wire_struct! { Mark { stream, length, chain } }

#[derive(Default)]
struct MachineCopy {
    name: String,
    marks: BTreeMap<u64, Mark>,
    /// The times in the log at which the answers of its parts next change without a command.
    deadlines: BTreeMap<usize, Timestamp>,
    alive: bool,
}

/// The record of all copies.
pub(crate) struct Journal {
    order: Order,
    /// Whether a command that one copy has executed remains executed permanently. True for a
    /// replicated log; not for a single server, which may execute before it writes to disk.
    stable: bool,
    streams: BTreeMap<u64, Vec<Executed>>,
    /// Commands that only crashed copies had executed, if they may not have been stored.
    buried: BTreeMap<u64, Vec<Executed>>,
    /// The time in the log at which each command was executed.
    seen: BTreeMap<u64, Timestamp>,
    /// The latest time that any copy received.
    time: Timestamp,
    copies: Vec<MachineCopy>,
    fault: Option<Fault>,
}

/// What went wrong, with the hashes of the commands: the journal does not know their names.
pub(crate) struct Fault {
    pub(crate) twice: bool,
    what: String,
    command: Option<u64>,
    other: Option<u64>,
}

impl Fault {
    /// The fault in words; `name` returns the name of a command.
    pub(crate) fn explain(&self, name: impl Fn(u64) -> Option<String>) -> String {
        let call =
            |command: &u64| name(*command).unwrap_or_else(|| format!("command {command:016x}"));
        let command = self.command.as_ref().map_or(String::new(), call);
        let other = self.other.as_ref().map_or(String::new(), call);
        self.what
            .replace("{command}", &command)
            .replace("{other}", &other)
    }
}

/// The journal as the wrapped copies share it.
pub(crate) type SharedJournal = Arc<Mutex<Journal>>;

/// Locks a shared journal, also after a copy has panicked while it held the lock.
pub(crate) fn open(journal: &SharedJournal) -> MutexGuard<'_, Journal> {
    journal
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Journal {
    pub(crate) fn shared(order: Order, stable: bool) -> SharedJournal {
        Arc::new(Mutex::new(Journal {
            order,
            stable,
            streams: BTreeMap::new(),
            buried: BTreeMap::new(),
            seen: BTreeMap::new(),
            time: Timestamp(0),
            copies: Vec::new(),
            fault: None,
        }))
    }

    /// The first fault, once.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// The number of commands that the most advanced copy has executed.
    pub(crate) fn length(&self) -> u64 {
        self.streams
            .values()
            .map(|stream| stream.len() as u64)
            .sum()
    }

    /// The time in the log at which some copy executed this command, if any did.
    pub(crate) fn executed_at(&self, command: u64) -> Option<Timestamp> {
        self.seen.get(&command).copied()
    }

    /// The latest time in the log at which any copy executed a command.
    pub(crate) fn time(&self) -> Timestamp {
        self.time
    }

    /// Running copies that wait for time in the log to advance.
    pub(crate) fn waiting_for_time(&self) -> impl Iterator<Item = String> {
        self.copies
            .iter()
            .filter(|copy| copy.alive)
            .filter_map(|copy| {
                let Timestamp(deadline) = *copy.deadlines.values().min()?;
                Some(format!(
                    "{} waits for the log's time to reach {deadline}, it is {}",
                    copy.name, self.time.0
                ))
            })
    }

    /// The commands of each stream, in order.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &[Executed]> {
        self.streams.values().map(|stream| &stream[..])
    }

    /// Like [`streams`](Journal::streams), without the streams of commands whose position is
    /// unknown.
    pub(crate) fn ordered_streams(&self) -> impl Iterator<Item = &[Executed]> {
        self.streams
            .iter()
            .filter(|(key, _)| **key & LONE == 0)
            .map(|(_, stream)| &stream[..])
    }

    /// Running copies that have not executed everything yet.
    pub(crate) fn behind(&self) -> impl Iterator<Item = String> {
        let length = self.length();
        self.copies
            .iter()
            .filter(|copy| copy.alive)
            .filter_map(move |copy| {
                let reached: u64 = copy.marks.values().map(|mark| mark.length).sum();
                (reached < length)
                    .then(|| format!("{} has executed {reached} of {length} commands", copy.name))
            })
    }

    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// A copy has executed a command, which is in all these streams.
    fn executed(
        &mut self,
        copy: usize,
        mut streams: Vec<u64>,
        (now, is_timed): (Timestamp, bool),
        command: u64,
        reply: &[u8],
    ) {
        if streams[0] == EVERYTHING {
            let known = self.copies[copy].marks.keys();
            streams.extend(known.filter(|stream| **stream & LONE == 0));
            streams.sort_unstable();
        }
        streams.dedup();
        let entry = Executed {
            command,
            reply: hash_bytes(reply),
            now,
            is_timed,
            chain: 0,
            by: copy,
        };
        for (number, stream) in streams.into_iter().enumerate() {
            self.executed_in(stream, entry, number == 0);
        }
    }

    /// A command was executed, which is in this stream; `first`: there were no others before.
    fn executed_in(&mut self, stream: u64, entry: Executed, first: bool) {
        let Executed {
            command,
            now,
            is_timed,
            by: copy,
            ..
        } = entry;
        self.time = self.time.max(now);
        let mark = self.copies[copy].marks.entry(stream).or_insert(Mark {
            stream,
            ..Mark::default()
        });
        let chain = mix(mark.chain, command);
        let entry = Executed { chain, ..entry };
        let at = mark.length as usize;
        *mark = Mark {
            stream,
            length: mark.length + 1,
            chain,
        };
        let entries = self.streams.entry(stream).or_default();
        match entries.get(at).copied() {
            None => {
                entries.push(entry);
                if self.seen.insert(command, now).is_some() && first {
                    let what = format!(
                        "{} executed {{command}} a second time, as number {at}",
                        self.copies[copy].name
                    );
                    self.fail(Fault {
                        twice: true,
                        what,
                        command: Some(command),
                        other: None,
                    });
                }
            }
            Some(before) => {
                let now = if is_timed { now } else { before.now };
                if before
                    == (Executed {
                        by: before.by,
                        now,
                        ..entry
                    })
                {
                    return;
                }
                let (one, other) = (&self.copies[copy].name, &self.copies[before.by].name);
                let what = match (before.command == command, before.now == now) {
                    (false, _) => "{other}",
                    (true, false) => "the same at a different log time",
                    (true, true) => "the same with a different result",
                };
                let what = format!(
                    "as number {at}, {one} executed {{command}}, where {other} had executed {what}"
                );
                let fault = Fault {
                    twice: false,
                    what,
                    command: Some(command),
                    other: Some(before.command),
                };
                self.fail(fault);
            }
        }
    }

    fn restored(&mut self, copy: usize, marks: Vec<Mark>) {
        for mark in &marks {
            self.unbury(mark);
            let entries = self
                .streams
                .get(&mark.stream)
                .map_or(&[][..], |entries| &entries[..]);
            let at = (mark.length as usize).checked_sub(1);
            if at.is_some_and(|at| {
                entries
                    .get(at)
                    .is_none_or(|entry| entry.chain != mark.chain)
            }) {
                let name = &self.copies[copy].name;
                let what = format!(
                    "{name} restored a snapshot of {} commands that no copy executed",
                    mark.length
                );
                self.fail(Fault {
                    twice: false,
                    what,
                    command: None,
                    other: None,
                });
            }
        }
        self.copies[copy].marks = marks.into_iter().map(|mark| (mark.stream, mark)).collect();
    }

    fn gone(&mut self, copy: usize) {
        self.copies[copy].alive = false;
        if self.stable {
            return;
        }
        // Commands that only crashed copies executed may not have been stored: their order is open
        // again.
        for (stream, entries) in &mut self.streams {
            let alive = self.copies.iter().filter(|copy| copy.alive);
            let kept = alive
                .filter_map(|copy| copy.marks.get(stream))
                .map(|mark| mark.length)
                .max()
                .unwrap_or(0);
            let kept = (kept as usize).min(entries.len());
            if kept < entries.len() {
                self.buried.insert(*stream, entries.clone());
            }
            for entry in entries.drain(kept..) {
                self.seen.remove(&entry.command);
            }
        }
    }

    /// A snapshot proves that commands of crashed copies were stored after all.
    fn unbury(&mut self, mark: &Mark) {
        let Some(buried) = self.buried.get(&mark.stream) else {
            return;
        };
        let entries = self.streams.entry(mark.stream).or_default();
        let length = mark.length as usize;
        if entries.len() < length
            && buried
                .get(length - 1)
                .is_some_and(|entry| entry.chain == mark.chain)
        {
            for entry in &buried[entries.len()..length] {
                self.seen.insert(entry.command, entry.now);
                entries.push(*entry);
            }
        }
    }
}

/// The journal's id of a command.
pub(crate) fn command_hash(payload: &[u8]) -> u64 {
    hash_bytes(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Command, Deed, Lists};
    use crate::scenario::Canary;
    use ionian_kernel::machine::StateMachine;
    use ionian_kernel::wire::encode_all;

    fn command(id: u64, key: u64) -> Vec<u8> {
        encode_all(&Command {
            id,
            key,
            deed: Deed::Append { token: id },
        })
    }

    fn apply(copy: &mut Recorded, id: u64) {
        copy.apply(Timestamp(1), &command(id, id % 2), &mut Vec::new());
    }

    fn fault(journal: &SharedJournal) -> Option<String> {
        Some(open(journal).take_fault()?.explain(|_| Some("it".into())))
    }

    fn pair(order: Order, stable: bool) -> (SharedJournal, Recorded, Recorded) {
        let journal = Journal::shared(order, stable);
        let lists = Lists::new(2);
        let one = Recorded::new(&journal, "one".into(), &lists, Canary::None);
        let two = Recorded::new(&journal, "two".into(), &lists, Canary::None);
        (journal, one, two)
    }

    #[test]
    fn copies_must_be_prefixes_of_one_another() {
        let (journal, mut one, mut two) = pair(Order::Total, true);
        apply(&mut one, 1);
        apply(&mut one, 2);
        apply(&mut two, 1);
        assert_eq!(fault(&journal), None);
        assert_eq!(
            open(&journal).behind().collect::<Vec<_>>(),
            ["two has executed 1 of 2 commands"]
        );
        apply(&mut two, 3);
        assert!(
            fault(&journal)
                .unwrap()
                .contains("as number 1, two executed it, where one had executed it")
        );
    }

    #[test]
    fn with_an_order_by_key_other_keys_may_change_places() {
        let (journal, mut one, mut two) = pair(Order::PerKey, true);
        for (a, b) in [(1, 2), (2, 1), (3, 3)] {
            apply(&mut one, a);
            apply(&mut two, b);
        }
        assert_eq!(fault(&journal), None);
        apply(&mut one, 5);
        apply(&mut two, 7);
        assert!(fault(&journal).is_some());
    }

    #[test]
    fn a_second_execution_and_another_log_time_are_seen() {
        let (journal, mut one, mut two) = pair(Order::Total, true);
        apply(&mut one, 1);
        apply(&mut one, 1);
        assert!(fault(&journal).unwrap().contains("second time"));
        two.apply(Timestamp(2), &command(1, 1), &mut Vec::new());
        assert!(fault(&journal).unwrap().contains("different log time"));
    }

    #[test]
    fn a_snapshot_carries_its_place_in_the_journal() {
        let (journal, mut one, mut two) = pair(Order::Total, true);
        apply(&mut one, 1);
        apply(&mut one, 2);
        let mut snapshot = Vec::new();
        one.snapshot(&mut snapshot);
        two.restore(&snapshot).unwrap();
        apply(&mut two, 3);
        apply(&mut one, 3);
        assert_eq!(fault(&journal), None);
        assert_eq!(open(&journal).behind().count(), 0);
        apply(&mut two, 4);
        apply(&mut one, 5);
        assert!(fault(&journal).is_some());
    }

    #[test]
    fn a_single_server_may_lose_what_it_had_not_written_down() {
        for stable in [true, false] {
            let (journal, mut one, two) = pair(Order::Total, stable);
            apply(&mut one, 1);
            drop((one, two));
            let mut three = Recorded::new(&journal, "three".into(), &Lists::new(2), Canary::None);
            apply(&mut three, 2);
            assert_eq!(fault(&journal).is_some(), stable);
        }
    }
}
