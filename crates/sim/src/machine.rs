//! The service that simulations replicate: a few keys, each with a list of numbers, some of which
//! expire.

use crate::model::{Call, Model, Others, Specification, Want};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::machine::{Footprint, NotARead, Parts, RestoreError, StateMachine};
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{decode_all, encode_all};
use ionian_kernel::{wire_enum, wire_struct};
use std::collections::BTreeMap;
use std::iter;

mod display;
mod parts;

/// The operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Returns the list.
    Get,
    /// Returns the lists of two keys, as they are at one moment.
    Both {
        /// The second key.
        other: u64,
    },
    /// Replaces the list by `value`.
    Set {
        /// The only number of the new list.
        value: u64,
    },
    /// Replaces the list by `value`, and deletes it when this much time has passed in the log.
    SetFor {
        /// The only number of the new list.
        value: u64,
        /// The lifetime in milliseconds.
        ms: u64,
    },
    /// Appends `token`; the list keeps its deadline.
    Append {
        /// The number added.
        token: u64,
    },
    /// If the list ends in `old`, replaces it by `new`.
    Cas {
        /// The number that must be last.
        old: u64,
        /// The only number of the new list.
        new: u64,
    },
    /// Deletes the key.
    Delete,
    /// Moves the list, with its deadline, to another key, whose list it replaces.
    Move {
        /// The other key.
        to: u64,
    },
    /// Deletes all keys.
    Clear,
    /// Not a command: the machine must reject it and continue. Contains this many arbitrary bytes.
    Rubbish {
        /// How many.
        bytes: u32,
    },
}

wire_enum! { Deed {
    0 => Get, 1 => Set { value }, 2 => Append { token }, 3 => Cas { old, new }, 4 => Delete, 5 => Rubbish { bytes },
    6 => SetFor { value, ms }, 7 => Both { other }, 8 => Move { to }, 9 => Clear,
} }

/// A command of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Unique in a run, so that no two commands have the same bytes.
    pub id: u64,
    /// The key.
    pub key: u64,
    /// The operation.
    pub deed: Deed,
}

wire_struct! { Command { id, key, deed } }

/// An answer of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Deed::Get`]: the list, if the key exists.
    List(Option<Vec<u64>>),
    /// To [`Deed::Set`].
    Done,
    /// To [`Deed::Append`]: the new length of the list. To [`Deed::Clear`]: how many keys there
    /// were.
    Length(u64),
    /// To [`Deed::Cas`]: whether the list ended in the old number. To [`Deed::Delete`] and
    /// [`Deed::Move`]: whether the key existed.
    Was(bool),
    /// To bytes that are not a command.
    Malformed,
    /// To [`Deed::Both`].
    Lists {
        /// The list of the first key, if it exists.
        one: Option<Vec<u64>>,
        /// That of the second.
        other: Option<Vec<u64>>,
    },
}

wire_enum! { Answer {
    0 => List(list), 1 => Done, 2 => Length(length), 3 => Was(was), 4 => Malformed, 5 => Lists { one, other },
} }

/// The key of everything that is not a command, which touches no key.
const NO_KEY: u64 = u64::MAX;

/// The value of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    list: Vec<u64>,
    /// When it expires, by the log's time; `None` if it does not.
    until: Option<Timestamp>,
}

wire_struct! { Held { list, until } }

impl Held {
    fn new(value: u64, until: Option<Timestamp>) -> Option<Held> {
        Some(Held {
            list: vec![value],
            until,
        })
    }

