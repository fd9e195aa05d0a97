//! What can be wrong with a deployment. Every text names the key, the value and what is allowed,
//! and for files the place.

use crate::words::meant;
use ionian_kernel::level::Level;
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Why a text is not a valid deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentError {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The place in the text; `None` if the parts of a correct text do not fit together.
    pub place: Option<Place>,
    /// What is wrong. Boxed, because errors are rare and a small `Result` is cheaper to move.
    pub problem: Box<Problem>,
}

/// A place in a text; both numbers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// What is wrong with a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The cluster has a level that this program does not support.
    #[error(
        "the cluster is at level {level}, this program supports {} to {}: run a release that supports level {level}",
        Level::OLDEST,
        Level::LATEST
    )]
    Level {
        /// The level of the cluster.
        level: Level,
    },
    /// The text is not TOML.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// The key does not exist.
    #[error("unknown key {key}{}; available: {known}", meant(key, known))]
    UnknownKey {
        /// The key, with its tables.
        key: String,
        /// The keys that exist there.
        known: String,
    },
    /// A key that has no default is missing.
    #[error("{key} is missing: it must be {allowed}")]
    Missing {
        /// The key, with its tables.
        key: String,
        /// What to write there.
        allowed: String,
    },
    /// The value is not allowed.
    #[error("{key} = {value}: must be {allowed}")]
    Value {
        /// The key, with its tables.
        key: String,
        /// The value, as written.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A running cluster cannot change this option.
    #[error(
        "{key} cannot change while the cluster runs: {reason}. Restart one node after the other with --set {key}=VALUE"
    )]
    AtStart {
        /// The key, with its tables.
        key: String,
        /// The reason.
        reason: String,
    },
    /// Two nodes have the same name, or two sockets the same address.
    #[error("{key} = {value:?}: already used by {by}")]
    Taken {
        /// The key, with its tables.
        key: String,
        /// The value.
        value: String,
        /// The key that has the same value.
        by: String,
    },
    /// Two nodes or instances state the same number.
    #[error("{key} = {value:?}: already used by {by}; a new node leaves out `id` and role numbers")]
    NumberTaken {
        /// The key, with its tables.
        key: String,
        /// The value.
        value: String,
        /// The key that has the same value.
        by: String,
    },
    /// A new node has the name of a member.
    #[error("{0} is already a member: choose a name that no member has")]
    IsMember(String),
    /// More than f new nodes have addresses of nodes that leave in the same change.
    #[error(
        "{key} = {value:?}: it is {by}, and free when that node has stopped; at most f = {most} new nodes may have \
         addresses of at most f nodes that leave in the same change"
    )]
    TakenDuringChange {
        /// The key, with its tables.
        key: String,
        /// The value.
        value: String,
        /// The key that has the same value in the running cluster.
        by: String,
        /// The number of new nodes that may have such addresses.
        most: usize,
    },
    /// A role has too many instances for a set.
    #[error("{key} = {role:?}: instance number {count} of this role, at most {limit} are allowed")]
    TooMany {
        /// The key of the first instance beyond the limit.
        key: String,
        /// The role.
        role: String,
        /// The number of instances up to and including this one.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// No client lane exists to submit commands.
    #[error("no client anywhere: at least one node must have a gateway or the role {role:?}")]
    NoClient {
        /// The name of the role.
        role: String,
    },
    /// A flag is not a `key=value` pair.
    #[error("override {0:?}: must be key=value, such as options.batch_commands=10")]
    NotAnOverride(String),
    /// Two settings of one command have the same key.
    #[error("{first} and {again}: an option can be given once")]
    GivenTwice {
        /// The first setting.
        first: String,
        /// The second setting.
        again: String,
    },
    /// No node has this name.
    #[error("unknown node {name:?}; available: {known}")]
    NoSuchNode {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The deployment after the change equals the present one.
    #[error("no change: the deployment is the same")]
    NothingToChange,
    /// A preset has one host for each node.
    #[error("{nodes} nodes and {hosts} hosts: there must be one host for each node")]
    OtherHosts {
        /// The number of nodes that was asked for.
        nodes: usize,
        /// The number of hosts.
        hosts: usize,
    },
    /// A preset cannot have this number of nodes.
    #[error(
        "preset {name:?} has {has} nodes, not {asked}: only presets whose nodes are all alike, such as \"colocated\", \
         have another number of them"
    )]
    OtherNumber {
        /// The name.
        name: String,
        /// The number of its nodes.
        has: usize,
        /// The number that was asked for.
        asked: usize,
    },
    /// No preset has this name.
    #[error("unknown preset {name:?}{}; available: {known}", meant(name, known))]
    NoSuchPreset {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
}

impl From<Problem> for DeploymentError {
    fn from(problem: Problem) -> Self {
        DeploymentError {
            file: None,
            place: None,
            problem: Box::new(problem),
        }
    }
}

impl fmt::Display for DeploymentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(Place { line, column }) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for DeploymentError {}

impl DeploymentError {
    /// The same error with a place, unless it has one already.
    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place.get_or_insert(place);
        self
    }
}

impl Place {
    /// The place of the byte at `offset` of `text`.
    pub(crate) fn of(text: &str, offset: usize) -> Place {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let text = "a\nüb\n";
        assert_eq!(Place::of(text, 0), Place { line: 1, column: 1 });
        assert_eq!(Place::of(text, 4), Place { line: 2, column: 2 });
        assert_eq!(Place::of(text, text.len()), Place { line: 3, column: 1 });
        assert_eq!(Place::of(text, 1000), Place { line: 3, column: 1 });
    }
}
