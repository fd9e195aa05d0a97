//! What must hold over all roles at once, at every moment of every run. The simulator asks after
//! each event.

use super::message::{PayloadId, Reference};
use super::stabilizer::Stabilizer;
use super::{Instance, SPaxos};
use crate::multipaxos::acceptor::Acceptor;
use crate::multipaxos::invariants::{Invariants as Ordering, one_leads};
use crate::multipaxos::replica::Replica;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_kernel::status::Status;
use ionian_replication::batch::Batch;

/// What was seen so far in one run.
pub struct Invariants {
    config: super::config::Config,
    /// What MultiPaxos says of votes, which are for references here.
    ordering: Ordering,
    /// What each payload is.
    payloads: BTreeMap<PayloadId, Batch>,
    /// In which slot each payload was voted for.
    voted: BTreeMap<PayloadId, Slot>,
    stabilizers: BTreeMap<Address, Holder>,
    /// The furthest that each replica ever kept.
    kept: BTreeMap<Address, Slot>,
    /// References that a replica was told are chosen, by slot.
    chosen: BTreeMap<Slot, Reference>,
}

/// What is known of a stabilizer.
#[derive(Default)]
struct Holder {
    changes: u64,
    held: BTreeSet<PayloadId>,
    /// Whether what it held is lost, and not copied yet.
    lost: bool,
    keeps_records: bool,
}

impl protocol::Invariants<SPaxos> for Invariants {
    fn new(config: &super::config::Config) -> Self {
        Invariants {
            config: config.clone(),
            ordering: protocol::Invariants::new(&config.ordering),
            payloads: BTreeMap::new(),
            voted: BTreeMap::new(),
            stabilizers: BTreeMap::new(),
            kept: BTreeMap::new(),
            chosen: BTreeMap::new(),
        }
    }

    fn reconfigured(&mut self, config: &super::config::Config) {
        protocol::Invariants::reconfigured(&mut self.ordering, &config.ordering);
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor),
            Instance::Stabilizer(stabilizer) => self.check_stabilizer(address, stabilizer),
            Instance::Replica(replica) => self.check_replica(address, replica),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        protocol::Invariants::crashed(&mut self.ordering, address);
        if let Some(holder) = self
            .stabilizers
            .get_mut(&address)
            .filter(|holder| !holder.keeps_records)
        {
            (holder.lost, holder.changes) = (true, 0);
            holder.held.clear();
        }
    }

    fn awaited(&self, instances: &[(Address, &Instance)]) -> Option<String> {
        one_leads(instances.iter().filter_map(|(_, instance)| match instance {
            Instance::Leader(leader) => Some(leader.is_leading()),
            _ => None,
        }))
    }
}

impl Invariants {
    /// "The leader knows the command is stable. It then uses the id as a proxy for the command"
    /// (7): an id never reaches the log unless its payload can be had while f failures hold. And it
    /// reaches one slot only, which is what lets stabilizers forget it.
    fn check_acceptor(&mut self, address: Address, acceptor: &Acceptor) -> Result<(), String> {
        if !self.ordering.check_acceptor(address, acceptor.core())? {
            return Ok(());
        }
        for (slot, vote) in acceptor.core().votes() {
            let Some(reference) = Reference::of(&vote.value.batch) else {
                continue;
            };
            match self.voted.insert(reference.id, slot) {
                Some(other) if other != slot => {
                    return Err(format!(
                        "{:?} was given two slots, {other:?} and {slot:?}",
                        reference.id
                    ));
                }
                Some(_) => {}
                None => self.check_can_be_had(slot, &reference)?,
            }
        }
        Ok(())
    }

    /// A payload whose slot f+1 replicas do not keep is held by so many that f failures leave one.
    /// Who has lost its memory counts among the failures, and so not among those that hold what
    /// came since: it may fail again.
    fn check_can_be_had(&self, slot: Slot, reference: &Reference) -> Result<(), String> {
        let lost = self
            .stabilizers
            .values()
            .filter(|holder| holder.lost)
            .count();
        let holds = |holder: &&Holder| !holder.lost && holder.held.contains(&reference.id);
        let held = self.stabilizers.values().filter(holds).count();
        if held + lost > self.config.ordering.f()
            || slot < self.kept_by_enough()
            || reference.is_void(slot)
        {
            return Ok(());
        }
        let id = reference.id;
        Err(format!(
            "{id:?}, voted for in {slot:?}, is held by {held} stabilizers, and {lost} have lost their memory"
        ))
    }

    /// What f+1 replicas keep.
    fn kept_by_enough(&self) -> Slot {
        let mut kept: Vec<Slot> = self.kept.values().copied().collect();
        kept.sort_unstable_by(|a, b| b.cmp(a));
        kept.get(self.config.ordering.f())
            .copied()
            .unwrap_or_default()
    }

    /// A payload is what it is, whoever holds it.
    fn check_stabilizer(
        &mut self,
        address: Address,
        stabilizer: &Stabilizer,
    ) -> Result<(), String> {
        let holder = self.stabilizers.entry(address).or_default();
        let is_whole_again = holder.lost && !stabilizer.is_amnesiac();
        (holder.lost, holder.keeps_records) =
            (stabilizer.is_amnesiac(), stabilizer.keeps_records());
        if holder.changes == stabilizer.changes() && !is_whole_again {
            return Ok(());
        }
        holder.changes = stabilizer.changes();
        let mut forgot: BTreeSet<PayloadId> = core::mem::take(&mut holder.held);
        for (id, batch) in stabilizer.payloads() {
            let known = self.payloads.entry(id).or_insert_with(|| batch.clone());
            if known != batch {
                return Err(format!("there are two payloads {id:?}"));
            }
            forgot.remove(&id);
            holder.held.insert(id);
        }
        let at_stake = self
            .chosen
            .iter()
            .filter(|(_, reference)| is_whole_again || forgot.contains(&reference.id));
        at_stake
            .into_iter()
            .try_for_each(|(slot, reference)| self.check_can_be_had(*slot, reference))
    }

    /// Replicas execute in each slot the payload of the reference that was chosen there, or nothing
    /// where it is void.
    fn check_replica(&mut self, address: Address, replica: &Replica) -> Result<(), String> {
        let kept = Status::of(replica).stored.unwrap_or_default();
        let known = self.kept.entry(address).or_default();
        *known = kept.max(*known);
        let Invariants {
            ordering,
            payloads,
            chosen,
            ..
        } = self;
        ordering.check_replica(address, replica.core(), |slot, voted, value| {
            let reference = Reference::of(&voted.batch);
            let stands_for = match &reference {
                _ if voted.stamp != value.stamp => false,
                None => voted.batch == value.batch,
                Some(reference) if reference.is_void(slot) => value.batch.is_empty(),
                Some(reference) => payloads.get(&reference.id) == Some(&value.batch),
            };
            chosen.extend(
                reference
                    .filter(|_| stands_for)
                    .map(|reference| (slot, reference)),
            );
            stands_for
        })
    }
}