    fn is_gone(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The replicated machine: the value of each key. An expired value remains until the key is written
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimMachine {
    held: Values,
    /// How many parts it is divided into, by key; 0 for one.
    parts: usize,
}

/// The values of the keys that exist.
pub type Values = BTreeMap<u64, Held>;

fn parse(command: &[u8]) -> Option<Command> {
    let command: Command = decode_all(&Bytes::copy_from_slice(command)).ok()?;
    (!matches!(command.deed, Deed::Rubbish { .. })).then_some(command)
}

impl StateMachine for SimMachine {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let answer = match parse(command) {
            None => Answer::Malformed,
            Some(command) => carry_out(&mut self.held, &command, now),
        };
        reply.extend(encode_all(&answer));
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let answer = match parse(query) {
            Some(command) if Lists::is_read(&command) => look(&self.held, &command, now),
            Some(_) => return Err(NotARead),
            None => Answer::Malformed,
        };
        reply.extend(encode_all(&answer));
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let held: Vec<(u64, Held)> = self
            .held
            .iter()
            .map(|(key, held)| (*key, held.clone()))
            .collect();
        out.extend(encode_all(&held));
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let held: Vec<(u64, Held)> = decode_all(&Bytes::copy_from_slice(snapshot))
            .map_err(|error| RestoreError(error.to_string()))?;
        self.held = held.into_iter().collect();
        self.parts = 0;
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match parse(command) {
            Some(command) if Lists::is_read(&command) => {
                footprint.reads.extend(keys(&command));
            }
            Some(command) => {
                footprint.timed |= matches!(command.deed, Deed::SetFor { .. });
                footprint.everything |= Lists::others(&command) == Others::All;
                footprint.writes.extend(keys(&command));
            }
            None => {}
        }
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        Some(self)
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.held
            .values()
            .filter_map(|held| held.until)
            .filter(|until| *until > now)
            .min()
    }
}

/// The keys that a command names.
fn keys(command: &Command) -> impl Iterator<Item = u64> {
    let other = match Lists::others(command) {
        Others::One(other) => Some(other),
        Others::None | Others::All => None,
    };
    iter::once(command.key).chain(other)
}

/// What a command that changes nothing is answered.
fn look(values: &Values, command: &Command, now: Timestamp) -> Answer {
    let list = |key: &u64| {
        let held = values.get(key).filter(|held| !held.is_gone(now));
        held.map(|held| held.list.clone())
    };
    match &command.deed {
        Deed::Both { other } => Answer::Lists {
            one: list(&command.key),
            other: list(other),
        },
        _ => Answer::List(list(&command.key)),
    }
}

fn carry_out(values: &mut Values, command: &Command, now: Timestamp) -> Answer {
    for key in keys(command) {
        if values.get(&key).is_some_and(|held| held.is_gone(now)) {
            values.remove(&key);
        }
    }
    if Lists::is_read(command) {
        return look(values, command, now);
    }
    if command.deed == Deed::Clear {
        values.retain(|_, held| !held.is_gone(now));
        return Answer::Length(std::mem::take(values).len() as u64);
    }
    let mut held = values.remove(&command.key);
    if let Deed::Move { to } = command.deed {
        let exists = held.is_some();
        values.extend(held.map(|held| (to, held)));
        return Answer::Was(exists);
    }
    let answer = change(&mut held, &command.deed, now);
    if let Some(held) = held {
        values.insert(command.key, held);
    }
    answer
}

/// Carries out a command that may change the value of its key.
fn change(held: &mut Option<Held>, deed: &Deed, now: Timestamp) -> Answer {
    match deed {
        Deed::Set { value } => {
            *held = Held::new(*value, None);
            Answer::Done
        }
        Deed::SetFor { value, ms } => {
            *held = Held::new(*value, Some(Timestamp(now.0.saturating_add(*ms))));
            Answer::Done
        }
        Deed::Append { token } => {
            let list = &mut held.get_or_insert_default().list;
            list.push(*token);
            Answer::Length(list.len() as u64)
        }
        Deed::Cas { old, new } => {
            let hit = held
                .as_ref()
                .is_some_and(|held| held.list.last() == Some(old));
            if hit {
                *held = Held::new(*new, None);
            }
            Answer::Was(hit)
        }
        Deed::Delete => Answer::Was(held.take().is_some()),
        Deed::Get | Deed::Both { .. } | Deed::Move { .. } | Deed::Clear | Deed::Rubbish { .. } => {
            Answer::Malformed
        }
    }
}

/// Clients of [`SimMachine`] that collide on few keys.
pub struct Lists {
    keys: u64,
    next_id: u64,
    /// The last number written to each key, so that a compare-and-set can succeed.
    last: BTreeMap<u64, u64>,
    /// Some requests carry up to this many bytes.
    large: Option<u32>,
    /// Whether some lists expire.
    timed: bool,
    /// Whether some requests read two keys.
    pairs: bool,
    /// Whether some write two keys, or all.
    spans: bool,
}

/// Lifetimes of lists in milliseconds: some expire before any client reads them, some outlive a
/// leader.
const TERMS_MS: [u64; 4] = [1, 30, 200, 900];

impl Lists {
    /// Clients that use this many keys.
    pub fn new(keys: u64) -> Self {
        Lists {
            keys: keys.max(1),
            next_id: 1,
            last: BTreeMap::new(),
            large: None,
            timed: false,
            pairs: false,
            spans: false,
        }
    }

