//! Mistakes in Mencius that one role alone can make, and that a whole cluster would hide: what a replica misses it asks
//! for again.

use crate::stage::{Stage, birth};
use ionian_kernel::batch::Value;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::replica::{In, Replica};
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::mencius::{Mencius, kind};
use ionian_protocols::multipaxos;

/// How far a replica of three servers has executed when it has heard this.
fn executed_after(messages: Vec<In>, canary: Option<&'static str>) -> Slot {
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let layout = Layout { f: 1, instances: numbered(vec![nodes; 8]), canary, ..Layout::default() };
    let config = Mencius::configure(layout).expect("a deployment");
    let mut replica = Stage::new(config, &birth(kind::Replica, 0, NodeId(0)), Replica::new);
    messages.into_iter().for_each(|message| drop(replica.tell(message)));
    replica.role.executed()
}

fn skip(stripe: u8, start: u64, end: u64) -> In {
    In::Skip { stripe: Stripe(stripe), start: Slot(start), end: Slot(end) }
}

fn chosen(slot: u64) -> In {
    let message = multipaxos::replica::In::Chosen { slot: Slot(slot), value: Value::default(), replier: ReplicaId(1) };
    In::OfLog { message }
}

/// A range of skipped slots counts whole, whatever is known of some of them: by votes, or from another range.
#[test]
fn l6_a_range_of_skips_does_not_stop_at_known_slots() {
    // Slots 1, 4, 7 and 10 are those of stripe 1: 7 is chosen by votes, 1 is known to be skipped.
    let known = || vec![chosen(7), skip(1, 0, 1), skip(0, 0, 4), skip(2, 0, 4)];
    assert_eq!(executed_after(known(), None), Slot(4));
    let whole = || [vec![chosen(7), skip(1, 0, 1), skip(1, 0, 4)], vec![skip(0, 0, 4), skip(2, 0, 4)]].concat();
    assert_eq!(executed_after(whole(), None), Slot(12));
    assert_eq!(executed_after(whole(), Some("l6")), Slot(4), "the canary is not caught");
    // The same when the part that is known is executed already.
    let late = || [known(), vec![skip(1, 0, 4)]].concat();
    assert_eq!(executed_after(late(), None), Slot(12));
    assert_eq!(executed_after(late(), Some("l6")), Slot(4), "the canary is not caught");
}
