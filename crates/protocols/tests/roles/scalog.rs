//! The roles of Scalog: deployments and what its roles send each other.

#[path = "scalog/aggregator.rs"]
pub(crate) mod aggregator;
#[path = "scalog/replica.rs"]
pub(crate) mod replica;
#[path = "scalog/server.rs"]
pub(crate) mod server;

use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::service::Memory;
use ionian_protocols::scalog::config::Config;
use ionian_protocols::scalog::cut::{Cut, LogId, Shard};
use ionian_protocols::scalog::id::{Generation, ServerId};
use ionian_protocols::scalog::{Scalog, kind};
use ionian_replication::batch::Batch;

/// Two shards of two servers, two aggregators, three acceptors and two of each other role, no
/// unbatchers: each on a node of its own.
pub(crate) fn apart() -> Config {
    let mut next = (0..).map(NodeId);
    let instances = [1, 4, 2, 0, 2, 2, 3, 2, 0]
        .map(|count| next.by_ref().take(count).collect())
        .to_vec();
    let layout = Layout {
        f: 1,
        instances: numbered(instances),
        ..Layout::default()
    };
    Scalog::configure(layout).expect("a deployment")
}

/// The first generation, which slot 0 has opened.
pub(crate) const FIRST: Generation = Generation(1);

/// Both shards are open in the first generation, in which servers have these lives, and this many
/// records of each log are ordered.
pub(crate) fn ordered(lengths: [[u64; 2]; 2]) -> Cut {
    let shards = lengths.into_iter().zip([[5, 6], [7, 8]]);
    let shards = shards.map(|(lengths, lives)| Shard {
        generation: FIRST,
        is_open: true,
        since: Slot(1),
        lives: lives.into(),
        lengths: lengths.into(),
    });
    Cut {
        base: lengths.as_flattened().iter().sum(),
        shards: shards.collect(),
    }
}

/// The same, with shard 0 closed by this slot.
pub(crate) fn closed(lengths: [[u64; 2]; 2], slot: u64) -> Cut {
    let mut cut = ordered(lengths);
    (cut.shards[0].is_open, cut.shards[0].since) = (false, Slot(slot + 1));
    cut
}

pub(crate) fn log(server: u8) -> LogId {
    LogId {
        generation: FIRST,
        server: ServerId(server),
    }
}

/// Records of these numbers.
pub(crate) fn records<const N: usize>(numbers: [u64; N]) -> Vec<Batch> {
    numbers.map(record).into()
}

pub(crate) fn record(number: u64) -> Batch {
    crate::stage::of_command(number, "write")
}

/// f+1 failures: what the shard had ordered and no replica has executed is lost.
#[test]
fn servers_of_a_shard_that_have_all_lost_their_memory_are_reported_as_a_loss() {
    let service = Scalog::service(&apart(), Epoch(0));
    let is_of_servers = |memory: &&Memory| memory.by.kind == kind::Server;
    let memory = service.memories.iter().find(is_of_servers);
    let memory = memory.expect("servers remember for each other");
    let is_kept = |servers: u64| {
        memory
            .by
            .is_met(Set::<ServerId>::from_bits(servers).members())
    };
    assert!(is_kept(0b1111) && is_kept(0b0101) && is_kept(0b1010));
    assert!(!is_kept(0b1100) && !is_kept(0b0011));
    assert!(
        memory
            .lost
            .contains("records that are ordered and not executed may be lost")
    );
}
