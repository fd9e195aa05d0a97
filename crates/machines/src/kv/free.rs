//! Frees memory outside of commands. To free what a million keys have had takes as long as many
//! commands, in which no other would be executed; so a thread does it. Nothing depends on when.

use super::work;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Fewer elements are freed at once.
pub(super) const MANY: usize = 64;

/// How many pieces wait for the thread. What comes then is freed at once: each element was written
/// by a command, and to free it takes less than that did.
const WAITING: usize = 1024;

type Garbage = Box<dyn Send>;

/// To the thread; none if it cannot be started, then all is freed at once.
static THREAD: OnceLock<Option<SyncSender<Garbage>>> = OnceLock::new();

/// Frees what this many elements have, soon.
pub(super) fn soon<T: Send + 'static>(garbage: T, elements: usize) {
    if elements <= MANY {
        work::count(elements);
        return drop(garbage);
    }
    if let Some(thread) = THREAD.get_or_init(start) {
        hand_over(thread, Box::new(garbage));
    }
}

/// If the thread has too much to do, or has ended, the garbage comes back, and is dropped here.
fn hand_over(thread: &SyncSender<Garbage>, garbage: Garbage) {
    let _ = thread.try_send(garbage);
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing that a command or a snapshot says depends on when memory is freed"
)]
fn start() -> Option<SyncSender<Garbage>> {
    let (thread, garbage) = sync_channel::<Garbage>(WAITING);
    let free = move || garbage.iter().for_each(drop);
    let started = std::thread::Builder::new().name("free".into()).spawn(free);
    started.ok().map(|_| thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{ThreadId, current};

    /// Says which thread frees it.
    struct Witness(Sender<ThreadId>);

    impl Drop for Witness {
        fn drop(&mut self) {
            // The test may have seen enough.
            let _ = self.0.send(current().id());
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

    /// Is freed when the test says so.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().expect("the test says so");
        }
    }

    #[test]
    fn what_waits_for_the_thread_is_bounded() {
        let thread = start().expect("a thread");
        let (go_on, waits) = channel();
        hand_over(&thread, Box::new(Slow(waits)));
        let (sender, freed) = channel();
        // One more than wait, as the thread may have taken the first.
        for _ in 0..=WAITING {
            hand_over(&thread, Box::new(Witness(sender.clone())));
        }
        assert_eq!(freed.recv(), Ok(current().id()), "there is no room");
        go_on.send(()).expect("the thread waits");
        for _ in 0..WAITING {
            let by = freed.recv().expect("each is freed");
            if by != current().id() {
                return;
            }
        }
        panic!("the thread has freed none");
    }
}
