//! Replicas compare what they have executed.

use super::*;
use crate::servers::layout;
use ionian_kernel::level::Level;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::status::Agreement;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::parts::replica::divergence::Mark;

/// The machine of a replica that has diverged.
struct Diverged(Text);

impl StateMachine for Diverged {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.0.apply(now, command, reply);
        reply.push(b'?');
    }
    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        self.0.read(now, query, reply)
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        self.0.snapshot(out);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0.restore(snapshot)
    }
}

fn diverged() -> Box<dyn StateMachine> {
    Box::new(Diverged(Text::default()))
}

/// A stretch has two slots.
const STRETCH: u64 = 2;

fn comparing() -> Arc<Config> {
    let options = Options {
        snapshot_slots: 16 * STRETCH as usize,
        ..Options::default()
    };
    config(options)
}

/// The log that the tests execute: it raises the level in slot 1, so the first whole stretch is the
/// one of the slots 2 and 3.
fn log(level: Level) -> Vec<Value> {
    let change = encode_all(&Change::Level {
        base: Epoch(0),
        to: level,
    });
    let change = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Change,
        number: 0,
        floor: 0,
        payload: change.into(),
    });
    let raise = Value {
        stamp: Timestamp(1000),
        batch: change,
    };
    let writes = ["a", "b", "c", "d", "e", "f"];
    let writes = (0..).zip(writes).map(|(number, text)| write(number, text));
    [open(), raise].into_iter().chain(writes).collect()
}

/// Executes the log from this slot on, and gives what the replica tells others of it.
fn execute(replica: &mut Stage<Replica>, log: &[Value], from: usize) -> Vec<In> {
    let mut told = Vec::new();
    for (slot, value) in (0..).zip(log).skip(from) {
        let asked = replica.asked(chosen(slot, value.clone(), PEER));
        for (envelope, _) in asked.sends {
            if let Envelope::ToReplicas(to, mark @ In::Mark { .. }) = envelope {
                assert_eq!(to, Set::first(3).without(Set::one(ID)));
                told.push(mark);
            }
        }
    }
    told
}

fn replica_with(machine: &'static dyn Fn() -> Box<dyn StateMachine>) -> Stage<Replica> {
    let birth = Birth {
        machine,
        ..birth(ID.0)
    };
    replica_of(comparing(), &birth)
}

/// What a peer says of the same stretch.
fn of_peer(peer: ReplicaId, mark: &In) -> In {
    let In::Mark {
        start, end, sum, ..
    } = *mark
    else {
        unreachable!("it is a mark")
    };
    In::mark(peer, Mark { start, end, sum })
}

/// What a replica of another state says of it.
fn of_other(peer: ReplicaId, mark: &In) -> In {
    let In::Mark {
        start, end, sum, ..
    } = *mark
    else {
        unreachable!("it is a mark")
    };
    let sum = sum + 1;
    In::mark(peer, Mark { start, end, sum })
}

