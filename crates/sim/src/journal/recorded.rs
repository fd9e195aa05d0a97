//! The copies of the replicated machine, wrapped so that each reports to the journal.

use super::{ALL, EVERYTHING, LONE, MachineCopy, Mark, Order, SharedJournal, open};
use crate::machine::SimMachine;
use crate::model::Model;
use crate::scenario::Canary;
use crate::trace::{hash_bytes, mix};
use bytes::Bytes;
use ionian_kernel::layout::Address;
use ionian_kernel::machine::{Footprint, NotARead, Parts, RestoreError, StateMachine};
use ionian_kernel::protocol::Description;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Reader, Wire, WireError};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A copy of the replicated machine that reports to the journal.
pub(crate) struct Recorded {
    journal: SharedJournal,
    copy: usize,
    order: Order,
    canary: Canary,
    machine: Box<dyn StateMachine>,
    /// Which part of the copy it is, if another than the whole.
    part: Option<usize>,
    /// The time in the log of the last command.
    now: Timestamp,
}

impl Recorded {
    /// A new, empty copy of the model's machine.
    pub(crate) fn new(
        journal: &SharedJournal,
        name: String,
        model: &impl Model,
        canary: Canary,
    ) -> Self {
        let mut opened = open(journal);
        opened.copies.push(MachineCopy {
            name,
            marks: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            alive: true,
        });
        let (copy, order) = (opened.copies.len() - 1, opened.order);
        Recorded {
            journal: Arc::clone(journal),
            copy,
            order,
            canary,
            machine: model.machine(),
            part: None,
            now: Timestamp(0),
        }
    }

    /// The copy of an instance of `node` in its incarnation `life`. One of an instance that
    /// executes nothing is not recorded: it has only to say what commands touch.
    pub(crate) fn of(
        protocol: &Description,
        (node, address, life): (usize, Address, u32),
        journal: &SharedJournal,
        model: &impl Model,
        canary: Canary,
    ) -> Box<dyn StateMachine> {
        let Address { kind, index } = address;
        if !protocol.executors.contains(&kind) {
            return model.machine();
        }
        let name = protocol.kinds[kind as usize];
        let name = format!("{name}{index} of n{node}, life {life},");
        Box::new(Recorded::new(journal, name, model, canary))
    }

    /// The streams of a command, and whether all copies execute it at the same time in the log.
    fn streams(&self, command: &[u8]) -> (Vec<u64>, bool) {
        if self.order == Order::Total {
            return (vec![ALL], true);
        }
        let mut footprint = Footprint::default();
        self.machine.footprint(command, &mut footprint);
        let mut streams: Vec<u64> = match footprint.everything {
            true => vec![EVERYTHING],
            false => Vec::new(),
        };
        streams.extend(footprint.writes.iter().map(|key| mix(*key, 1) & !LONE));
        if streams.is_empty() {
            streams.push(hash_bytes(command) | LONE);
        }
        (streams, footprint.timed)
    }
}

impl StateMachine for Recorded {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let before = reply.len();
        self.now = now;
        self.machine.apply(now, command, reply);
        let (streams, is_timed) = self.streams(command);
        open(&self.journal).executed(
            self.copy,
            streams,
            (now, is_timed),
            hash_bytes(command),
            &reply[before..],
        );
        tell_time(now, reply);
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let now = if self.canary == Canary::ReadsAhead {
            Timestamp(now.0 + READS_AHEAD_MS)
        } else {
            now
        };
        assert!(now >= self.now, "a query at a time before the state's");
        self.machine.read(now, query, reply)?;
        tell_time(now, reply);
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let marks: Vec<Mark> = open(&self.journal).copies[self.copy]
            .marks
            .values()
            .copied()
            .collect();
        marks.encode(out);
        self.machine.snapshot(out);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let snapshot = Bytes::copy_from_slice(snapshot);
        let mut reader = Reader::new(&snapshot);
        let explain = |error: WireError| RestoreError(error.to_string());
        let marks = Vec::decode(&mut reader).map_err(explain)?;
        let rest = reader.remaining();
        self.machine.restore(reader.take(rest).map_err(explain)?)?;
        open(&self.journal).restored(self.copy, marks);
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        self.machine.footprint(command, footprint);
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        self.machine.parts().is_some().then_some(self)
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let deadline = self.machine.next_deadline(now);
        let part = self.part.unwrap_or(WHOLE);
        let deadlines = &mut open(&self.journal).copies[self.copy].deadlines;
        match deadline {
            Some(deadline) => drop(deadlines.insert(part, deadline)),
            None => drop(deadlines.remove(&part)),
        }
        deadline.filter(|_| self.canary != Canary::HidesDeadlines)
    }
}

impl Parts for Recorded {
    fn divide(&mut self, count: usize) -> usize {
        self.machine.parts().map_or(1, |parts| parts.divide(count))
    }

    fn part_of(&mut self, key: u64) -> usize {
        self.machine.parts().map_or(0, |parts| parts.part_of(key))
    }

    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        let machine = self.machine.parts().expect("it has parts").lend(part);
        Box::new(Recorded {
            journal: Arc::clone(&self.journal),
            copy: self.copy,
            order: self.order,
            canary: self.canary,
            machine,
            part: Some(part),
            now: self.now,
        })
    }

    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let mut lent = lent.downcast::<Recorded>().expect("a part of it");
        self.now = self.now.max(lent.now);
        let machine = std::mem::replace(&mut lent.machine, Box::new(SimMachine::default()));
        self.machine
            .parts()
            .expect("it has parts")
            .take_back(part, machine);
        open(&self.journal).copies[self.copy]
            .deadlines
            .remove(&part);
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if self.part.is_none() {
            open(&self.journal).gone(self.copy);
        }
    }
}

/// The place of the whole among the deadlines of a copy.
const WHOLE: usize = usize::MAX;

/// Appends to a reply the time that the machine received, because the answers of a service with
/// time can be checked only with it.
fn tell_time(now: Timestamp, reply: &mut Vec<u8>) {
    reply.extend_from_slice(&now.0.to_le_bytes());
}

/// Removes the time from a reply.
pub(crate) fn told_time(reply: &[u8]) -> Result<(&[u8], Timestamp), String> {
    let (reply, time) = reply
        .split_last_chunk()
        .ok_or("the reply is shorter than a time")?;
    Ok((reply, Timestamp(u64::from_le_bytes(*time))))
}

/// How far ahead of the log's time [`Canary::ReadsAhead`] reads.
const READS_AHEAD_MS: u64 = 50;
