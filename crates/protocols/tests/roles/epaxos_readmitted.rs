//! A replica of EPaxos on an empty disk in place of a lost one: what it does before it has the
//! state, and from when on others may count on it.

use crate::epaxos_acceptor::command;
use crate::epaxos_process::{config, of, space};
use crate::stage::{self, Stage};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::{Asked, Cover, Picture, Role};
use ionian_kernel::status::Status;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::epaxos::message::{Reach, Sees};
use ionian_protocols::epaxos::replica::{In, Replica};
use ionian_protocols::epaxos::{Envelope, kind};

/// Replica 1 of three, whose disk has this number of lost predecessors.
fn replica(predecessors: u32) -> Replica {
    let mut birth = stage::birth(kind::Replica, 1, NodeId(1));
    birth.predecessors = predecessors;
    Replica::new(config(3, 1, Options::default()), &birth)
}

fn commit(number: u64) -> In {
    In::Committed {
        id: of(0, 1, number),
        choice: command(&[]),
        replier: None,
    }
}

/// Replica 0 says what it has executed: the first instance.
fn snapshot() -> In {
    let birth = stage::birth(kind::Replica, 0, NodeId(0));
    let mut peer = Stage::new(config(3, 1, Options::default()), &birth, Replica::new);
    peer.asked(commit(0));
    let sends = peer.tell(In::FetchSnapshot {
        from: ReplicaId(1),
        snapshot: None,
        unlike: None,
        offset: 0,
    });
    let [Envelope::ToReplicas(_, chunk @ In::SnapshotChunk { last: true, .. })] = &sends[..] else {
        panic!("{sends:?}");
    };
    chunk.clone()
}

fn fetches(asked: &Asked<Envelope>) -> Option<ReplicaId> {
    asked.sends.iter().find_map(|(envelope, _)| match envelope {
        Envelope::ToReplicas(to, In::FetchSnapshot { .. }) => to.iter().next(),
        _ => None,
    })
}

fn executed(replica: &Stage<Replica>) -> u64 {
    Status::of(&replica.role).executed.expect("a replica").0
}

fn remembers(replica: &Stage<Replica>) -> Option<bool> {
    Status::of(&replica.role).remembers
}

/// It has taken over the state of replica 0.
fn with_state() -> Stage<Replica> {
    let mut replica = Stage::unstarted(replica(1), true);
    let mut from = fetches(&replica.started());
    while from != Some(ReplicaId(0)) {
        from = fetches(&replica.waited(Duration::from_secs(1))).or(from);
    }
    replica.asked(snapshot());
    assert_eq!(executed(&replica), 1);
    replica
}

/// Its machine is none that instances have led to: the cluster may have been founded with a state.
#[test]
fn without_a_state_it_executes_and_answers_nothing_and_takes_over_that_of_a_peer() {
    let mut lost = Stage::unstarted(replica(1), true);
    assert!(fetches(&lost.started()).is_some());
    lost.asked(commit(0));
    assert_eq!((executed(&lost), remembers(&lost)), (0, Some(false)));
    let reads = stage::of_command(0, "query");
    let sees = Sees::Anything {};
    let asked = lost.asked(In::Read { sees, reads });
    assert_eq!((asked.sends, lost.figure("stale")), (vec![], 1));
    let sends = lost.tell(In::FetchSnapshot {
        from: ReplicaId(2),
        snapshot: None,
        unlike: None,
        offset: 0,
    });
    assert_eq!(sends, []);
    let now = lost.now;
    let picture = lost.role.freeze(now, Cover::Below(0));
    assert!(matches!(picture, Picture::NotYet(0)));
    let replica = with_state();
    assert_eq!(remembers(&replica), Some(false));
    // One that has lost nothing is not asked.
    let whole = Stage::unstarted(self::replica(0), true);
    assert_eq!(remembers(&whole), None);
}

/// Time passes, in which leaders and acceptors say how far they know the space of leader 0. Gives
/// the stamp of the snapshot that it begins to store.
fn hears(replica: &mut Stage<Replica>, acceptors: &[u8], below: u64) -> Option<u64> {
    let mut stores = None;
    for _ in 0..40 {
        for leader in [0, 1] {
            let (space, time) = (space(leader, 1), Timestamp(0));
            let below = if leader == 0 { below } else { 0 };
            let asked = replica.asked(In::Heartbeat { space, below, time });
            stores = asked.snapshot.or(stores);
        }
        for from in acceptors {
            let from = AcceptorId(*from);
            let space = space(0, 1);
            let asked = replica.asked(In::Fetched {
                from,
                instances: vec![],
                forgotten: vec![],
                reaches: vec![Reach { space, below }],
            });
            stores = asked.snapshot.or(stores);
        }
        let asked = replica.waited(Duration::from_millis(100));
        stores = asked.snapshot.or(stores);
    }
    stores
}

/// Acceptors have forgotten what the lost replica had stored, and count on it.
#[test]
fn others_may_count_on_it_when_a_snapshot_of_all_that_was_recorded_is_on_disk() {
    let mut replica = with_state();
    replica.asked(commit(1));
    assert_eq!(hears(&mut replica, &[1, 0], 3), None, "too few have said");
    assert_eq!(hears(&mut replica, &[0, 2], 3), None, "it lacks one");
    replica.asked(commit(2));
    let stores = hears(&mut replica, &[0, 2], 3);
    assert_eq!((stores, remembers(&replica)), (Some(3), Some(false)));
    let again = replica.refused(3).snapshot;
    assert_eq!((again, remembers(&replica)), (Some(3), Some(false)));
    replica.stored(3);
    assert_eq!(remembers(&replica), Some(true));
}

/// The snapshot says whether it had all when it was stored.
#[test]
fn after_a_restart_it_has_what_its_last_snapshot_has() {
    let In::SnapshotChunk { bytes, .. } = snapshot() else {
        unreachable!();
    };
    let mut all = bytes.to_vec();
    all[..8].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    for (bytes, has_all) in [(bytes, false), (Bytes::from(all), true)] {
        let mut role = replica(1);
        role.restore(1, &bytes).expect("a snapshot");
        let mut replica = Stage::unstarted(role, true);
        assert_eq!(fetches(&replica.started()), None);
        assert_eq!(
            (executed(&replica), remembers(&replica)),
            (1, Some(has_all))
        );
    }
}
