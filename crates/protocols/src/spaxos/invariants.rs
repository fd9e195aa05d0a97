//! What must hold over all roles at once, at every moment of every run. The simulator asks after
//! each event.

use super::config::Config;
use super::id::StabilizerId;
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
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::Status;
use ionian_replication::batch::Batch;

/// What was seen so far in one run.
pub struct Invariants {
    /// The latest configuration that some node has had.
    config: Config,
    /// What MultiPaxos says of votes, which are for references here.
    ordering: Ordering,
    /// What each payload is, and the round in which it is to be ordered.
    payloads: BTreeMap<PayloadId, (Round, Batch)>,
    /// In which slot each payload was voted for.
    voted: BTreeMap<PayloadId, (Slot, Reference)>,
    /// A change of the membership is over, and what was voted for is to be checked again.
    has_changed: bool,
    stabilizers: SmallMap<Address, Holder>,
    /// The furthest that each replica ever kept.
    kept: SmallMap<Address, Slot>,
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
    fn new(config: &Config) -> Self {
        Invariants {
            config: config.clone(),
            ordering: protocol::Invariants::new(&config.ordering),
            payloads: BTreeMap::new(),
            voted: BTreeMap::new(),
            has_changed: false,
            stabilizers: SmallMap::new(),
            kept: SmallMap::new(),
            chosen: BTreeMap::new(),
        }
    }

    fn reconfigured(&mut self, config: &Config) {
        protocol::Invariants::reconfigured(&mut self.ordering, &config.ordering);
        if config.epoch() > self.config.epoch() {
            self.config = config.clone();
            self.has_changed = !config.is_joint();
            // Those that have left are of no account, nor those that had the numbers of new ones.
            let layout = config.layout();
            let stays = |address: &Address| {
                let places = layout.instances.get(usize::from(address.kind));
                places.is_some_and(|places| places.node_of(address.index).is_some())
            };
            self.stabilizers.retain(|address, _| stays(address));
            self.kept.retain(|address, _| stays(address));
        }
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor)?,
            Instance::Stabilizer(stabilizer) => self.check_stabilizer(address, stabilizer)?,
            Instance::Replica(replica) => self.check_replica(address, replica)?,
            _ => {}
        }
        match core::mem::take(&mut self.has_changed) {
            true => self.check_after_change(),
            false => Ok(()),
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
            match self.voted.insert(reference.id, (slot, reference)) {
                Some((other, _)) if other != slot => {
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

    /// A vote for a payload may come to light after a change that was over before.
    fn check_after_change(&self) -> Result<(), String> {
        let mut voted = self.voted.values();
        voted.try_for_each(|(slot, reference)| self.check_can_be_had(*slot, reference))
    }

    /// A payload whose slot f+1 replicas do not keep is held by enough that f failures leave one:
    /// by stabilizers of the configuration in force; while the membership is changing by those of
    /// the one before, and, if the payload is to be ordered by the quorums of both, of the other
    /// one too.
    fn check_can_be_had(&self, slot: Slot, reference: &Reference) -> Result<(), String> {
        let Invariants {
            config, payloads, ..
        } = self;
        if reference.is_void(slot) || slot < config.ordering.frontier() {
            return Ok(());
        }
        let round = payloads.get(&reference.id).map(|(round, _)| *round);
        let keepers = &config.ordering.keepers;
        let sides = [config.stabilizers_before(), config.stabilizers_after()];
        let [before, after] = match sides {
            [Some(before), Some(after)] => {
                let is_of_both = round.is_some_and(|round| round.epoch() >= config.epoch());
                [Some(before), Some(after).filter(|_| is_of_both)]
            }
            _ => [Some(&config.stabilizers), None],
        };
        let in_force = [before.zip(keepers.first()), after.zip(keepers.last())];
        in_force
            .into_iter()
            .flatten()
            .try_for_each(|(stabilizers, keepers)| {
                self.check_held(slot, reference.id, stabilizers.members(), *keepers)
            })
    }

    /// The same for one configuration. A stabilizer that has lost its memory counts among the
    /// failures, and so not among those that hold what came since: it may fail again.
    fn check_held(
        &self,
        slot: Slot,
        id: PayloadId,
        stabilizers: Set<StabilizerId>,
        (replicas, f): (Set<ReplicaId>, usize),
    ) -> Result<(), String> {
        let holders = || {
            let members = self.stabilizers.iter();
            let members = members.filter(|(at, _)| stabilizers.contains(StabilizerId(at.index)));
            members.map(|(_, holder)| holder)
        };
        let lost = holders().filter(|holder| holder.lost).count();
        let holds = |holder: &&Holder| !holder.lost && holder.held.contains(&id);
        let held = holders().filter(holds).count();
        if held + lost > f || slot < self.kept_by_enough(replicas, f) {
            return Ok(());
        }
        Err(format!(
            "{id:?}, voted for in {slot:?}, is held by {held} stabilizers, and {lost} have lost their memory"
        ))
    }

    /// What f+1 of these replicas keep.
    fn kept_by_enough(&self, replicas: Set<ReplicaId>, f: usize) -> Slot {
        let members = self.kept.iter();
        let members = members.filter(|(at, _)| replicas.contains(ReplicaId(at.index)));
        let mut kept: Vec<Slot> = members.map(|(_, kept)| *kept).collect();
        kept.sort_unstable_by(|a, b| b.cmp(a));
        kept.get(f).copied().unwrap_or_default()
    }

    /// All stabilizers that hold a payload hold the same.
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
        for (id, round, batch) in stabilizer.payloads() {
            let known = self.payloads.entry(id);
            let known = known.or_insert_with(|| (round, batch.clone()));
            if *known != (round, batch.clone()) {
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
                Some(reference) => {
                    let payload = payloads.get(&reference.id);
                    payload.is_some_and(|(_, batch)| *batch == value.batch)
                }
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
