//! Handles a panic of the user's state machine. A panic in a query has changed nothing: the query
//! fails, and the node goes on. After any other panic the state may be half changed: the machine is
//! not called any more, and the node stops without acknowledging unfinished work.

use crate::storage::executing::Executing;
use crate::storage::machine_failure::MachineFailure;
use crate::storage::skips::{CommandName, Skips};
use ionian_kernel::guard::{Call, Guard, LogCommand, NotDone};
use ionian_kernel::id::Slot;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// The longest stored part of a panic's message.
const MAX_MESSAGE: usize = 1000;

/// The guard of one node's machines.
pub(crate) struct MachineGuard {
    skips: Skips,
    executing: Executing,
    has_failed: AtomicBool,
    failure: Mutex<Option<Box<MachineFailure>>>,
    changed: Notify,
    failed_reads: AtomicU64,
    /// The slot after the last command that was started.
    begun: AtomicU64,
}

impl MachineGuard {
    pub(crate) fn new(skips: Skips, executing: Executing) -> Self {
        MachineGuard {
            skips,
            executing,
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
            changed: Notify::new(),
            failed_reads: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        }
    }

    pub(crate) fn skips(&self) -> &Skips {
        &self.skips
    }

    pub(crate) fn executing(&self) -> &Executing {
        &self.executing
    }

    /// Completes when the machine has failed and the node must stop.
    pub(crate) async fn failed(&self) -> Box<MachineFailure> {
        loop {
            let changed = self.changed.notified();
            if let Some(failure) = self.failure() {
                return failure;
            }
            changed.await;
        }
    }

    /// Runs code that may call the machine outside of the loop's task.
    pub(crate) fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T, Box<MachineFailure>> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match self.failure() {
            Some(failure) => failure,
            // The panic came from a role, not from the machine.
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
        // Clients can cause this as often as they like.
        if count.is_power_of_two() {
            let message = message(panic);
            tracing::error!(
                id = "E0501",
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
                // The state may be half changed, so the machine is not called. The node is about to
                // stop.
                _ => resume_unwind(Box::new("the state machine has panicked before")),
            }
        }
        if let Call::Touch(command) = what
            && self.skips.has(&command)
        {
            return Err(NotDone);
        }
        if let Call::Apply(command) = what {
            if self.skips.has(&command) {
                tracing::warn!(
                    id = "E0502",
                    "left out command {}, as `ionian log skip` has set",
                    CommandName::of(&command)
                );
                self.executing.end(CommandName::of(&command));
                return Err(NotDone);
            }
            let LogCommand {
                slot: Slot(slot), ..
            } = command;
            self.begun.fetch_max(slot + 1, Ordering::Relaxed);
        }
        let noted = match what {
            Call::Apply(command) | Call::Touch(command) => self.executing.begin(&command),
            _ => None,
        };
        let called = catch_unwind(AssertUnwindSafe(call));
        if let Some(name) = noted {
            self.executing.end(name);
        }
        called.map_err(|panic| match what {
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

/// The message of a panic, if it is text, on one line of limited length.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "a panic without a message",
    };
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(MAX_MESSAGE)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::SessionId;
    use ionian_kernel::level::Level;

    /// The state may be half changed, so the machine is neither queried nor changed.
    #[test]
    fn after_a_panic_the_machine_is_not_called_again() {
        let guard = MachineGuard::new(Skips::default(), Executing::nowhere());
        let command = LogCommand {
            slot: Slot(7),
            session: SessionId(3),
            number: 2,
            payload: b"x",
            level: Level::LATEST,
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
            Call::Touch(command),
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
