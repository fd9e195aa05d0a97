//! The client lane: that of MultiPaxos, whose commands go to servers.
//!
//! Stands at both ends of the chart. A lane goes round all servers with what is not answered, under
//! the same number: so no command stays with a shard that is closed (see `server.rs` for what a
//! server of a closed shard does), and sessions execute it once, though it may lie in two shards.

use super::config::Config;
use super::id::servers;
use super::{Envelope, server};
use crate::multipaxos;
pub use crate::multipaxos::client::In;
use alloc::sync::Arc;
use ionian_kernel::adapted::{Adapted, Translate};
use ionian_kernel::protocol::Birth;

/// A client lane.
pub type ClientLane = Adapted<multipaxos::client::ClientLane, Commands>;

/// The lane of this birth.
pub fn lane(config: &Config, birth: &Birth<'_>) -> ClientLane {
    let lane = multipaxos::client::ClientLane::new(config.lanes.clone(), birth);
    Adapted::new(lane, birth.keeps_records, Commands)
}

/// Commands go to servers; all else is sent as it is.
pub struct Commands;

impl Translate for Commands {
    type From = multipaxos::Envelope;
    type To = Envelope;
    type Config = Config;
    type Within = Arc<multipaxos::config::Config>;

    fn within(&mut self, config: &Config) -> Self::Within {
        config.lanes.clone()
    }

    fn translate(&self, envelope: multipaxos::Envelope) -> Envelope {
        use multipaxos::batcher::In as ToBatcher;
        match envelope {
            multipaxos::Envelope::ToBatchers(batchers, ToBatcher::Commands { commands }) => {
                Envelope::ToServers(servers(batchers), server::In::Commands { commands })
            }
            envelope => envelope.into(),
        }
    }
}
