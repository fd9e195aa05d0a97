//! Workers that have a processor of their own, on a machine that has fewer.
//!
//! Each node has a timeline: the processor time that its thread has taken so far, and what it has
//! waited for its workers. A task is run at once, on the thread that measures, and its processor
//! time is not the node's: it passes on the timeline of the worker, which begins when it has the
//! task and ends that much later. A node that asks for a task before that waits until then. So the
//! real roles hand over real work, and only the time in which they do it is made up.
//!
//! A worker that has nothing to do sleeps: to wake it takes time of the node's thread, and it takes
//! a while until it runs. What processors lose by sharing memory is not in the numbers.

use ionian_kernel::work::{Task, Workers, Worth};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock that tells the processor time of this thread.
#[derive(Clone)]
pub(crate) struct Look {
    clock: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// What it takes to look at it.
    takes: Duration,
}

impl Look {
    pub(crate) fn new(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let once = |_| {
            let before = clock();
            clock().saturating_sub(before)
        };
        let mut shown: Vec<Duration> = (0..1001).map(once).collect();
        shown.sort_unstable();
        let takes = shown[shown.len() / 2];
        let clock = Arc::new(clock);
        Look { clock, takes }
    }

    fn now(&self) -> Duration {
        (self.clock)()
    }

    /// From one look to another.
    fn between(&self, before: Duration, after: Duration) -> Duration {
        after.saturating_sub(before).saturating_sub(self.takes)
    }
}

/// What it takes to wake a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waking {
    /// Processor time of the thread that wakes it.
    pub(crate) takes: Duration,
    /// From then until it runs.
    pub(crate) lasts: Duration,
}

/// One node's. See the top of this file.
struct Timeline {
    look: Look,
    waking: Waking,
    /// What the clock has said when `now` was last brought up to date.
    seen: Duration,
    now: Duration,
    /// What of that was waiting.
    waited: Duration,
    workers: Vec<Worker>,
}

#[derive(Clone, Copy, Default)]
struct Worker {
    /// When its last task is done.
    done: Duration,
    worked: Duration,
}

impl Timeline {
    fn catch_up(&mut self) {
        let seen = self.look.now();
        self.now += self.look.between(self.seen, seen);
        self.seen = seen;
    }

    fn wait_until(&mut self, when: Duration) {
        if when > self.now {
            // It sleeps, and is woken.
            let when = when + self.waking.lasts;
            self.waited += when - self.now;
            self.now = when;
        }
    }
}

/// What a node has spent since the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    /// On its thread, waiting included.
    pub(crate) thread: Duration,
    pub(crate) waited: Duration,
    /// Each worker.
    pub(crate) workers: Vec<Duration>,
}

/// Those of all nodes.
pub(crate) struct Timelines(Vec<Arc<Mutex<Timeline>>>);

impl Timelines {
    pub(crate) fn new(nodes: usize, look: &Look, waking: Waking) -> Self {
        let timeline = |_| {
            Arc::new(Mutex::new(Timeline {
                look: look.clone(),
                waking,
                seen: Duration::ZERO,
                now: Duration::ZERO,
                waited: Duration::ZERO,
                workers: Vec::new(),
            }))
        };
        Timelines((0..nodes).map(timeline).collect())
    }

    /// A node begins to do something.
    pub(crate) fn begin(&self, node: usize) {
        let mut timeline = lock(&self.0[node]);
        timeline.seen = timeline.look.now();
    }

    /// It has done that.
    pub(crate) fn end(&self, node: usize) {
        lock(&self.0[node]).catch_up();
    }

    pub(crate) fn spent(&self, node: usize) -> Spent {
        let timeline = lock(&self.0[node]);
        Spent {
            thread: timeline.now,
            waited: timeline.waited,
            workers: timeline.workers.iter().map(|it| it.worked).collect(),
        }
    }

    /// Workers of a node.
    pub(crate) fn hire(&self, node: usize, count: usize) -> Box<dyn Workers> {
        let timeline = self.0[node].clone();
        let first = {
            let workers = &mut lock(&timeline).workers;
            let first = workers.len();
            workers.resize(first + count, Worker::default());
            first
        };
        Box::new(Apart {
            timeline,
            first,
            tasks: (0..count).map(|_| None).collect(),
            worth: Worth::default(),
        })
    }
}

