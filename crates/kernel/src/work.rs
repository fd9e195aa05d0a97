//! Work that a role gives to other threads, and waits for before its handler returns.
//!
//! A role stays a function of its inputs: a task owns what it works on, so neither the role nor
//! another task can see it half done. Which task is done first is for the driver to say.

use crate::random::Random;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::time::Duration;

/// A piece of work.
pub trait Task: Any + Send {
    /// Does it.
    fn run(&mut self);
}

/// Threads that run tasks: one task each at a time.
pub trait Workers: Send {
    /// How many there are.
    fn count(&self) -> usize;

    /// How many small pieces of work (commands, say) are worth a hand-over.
    fn worth(&mut self) -> usize;

    /// Gives a task, of this many pieces, to a worker that has none.
    fn start(&mut self, worker: usize, pieces: usize, task: Box<dyn Task>);

    /// The task of this worker, if it is done.
    fn poll(&mut self, worker: usize) -> Option<Box<dyn Task>>;

    /// Waits until the task of this worker is done.
    ///
    /// # Panics
    /// If the task has panicked, with what it panicked with.
    fn wait(&mut self, worker: usize) -> Box<dyn Task>;
}

/// How an instance gets as many workers as it asks for, or fewer.
pub type HireWorkers<'a> = &'a dyn Fn(usize) -> Box<dyn Workers>;

/// A hand-over is worth this much work: to wake a thread costs about a tenth of that. With less,
/// the scheduler of fast workers, which sleep in between, spends its time on waking them.
const HAND_OVER: Duration = Duration::from_micros(25);

/// However small the pieces were so far, one is handed over if none was this many times.
const TRY_AFTER: u32 = 1 << 12;

/// How many pieces of work are worth a hand-over, from how long they took lately.
#[derive(Debug, Default)]
pub struct Worth {
    /// How long a piece took, in nanoseconds; unknown at first.
    piece_ns: Option<f64>,
    /// How often it was asked since the last hand-over.
    asked: u32,
}

impl Worth {
    /// A task of this many pieces took so long.
    pub fn took(&mut self, pieces: usize, time: Duration) {
        let piece = time.as_nanos() as f64 / pieces.max(1) as f64;
        let before = self.piece_ns.unwrap_or(piece);
        self.piece_ns = Some(before + (piece - before) / 8.0);
    }

    /// A task was handed over.
    pub fn given(&mut self) {
        self.asked = 0;
    }

    /// See [`Workers::worth`].
    pub fn pieces(&mut self) -> usize {
        self.asked += 1;
        match self.piece_ns {
            Some(piece) if self.asked < TRY_AFTER => {
                let pieces = HAND_OVER.as_nanos() as f64 / piece.max(1.0);
                (pieces as usize).max(1)
            }
            _ => 1,
        }
    }
}

/// No threads: a task is done when it is waited for, or by chance before.
pub struct Inline {
    tasks: Vec<Option<Box<dyn Task>>>,
    worth: usize,
    random: Option<Random>,
}

impl Inline {
    /// As many as are asked for. Nothing is worth a hand-over.
    pub fn hire(count: usize) -> Box<dyn Workers> {
        Box::new(Inline {
            tasks: (0..count).map(|_| None).collect(),
            worth: usize::MAX,
            random: None,
        })
    }

    /// This number of workers, for tests: one in three times that a task is asked for it is done,
    /// and `worth` pieces are worth a hand-over.
    pub fn at_random(random: Random, count: usize, worth: usize) -> Box<dyn Workers> {
        Box::new(Inline {
            tasks: (0..count).map(|_| None).collect(),
            worth,
            random: Some(random),
        })
    }
}

impl Workers for Inline {
    fn count(&self) -> usize {
        self.tasks.len()
    }

    fn worth(&mut self) -> usize {
        self.worth
    }

    fn start(&mut self, worker: usize, _: usize, task: Box<dyn Task>) {
        let before = self.tasks[worker].replace(task);
        assert!(before.is_none(), "a worker has one task at a time");
    }

    fn poll(&mut self, worker: usize) -> Option<Box<dyn Task>> {
        self.tasks[worker].as_ref()?;
        let is_done = self.random.as_mut()?.once_in(3);
        is_done.then(|| self.wait(worker))
    }

    fn wait(&mut self, worker: usize) -> Box<dyn Task> {
        let mut task = self.tasks[worker].take().expect("it has a task");
        task.run();
        task
    }
}
