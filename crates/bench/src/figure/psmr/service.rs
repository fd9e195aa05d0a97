//! The key-value service of the P-SMR paper (section V-A) as a load: a B+-tree, and commands of
//! which a part depends on all others.

use bytes::Bytes;
use ionian_costs::Service;
use ionian_kernel::client::Operation;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::tree::{Command, Published, TreeStore};
use rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefCell;
use std::collections::VecDeque;

/// A key is deleted when this number of others was inserted after it: what a processor's cache had
/// of the tree around it is gone.
const INSERTED: usize = 10_000;

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mix {
    /// The part that inserts or deletes, which depend on every command.
    pub(crate) dependent: f64,
    /// The part of the others that updates; the rest reads.
    pub(crate) updates: f64,
    /// Whether keys are drawn by Zipf's distribution with exponent 1, and not uniformly.
    pub(crate) skewed: bool,
}

impl Mix {
    /// Reads, of keys that are drawn uniformly.
    pub(crate) const READS: Mix = Mix {
        dependent: 0.0,
        updates: 0.0,
        skewed: false,
    };

    /// With this part of inserts and deletes.
    pub(crate) fn dependent(part: f64) -> Mix {
        Mix {
            dependent: part,
            ..Mix::READS
        }
    }

    /// Reads and updates in equal parts.
    pub(crate) fn updates(skewed: bool) -> Mix {
        Mix {
            updates: 0.5,
            skewed,
            ..Mix::READS
        }
    }
}

/// The service with its load.
pub(crate) struct Tree {
    /// How many keys exist at first: even numbers, so that others are inserted between them.
    keys: u64,
    mix: Mix,
    zipf: Option<Zipf<f64>>,
    drawn: RefCell<Drawn>,
}

struct Drawn {
    random: Xoshiro256PlusPlus,
    /// Keys that were inserted and are to be deleted, the oldest first.
    inserted: VecDeque<u64>,
}

impl Tree {
    pub(crate) fn new(keys: u64, mix: Mix) -> Self {
        Tree {
            keys,
            mix,
            zipf: Zipf::new(keys as f64, 1.0).ok().filter(|_| mix.skewed),
            drawn: RefCell::new(Drawn {
                random: Xoshiro256PlusPlus::seed_from_u64(1),
                inserted: VecDeque::new(),
            }),
        }
    }

    fn next(&self) -> Command {
        let Drawn { random, inserted } = &mut *self.drawn.borrow_mut();
        if fraction(random) < self.mix.dependent {
            if inserted.len() > INSERTED
                && let Some(key) = inserted.pop_front()
            {
                return Command::Delete { key };
            }
            let key = 2 * (random.next_u64() % self.keys) + 1;
            inserted.push_back(key);
            return Command::Insert { key, value: 1 };
        }
        let key = match &self.zipf {
            Some(zipf) => zipf.sample(random) as u64 - 1,
            None => random.next_u64() % self.keys,
        };
        let key = 2 * key;
        match fraction(random) < self.mix.updates {
            true => Command::Update { key, value: 2 },
            false => Command::Read { key },
        }
    }
}

/// From zero to one.
fn fraction(random: &mut Xoshiro256PlusPlus) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

impl Service for Tree {
    fn machine(&self) -> Box<dyn StateMachine> {
        let mut tree = TreeStore::<Published>::default();
        let mut reply = Vec::new();
        for key in 0..self.keys {
            reply.clear();
            let key = 2 * key;
            let insert = Command::Insert { key, value: 0 }.encode();
            tree.apply(Timestamp(0), &insert, &mut reply);
        }
        Box::new(tree)
    }

    /// Reads go through the log too, as in the paper.
    fn command(&self, _: usize) -> (Operation, Bytes) {
        (Operation::Write, self.next().encode().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(mix: Mix) -> [usize; 4] {
        let tree = Tree::new(1000, mix);
        let mut kinds = [0; 4];
        (0..200_000).for_each(|_| match tree.next() {
            Command::Read { .. } => kinds[0] += 1,
            Command::Update { .. } => kinds[1] += 1,
            Command::Insert { .. } => kinds[2] += 1,
            Command::Delete { .. } => kinds[3] += 1,
            other => panic!("{other:?}"),
        });
        kinds
    }

    #[test]
    fn kinds_come_in_their_parts() {
        assert_eq!(kinds(Mix::READS), [200_000, 0, 0, 0]);
        let [reads, updates, 0, 0] = kinds(Mix::updates(true)) else {
            panic!("inserts or deletes");
        };
        assert!(reads.abs_diff(updates) < 2000, "{reads}, {updates}");
        let [reads, 0, inserts, deletes] = kinds(Mix::dependent(0.2)) else {
            panic!("updates");
        };
        assert!(reads.abs_diff(160_000) < 2000);
        assert_eq!(inserts.abs_diff(deletes), INSERTED);
    }

    #[test]
    fn keys_of_zipf_are_heavy_and_exist() {
        let tree = Tree::new(1000, Mix::updates(true));
        let first = (0..10_000).filter(|_| match tree.next() {
            Command::Read { key } | Command::Update { key, .. } => {
                assert!(key < 2000 && key % 2 == 0);
                key == 0
            }
            other => panic!("{other:?}"),
        });
        // One of 1 + 1/2 + ... + 1/1000 = 7.49.
        assert!(first.count().abs_diff(1336) < 200);
    }
}
