//! Creates the role instances of a node, and gives them their snapshots and records.

use super::startup::{Startup, StartupWatch};
use super::workers;
use crate::error::NodeError;
use crate::storage::disk_log::DiskPast;
use crate::storage::error::LogError;
use crate::storage::log::Past;
use crate::storage::recovery::author;
use bytes::Bytes;
use ionian_kernel::guard::Guard;
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::node::Node;
use ionian_kernel::node::role_loop::Instances;
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;
use ionian_kernel::wire::Reader;
use std::sync::Arc;

/// Creates the role instances of a node.
pub(crate) struct InstanceFactory {
    pub(crate) node: NodeId,
    /// Random: no two processes of a node draw the same numbers.
    pub(crate) seed: u64,
    pub(crate) keeps_records: bool,
    /// How many data directories of the node were lost before the present one.
    pub(crate) predecessors: u32,
    pub(crate) machine: Box<dyn Fn() -> Box<dyn StateMachine>>,
    pub(crate) guard: Arc<dyn Guard>,
}

impl InstanceFactory {
    /// Creates the instances that the layout places on this node and that are not here yet.
    pub(crate) fn missing<P: Protocol>(
        &self,
        is_here: impl Fn(Address) -> bool,
        layout: &Layout,
        config: &P::Config,
        amnesiac: bool,
    ) -> Instances<P> {
        let mut missing = layout.on_node(self.node);
        missing.retain(|address| !is_here(*address));
        let create = |address| {
            let birth = Birth {
                address,
                node: self.node,
                seed: seed_of(self.seed, layout.epoch, address),
                amnesiac,
                predecessors: self.predecessors,
                keeps_records: self.keeps_records,
                machine: &self.machine,
                guard: Some(&self.guard),
                workers: Some(&workers::hire),
            };
            (address, P::instantiate(config, birth))
        };
        missing.into_iter().map(create).collect()
    }
}

/// Creates the instances of this node and gives each what it stored before.
pub(crate) fn recover_instances<P: Protocol>(
    layout: &Layout,
    config: &P::Config,
    factory: &InstanceFactory,
    past: Past,
    watch: &StartupWatch,
) -> Result<Node<P>, NodeError> {
    let mut node = Node::new(config, factory.keeps_records);
    for (address, instance) in factory.missing::<P>(|_| false, layout, config, past.is_lost()) {
        node.host(address, instance);
    }
    let mut instances = Recovering {
        node: &mut node,
        may_have_left: layout.epoch > Epoch::default(),
        left: 0,
        watch,
    };
    match past {
        Past::Memory(recovered) => {
            for (position, record) in (1..).zip(recovered.records) {
                instances.recover(record.from, Lsn(position), &record.record)?;
            }
        }
        Past::Disk(past) => {
            let DiskPast { snapshots, records } = *past;
            let hosted = layout.on_node(factory.node);
            match instances.may_have_left {
                true => snapshots.delete_others(&hosted)?,
                false => snapshots.check_owners(&hosted)?,
            }
            for address in hosted {
                watch.report(Startup::Opening);
                instances.restore(address, snapshots.load(address)?)?;
            }
            for entry in records {
                let entry = entry.map_err(LogError::from)?;
                let (from, lsn) = (author(&entry), Lsn(entry.lsn));
                instances.recover(from, lsn, &entry.record.into())?;
            }
        }
    }
    if instances.left > 0 {
        let left = instances.left;
        tracing::info!("{left} records of roles that have left this node are skipped");
    }
    Ok(node)
}

/// Gives the instances of a node their snapshots and records.
struct Recovering<'a, P: Protocol> {
    node: &'a mut Node<P>,
    /// Whether a role with records may have left this node. In a cluster that has never changed,
    /// every role is where it wrote its records.
    may_have_left: bool,
    /// How many records are of such roles.
    left: u64,
    watch: &'a StartupWatch,
}

impl<P: Protocol> Recovering<'_, P> {
    fn restore(
        &mut self,
        address: Address,
        snapshot: Option<(u64, Bytes)>,
    ) -> Result<(), NodeError> {
        let Some((stamp, snapshot)) = snapshot else {
            return Ok(());
        };
        self.node
            .restore(address, stamp, &snapshot)
            .map_err(|source| NodeError::Snapshot {
                role: role_name::<P>(address),
                index: address.index,
                source,
            })
    }

    fn recover(&mut self, from: Address, lsn: Lsn, record: &Bytes) -> Result<(), NodeError> {
        self.watch.report(Startup::Recovering);
        if self.may_have_left && !self.node.hosts(from) {
            self.left += 1;
            return Ok(());
        }
        let mut reader = Reader::new(record);
        let read = self
            .node
            .recover(from, lsn, &mut reader)
            .and_then(|()| reader.finish());
        read.map_err(|source| NodeError::Record {
            role: role_name::<P>(from),
            index: from.index,
            source,
        })
    }
}

fn role_name<P: Protocol>(address: Address) -> String {
    P::KINDS
        .get(address.kind as usize)
        .map_or("an unknown role", |name| name)
        .to_owned()
}

/// The seed of an instance: different for each instance, and for each epoch, since a later instance
/// may have the address of an earlier one.
fn seed_of(seed: u64, epoch: Epoch, address: Address) -> u64 {
    let who = u64::from(address.kind) << 8 | u64::from(address.index);
    Random::new(seed ^ who << 48 ^ u64::from(epoch.0)).any()
}
