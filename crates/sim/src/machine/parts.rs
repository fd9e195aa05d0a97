//! The machine in parts, by key.

use super::SimMachine;
use ionian_kernel::machine::{Parts, StateMachine};
use std::any::Any;

impl SimMachine {
    fn part(&self, key: u64) -> usize {
        (key % self.parts.max(1) as u64) as usize
    }
}

impl Parts for SimMachine {
    fn divide(&mut self, count: usize) -> usize {
        self.parts = count;
        count
    }

    fn part_of(&mut self, key: u64) -> usize {
        self.part(key)
    }

    fn lend(&mut self, part: usize) -> Box<dyn StateMachine> {
        let all = std::mem::take(&mut self.held).into_iter();
        let (lent, kept) = all.partition(|(key, _)| self.part(*key) == part);
        self.held = kept;
        Box::new(SimMachine {
            held: lent,
            parts: self.parts,
        })
    }

    fn take_back(&mut self, part: usize, lent: Box<dyn StateMachine>) {
        let lent: Box<dyn Any> = lent;
        let lent = lent.downcast::<SimMachine>().expect("a part of it");
        let is_own = |key: &u64| self.part(*key) == part;
        assert!(lent.held.keys().all(is_own), "a part wrote another's key");
        self.held.extend(lent.held);
    }
}
