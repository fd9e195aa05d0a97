//! The keys that clients work on, each with the history of what was asked and told.
//!
//! A key is used for a number of operations and then **retired**: when nothing is under way on it
//! any more, one last read closes its history, which goes to be judged, and a new key takes its
//! place. So histories stay short and memory bounded, however long the run.

use crate::model::{Action, Answer, Kind, State};
use ionian_kernel::random::Random;

/// How many operations a key sees before it is retired.
const OPERATIONS: u32 = 64;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No answer came, or one that leaves it open: it may take effect at any later time, or never.
    Unknown,
    /// It was refused and has no effect.
    Refused,
    /// It was answered at this moment.
    Done(u64, Answer),
}

/// One operation in a key's history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) client: u16,
    pub(crate) action: Action,
    pub(crate) invoked: u64,
    pub(crate) outcome: Outcome,
}

/// A key that is not used any more, with all that was done to it. The last record is the read that
/// closed it.
#[derive(Clone, Debug)]
pub(crate) struct Retired {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) records: Vec<Record>,
    /// The bytes that the closing read told.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// A right to one operation, to be given back by [`Keys::complete`].
#[derive(Debug)]
pub(crate) struct Ticket {
    place: usize,
    record: usize,
    pub(crate) key: u64,
    pub(crate) kind: Kind,
    pub(crate) action: Action,
}

struct Live {
    id: u64,
    kind: Kind,
    begun: u32,
    in_flight: u32,
    closing: bool,
    next_number: u32,
    records: Vec<Record>,
}

/// All keys in use.
pub(crate) struct Keys {
    live: Vec<Live>,
    next_id: u64,
    moment: u64,
}

/// The kind of a key, which its number decides.
pub(crate) fn kind(id: u64) -> Kind {
    Kind::ALL[(id % Kind::ALL.len() as u64) as usize]
}

/// The name of a key in the store.
pub(crate) fn name(id: u64) -> String {
    let letter = match kind(id) {
        Kind::Register => 'r',
        Kind::Counter => 'c',
        Kind::List => 'l',
    };
    format!("{letter}{id}")
}

impl Live {
    fn new(id: u64) -> Self {
        let records = Vec::with_capacity(OPERATIONS as usize + 1);
        Live {
            id,
            kind: kind(id),
            begun: 0,
            in_flight: 0,
            closing: false,
            next_number: 1,
            records,
        }
    }
}

impl Keys {
    /// Keys for clients that have at most `in_flight` requests under way at once: enough keys that
    /// an accident which leaves the outcome of all requests open leaves few of them on any one key,
    /// few enough that clients meet, and more than requests, so that there is always one to work
    /// on.
    pub(crate) fn new(in_flight: usize) -> Self {
        let count = (in_flight + in_flight / 2).max(16) as u64;
        Keys {
            live: (0..count).map(Live::new).collect(),
            next_id: count,
            moment: 0,
        }
    }

    /// Begins an operation on some key.
    pub(crate) fn begin(&mut self, client: u16, random: &mut Random) -> Ticket {
        loop {
            let place = random.below(self.live.len() as u64) as usize;
            let live = &mut self.live[place];
            if live.begun < OPERATIONS {
                let action = live.choose(random);
                return self.issue(client, place, action);
            }
            if live.in_flight == 0 && !live.closing {
                live.closing = true;
                return self.issue(client, place, Action::Get);
            }
        }
    }

    /// Begins to write on the strength of what the client has just read.
    pub(crate) fn exchange(&mut self, client: u16, read: &Ticket, seen: State) -> Ticket {
        let number = self.live[read.place].number();
        self.issue(client, read.place, Action::Exchange { seen, new: number })
    }

    /// Whether this read may be followed by [`exchange`](Keys::exchange): the key must not be at
    /// its end.
    pub(crate) fn may_exchange(&self, ticket: &Ticket) -> bool {
        let live = &self.live[ticket.place];
        live.kind == Kind::Register && !live.closing && ticket.action == Action::Get
    }

