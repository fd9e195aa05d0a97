//! Frees memory outside of commands. To free what a million keys have had takes as long as many
//! commands, in which no other would be executed; so a thread does it. Nothing depends on when.

use super::work;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// Fewer elements are freed at once.
pub(super) const MANY: usize = 64;

type Garbage = Box<dyn Send>;

/// To the thread; none if it cannot be started, then all is freed at once.
static THREAD: OnceLock<Option<Sender<Garbage>>> = OnceLock::new();

/// Frees what this many elements have, soon.
pub(super) fn soon<T: Send + 'static>(garbage: T, elements: usize) {
    if elements <= MANY {
        work::count(elements);
        return drop(garbage);
    }
    if let Some(thread) = THREAD.get_or_init(start) {
        // If the thread has ended, the garbage comes back, and is dropped here.
        let _ = thread.send(Box::new(garbage));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing that a command or a snapshot says depends on when memory is freed"
)]
fn start() -> Option<Sender<Garbage>> {
    let (thread, garbage) = channel::<Garbage>();
    let free = move || garbage.iter().for_each(drop);
    let started = std::thread::Builder::new().name("free".into()).spawn(free);
    started.ok().map(|_| thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current};

    /// Says which thread frees it.
    struct Witness(Sender<ThreadId>);

    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.send(current().id()).expect("the test waits");
        }
    }

    #[test]
    fn only_many_elements_are_freed_by_another_thread() {
        let (sender, freed) = channel();
        soon(Witness(sender.clone()), MANY);
        assert_eq!(freed.recv(), Ok(current().id()));
        soon(Witness(sender), MANY + 1);
        assert_ne!(freed.recv(), Ok(current().id()));
    }
}
