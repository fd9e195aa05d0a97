//! What becomes of a panic of the user's machine. One that answers a query has changed nothing: the
//! query fails, and the node goes on. After any other the state may be half of something, or cannot
//! be kept: no call of the machine is made any more, and the node stops, without having told anyone
//! of what was not finished.

use crate::log::{LogError, io_error};
use crate::skips::{CommandName, Skips};
use ionian_kernel::guard::{Call, Guard, LogCommand, NotDone};
use ionian_kernel::id::Slot;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt::{self, Write};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

const FILE: &str = "poison";

/// The longest part of a panic's message that is kept.
const MAX_MESSAGE: usize = 1000;

/// A panic of the machine that stops its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFailure {
    /// What the machine was called for.
    pub doing: String,
    /// What it said, on one line.
    pub message: String,
    /// The command, if it was one.
    pub command: Option<CommandName>,
    /// The bytes of the command, in hexadecimal.
    pub bytes: String,
    /// The slot of the last command that was begun before, if it was none.
    pub after: Option<u64>,
}

impl MachineFailure {
    fn new(call: Call<'_>, message: String, after: Option<u64>) -> Self {
        let doing = match call {
            Call::Apply(_) => "executing a command",
            Call::Read(_) => "answering a query",
            Call::Snapshot => "writing a snapshot of its state",
            Call::Restore => "restoring a snapshot",
            Call::Question => "saying what a command touches, or when time makes a difference",
        };
        let (command, bytes, after) = match call {
            Call::Apply(command) => (
                Some(CommandName::of(&command)),
                hexadecimal(command.payload),
                None,
            ),
            _ => (None, String::new(), after),
        };
        MachineFailure {
            doing: doing.to_owned(),
            message,
            command,
            bytes,
            after,
        }
    }

    /// What the file in the data directory says of the last time that the machine stopped the node;
    /// none, if it never did.
    ///
    /// # Errors
    /// When the file cannot be read.
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

    /// Writes the file, for people and for `ionian log show`. Nothing depends on it.
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

/// The guard of one node's machines.
pub(crate) struct MachineGuard {
    skips: Skips,
    has_failed: AtomicBool,
    failure: Mutex<Option<Box<MachineFailure>>>,
    changed: Notify,
    failed_reads: AtomicU64,
    /// The slot after that of the last command begun.
    begun: AtomicU64,
}

impl MachineGuard {
    pub(crate) fn new(skips: Skips) -> Self {
        let (has_failed, failure, changed, failed_reads, begun) = Default::default();
        MachineGuard {
            skips,
            has_failed,
            failure,
            changed,
            failed_reads,
            begun,
        }
    }

    pub(crate) fn skips(&self) -> &Skips {
        &self.skips
    }

    /// Completes when the node must stop because of its machine.
    pub(crate) async fn failed(&self) -> Box<MachineFailure> {
        loop {
            let changed = self.changed.notified();
            if let Some(failure) = self.failure() {
                return failure;
            }
            changed.await;
        }
    }

    /// Does what may call the machine outside of the loop's task.
    pub(crate) fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T, Box<MachineFailure>> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match self.failure() {
            Some(failure) => failure,
            // A role's assertion, and no business of this file.
            None => resume_unwind(panic),
        })
    }

    fn failure(&self) -> Option<Box<MachineFailure>> {
        self.failure
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    fn fail(&self, call: Call<'_>, panic: &(dyn Any + Send)) {
        let after = self.begun.load(Ordering::Relaxed).checked_sub(1);
        let failure = Box::new(MachineFailure::new(call, message(panic), after));
        let mut first = self
            .failure
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        first.get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    fn fail_read(&self, panic: &(dyn Any + Send)) {
        let count = self.failed_reads.fetch_add(1, Ordering::Relaxed) + 1;
        // Clients can make it happen as often as they like.
        if count.is_power_of_two() {
            let message = message(panic);
            tracing::error!(
                "the state machine panicked answering a query, {count} times so far: {message:?}"
            );
        }
    }
}

impl Guard for MachineGuard {
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        if self.has_failed.load(Ordering::Acquire) {
            match what {
                Call::Read(_) => return Err(NotDone),
                // Of a state that may be half of something nothing is to be known. The node is
                // about to stop.
                _ => resume_unwind(Box::new("the state machine has panicked before")),
            }
        }
        if let Call::Apply(command) = what {
            if self.skips.has(&command) {
                tracing::warn!("command {} is left out, as told", CommandName::of(&command));
                return Err(NotDone);
            }
            let LogCommand {
                slot: Slot(slot), ..
            } = command;
            self.begun.store(slot + 1, Ordering::Relaxed);
        }
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| match what {
            Call::Read(_) => {
                self.fail_read(&*panic);
                NotDone
            }
            _ => {
                self.fail(what, &*panic);
                resume_unwind(panic)
            }
        })
    }
}

/// What a panic says, if it is text, on one line that is not too long.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "a panic without words",
    };
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(MAX_MESSAGE)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::batch::SessionId;

    /// Of a state that may be half of something nothing is asked, nor is anything done to it.
    #[test]
    fn after_a_panic_the_machine_is_not_called_again() {
        let guard = MachineGuard::new(Skips::default());
        let command = LogCommand {
            slot: Slot(7),
            session: SessionId(3),
            number: 2,
            payload: b"x",
        };
        let call = |what: Call<'_>, work: &mut dyn FnMut()| {
            catch_unwind(AssertUnwindSafe(|| guard.call(what, work)))
        };
        let mut calls = 0;
        assert!(matches!(
            call(Call::Read(b"q"), &mut || panic!("a query")),
            Ok(Err(NotDone))
        ));
        assert!(
            matches!(call(Call::Apply(command), &mut || calls += 1), Ok(Ok(()))),
            "a query fails alone"
        );
        assert!(call(Call::Apply(command), &mut || panic!("a command")).is_err());
        for what in [
            Call::Apply(command),
            Call::Snapshot,
            Call::Restore,
            Call::Question,
        ] {
            assert!(call(what, &mut || calls += 1).is_err(), "{what:?}");
        }
        assert!(matches!(
            call(Call::Read(b"q"), &mut || calls += 1),
            Ok(Err(NotDone))
        ));
        assert_eq!(calls, 1, "only before the panic");
        assert_eq!(
            guard.failure().map(|failure| failure.message),
            Some("a command".into())
        );
    }
}
