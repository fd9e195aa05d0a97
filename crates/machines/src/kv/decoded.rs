//! A compound as the machine executes it, borrowed from the log.

use super::command::Op;

/// A compound as it lies in the log.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded<'a> {
    Pipeline(Ops<'a>),
    Transaction {
        watched: Vec<(&'a [u8], u64)>,
        commands: Vec<Op<&'a [u8]>>,
    },
    Versions(Vec<&'a [u8]>),
    SetUser {
        name: &'a [u8],
        rules: Vec<&'a [u8]>,
    },
    DeleteUsers(Vec<&'a [u8]>),
    Users {
        known: u64,
    },
    SetLimit(u64),
    Measure,
    Room,
}

/// The commands of a pipeline. Most have but one, for which nothing is allocated.
#[derive(Debug, PartialEq)]
pub(super) enum Ops<'a> {
    One(Op<&'a [u8]>),
    Many(Vec<Op<&'a [u8]>>),
}

impl<'a> Ops<'a> {
    pub(super) fn as_slice(&self) -> &[Op<&'a [u8]>] {
        match self {
            Ops::One(op) => std::slice::from_ref(op),
            Ops::Many(ops) => ops,
        }
    }
}

impl Decoded<'_> {
    /// The commands of clients in it.
    pub(super) fn commands(&self) -> &[Op<&[u8]>] {
        match self {
            Decoded::Pipeline(commands) => commands.as_slice(),
            Decoded::Transaction { commands, .. } => commands,
            _ => &[],
        }
    }

    pub(super) fn is_read(&self) -> bool {
        match self {
            Decoded::Pipeline(_) | Decoded::Transaction { .. } => {
                self.commands().iter().all(Op::is_read)
            }
            Decoded::Versions(_) | Decoded::Users { .. } | Decoded::Room => true,
            Decoded::SetUser { .. }
            | Decoded::DeleteUsers(_)
            | Decoded::SetLimit(_)
            | Decoded::Measure => false,
        }
    }
}