    /// The same clients; if `large` is set, some of their requests have up to this many bytes.
    #[must_use]
    pub fn with_large(self, large: Option<u32>) -> Self {
        Lists { large, ..self }
    }

    /// The same clients; if `timed` is set, some of the lists that they write expire.
    #[must_use]
    pub fn with_time(self, timed: bool) -> Self {
        Lists { timed, ..self }
    }

    /// The same clients; if `pairs` is set, some of their reads are of two keys.
    #[must_use]
    pub fn with_pairs(self, pairs: bool) -> Self {
        Lists { pairs, ..self }
    }

    /// The same clients; if `spans` is set, some of their writes are of two keys, or of all.
    #[must_use]
    pub fn with_spans(self, spans: bool) -> Self {
        Lists { spans, ..self }
    }

    fn call(&mut self, operation: Operation, key: u64, deed: Deed) -> Call<Command> {
        let rubbish = match deed {
            Deed::Rubbish { bytes } => bytes as usize,
            _ => 0,
        };
        if let Deed::Set { value }
        | Deed::SetFor { value, .. }
        | Deed::Append { token: value }
        | Deed::Cas { new: value, .. } = deed
        {
            self.last.insert(key, value);
        }
        let action = Command {
            id: self.next_id,
            key,
            deed,
        };
        self.next_id += 1;
        let mut payload = encode_all(&action);
        payload.resize(payload.len() + rubbish, 0xee);
        Call {
            operation,
            payload: Bytes::from(payload),
            action,
        }
    }

    fn write(&mut self, random: &mut Random) -> Call<Command> {
        if let Some(most) = self.large.filter(|_| random.once_in(5)) {
            return self.call(
                Operation::Write,
                0,
                Deed::Rubbish {
                    bytes: random.below(most.into()) as u32,
                },
            );
        }
        let (key, fresh) = (random.below(self.keys), self.next_id);
        if self.spans && random.once_in(4) {
            let to = (key + 1) % self.keys;
            let deed = match random.once_in(4) {
                true => Deed::Clear,
                false => Deed::Move { to },
            };
            return self.call(Operation::Write, key, deed);
        }
        if self.timed && random.once_in(4) {
            let ms = TERMS_MS[random.below(TERMS_MS.len() as u64) as usize];
            return self.call(Operation::Write, key, Deed::SetFor { value: fresh, ms });
        }
        let deed = match random.below(40) {
            0..10 => Deed::Set { value: fresh },
            10..28 => Deed::Append { token: fresh },
            28..34 => Deed::Cas {
                old: self.last.get(&key).copied().unwrap_or(0),
                new: fresh,
            },
            34..36 => Deed::Delete,
            36..39 => Deed::Get,
            _ => Deed::Rubbish {
                bytes: random.below(600) as u32,
            },
        };
        self.call(Operation::Write, key, deed)
    }

    fn read(&mut self, random: &mut Random, level: ReadLevel) -> Call<Command> {
        let key = random.below(self.keys);
        let deed = match self.pairs && random.once_in(3) {
            true => Deed::Both {
                other: (key + 1) % self.keys,
            },
            false => Deed::Get,
        };
        self.call(Operation::Read(level), key, deed)
    }