#[test]
fn replicas_tell_each_other_what_each_whole_stretch_has_led_to() {
    let mut replica = replica_with(&text);
    let marks = execute(&mut replica, &log(Level(18)), 0);
    let stretches: Vec<_> = marks
        .iter()
        .map(|mark| match mark {
            In::Mark { start, end, .. } => (start.0, end.0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(stretches, [(2, 4), (4, 6), (6, 8)]);
    let mut other = replica_with(&text);
    assert_eq!(execute(&mut other, &log(Level(18)), 0), marks, "the same");
    let mut other = replica_with(&diverged);
    let theirs = execute(&mut other, &log(Level(18)), 0);
    assert!(
        marks
            .iter()
            .zip(&theirs)
            .all(|(ours, theirs)| ours != theirs)
    );
}

#[test]
fn nodes_of_a_level_that_does_not_know_marks_are_told_of_none() {
    let mut replica = replica_with(&text);
    let mut log = log(Level(18));
    log.remove(1);
    assert_eq!(execute(&mut replica, &log, 0), []);
}

/// Programs of the level below may take part from then on.
#[test]
fn after_the_level_is_lowered_no_marks_are_sent() {
    let mut log = log(Level(18));
    let lower = encode_all(&Change::Level {
        base: Epoch(1),
        to: Level(17),
    });
    let lower = Batch::one(&Command {
        client: ClientId(0),
        purpose: Purpose::Change,
        number: 1,
        floor: 0,
        payload: lower.into(),
    });
    let stamp = Timestamp(1000);
    log.insert(
        4,
        Value {
            stamp,
            batch: lower,
        },
    );
    let mut replica = replica_with(&text);
    assert_eq!(execute(&mut replica, &log[..4], 0).len(), 1);
    assert_eq!(execute(&mut replica, &log, 4), []);
}

#[test]
fn a_stretch_that_was_not_executed_from_its_first_slot_on_is_not_compared() {
    let mut whole = replica_with(&text);
    let all = log(Level(18));
    let marks = execute(&mut whole, &all, 0);
    let mut first = replica_with(&text);
    execute(&mut first, &all[..5], 0);
    let now = first.now;
    let Picture::Taken(5, mut frozen) = first.role.freeze(now, Cover::Below(5)) else {
        panic!("it has executed 5 slots");
    };
    let mut snapshot = Vec::new();
    while frozen.write_some(&mut snapshot) {}
    let mut role = Replica::new(comparing(), &birth(ID.0));
    role.restore(5, &snapshot.into()).expect("its own snapshot");
    let mut returned = Stage::unstarted(role, true);
    returned.started();
    let told = execute(&mut returned, &all, 5);
    assert_eq!(told, marks[2..], "the stretch that begins with slot 6");
}

#[test]
fn a_replica_that_most_others_contradict_does_nothing_more() {
    let mut replica = replica_with(&text);
    let marks = execute(&mut replica, &log(Level(18)), 0);
    replica.tell(of_peer(ReplicaId(0), &marks[0]));
    replica.tell(of_other(PEER, &marks[0]));
    assert_eq!(replica.role.core().agreement(), Agreement::OthersDiverged);
    assert!(!replica.role.core().is_out());
    // Another stretch, in which the majority is the other one.
    replica.tell(of_other(PEER, &marks[1]));
    assert_eq!(replica.role.core().agreement(), Agreement::OthersDiverged);
    replica.tell(of_other(ReplicaId(0), &marks[1]));
    assert_eq!(replica.role.core().agreement(), Agreement::Diverged);
    assert_eq!(replica.role.next_timer(), None);
    let read = In::Read {
        reads: query(7, ""),
        executed: Slot(0),
    };
    assert_eq!(replica.asked(read), only(vec![]));
    let fetch = In::Fetch {
        from: PEER,
        start: Slot(0),
        end: Slot(1),
        waits: false,
    };
    assert_eq!(replica.asked(fetch), only(vec![]));
    let now = replica.now;
    assert!(matches!(
        replica.role.freeze(now, Cover::Below(0)),
        Picture::Never
    ));
}

#[test]
fn of_two_replicas_that_differ_neither_stops() {
    let options = Options {
        snapshot_slots: 16 * STRETCH as usize,
        ..Options::default()
    };
    let mut layout = layout(options);
    layout.instances[usize::from(kind::Replica)] = vec![NodeId(0), NodeId(1)].into();
    let two = MultiPaxos::configure(layout).expect("a deployment");
    let mut replica = replica_of(two, &birth(ID.0));
    let mut told = Vec::new();
    for (slot, value) in (0..).zip(log(Level(18))) {
        let asked = replica.asked(chosen(slot, value, ReplicaId(0)));
        told.extend(asked.sends.into_iter().filter_map(|(it, _)| match it {
            Envelope::ToReplicas(_, mark @ In::Mark { .. }) => Some(mark),
            _ => None,
        }));
    }
    replica.tell(of_other(ReplicaId(0), &told[0]));
    assert_eq!(replica.role.core().agreement(), Agreement::Undecided);
    assert!(replica.role.next_timer().is_some(), "it goes on");
}

/// The first of two others to tell its sum may be the one that has diverged: that is a doubt until
/// the other one tells its own.
#[test]
fn a_doubt_ends_when_another_replica_decides_it() {
    let mut replica = replica_with(&text);
    let marks = execute(&mut replica, &log(Level(18)), 0);
    replica.tell(of_other(PEER, &marks[0]));
    assert_eq!(replica.role.core().agreement(), Agreement::Undecided);
    replica.tell(of_peer(ReplicaId(0), &marks[0]));
    assert_eq!(replica.role.core().agreement(), Agreement::OthersDiverged);
}

/// What nothing has decided remains a doubt when its sums are not kept any more.
#[test]
fn a_doubt_is_not_forgotten() {
    let mut replica = replica_with(&text);
    let first = log(Level(18));
    let marks = execute(&mut replica, &first, 0);
    replica.tell(of_other(PEER, &marks[0]));
    let more: Vec<Value> = (0..40).map(|_| first[3].clone()).collect();
    for (slot, value) in (first.len() as u64..).zip(more) {
        replica.asked(chosen(slot, value, PEER));
    }
    replica.tell(of_peer(ReplicaId(0), &marks[0]));
    assert_eq!(replica.role.core().agreement(), Agreement::Undecided);
}

/// This replica is behind, and the other one goes on.
#[test]
fn a_doubt_does_not_end_when_the_other_sum_is_forgotten() {
    let mut replica = replica_with(&text);
    let marks = execute(&mut replica, &log(Level(18)), 0);
    replica.tell(of_other(PEER, &marks[0]));
    for start in (100..200).step_by(2) {
        let mark = Mark {
            start: Slot(start),
            end: Slot(start + STRETCH),
            sum: 7,
        };
        replica.tell(In::mark(PEER, mark));
    }
    assert_eq!(replica.role.core().agreement(), Agreement::Undecided);
}

#[test]
fn what_is_kept_of_the_sums_of_others_is_bounded_and_the_last_counts() {
    let mut replica = replica_with(&text);
    for start in (2..200).step_by(2) {
        let mark = Mark {
            start: Slot(start),
            end: Slot(start + STRETCH),
            sum: 7,
        };
        replica.tell(In::mark(PEER, mark));
    }
    let marks = execute(&mut replica, &log(Level(18)), 0);
    assert_eq!(marks.len(), 3);
    let agreement = replica.role.core().agreement();
    assert_eq!(
        agreement,
        Agreement::Equal,
        "those of the first stretches are forgotten"
    );
}
