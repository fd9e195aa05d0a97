//! The commands of the log that a node leaves out because the state machine fails on them: the file
//! `skips` of its data directory.
//!
//! All nodes of a cluster have the same list; nodes with different lists refuse each other in the
//! handshake. ([Why](../../../../docs/decisions/0030-poison.md).)

use super::error::{LogError, io_error};
use super::identity::fnv;
use super::sealed;
use ionian_kernel::guard::LogCommand;
use ionian_kernel::id::SessionId;
use ionian_kernel::id::Slot;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const FILE: &str = "skips";

/// The largest number of commands in the list: every handshake contains the whole list.
pub const MAX_SKIPS: usize = 32;

/// The name of a command of the log, the same on every node: `SLOT/SESSION:NUMBER/DIGEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandName {
    /// The slot of its batch.
    pub slot: Slot,
    /// The session that numbers it.
    pub session: SessionId,
    /// Its number in the session.
    pub number: u64,
    /// The digest of its bytes. It detects typing errors, not forgery: a session has only one
    /// command with a number.
    pub digest: u64,
}

impl CommandName {
    /// The name of a command.
    pub fn of(command: &LogCommand<'_>) -> Self {
        let LogCommand { slot, session, .. } = *command;
        Self::new(slot, session, command.number, command.payload)
    }

    /// The name of the command with this number in a session, and with these bytes.
    pub fn new(slot: Slot, session: SessionId, number: u64, payload: &[u8]) -> Self {
        CommandName {
            slot,
            session,
            number,
            digest: (fnv(0, payload) >> 64) as u64,
        }
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandName {
            slot,
            session,
            number,
            digest,
        } = self;
        write!(formatter, "{}/{}:{number}/{digest:016x}", slot.0, session.0)
    }
}

/// A text is not the name of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of a command: it must be SLOT/SESSION:NUMBER/DIGEST, as nodes log it and `ionian log show` prints it"
)]
pub struct BadName(String);

impl FromStr for CommandName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let parse = || {
            let (slot, rest) = text.split_once('/')?;
            let (id, digest) = rest.split_once('/')?;
            let (session, number) = id.split_once(':')?;
            let name = CommandName {
                slot: Slot(slot.parse().ok()?),
                session: SessionId(session.parse().ok()?),
                number: number.parse().ok()?,
                digest: u64::from_str_radix(digest, 16).ok()?,
            };
            // Each command has one spelling: lists are compared as text.
            (name.to_string() == text).then_some(name)
        };
        parse().ok_or_else(|| BadName(text.to_owned()))
    }
}

impl Serialize for CommandName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CommandName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// The commands that a node leaves out, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skips {
    commands: BTreeSet<CommandName>,
}

impl Skips {
    /// The list of a data directory; empty if there is no file.
    ///
    /// # Errors
    /// If the list cannot be read or is damaged.
    pub fn stored(data: &Path) -> Result<Self, LogError> {
        let path = file(data);
        // If the directory is not usable, the code that opens it reports that.
        let there = data.is_dir() && fs::exists(&path).map_err(io_error("look for", &path))?;
        if there {
            sealed::read(&path)
        } else {
            Ok(Skips::default())
        }
    }

    /// Writes the list. The caller holds the lock of the directory, and syncs it next.
    pub(crate) fn store(&self, data: &Path) -> Result<(), LogError> {
        sealed::write(&file(data), self)
    }

    /// Whether a command is left out.
    pub(crate) fn has(&self, command: &LogCommand<'_>) -> bool {
        // Almost always the list is empty, and then nothing is hashed.
        let candidate = |name: &&CommandName| {
            (name.slot, name.session, name.number)
                == (command.slot, command.session, command.number)
        };
        self.commands
            .iter()
            .find(candidate)
            .is_some_and(|name| *name == CommandName::of(command))
    }

    /// The commands.
    pub fn commands(&self) -> impl Iterator<Item = CommandName> {
        self.commands.iter().copied()
    }

    /// Adds or removes a command; returns whether the list has changed.
    pub(crate) fn change(&mut self, command: CommandName, leave_out: bool) -> bool {
        if leave_out {
            self.commands.insert(command)
        } else {
            self.commands.remove(&command)
        }
    }
}

impl fmt::Display for Skips {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, command) in self.commands.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(formatter, "{comma}{command}")?;
        }
        Ok(())
    }
}

fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::level::Level;

    fn command(payload: &[u8]) -> LogCommand<'_> {
        LogCommand {
            slot: Slot(7),
            session: SessionId(3),
            number: 2,
            payload,
            level: Level::LATEST,
        }
    }

    #[test]
    fn a_name_is_read_back_and_nothing_else_is_one() {
        let name = CommandName::of(&command(b"x"));
        assert_eq!(name.to_string().parse(), Ok(name));
        let text = name.to_string();
        let others = [
            "",
            "7",
            "7/3:2",
            "7/3:2/",
            &text[1..],
            &format!("0{text}"),
            &format!("{text}0"),
            &text.to_uppercase(),
        ];
        for other in others.iter().filter(|other| **other != text) {
            assert!(other.parse::<CommandName>().is_err(), "{other}");
        }
    }

    #[test]
    fn only_the_very_command_is_left_out() {
        let mut skips = Skips::default();
        assert!(skips.change(CommandName::of(&command(b"x")), true));
        assert!(skips.has(&command(b"x")));
        assert!(!skips.has(&command(b"y")), "other bytes");
        assert!(
            !skips.has(&LogCommand {
                slot: Slot(8),
                ..command(b"x")
            }),
            "another slot"
        );
        assert!(
            !skips.has(&LogCommand {
                number: 3,
                ..command(b"x")
            }),
            "another number"
        );
        assert!(
            !skips.has(&LogCommand {
                session: SessionId(4),
                ..command(b"x")
            }),
            "another session"
        );
    }
}
