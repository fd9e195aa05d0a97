//! What is done to keys and what answers are right: each key as one thread of execution would keep
//! it.
//!
//! A key is of one kind for good. A **register** takes values that are written once each, a
//! **counter** numbers that are added, a **list** tags that are appended once each. Everything that
//! a client may be told is thereby traceable to the writes that explain it, and a check of one
//! key's history is fast.

use ionian_kernel::time::Timestamp;
use ionian_sim::model::Specification;
use std::fmt;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Register,
    Counter,
    List,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Register, Kind::Counter, Kind::List];
}

/// One command on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Get,
    /// SET of the register's value of this number.
    Set(u32),
    /// SETNX.
    SetIfAbsent(u32),
    /// GETSET.
    Swap(u32),
    /// WATCH, GET, MULTI, SET, EXEC: writes `new` if the register is what was seen.
    Exchange {
        seen: State,
        new: u32,
    },
    /// INCRBY, or DECRBY of a negative number.
    Add(i32),
    /// APPEND of the tag of this number.
    Append(u32),
}

/// What a key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum State {
    #[default]
    Absent,
    /// The register's value of this number.
    Value(u32),
    /// A counter.
    Number(i64),
    /// A list: how many bytes, and their digest.
    Text { length: u32, digest: u64 },
}

/// The reply that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Holds(State),
    Was(bool),
    Number(i64),
    Length(u32),
}

/// The longest padding of a register's value: some volume for logs and snapshots.
const PADDING: u32 = 240;

/// The bytes of the register's value of this number: the number, and a padding of which it decides
/// the length.
pub(crate) fn value(number: u32) -> Vec<u8> {
    let mut bytes = format!("{number}:").into_bytes();
    bytes.resize(
        bytes.len() + (number.wrapping_mul(2_654_435_761) % PADDING) as usize,
        b'.',
    );
    bytes
}

/// The bytes that are appended as the tag of this number.
pub(crate) fn tag(number: u32) -> Vec<u8> {
    format!("{number};").into_bytes()
}

/// A list's state after more bytes (FNV-1a: there is no adversary).
fn extend(state: State, bytes: &[u8]) -> State {
    let (length, digest) = match state {
        State::Text { length, digest } => (length, digest),
        _ => (0, 0xcbf2_9ce4_8422_2325),
    };
    let digest = bytes.iter().fold(digest, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    State::Text {
        length: length + bytes.len() as u32,
        digest,
    }
}

/// Reads what GET told of a key of this kind.
///
/// # Errors
/// Says what the bytes are when no write can have left them.
pub(crate) fn read(kind: Kind, bytes: Option<&[u8]>) -> Result<State, String> {
    let Some(bytes) = bytes else {
        return Ok(State::Absent);
    };
    let text = std::str::from_utf8(bytes).ok();
    let state = match kind {
        Kind::Register => {
            let number = text.and_then(|text| text.split_once(':')?.0.parse().ok());
            number
                .filter(|number| value(*number) == bytes)
                .map(State::Value)
        }
        Kind::Counter => text.and_then(|text| text.parse().ok()).map(State::Number),
        Kind::List => Some(extend(State::Absent, bytes)),
    };
    state.ok_or_else(|| {
        format!(
            "no client wrote what was read: \"{}\"",
            bytes.escape_ascii()
        )
    })
}

/// One key; see the module.
pub(crate) struct Model;

impl Specification for Model {
    type Action = Action;
    type Answer = Answer;
    type State = State;

    fn is_read(action: &Action) -> bool {
        *action == Action::Get
    }

    fn apply(state: &mut State, action: &Action, _: Timestamp) -> Answer {
        match *action {
            Action::Get => Answer::Holds(*state),
            Action::Set(number) => {
                *state = State::Value(number);
                Answer::Done
            }
            Action::SetIfAbsent(number) => {
                let absent = *state == State::Absent;
                if absent {
                    *state = State::Value(number);
                }
                Answer::Was(absent)
            }
            Action::Swap(number) => Answer::Holds(std::mem::replace(state, State::Value(number))),
            Action::Exchange { seen, new } => {
                let same = *state == seen;
                if same {
                    *state = State::Value(new);
                }
                Answer::Was(same)
            }
            Action::Add(number) => {
                let before = if let State::Number(before) = *state {
                    before
                } else {
                    0
                };
                *state = State::Number(before + i64::from(number));
                Answer::Number(before + i64::from(number))
            }
            Action::Append(number) => {
                *state = extend(*state, &tag(number));
                let State::Text { length, .. } = *state else {
                    unreachable!("a list was extended")
                };
                Answer::Length(length)
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Get => f.write_str("get"),
            Action::Set(number) => write!(f, "set {number}"),
            Action::SetIfAbsent(number) => write!(f, "setnx {number}"),
            Action::Swap(number) => write!(f, "getset {number}"),
            Action::Exchange { seen, new } => write!(f, "if {seen} set {new}"),
            Action::Add(number) => write!(f, "add {number}"),
            Action::Append(number) => write!(f, "append {number}"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Absent => f.write_str("nothing"),
            State::Value(number) => write!(f, "value {number}"),
            State::Number(number) => write!(f, "{number}"),
            State::Text { length, digest } => write!(f, "{length} bytes {digest:016x}"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => f.write_str("ok"),
            Answer::Holds(state) => state.fmt(f),
            Answer::Was(was) => was.fmt(f),
            Answer::Number(number) => number.fmt(f),
            Answer::Length(length) => write!(f, "{length} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_and_unwritten_values_do_not() {
        for number in 0..500 {
            assert_eq!(
                read(Kind::Register, Some(&value(number))),
                Ok(State::Value(number))
            );
        }
        let mut short = value(77);
        short.pop();
        assert!(
            read(Kind::Register, Some(&short))
                .unwrap_err()
                .contains("no client wrote")
        );
        assert!(read(Kind::Counter, Some(b"1x")).is_err());
        assert_eq!(read(Kind::Counter, Some(b"-3")), Ok(State::Number(-3)));
        assert_eq!(read(Kind::List, None), Ok(State::Absent));
    }

    #[test]
    fn a_list_that_is_read_equals_the_one_that_was_appended_to() {
        let mut state = State::default();
        assert_eq!(
            Model::apply(&mut state, &Action::Append(12), Timestamp(0)),
            Answer::Length(3)
        );
        assert_eq!(
            Model::apply(&mut state, &Action::Append(7), Timestamp(0)),
            Answer::Length(5)
        );
        assert_eq!(read(Kind::List, Some(b"12;7;")), Ok(state));
        assert_ne!(read(Kind::List, Some(b"7;12;")), Ok(state));
    }
}
