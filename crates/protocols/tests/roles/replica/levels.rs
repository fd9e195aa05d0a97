//! A replica after the level of the cluster is lowered: programs of that level must not find what
//! came before.

use super::*;
use ionian_kernel::level::Level;
use ionian_kernel::status::Status;

fn level(base: u32, to: u16) -> Value {
    let (base, to) = (Epoch(base), Level(to));
    let change = encode_all(&Change::Level { base, to });
    let batch = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Change,
        number: u64::from(base.0),
        floor: 0,
        payload: change.into(),
    });
    Value {
        stamp: Timestamp(1000),
        batch,
    }
}

fn level_stored(replica: &Stage<Replica>) -> bool {
    Status::of(&replica.role).level_stored.expect("it says so")
}

/// What a peer gets that asks for all slots.
fn fetched(replica: &mut Stage<Replica>) -> Vec<Envelope> {
    let end = replica.role.executed();
    replica.tell(In::Fetch {
        from: PEER,
        start: Slot(0),
        end,
        waits: false,
    })
}

#[test]
fn a_change_of_the_level_is_stored_at_once() {
    let mut replica = in_session();
    assert!(level_stored(&replica));
    for (slot, base, to) in [(1, 0, 18), (2, 1, 17)] {
        let asked = replica.asked(chosen(slot, level(base, to), PEER));
        let membership = Membership {
            epoch: Epoch(base + 1),
            level: Level(to),
            ..Membership::default()
        };
        let stores = Asked {
            snapshot: Some(slot + 1),
            membership: Some(membership),
            ..only(vec![])
        };
        assert_eq!(asked, stores, "to {to}");
        assert!(!level_stored(&replica));
        assert_eq!(replica.stored(slot + 1), only(vec![]));
        assert!(level_stored(&replica));
    }
}

#[test]
fn peers_get_no_slots_from_before_a_lowered_level() {
    let mut replica = in_session();
    replica.tell(chosen(1, level(0, 18), PEER));
    replica.tell(chosen(2, write(0, "a"), PEER));
    let slots = |sent: &[Envelope]| match sent {
        [Envelope::ToReplicas(_, In::Fetched { slots, .. })] => Some(slots.len()),
        [Envelope::ToReplicas(_, In::SnapshotChunk { .. })] => None,
        _ => panic!("{sent:?}"),
    };
    assert_eq!(slots(&fetched(&mut replica)), Some(3), "it still has all");
    replica.tell(chosen(3, level(1, 17), PEER));
    replica.tell(chosen(4, write(1, "b"), PEER));
    assert_eq!(slots(&fetched(&mut replica)), None);
}
