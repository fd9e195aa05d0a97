//! The file `poison`: why the state machine stopped its node.

use super::error::{LogError, io_error};
use super::skips::CommandName;
use ionian_kernel::guard::{LogCommand, Must};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "poison";

/// A panic of the state machine that stopped its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFailure {
    /// What the machine was doing.
    pub doing: String,
    /// The message of the panic, on one line.
    pub message: String,
    /// The command that it was executing, or was to execute, if any.
    pub command: Option<CommandName>,
    /// The bytes of the command, in hexadecimal.
    pub bytes: String,
    /// The slot of the last command that was started before, if it was not executing a command.
    pub after: Option<u64>,
}

/// What the machine was doing.
#[derive(Clone, Copy)]
pub(crate) enum Doing<'a> {
    Command(&'a LogCommand<'a>),
    Other(Must),
}

impl MachineFailure {
    pub(crate) fn new(doing: Doing<'_>, message: String, after: Option<u64>) -> Self {
        let (doing, command, bytes, after) = match doing {
            Doing::Command(command) => (
                "executing a command",
                Some(CommandName::of(command)),
                hexadecimal(command.payload),
                None,
            ),
            Doing::Other(Must::Snapshot) => (
                "writing a snapshot of its state",
                None,
                String::new(),
                after,
            ),
            Doing::Other(Must::Restore) => ("restoring a snapshot", None, String::new(), after),
            Doing::Other(Must::Question) => (
                "saying when time makes a difference",
                None,
                String::new(),
                after,
            ),
        };
        MachineFailure {
            doing: doing.to_owned(),
            message,
            command,
            bytes,
            after,
        }
    }

    /// The failure in the file of the data directory: the last time that the machine stopped the
    /// node; `None` if it never did.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn stored(data: &Path) -> Result<Option<Self>, LogError> {
        let path = file(data);
        let Ok(text) = fs::read_to_string(&path) else {
            let there = fs::exists(&path).map_err(io_error("look for", &path))?;
            return if there {
                Err(damaged(path, "it is no text".into()))
            } else {
                Ok(None)
            };
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| damaged(path, error.to_string()))
    }

    /// Writes the file, for people and for `ionian log show`. The program does not depend on it.
    pub(crate) fn store(&self, data: &Path) -> Result<PathBuf, LogError> {
        let path = file(data);
        let text = serde_json::to_string_pretty(self).expect("numbers and strings");
        fs::write(&path, text + "\n").map_err(io_error("write", &path))?;
        Ok(path)
    }
}

fn damaged(path: PathBuf, text: String) -> LogError {
    LogError::Corrupt {
        path,
        offset: 0,
        text,
    }
}

fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

impl fmt::Display for MachineFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineFailure {
            doing,
            message,
            command,
            bytes,
            after,
        } = self;
        write!(formatter, "the state machine panicked {doing}")?;
        match (command, after) {
            (Some(command), _) => write!(
                formatter,
                ", in slot {}: {command}, digest {:016x}, {} bytes",
                command.slot.0,
                command.digest,
                bytes.len() / 2
            )?,
            (None, Some(slot)) => write!(formatter, ", after a command in slot {slot}")?,
            (None, None) => {}
        }
        write!(formatter, ": {message:?}")
    }
}
