//! Handles a panic of the user's state machine. A panic in a query, or when the machine is asked
//! what a command touches, has changed nothing: that fails, and the node goes on. After any other
//! panic the state may be half changed: the machine is not called any more, and the node stops
//! without acknowledging unfinished work.

use crate::storage::executing::Executing;
use crate::storage::machine_failure::{Doing, MachineFailure};
use crate::storage::skips::{CommandName, Skips};
use ionian_kernel::guard::{Call, Guard, LogCommand, Must, NotDone};
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

    fn fail(&self, doing: Doing<'_>, panic: &(dyn Any + Send)) {
        let after = self.begun.load(Ordering::Relaxed).checked_sub(1);
        let failure = Box::new(MachineFailure::new(doing, message(panic), after));
        let mut first = self
            .failure
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        first.get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    fn fail_read(&self, doing: &str, panic: &(dyn Any + Send)) {
        let count = self.failed_reads.fetch_add(1, Ordering::Relaxed) + 1;
        // Clients can cause this as often as they like.
        if count.is_power_of_two() {
            let message = message(panic);
            tracing::error!(
                id = "E0501",
                "the state machine panicked {doing}, {count} times so far: {message:?}"
            );
        }
    }
}

/// What a machine does that is asked for a footprint.
const TOUCHES: &str = "saying what a command touches";

/// The state may be half changed, so the machine is not called. The node is about to stop.
fn stops() -> ! {
    resume_unwind(Box::new("the state machine has panicked before"))
}

impl Guard for MachineGuard {
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        let has_failed = self.has_failed.load(Ordering::Acquire);
        let command = match what {
            Call::Apply(_) if has_failed => stops(),
            Call::Read(_) | Call::Footprint(_) if has_failed => return Err(NotDone),
            Call::Footprint(Some(command)) if self.skips.has(&command) => return Err(NotDone),
            Call::Read(_) => return self.ask("answering a query", call),
            Call::Footprint(Some(command)) => {
                return self.noting(&command, || self.ask(TOUCHES, call));
            }
            Call::Footprint(None) => return self.ask(TOUCHES, call),
            Call::Apply(command) => command,
        };
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
        let called = self.noting(&command, || catch_unwind(AssertUnwindSafe(call)));
        self.must_have(Doing::Command(&command), called);
        Ok(())
    }

    fn must_call(&self, what: Must, call: &mut dyn FnMut()) {
        if self.has_failed.load(Ordering::Acquire) {
            stops();
        }
        self.must_have(Doing::Other(what), catch_unwind(AssertUnwindSafe(call)));
    }
}

impl MachineGuard {
    /// Makes a call for a command, which is noted meanwhile if the process may end in it. `call`
    /// catches panics.
    fn noting<T>(&self, command: &LogCommand<'_>, call: impl FnOnce() -> T) -> T {
        let noted = self.executing.begin(command);
        let called = call();
        if let Some(name) = noted {
            self.executing.end(name);
        }
        called
    }

    /// Makes a call that changes nothing.
    fn ask(&self, doing: &str, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
            self.fail_read(doing, &*panic);
            NotDone
        })
    }

    /// A call that must succeed has ended.
    fn must_have(&self, doing: Doing<'_>, called: std::thread::Result<()>) {
        if let Err(panic) = called {
            self.fail(doing, &*panic);
            resume_unwind(panic);
        }
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
        assert!(matches!(
            call(Call::Footprint(None), &mut || panic!("what it touches")),
            Ok(Err(NotDone))
        ));
        assert!(
            matches!(call(Call::Apply(command), &mut || calls += 1), Ok(Ok(()))),
            "a query fails alone, and so does what a command touches"
        );
        assert!(call(Call::Apply(command), &mut || panic!("a command")).is_err());
        assert!(call(Call::Apply(command), &mut || calls += 1).is_err());
        for what in [Must::Snapshot, Must::Restore, Must::Question] {
            let must_call = AssertUnwindSafe(|| guard.must_call(what, &mut || calls += 1));
            assert!(catch_unwind(must_call).is_err(), "{what:?}");
        }
        assert!(matches!(
            call(Call::Footprint(None), &mut || calls += 1),
            Ok(Err(NotDone))
        ));
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