/// What a panic has left is a time, which is as good as any.
fn lock(timeline: &Mutex<Timeline>) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Workers that a role has.
struct Apart {
    timeline: Arc<Mutex<Timeline>>,
    /// The number of the first of them on the timeline.
    first: usize,
    /// Tasks that were run, and are done at the time of their worker.
    tasks: Vec<Option<Box<dyn Task>>>,
    worth: Worth,
}

impl Workers for Apart {
    fn count(&self) -> usize {
        self.tasks.len()
    }

    fn worth(&mut self) -> usize {
        self.worth.pieces()
    }

    fn start(&mut self, worker: usize, pieces: usize, mut task: Box<dyn Task>) {
        self.worth.given();
        let mut timeline = lock(&self.timeline);
        timeline.catch_up();
        let Waking { takes, lasts } = timeline.waking;
        let before = timeline.workers[self.first + worker].done;
        let begins = match before <= timeline.now {
            true => {
                timeline.now += takes;
                timeline.now + lasts
            }
            false => before,
        };
        let began = timeline.seen;
        // The task has no workers of its own.
        task.run();
        let seen = timeline.look.now();
        let took = timeline.look.between(began, seen);
        timeline.seen = seen;
        let it = &mut timeline.workers[self.first + worker];
        it.done = begins + took;
        it.worked += took;
        self.worth.took(pieces, took);
        self.tasks[worker] = Some(task);
    }

    fn poll(&mut self, worker: usize) -> Option<Box<dyn Task>> {
        let mut timeline = lock(&self.timeline);
        timeline.catch_up();
        let is_done = timeline.workers[self.first + worker].done <= timeline.now;
        if is_done {
            self.tasks[worker].take()
        } else {
            None
        }
    }

    fn wait(&mut self, worker: usize) -> Box<dyn Task> {
        let mut timeline = lock(&self.timeline);
        timeline.catch_up();
        let done = timeline.workers[self.first + worker].done;
        timeline.wait_until(done);
        self.tasks[worker].take().expect("it has a task")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const MS: Duration = Duration::from_millis(1);

    /// A clock that tests set.
    fn clock() -> (Arc<AtomicU64>, Look) {
        let ms = Arc::new(AtomicU64::new(0));
        let told = ms.clone();
        (
            ms,
            Look::new(move || MS * told.load(Ordering::SeqCst) as u32),
        )
    }

    /// Takes a number of milliseconds.
    struct Takes(Arc<AtomicU64>, u64);

    impl Task for Takes {
        fn run(&mut self) {
            self.0.fetch_add(self.1, Ordering::SeqCst);
        }
    }

    #[test]
    fn workers_work_beside_each_other_and_are_waited_for() {
        let (ms, look) = clock();
        let waking = Waking {
            takes: MS,
            lasts: 2 * MS,
        };
        let timelines = Timelines::new(2, &look, waking);
        let mut workers = timelines.hire(1, 2);
        assert_eq!(workers.count(), 2);
        timelines.begin(1);
        ms.fetch_add(10, Ordering::SeqCst);
        // At 10 ms; it is awake at 13, and done at 113.
        workers.start(0, 1, Box::new(Takes(ms.clone(), 100)));
        // At 11; done at 44.
        workers.start(1, 1, Box::new(Takes(ms.clone(), 30)));
        assert!(workers.poll(1).is_none());
        ms.fetch_add(32, Ordering::SeqCst);
        // At 44.
        assert!(workers.poll(1).is_some() && workers.poll(0).is_none());
        drop(workers.wait(0));
        timelines.end(1);
        let spent = timelines.spent(1);
        assert_eq!((spent.thread, spent.waited), (115 * MS, 71 * MS));
        assert_eq!(spent.workers, [100 * MS, 30 * MS]);
        assert_eq!(timelines.spent(0).thread, Duration::ZERO);
    }

    #[test]
    fn a_worker_that_is_busy_is_not_woken() {
        let (ms, look) = clock();
        let waking = Waking {
            takes: MS,
            lasts: 2 * MS,
        };
        let timelines = Timelines::new(1, &look, waking);
        let mut workers = timelines.hire(0, 1);
        timelines.begin(0);
        workers.start(0, 1, Box::new(Takes(ms.clone(), 10)));
        drop(workers.wait(0));
        // It was done at 13, and the thread woke up at 15: the worker sleeps again.
        workers.start(0, 1, Box::new(Takes(ms.clone(), 10)));
        drop(workers.wait(0));
        timelines.end(0);
        let spent = timelines.spent(0);
        assert_eq!(spent.thread, 30 * MS);
        assert_eq!(spent.workers, [20 * MS]);
    }
}
