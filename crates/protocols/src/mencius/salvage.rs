//! What the records of stopped nodes say of the log: the votes in each stripe, but for those in
//! slots that a leader of a later round has reserved and may have skipped.

use super::acceptor::Record;
use super::config::Config;
use super::leader::ReservedRanges;
use super::stripe::{Stripe, StripePosition};
use super::{Mencius, kind};
use crate::multipaxos::config::Highest;
use crate::parts::leader::Notes;
use crate::parts::salvage::{Authors, Votes, members};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec;
use bytes::Bytes;
use ionian_kernel::id::{AcceptorId, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::salvage::Salvaged;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::wire::{WireError, decode_all, encode_all};

/// See the top of this file.
#[derive(Default)]
pub(super) struct Salvage {
    stripes: SmallMap<Stripe, (Votes, ReservedRanges)>,
    acceptors: Authors<AcceptorId>,
}

impl ionian_kernel::salvage::Salvage for Salvage {
    fn read(&mut self, node: &str, author: Address, record: &Bytes) -> Result<(), WireError> {
        if author.kind != kind::Acceptor {
            return Ok(());
        }
        let acceptor = AcceptorId(author.index);
        self.acceptors.insert((acceptor, node.to_owned()));
        match decode_all(record)? {
            Record::InStripe { stripe, record } => {
                let (votes, _) = self.stripes.entry(stripe).or_default();
                votes.read(node, acceptor, record);
            }
            Record::Reserved { stripe, reserved } => {
                let (votes, ranges) = self.stripes.entry(stripe).or_default();
                votes.epoch = votes.epoch.max(reserved.round.epoch());
                ranges.add(vec![reserved]);
            }
        }
        Ok(())
    }

    fn finish(&self, start: Slot, known: Option<Layout>) -> Result<Salvaged, LayoutError> {
        // How many stripes there are, only the deployment says.
        let known = known.ok_or_else(|| {
            let name = Mencius::NAME;
            LayoutError(format!(
                "{name} needs a deployment: name its file with --config"
            ))
        })?;
        let config = Config::new(known)?;
        let mut salvaged = Salvaged {
            is_complete: true,
            sources: format!("the votes of {} acceptors", self.acceptors.len()),
            ..Salvaged::default()
        };
        let nothing = Default::default();
        for stripe in config.stripes.iter() {
            let (votes, ranges) = self.stripes.get(&stripe).unwrap_or(&nothing);
            for (position, vote) in votes.from(config.stripes.from(stripe, start).in_part()) {
                let slot = config
                    .stripes
                    .slot(stripe, StripePosition::of_part(position));
                if ranges.counts(position, vote.round) {
                    let value = encode_all(&vote.value).into();
                    salvaged.values.insert(slot, Some(value));
                }
            }
            let forgotten = config
                .stripes
                .end(stripe, StripePosition::of_part(votes.forgotten));
            salvaged.forgotten = salvaged.forgotten.max(forgotten);
            // One whose log says nothing of this stripe knows of no write there.
            let members = members(&self.acceptors, config.layout(), kind::Acceptor);
            let epochs = Highest::new(votes.epoch);
            salvaged.is_complete &= config.of(stripe).can_read(members, epochs);
        }
        Ok(salvaged)
    }
}
