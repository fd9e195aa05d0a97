//! How commands and answers are written in traces and reports.

use super::{Answer, Command, Deed};
use std::fmt;

/// How a key is written.
fn name(key: u64) -> String {
    match u8::try_from(key) {
        Ok(key @ 0..26) => char::from(b'a' + key).to_string(),
        _ => key.to_string(),
    }
}

/// How a list is written.
fn written(list: Option<&Vec<u64>>) -> String {
    list.map_or("nothing".into(), |list| format!("{list:?}"))
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = name(self.key);
        match &self.deed {
            Deed::Both { other } => write!(f, "get {key} and {}", name(*other)),
            Deed::Get => write!(f, "get {key}"),
            Deed::Set { value } => write!(f, "set {key} {value}"),
            Deed::SetFor { value, ms } => write!(f, "set {key} {value} for {ms}ms"),
            Deed::Append { token } => write!(f, "append {key} {token}"),
            Deed::Cas { old, new } => write!(f, "cas {key} {old} {new}"),
            Deed::Delete => write!(f, "delete {key}"),
            Deed::Move { to } => write!(f, "move {key} {}", name(*to)),
            Deed::Clear => f.write_str("clear"),
            Deed::Rubbish { bytes } => write!(f, "rubbish of {bytes} bytes"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::List(list) => f.write_str(&written(list.as_ref())),
            Answer::Lists { one, other } => {
                write!(
                    f,
                    "{} and {}",
                    written(one.as_ref()),
                    written(other.as_ref())
                )
            }
            Answer::Done => f.write_str("ok"),
            Answer::Length(length) => write!(f, "length {length}"),
            Answer::Was(was) => write!(f, "{was}"),
            Answer::Malformed => f.write_str("malformed"),
        }
    }
}
