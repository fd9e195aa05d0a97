//! The instances that a leader has proposed and that are not decided.

use super::super::instance::{Deps, InstanceId, Space};
use super::super::message::{Choice, Payload, Replier};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorId, AcceptorSet, LeaderId, ProxyLeaderId};
use ionian_kernel::time::Instant;
use ionian_replication::slot_map::NumberMap;

/// See the top of this file.
pub(super) struct Flights {
    space: Space,
    next: u64,
    turn: u64,
    flights: NumberMap<Flight>,
    bytes: usize,
    timers: BTreeSet<(Instant, u64)>,
    pub(super) fast: u64,
    pub(super) slow: u64,
    pub(super) again: u64,
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
            fast: 0,
            slow: 0,
            again: 0,
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
        self.flights.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
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
        assert!(self.flights.keys().all(|number| *number < self.next));
    }
}