    /// Parses a request from a line of a play.
    ///
    /// # Errors
    /// Describes what is wrong with the line.
    pub fn parse(&mut self, text: &str) -> Result<Call<Command>, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| {
            word.parse::<u64>()
                .map_err(|_| format!("{word:?} is not a number"))
        };
        let milliseconds = |word: &str| match word.strip_suffix("ms") {
            Some(ms) => number(ms),
            None => Err(format!("{word:?} is not a time such as 20ms")),
        };
        let (operation, deed) = match words[..] {
            ["get", _] => (Operation::Write, Deed::Get),
            ["read", _] => (Operation::Read(ReadLevel::Linearizable), Deed::Get),
            ["read-both", _, other] => (
                Operation::Read(ReadLevel::Linearizable),
                Deed::Both {
                    other: self::key(other)?,
                },
            ),
            ["read-sequential", _] => (Operation::Read(ReadLevel::Sequential), Deed::Get),
            ["read-eventual", _] => (Operation::Read(ReadLevel::Eventual), Deed::Get),
            ["set", _, value, "for", ms] => (
                Operation::Write,
                Deed::SetFor {
                    value: number(value)?,
                    ms: milliseconds(ms)?,
                },
            ),
            ["set", _, value] => (
                Operation::Write,
                Deed::Set {
                    value: number(value)?,
                },
            ),
            ["append", _, token] => (
                Operation::Write,
                Deed::Append {
                    token: number(token)?,
                },
            ),
            ["cas", _, old, new] => (
                Operation::Write,
                Deed::Cas {
                    old: number(old)?,
                    new: number(new)?,
                },
            ),
            ["delete", _] => (Operation::Write, Deed::Delete),
            ["move", _, to] => (Operation::Write, Deed::Move { to: self::key(to)? }),
            // It names a key, as all do.
            ["clear", _] => (Operation::Write, Deed::Clear),
            _ => {
                return Err(format!(
                    "{text:?} is no command; known are: get K, read K, read-both K K, read-sequential K, read-eventual K, \
                     set K V, set K V for 20ms, append K T, cas K OLD NEW, delete K, move K K, clear K"
                ));
            }
        };
        let key = key(words[1])?;
        Ok(self.call(operation, key, deed))
    }
}

impl Specification for Lists {
    type Action = Command;
    type Answer = Answer;
    type State = Values;

    fn key(action: &Command) -> u64 {
        match action.deed {
            Deed::Rubbish { .. } => NO_KEY,
            _ => action.key,
        }
    }

    fn others(action: &Command) -> Others {
        match action.deed {
            Deed::Both { other } | Deed::Move { to: other } => Others::One(other),
            Deed::Clear => Others::All,
            _ => Others::None,
        }
    }

    fn is_read(action: &Command) -> bool {
        matches!(action.deed, Deed::Get | Deed::Both { .. })
    }

    fn apply(state: &mut Values, action: &Command, at: Timestamp) -> Answer {
        match action.deed {
            Deed::Rubbish { .. } => Answer::Malformed,
            _ => carry_out(state, action, at),
        }
    }
}

impl Model for Lists {
    fn next(&mut self, random: &mut Random, want: Want) -> Call<Command> {
        match want {
            Want::Write => self.write(random),
            Want::Read(level) => self.read(random, level),
            // Sometimes a write is sent as a read, which must be refused (b3).
            Want::Any(level) if random.once_in(60) => {
                let (key, value) = (random.below(self.keys), self.next_id);
                self.call(Operation::Read(level), key, Deed::Append { token: value })
            }
            Want::Any(level) if random.once_in(2) => self.read(random, level),
            Want::Any(_) => self.write(random),
        }
    }

    fn interpret(&self, action: &Command, reply: &[u8]) -> Result<Answer, String> {
        decode_all(&Bytes::copy_from_slice(reply))
            .map_err(|error| format!("the reply to {action} is malformed: {error}"))
    }

    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(SimMachine::default())
    }
}

/// The key that a play names by this word.
fn key(word: &str) -> Result<u64, String> {
    match word.as_bytes() {
        [letter @ b'a'..=b'z'] => Ok(u64::from(letter - b'a')),
        _ => Err(format!(
            "{word:?} is not a key: keys are the letters a to z"
        )),
    }
}

#[cfg(test)]
mod tests;
