//! What can be wrong with a deployment. Every text names the key, the value and what is allowed,
//! and the place in the file when the file is where it came from.

use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Why this is not a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentError {
    /// The file, when there is one.
    pub file: Option<PathBuf>,
    /// Where in the text, when the text is what is wrong and not how its parts fit together.
    pub place: Option<Place>,
    /// What is wrong. Boxed: an error is rare, and a small `Result` is moved often.
    pub problem: Box<Problem>,
}

/// A place in a text, for people: both count from 1.
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
    /// The text is not TOML.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// There is no such key.
    #[error("unknown key {key}: known here are {known}")]
    UnknownKey {
        /// The key, with the tables it lies in.
        key: String,
        /// The keys that exist there.
        known: String,
    },
    /// A key that has no default is missing.
    #[error("{key} is missing: it must be {allowed}")]
    Missing {
        /// The key, with the tables it lies in.
        key: String,
        /// What to write there.
        allowed: String,
    },
    /// A value is not one of those allowed.
    #[error("{key} = {value}: must be {allowed}")]
    Value {
        /// The key, with the tables it lies in.
        key: String,
        /// The value, as written.
        value: String,
        /// What to write instead.
        allowed: String,
    },
    /// An option that a running cluster does not change.
    #[error(
        "{key} is not changed while the cluster runs: {reason}. Restart one node after the other with --set {key}=VALUE"
    )]
    AtStart {
        /// The key, with the tables it lies in.
        key: String,
        /// Why not.
        reason: String,
    },
    /// Two nodes have the same name, or two sockets the same address.
    #[error("{key} = {value:?}: taken by {by}")]
    Taken {
        /// The key, with the tables it lies in.
        key: String,
        /// The value.
        value: String,
        /// The key that has it too.
        by: String,
    },
    /// A role has more instances than a set of them can hold.
    #[error("{key} = {role:?}: instance number {count} of this role, at most {limit} are allowed")]
    TooMany {
        /// The key of the instance that is one too many.
        key: String,
        /// The role.
        role: String,
        /// How many there are, up to and with that one.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Nothing carries commands into the cluster.
    #[error("no client anywhere: at least one node must have a gateway or the role {role:?}")]
    NoClient {
        /// The name of the role.
        role: String,
    },
    /// A flag is not an override.
    #[error("override {0:?}: must be key=value, such as options.batch_commands=10")]
    NotAnOverride(String),
    /// There is no node of this name.
    #[error("no node {name:?}: the deployment has {known}")]
    NoSuchNode {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The deployment that a change would lead to is the one that there is.
    #[error("nothing would change")]
    NothingToChange,
    /// There is no preset of this name.
    #[error("no preset {name:?}: there are {known}")]
    NoSuchPreset {
        /// The name.
        name: String,
        /// The names there are.
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
    /// The same, located at `place` unless it knows better already.
    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place.get_or_insert(place);
        self
    }
}

impl Place {
    /// Where the byte at `offset` of `text` is.
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
