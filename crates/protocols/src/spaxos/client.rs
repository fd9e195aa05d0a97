//! The client lane: that of MultiPaxos, whose commands go to a batcher, or to a disseminator where
//! the deployment has no batchers.
//!
//! Stands at both ends of the chart.

use super::config::Config;
use super::{Envelope, batcher};
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
    Adapted::new(
        lane,
        birth.keeps_records,
        Commands {
            go_to_batchers: config.has_batchers(),
        },
    )
}

/// Commands go to batchers where there are any; all else is said as it is.
pub struct Commands {
    go_to_batchers: bool,
}

impl Translate for Commands {
    type From = multipaxos::Envelope;
    type To = Envelope;
    type Config = Config;
    type Within = Arc<multipaxos::config::Config>;

    fn within(&mut self, config: &Config) -> Self::Within {
        self.go_to_batchers = config.has_batchers();
        config.lanes.clone()
    }

    fn translate(&self, envelope: multipaxos::Envelope) -> Envelope {
        use multipaxos::Envelope as Theirs;
        use multipaxos::batcher::In as ToBatcher;
        match envelope {
            Theirs::ToBatchers(batchers, ToBatcher::Commands { commands })
                if self.go_to_batchers =>
            {
                Envelope::ToBatchers(batchers, batcher::In::Commands { commands })
            }
            envelope @ (Theirs::ToBatchers(
                _,
                ToBatcher::Commands { .. }
                | ToBatcher::BatchesChosen { .. }
                | ToBatcher::NewLeader { .. }
                | ToBatcher::NotLeader { .. },
            )
            | Theirs::ToClients(..)
            | Theirs::ToReadBatchers(..)
            | Theirs::ToLeaders(..)
            | Theirs::ToProxyLeaders(..)
            | Theirs::ToAcceptors(..)
            | Theirs::ToReplicas(..)
            | Theirs::ToUnbatchers(..)
            | Theirs::ToRelays(..)
            | Theirs::ToApplication(..)) => envelope.into(),
        }
    }
}
