//! What the records of stopped nodes say of the log: acceptors hold the references in it, and
//! stabilizers what these stand for.
//!
//! A reference is voted for only when a write quorum of stabilizers stores its payload. So of a
//! read quorum one has it, or has forgotten it because replicas keep its slot.

use super::config::Config;
use super::id::StabilizerId;
use super::message::{PayloadId, Reference};
use super::{kind, stabilizer};
use crate::parts::message::Vote;
use crate::parts::salvage::{Authors, Votes, members};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use bytes::Bytes;
use ionian_kernel::id::{AcceptorId, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError};
use ionian_kernel::salvage::Salvaged;
use ionian_kernel::wire::{WireError, decode_all, encode_all};
use ionian_replication::batch::{Batch, Value};

/// See the top of this file.
#[derive(Default)]
pub(super) struct Salvage {
    votes: Votes,
    payloads: BTreeMap<PayloadId, Batch>,
    stabilizers: Authors<StabilizerId>,
}

impl Salvage {
    /// What is executed in a slot where this is chosen; `None` if no stabilizer here has it.
    fn value(&self, slot: Slot, vote: &Vote) -> Option<Value> {
        let batch = match Reference::of(&vote.value.batch) {
            None => vote.value.batch.clone(),
            Some(reference) if reference.is_void(slot) => Batch::default(),
            Some(reference) => self.payloads.get(&reference.id)?.clone(),
        };
        let stamp = vote.value.stamp;
        Some(Value { stamp, batch })
    }

    fn are_enough(&self, config: &Config) -> bool {
        let stabilizers = members(&self.stabilizers, config.layout(), kind::Stabilizer);
        self.votes.are_enough(&config.ordering) && config.stabilizers.is_read_quorum(stabilizers)
    }
}

impl ionian_kernel::salvage::Salvage for Salvage {
    fn read(&mut self, node: &str, author: Address, record: &Bytes) -> Result<(), WireError> {
        match author.kind {
            kind::Acceptor => {
                let record = decode_all(record)?;
                self.votes.read(node, AcceptorId(author.index), record);
            }
            kind::Stabilizer => {
                let stabilizer = (StabilizerId(author.index), node.to_owned());
                self.stabilizers.insert(stabilizer);
                match decode_all(record)? {
                    stabilizer::Record::Kept { payload, .. } => {
                        self.payloads.insert(payload.id, payload.batch);
                    }
                    // Others have taken over its payloads in a change of this epoch.
                    stabilizer::Record::Sealed { epoch } => {
                        self.votes.epoch = self.votes.epoch.max(epoch);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, start: Slot, known: Option<Layout>) -> Result<Salvaged, LayoutError> {
        let config = known.map(Config::new).transpose()?;
        let is_complete = config.is_some_and(|config| self.are_enough(&config));
        let (mut values, mut forgotten) = (BTreeMap::new(), self.votes.forgotten);
        for (slot, vote) in self.votes.from(start) {
            let value = self.value(slot, vote);
            if is_complete && value.is_none() {
                forgotten = forgotten.max(slot.next());
            }
            values.insert(slot, value.map(|value| encode_all(&value).into()));
        }
        let (acceptors, stabilizers) = (self.votes.acceptors.len(), self.stabilizers.len());
        let sources = format!(
            "the votes of {acceptors} acceptors and the payloads of {stabilizers} stabilizers"
        );
        Ok(Salvaged {
            values,
            is_complete,
            forgotten,
            sources,
        })
    }
}
