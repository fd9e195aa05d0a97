//! Workers of which the seed says when they are done. A node may have fewer than it asks for, as a
//! machine with few cores has: replicas must end alike all the same.

use ionian_kernel::random::Random;
use ionian_kernel::work::{Task, Workers};

struct Seeded {
    random: Random,
    worth: usize,
    tasks: Vec<Option<Box<dyn Task>>>,
}

/// Up to this many workers.
pub(crate) fn hire(seed: u64, count: usize) -> Box<dyn Workers> {
    let mut random = Random::new(seed ^ 0x0077_6f72_6b65_7273);
    let count = random.between(1, count as u64);
    Box::new(Seeded {
        worth: random.between(1, 4) as usize,
        random,
        tasks: (0..count).map(|_| None).collect(),
    })
}

impl Workers for Seeded {
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
        let is_done = self.tasks[worker].is_some() && self.random.once_in(3);
        is_done.then(|| self.wait(worker))
    }

    fn wait(&mut self, worker: usize) -> Box<dyn Task> {
        let mut task = self.tasks[worker].take().expect("it has a task");
        task.run();
        task
    }
}
