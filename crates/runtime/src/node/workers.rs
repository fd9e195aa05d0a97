//! Threads that execute parts of the state machine for a replica of this node.

use ionian_kernel::work::{Task, Workers, Worth};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// See the top of this file. They end when this is dropped.
struct Threads {
    threads: Vec<Thread>,
    worth: Worth,
}

struct Thread {
    tasks: SyncSender<(usize, Box<dyn Task>)>,
    done: Receiver<Done>,
}

/// A task that is done, or what it panicked with.
struct Done {
    task: Result<Box<dyn Task>, Box<dyn Any + Send>>,
    pieces: usize,
    took: Duration,
}

/// As many threads as the operating system gives, of `count`.
pub(crate) fn hire(count: usize) -> Box<dyn Workers> {
    let threads = (0..count).map_while(|number| match Thread::start(number) {
        Ok(thread) => Some(thread),
        Err(error) => {
            tracing::warn!(
                id = "E0104",
                "{number} of {count} workers have a thread: {error}"
            );
            None
        }
    });
    Box::new(Threads {
        threads: threads.collect(),
        worth: Worth::default(),
    })
}

impl Thread {
    fn start(number: usize) -> std::io::Result<Thread> {
        let (tasks, given) = sync_channel(1);
        let (finished, done) = sync_channel(1);
        std::thread::Builder::new()
            .name(format!("worker{number}"))
            .spawn(move || work(&given, &finished))?;
        Ok(Thread { tasks, done })
    }
}

fn work(given: &Receiver<(usize, Box<dyn Task>)>, finished: &SyncSender<Done>) {
    while let Ok((pieces, mut task)) = given.recv() {
        let begun = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| task.run()));
        let has_failed = ran.is_err();
        let done = Done {
            task: ran.map(|()| task),
            pieces,
            took: begun.elapsed(),
        };
        // Of a part that may be half changed there is nothing left to wait for.
        if finished.send(done).is_err() || has_failed {
            return;
        }
    }
}

impl Threads {
    fn take(&mut self, done: Done) -> Box<dyn Task> {
        self.worth.took(done.pieces, done.took);
        done.task.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Workers for Threads {
    fn count(&self) -> usize {
        self.threads.len()
    }

    fn worth(&mut self) -> usize {
        self.worth.pieces()
    }

    fn start(&mut self, worker: usize, pieces: usize, task: Box<dyn Task>) {
        self.worth.given();
        let started = self.threads[worker].tasks.send((pieces, task));
        assert!(started.is_ok(), "a worker ends when it is dropped");
    }

    fn poll(&mut self, worker: usize) -> Option<Box<dyn Task>> {
        let done = self.threads[worker].done.try_recv().ok()?;
        Some(self.take(done))
    }

    fn wait(&mut self, worker: usize) -> Box<dyn Task> {
        let done = self.threads[worker].done.recv();
        self.take(done.expect("a worker ends when it is dropped"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps so long, or panics.
    struct Rests(Option<Duration>);

    impl Task for Rests {
        fn run(&mut self) {
            std::thread::sleep(self.0.take().expect("a panic of a task"));
        }
    }

    #[test]
    fn the_longer_the_pieces_the_fewer_are_worth_a_hand_over() {
        let mut workers = hire(2);
        assert_eq!((workers.count(), workers.worth()), (2, 1));
        workers.start(1, 1000, Box::new(Rests(Some(Duration::from_micros(1)))));
        let rested: Box<dyn Any> = workers.wait(1);
        assert!(rested.downcast::<Rests>().expect("the task").0.is_none());
        let of_short = workers.worth();
        for _ in 0..50 {
            workers.start(0, 1, Box::new(Rests(Some(Duration::from_millis(1)))));
            drop(workers.wait(0));
        }
        assert!(workers.worth() <= of_short);
        assert_eq!(workers.worth(), 1);
    }

    #[test]
    fn a_panic_of_a_task_is_that_of_its_owner() {
        let mut workers = hire(1);
        workers.start(0, 1, Box::new(Rests(None)));
        let waits = AssertUnwindSafe(|| drop(workers.wait(0)));
        let panic = catch_unwind(waits).expect_err("the panic");
        assert_eq!(
            panic.downcast_ref::<String>().map(String::as_str),
            Some("a panic of a task")
        );
        assert!(workers.poll(0).is_none());
        let waits = AssertUnwindSafe(|| drop(workers.wait(0)));
        assert!(catch_unwind(waits).is_err(), "it does not wait without end");
    }
}
