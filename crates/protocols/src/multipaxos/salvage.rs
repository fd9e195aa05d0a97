//! What the records of stopped nodes say of the log.

use super::config::Config;
use super::kind;
use crate::parts::salvage::Votes;
use alloc::format;
use bytes::Bytes;
use ionian_kernel::id::{AcceptorId, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError};
use ionian_kernel::salvage::Salvaged;
use ionian_kernel::wire::{WireError, decode_all, encode_all};

/// See the top of this file.
#[derive(Default)]
pub(super) struct Salvage(Votes);

impl ionian_kernel::salvage::Salvage for Salvage {
    fn read(&mut self, node: &str, author: Address, record: &Bytes) -> Result<(), WireError> {
        if author.kind == kind::Acceptor {
            let record = decode_all(record)?;
            self.0.read(node, AcceptorId(author.index), record);
        }
        Ok(())
    }

    fn finish(&self, start: Slot, known: Option<Layout>) -> Result<Salvaged, LayoutError> {
        let Salvage(votes) = self;
        let config = known.map(Config::new).transpose()?;
        let values = votes.from(start);
        let values = values.map(|(slot, vote)| (slot, Some(encode_all(&vote.value).into())));
        Ok(Salvaged {
            values: values.collect(),
            is_complete: config.is_some_and(|config| votes.are_enough(&config)),
            forgotten: votes.forgotten,
            sources: format!("the votes of {} acceptors", votes.acceptors.len()),
        })
    }
}
