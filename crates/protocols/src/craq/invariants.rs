//! What must hold over all roles at once, at every moment of every run. The simulator asks after
//! each event.

use super::chain_node::ChainNode;
use super::id::ChainEpoch;
use super::message::Chain;
use super::{Craq, Instance};
use crate::multipaxos::invariants::{Invariants as Ordering, one_leads};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::Slot;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_kernel::small_map::SmallMap;
use ionian_replication::batch::Value;

/// What was seen so far in one run.
pub struct Invariants {
    /// What MultiPaxos says of the master's log.
    master: Ordering,
    /// The members of the chain of each epoch.
    chains: SmallMap<ChainEpoch, Chain>,
    /// What was applied under each number.
    applied: BTreeMap<Slot, Value>,
    /// How far members had applied in each epoch.
    committed: SmallMap<ChainEpoch, Slot>,
    nodes: SmallMap<Address, Seen>,
}

/// What was seen of a chain node, in its present life.
#[derive(Clone, Debug)]
struct Seen {
    epoch: ChainEpoch,
    place: Option<usize>,
    applied: Slot,
    received: Slot,
    /// What it has received and not applied.
    pending: BTreeMap<Slot, Value>,
}

impl protocol::Invariants<Craq> for Invariants {
    fn new(config: &Arc<super::config::Config>) -> Self {
        Invariants {
            master: protocol::Invariants::new(&config.master),
            chains: SmallMap::new(),
            applied: BTreeMap::new(),
            committed: SmallMap::new(),
            nodes: SmallMap::new(),
        }
    }

    fn reconfigured(&mut self, config: &Arc<super::config::Config>) {
        protocol::Invariants::reconfigured(&mut self.master, &config.master);
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self
                .master
                .check_acceptor(address, acceptor.core())
                .map(drop),
            Instance::Master(replica) => {
                let check = |_, voted: &Value, value: &Value| voted == value;
                self.master.check_replica(address, replica.core(), check)
            }
            Instance::ChainNode(node) => self.check_chain_node(address, node),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        protocol::Invariants::crashed(&mut self.master, address);
        self.nodes.remove(&address);
    }

    fn awaited(&self, instances: &[(Address, &Instance)]) -> Option<String> {
        let leaders = instances.iter().filter_map(|(_, instance)| match instance {
            Instance::Leader(leader) => Some(leader.is_leading()),
            _ => None,
        });
        one_leads(leaders)
    }
}

impl Invariants {
    fn check_chain_node(&mut self, address: Address, node: &ChainNode) -> Result<(), String> {
        self.check_chain(address, node)?;
        let (applied, received) = (node.applied(), node.received());
        let standing = (node.chain().epoch, node.place());
        let before = self.nodes.get(&address);
        let same = |it: &Seen| {
            (it.applied, it.received) == (applied, received) && (it.epoch, it.place) == standing
        };
        if before.is_some_and(same) {
            return Ok(());
        }
        let before = before.map_or(Slot::ZERO, |it| it.applied);
        for (slot, value) in node
            .entries_from(before)
            .take_while(|(slot, _)| *slot < applied)
        {
            let known = self.applied.entry(slot).or_insert_with(|| value.clone());
            if known != value {
                return Err(format!(
                    "chain node {} applies another entry under {slot:?}",
                    address.index
                ));
            }
        }
        let pending = node.entries_from(applied);
        let seen = Seen {
            epoch: standing.0,
            place: standing.1,
            applied,
            received,
            pending: pending.map(|(slot, value)| (slot, value.clone())).collect(),
        };
        self.check_order(address, &seen)?;
        if seen.place.is_some() {
            let committed = self.committed.entry(seen.epoch).or_default();
            *committed = (*committed).max(seen.applied);
        }
        self.nodes.insert(address, seen);
        self.check_committed()
    }

    /// What a member has applied in an epoch was committed in it or before, so each member of that
    /// or a later one has received it.
    fn check_committed(&self) -> Result<(), String> {
        let lacks = |seen: &Seen| {
            let until = self
                .committed
                .iter()
                .filter(|(epoch, _)| **epoch <= seen.epoch);
            let committed = until.map(|(_, slot)| *slot);
            seen.place.is_some() && committed.max() > Some(seen.received)
        };
        match self.nodes.iter().find(|(_, seen)| lacks(seen)) {
            None => Ok(()),
            Some((address, seen)) => Err(format!(
                "chain node {} is a member in {:?}, and has only what is below {:?}",
                address.index, seen.epoch, seen.received
            )),
        }
    }

    /// One chain in an epoch.
    fn check_chain(&mut self, address: Address, node: &ChainNode) -> Result<(), String> {
        let chain = node.chain();
        let known = self
            .chains
            .entry(chain.epoch)
            .or_insert_with(|| chain.clone());
        let members = |chain: &Chain| -> Vec<_> {
            let members = chain.members.iter();
            members.map(|member| (member.node, member.life)).collect()
        };
        match members(known) == members(chain) {
            true => Ok(()),
            false => Err(format!(
                "chain node {} has another chain in {:?}",
                address.index, chain.epoch
            )),
        }
    }

    /// "A node's history contains that of every node after it" (chain replication, the update
    /// propagation invariant), in one epoch: so what the tail has committed every member has.
    fn check_order(&self, address: Address, seen: &Seen) -> Result<(), String> {
        let Some(place) = seen.place else {
            return Ok(());
        };
        for (other, theirs) in &self.nodes {
            let Some(their_place) = theirs.place.filter(|_| theirs.epoch == seen.epoch) else {
                continue;
            };
            if *other == address {
                continue;
            }
            let (first, second) = match place < their_place {
                true => (seen, theirs),
                false => (theirs, seen),
            };
            if first.received < second.received {
                return Err(format!(
                    "of chain nodes {} and {} the first has less than the other: {:?} and {:?}",
                    address.index, other.index, first.received, second.received
                ));
            }
            for (slot, value) in &first.pending {
                let other = second.pending.get(slot).or_else(|| {
                    let applied = *slot < second.applied;
                    self.applied.get(slot).filter(|_| applied)
                });
                if other.is_some_and(|other| other != value) {
                    return Err(format!(
                        "chain node {} and another have different entries under {slot:?}",
                        address.index
                    ));
                }
            }
        }
        Ok(())
    }
}
