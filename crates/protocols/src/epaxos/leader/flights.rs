//! The instances that a leader has proposed and that are not decided, and the commands that wait.

use super::super::instance::{Deps, InstanceId, Space};
use super::super::message::{Choice, Payload, Replier};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorId, AcceptorSet, ClientId, LeaderId, ProxyLeaderId};
use ionian_kernel::time::Instant;
use ionian_replication::batch::{Batch, Purpose};
use ionian_replication::slot_map::{NumberMap, Seeded};

/// The most commands that wait, and their bytes. Commands beyond either are dropped, and their
/// clients send them again.
const MAX_QUEUED: usize = 1 << 14;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The most undecided instances of one leader that write a key: more of them would only make a
/// component of the dependency graph larger. The next one waits.
const PER_KEY: usize = 64;

/// The id under which a command is executed once.
type CommandId = (ClientId, Purpose, u64);

/// See the top of this file.
pub(super) struct Flights {
    space: Space,
    next: u64,
    turn: u64,
    flights: NumberMap<Flight>,
    bytes: usize,
    timers: BTreeSet<(Instant, u64)>,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// The commands in flight or waiting: a copy of one of them is not proposed again.
    open: BTreeSet<CommandId>,
    /// How many instances in flight write each key.
    writers: NumberMap<usize>,
    barriers: usize,
    pub(super) fast: u64,
    pub(super) slow: u64,
    pub(super) again: u64,
    pub(super) dropped: u64,
    pub(super) repeated: u64,
}

/// A command that waits.
pub(super) struct Queued {
    pub(super) batch: Batch,
    pub(super) replier: Replier,
}

/// An instance in flight.
pub(super) struct Flight {
    pub(super) payload: Payload,
    pub(super) replier: Replier,
    /// The fast quorum.
    pub(super) fast: AcceptorSet,
    /// Whether a member of the fast quorum is known not to answer.
    pub(super) is_slow: bool,
    /// What acceptors answered, each the first time.
    pub(super) answers: Vec<(AcceptorId, Deps)>,
    pub(super) phase: Phase,
    /// Whether some acceptor has promised another ballot.
    pub(super) refused: bool,
    pub(super) attempts: u32,
    at: Instant,
}

/// How far an instance is.
pub(super) enum Phase {
    /// Acceptors record it.
    Collecting,
    /// Its own acceptor decides it with these dependencies.
    Deciding(Deps),
    /// Acceptors vote for it with these.
    Accepting {
        deps: Deps,
        /// Those that voted.
        votes: AcceptorSet,
    },
    /// A proxy leader gets it accepted with these: the one that was asked last.
    Delegated {
        deps: Deps,
        to: Option<ProxyLeaderId>,
    },
}

impl Flight {
    /// What an acceptor had recorded, if it has answered. That of the leader's own is the past.
    pub(super) fn answer_of(&self, acceptor: AcceptorId) -> Option<&Deps> {
        let of = |(from, _): &&(AcceptorId, Deps)| *from == acceptor;
        self.answers.iter().find(of).map(|(_, deps)| deps)
    }

    /// What the leader's own acceptor had recorded, if there is one and it has answered.
    pub(super) fn past(&self, own: Option<AcceptorId>) -> Option<&Deps> {
        self.answer_of(own?)
    }

    /// The bytes of its command, and of the dependencies that acceptors answered.
    fn byte_len(&self) -> usize {
        let answers = self.answers.iter().map(|(_, deps)| deps.byte_len());
        self.payload.byte_len() + answers.sum::<usize>()
    }

    /// The acceptors that have the payload.
    pub(super) fn holders(&self) -> AcceptorSet {
        self.answers.iter().map(|(from, _)| *from).collect()
    }

    /// What a proxy leader is to get it decided to be, if it is handed to one.
    pub(super) fn dependent_choice(&self) -> Option<Choice> {
        match &self.phase {
            Phase::Delegated { deps, .. } => Some(self.choice(deps)),
            _ => None,
        }
    }

    /// What it is to be decided to be.
    pub(super) fn choice(&self, deps: &Deps) -> Choice {
        Choice::Command {
            payload: self.payload.clone(),
            deps: deps.clone(),
        }
    }
}

impl Flights {
    pub(super) fn new(leader: LeaderId, turn: u64) -> Self {
        Flights {
            space: Space { leader, life: 0 },
            next: 0,
            turn: turn >> 1,
            flights: NumberMap::default(),
            bytes: 0,
            timers: BTreeSet::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            open: BTreeSet::new(),
            writers: NumberMap::with_hasher(Seeded(turn)),
            barriers: 0,
            fast: 0,
            slow: 0,
            again: 0,
            dropped: 0,
            repeated: 0,
        }
    }

