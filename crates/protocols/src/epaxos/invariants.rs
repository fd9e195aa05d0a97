//! What must hold over all roles at once, at every moment of every run: the simulator asks after
//! each event.

use super::instance::InstanceId;
use super::message::Choice;
use super::{EPaxos, Instance};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_kernel::small_map::SmallMap;

/// The number of dependencies that are followed from one command to another before the question is
/// given up.
const STEPS: usize = 2000;

/// Each decision is compared with at most this number of others that it conflicts with.
const PAIRS: usize = 8;

/// What was seen so far in one run.
#[derive(Default)]
pub struct Invariants {
    decided: BTreeMap<InstanceId, Choice>,
    /// How many decisions of each instance were looked at, in its present life.
    seen: SmallMap<Address, u64>,
    /// Decisions that were not compared with others yet.
    fresh: Vec<InstanceId>,
    /// How many pairs of conflicting commands were found to be ordered.
    pairs: u64,
}

impl protocol::Invariants<EPaxos> for Invariants {
    fn new(_: &alloc::sync::Arc<super::config::Config>) -> Self {
        Invariants::default()
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) | Instance::DependencyNode(acceptor) => {
                self.look(address, acceptor.learned(), || acceptor.decisions())?;
            }
            Instance::Replica(replica) => {
                self.look(address, replica.learned(), || replica.pending())?;
            }
            _ => return Ok(()),
        }
        self.compare()
    }

    fn crashed(&mut self, address: Address) {
        self.seen.remove(&address);
    }
}

impl Invariants {
    /// "Any two replicas decide the same in an instance" (Atlas, invariant 1), however each has
    /// learned it.
    fn look<'a, I: Iterator<Item = (InstanceId, &'a Choice)>>(
        &mut self,
        address: Address,
        learned: u64,
        decisions: impl FnOnce() -> I,
    ) -> Result<(), String> {
        if self.seen.insert(address, learned) == Some(learned) {
            return Ok(());
        }
        for (id, choice) in decisions() {
            match self.decided.get(&id) {
                Some(known) if known == choice => {}
                Some(known) => {
                    return Err(format!(
                        "{id:?} is decided twice: {choice:?}, and before {known:?}"
                    ));
                }
                None => {
                    self.decided.insert(id, choice.clone());
                    self.fresh.push(id);
                }
            }
        }
        Ok(())
    }

    /// "Of two conflicting commands one depends on the other" (Atlas, invariant 2), directly or
    /// over others.
    fn compare(&mut self) -> Result<(), String> {
        for id in core::mem::take(&mut self.fresh) {
            let Some(Choice::Command { payload, .. }) = self.decided.get(&id) else {
                continue;
            };
            let conflicts = |(other, choice): (&InstanceId, &Choice)| match choice {
                Choice::Command {
                    payload: theirs, ..
                } if *other != id => payload
                    .footprint
                    .conflicts(&theirs.footprint)
                    .then_some(*other),
                _ => None,
            };
            let others = self.decided.iter().rev().filter_map(conflicts);
            let others: Vec<InstanceId> = others.take(PAIRS).collect();
            for other in others {
                let ordered = self.leads(id, other).or_else(|| self.leads(other, id));
                if ordered.is_none() && self.is_complete(id) && self.is_complete(other) {
                    let brief = |id| self.decided.get(&id).map(Choice::brief);
                    return Err(format!(
                        "{id:?} and {other:?} conflict and are not ordered: {:?} and {:?}",
                        brief(id),
                        brief(other)
                    ));
                }
                self.pairs += u64::from(ordered == Some(true));
            }
        }
        Ok(())
    }

    /// Whether a chain of dependencies leads from one instance to another; none if it was not
    /// found.
    fn leads(&self, from: InstanceId, to: InstanceId) -> Option<bool> {
        let (mut seen, mut next) = (BTreeSet::new(), Vec::from([from]));
        while let Some(id) = next.pop() {
            if seen.len() > STEPS {
                return Some(false);
            }
            let Some(Choice::Command { deps, .. }) = self.decided.get(&id) else {
                continue;
            };
            if deps.contains(to) {
                return Some(true);
            }
            next.extend(deps.exact().iter().copied().filter(|id| seen.insert(*id)));
            for (space, below) in deps.below() {
                let all = InstanceId::new(*space, 0)..InstanceId::new(*space, *below);
                let known = self.decided.range(all).map(|(id, _)| *id);
                next.extend(known.filter(|id| seen.insert(*id)));
            }
        }
        None
    }

    /// Whether all that an instance depends on, over any number of others, is decided: else a chain
    /// may still be found.
    fn is_complete(&self, from: InstanceId) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), Vec::from([from]));
        while let Some(id) = next.pop() {
            match self.decided.get(&id) {
                None => return false,
                Some(Choice::Noop {}) => {}
                Some(Choice::Command { deps, .. }) => {
                    next.extend(deps.exact().iter().copied().filter(|id| seen.insert(*id)));
                    for (space, below) in deps.below() {
                        let all = (0..*below).map(|number| InstanceId::new(*space, number));
                        next.extend(all.filter(|id| seen.insert(*id)));
                    }
                }
            }
            if seen.len() > STEPS {
                return false;
            }
        }
        true
    }
}
