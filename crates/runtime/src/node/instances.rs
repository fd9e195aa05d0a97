//! The role instances of a node: where they come from.

use super::settings::NodeSettings;
use crate::error::NodeError;
use crate::storage::disk_log::DiskPast;
use crate::storage::error::LogError;
use crate::storage::log::Past;
use crate::storage::recovery;
use bytes::Bytes;
use ionian_kernel::guard::Guard;
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::node::Node;
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;
use ionian_kernel::wire::Reader;
use std::sync::Arc;

/// Where role instances come from.
pub(crate) struct Nursery {
    pub(crate) node: NodeId,
    /// Random: no two lives of a node draw the same numbers.
    pub(crate) seed: u64,
    pub(crate) keeps_records: bool,
    pub(crate) machine: Box<dyn Fn() -> Box<dyn StateMachine>>,
    pub(crate) guard: Arc<dyn Guard>,
}

impl Nursery {
    /// Makes the instances that the layout places on this node and that do not live there yet.
    pub(crate) fn populate<P: Protocol>(
        &self,
        node: &mut Node<P>,
        (layout, config): (&Layout, &P::Config),
        amnesiac: bool,
    ) {
        let Nursery {
            keeps_records,
            machine,
            guard,
            ..
        } = self;
        let missing = layout
            .on_node(self.node)
            .into_iter()
            .filter(|address| !node.hosts(*address));
        for address in missing.collect::<Vec<Address>>() {
            let seed = seed_of(self.seed, layout.epoch, address);
            let keeps_records = *keeps_records;
            let birth = Birth {
                address,
                node: self.node,
                seed,
                amnesiac,
                keeps_records,
                machine,
                guard: Some(guard),
            };
            node.host(address, P::instantiate(config, birth));
        }
    }
}

/// Makes the instances of this node and gives each what it stored before.
pub(crate) fn build<P: Protocol>(
    settings: &NodeSettings,
    config: &P::Config,
    nursery: &Nursery,
    past: Past,
) -> Result<Node<P>, NodeError> {
    let mut node = Node::new(config, nursery.keeps_records);
    nursery.populate(&mut node, (&settings.layout, config), past.is_lost());
    // In a cluster that has never changed, whoever has a record lives where it was written.
    let may_have_left = settings.layout.epoch > Epoch::default();
    let mut left = 0;
    let mut has_left = |node: &Node<P>, from: Address| {
        let has_left = may_have_left && !node.hosts(from);
        left += u64::from(has_left);
        has_left
    };
    match past {
        Past::Memory(recovered) => {
            for (position, record) in (1..).zip(recovered.records) {
                if has_left(&node, record.from) {
                    continue;
                }
                recover(&mut node, record.from, Lsn(position), &record.record)?;
            }
        }
        Past::Disk(past) => {
            let DiskPast { snapshots, records } = *past;
            let hosted = settings.layout.on_node(settings.node);
            match may_have_left {
                true => snapshots.delete_others(&hosted)?,
                false => snapshots.check_owners(&hosted)?,
            }
            for address in hosted {
                let Some((stamp, snapshot)) = snapshots.load(address)? else {
                    continue;
                };
                let restored = node.restore(address, stamp, &snapshot);
                let (role, index) = (role_name::<P>(address), address.index);
                restored.map_err(|source| NodeError::Snapshot {
                    role,
                    index,
                    source,
                })?;
            }
            for entry in records {
                let entry = entry.map_err(LogError::from)?;
                let (from, lsn) = (recovery::author(&entry), Lsn(entry.lsn));
                if has_left(&node, from) {
                    continue;
                }
                recover(&mut node, from, lsn, &entry.record.into())?;
            }
        }
    }
    if left > 0 {
        tracing::info!("{left} records of roles that have left this node are passed over");
    }
    Ok(node)
}

fn recover<P: Protocol>(
    node: &mut Node<P>,
    from: Address,
    lsn: Lsn,
    record: &Bytes,
) -> Result<(), NodeError> {
    let mut reader = Reader::new(record);
    let read = node
        .recover(from, lsn, &mut reader)
        .and_then(|()| reader.finish());
    read.map_err(|source| NodeError::Record {
        role: role_name::<P>(from),
        index: from.index,
        source,
    })
}

fn role_name<P: Protocol>(address: Address) -> String {
    P::KINDS
        .get(address.kind as usize)
        .map_or("an unknown role", |name| name)
        .to_owned()
}

/// Different instances draw different numbers, and so do those that have the same number one after
/// the other.
fn seed_of(seed: u64, epoch: Epoch, address: Address) -> u64 {
    let who = u64::from(address.kind) << 8 | u64::from(address.index);
    Random::new(seed ^ who << 48 ^ u64::from(epoch.0)).any()
}