    fn issue(&mut self, client: u16, place: usize, action: Action) -> Ticket {
        self.moment += 1;
        let live = &mut self.live[place];
        live.begun += 1;
        live.in_flight += 1;
        live.records.push(Record {
            client,
            action,
            invoked: self.moment,
            outcome: Outcome::Unknown,
        });
        Ticket {
            place,
            record: live.records.len() - 1,
            key: live.id,
            kind: live.kind,
            action,
        }
    }

    /// Ends an operation. When it was the read that closes its key, the key comes back; `bytes` is
    /// what it told.
    pub(crate) fn complete(
        &mut self,
        ticket: &Ticket,
        outcome: Ended,
        bytes: Option<&[u8]>,
    ) -> Option<Retired> {
        self.moment += 1;
        let live = &mut self.live[ticket.place];
        live.in_flight -= 1;
        live.records[ticket.record].outcome = match outcome {
            Ended::Unknown => Outcome::Unknown,
            Ended::Refused => Outcome::Refused,
            Ended::Answered(answer) => Outcome::Done(self.moment, answer),
        };
        if !live.closing {
            return None;
        }
        live.closing = false;
        if !matches!(outcome, Ended::Answered(_)) {
            return None;
        }
        let next = Live::new(self.next_id);
        self.next_id += 1;
        Some(std::mem::replace(&mut self.live[ticket.place], next).retire(bytes))
    }

    /// Begins the closing read of every key in use, once no client works any more.
    pub(crate) fn close_all(&mut self) -> Vec<Ticket> {
        let places: Vec<usize> = (0..self.live.len()).collect();
        let close = |place: usize| {
            assert_eq!(self.live[place].in_flight, 0, "clients have stopped");
            self.live[place].closing = true;
            self.issue(u16::MAX, place, Action::Get)
        };
        places.into_iter().map(close).collect()
    }

    /// The moment after all others.
    pub(crate) fn end(&self) -> u64 {
        self.moment + 1
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Unknown,
    Refused,
    Answered(Answer),
}

impl Live {
    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn choose(&mut self, random: &mut Random) -> Action {
        let dice = random.below(20);
        match self.kind {
            _ if dice < 7 => Action::Get,
            Kind::Register if dice < 15 => Action::Set(self.number()),
            Kind::Register if dice < 17 => Action::SetIfAbsent(self.number()),
            Kind::Register => Action::Swap(self.number()),
            Kind::Counter if dice < 15 => Action::Add(1),
            Kind::Counter => Action::Add(random.between(1, 200) as i32 - 100),
            Kind::List => Action::Append(self.number()),
        }
    }

    fn retire(self, bytes: Option<&[u8]>) -> Retired {
        Retired {
            id: self.id,
            kind: self.kind,
            records: self.records,
            bytes: bytes.map(<[u8]>::to_vec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_retired_when_nothing_is_under_way_on_it() {
        let (mut keys, mut random) = (Keys::new(20), Random::new(1));
        let mut retired = None;
        // One operation that is under way all the time keeps its key in use.
        let slow = keys.begin(0, &mut random);
        for _ in 0..keys.live.len() * OPERATIONS as usize * 2 {
            let ticket = keys.begin(1, &mut random);
            let answer = Ended::Answered(Answer::Holds(State::Absent));
            let Some(key) = keys.complete(&ticket, answer, Some(b"x")) else {
                continue;
            };
            assert_ne!(key.id, slow.key);
            assert_eq!(
                key.records.last().map(|record| record.action),
                Some(Action::Get)
            );
            retired = Some(key);
        }
        let key = retired.expect("many were");
        assert_eq!(key.records.len(), OPERATIONS as usize + 1);
        assert_eq!(key.bytes.as_deref(), Some(&b"x"[..]));
        assert!(keys.complete(&slow, Ended::Unknown, None).is_none());
    }

    #[test]
    fn at_the_end_every_key_is_closed_but_one_that_cannot_be_read() {
        let mut keys = Keys::new(20);
        let answer = Ended::Answered(Answer::Holds(State::Absent));
        let tickets = keys.close_all();
        assert_eq!(tickets.len(), 30);
        assert!(keys.complete(&tickets[0], Ended::Refused, None).is_none());
        assert!(
            tickets[1..]
                .iter()
                .all(|ticket| keys.complete(ticket, answer, None).is_some())
        );
    }
}