    /// The space whose instances they are.
    pub(super) fn begin(&mut self, space: Space) {
        self.space = space;
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty() && self.queue.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The number of the next instance.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Counts turns, so that the rest of fast quorums is not always the same.
    pub(super) fn turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    pub(super) fn has_barrier(&self) -> bool {
        self.barriers > 0
    }

    /// Takes a command in, unless it is there already or there is no room.
    pub(super) fn enqueue(&mut self, batch: Batch, replier: Replier) {
        let ids = command_ids(&batch);
        if ids.iter().all(|id| self.open.contains(id)) {
            self.repeated += 1;
        } else if !self.has_room(batch.byte_len()) {
            self.dropped += 1;
        } else {
            self.open.extend(ids);
            self.queued_bytes += batch.byte_len();
            self.queue.push_back(Queued { batch, replier });
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        let fits = self.queued_bytes + bytes <= MAX_QUEUED_BYTES;
        self.queue.is_empty() || (self.queue.len() < MAX_QUEUED && fits)
    }

    /// The command that waits first, if the window has room for it: `slots` instances with `bytes`,
    /// or one alone.
    pub(super) fn admit(&mut self, slots: usize, bytes: usize) -> Option<Queued> {
        let first = self.queue.front()?;
        let fits = self.flights.len() < slots && self.bytes + first.batch.byte_len() <= bytes;
        if !fits && !self.flights.is_empty() {
            return None;
        }
        let first = self.queue.pop_front()?;
        self.queued_bytes -= first.batch.byte_len();
        Some(first)
    }

    /// Puts a command back: too much is in flight on one of its keys.
    pub(super) fn put_back(&mut self, queued: Queued) {
        self.queued_bytes += queued.batch.byte_len();
        self.queue.push_front(queued);
    }

    /// Whether too much is in flight on one of the keys that a command writes.
    pub(super) fn is_crowded(&self, payload: &Payload) -> bool {
        let crowded = |key: &u64| self.writers.get(key).is_some_and(|count| *count >= PER_KEY);
        payload.footprint.writes.iter().any(crowded)
    }

    /// Begins an instance.
    pub(super) fn insert(
        &mut self,
        payload: Payload,
        replier: Replier,
        (fast, is_slow): (AcceptorSet, bool),
        at: Instant,
    ) -> InstanceId {
        let number = self.next;
        self.next += 1;
        self.bytes += payload.byte_len();
        self.barriers += usize::from(payload.is_barrier());
        for key in &payload.footprint.writes {
            *self.writers.entry(*key).or_default() += 1;
        }
        let flight = Flight {
            payload,
            replier,
            fast,
            is_slow,
            answers: Vec::new(),
            phase: Phase::Collecting,
            refused: false,
            attempts: 0,
            at,
        };
        self.flights.insert(number, flight);
        self.timers.insert((at, number));
        InstanceId {
            space: self.space,
            number,
        }
    }

    /// An acceptor has recorded an instance; says whether that is its first answer.
    pub(super) fn answered(&mut self, id: InstanceId, from: AcceptorId, deps: Deps) -> bool {
        let Some(flight) = self.get_mut(id).filter(|it| it.answer_of(from).is_none()) else {
            return false;
        };
        let bytes = deps.byte_len();
        flight.answers.push((from, deps));
        self.bytes += bytes;
        true
    }

    pub(super) fn get_mut(&mut self, id: InstanceId) -> Option<&mut Flight> {
        let number = id.number;
        (id.space == self.space).then(|| self.flights.get_mut(&number))?
    }

    pub(super) fn contains(&self, id: InstanceId) -> bool {
        id.space == self.space && self.flights.contains_key(&id.number)
    }

    /// An acceptor has lost its memory: what it had answered counts no more.
    pub(super) fn forget_answers(&mut self, of: AcceptorId) {
        for flight in self.flights.values_mut() {
            self.bytes -= flight.answer_of(of).map_or(0, Deps::byte_len);
            flight.answers.retain(|(from, _)| *from != of);
        }
    }

    /// Some acceptor has promised another ballot of an instance.
    pub(super) fn refused(&mut self, id: InstanceId) {
        if let Some(flight) = self.get_mut(id) {
            flight.refused = true;
        }
    }

    /// An instance is decided, or nothing any more.
    pub(super) fn remove(&mut self, id: InstanceId) -> Option<Flight> {
        if id.space != self.space {
            return None;
        }
        let flight = self.flights.remove(&id.number)?;
        self.timers.remove(&(flight.at, id.number));
        self.bytes -= flight.byte_len();
        self.barriers -= usize::from(flight.payload.is_barrier());
        for key in &flight.payload.footprint.writes {
            let count = self.writers.get_mut(key).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.writers.remove(key);
            }
        }
        for id in command_ids(&flight.payload.value.batch) {
            self.open.remove(&id);
        }
        Some(flight)
    }

    /// An instance whose time has come.
    pub(super) fn overdue(&self, now: Instant) -> Option<InstanceId> {
        let (at, number) = *self.timers.first()?;
        (at <= now).then_some(InstanceId {
            space: self.space,
            number,
        })
    }

    /// When an instance is to be looked at again.
    pub(super) fn postpone(&mut self, id: InstanceId, at: Instant) {
        let Some(flight) = self.flights.get_mut(&id.number) else {
            return;
        };
        self.timers.remove(&(flight.at, id.number));
        flight.at = at;
        self.timers.insert((at, id.number));
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn invariants(&self) {
        let bytes = self.flights.values().map(Flight::byte_len);
        assert_eq!(
            bytes.sum::<usize>(),
            self.bytes,
            "a leader lost count of its bytes"
        );
        assert_eq!(
            self.timers.len(),
            self.flights.len(),
            "no timer for an instance"
        );
        let queued = self.queue.iter().map(|queued| queued.batch.byte_len());
        assert_eq!(
            queued.sum::<usize>(),
            self.queued_bytes,
            "a leader lost count of its queue"
        );
        assert!(self.flights.keys().all(|number| *number < self.next));
    }
}

fn command_ids(batch: &Batch) -> Vec<CommandId> {
    let commands = batch.commands();
    commands
        .map(|command| (command.client, command.purpose, command.number))
        .collect()
}
