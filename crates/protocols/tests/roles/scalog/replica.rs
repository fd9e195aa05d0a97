//! The rules of a replica of Scalog: what stands before MultiPaxos's.

use super::*;
use crate::stage::Stage;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::replica::In as Ordering;
use ionian_protocols::scalog::cut::{Change, batch_of};
use ionian_protocols::scalog::replica::{In, Replica};
use ionian_protocols::scalog::{Envelope, aggregator, kind, server};
use ionian_replication::batch::{BatchBuilder, Command, Purpose, Value};

fn replica() -> Stage<Replica> {
    let mut replica = Stage::alone(apart(), kind::Replica, Replica::new);
    replica.timer();
    let open = [[5, 6], [7, 8]].into_iter().zip(0..);
    let open = open.map(|(lives, shard)| Change::Open {
        shard,
        after: Generation(0),
        lives: lives.into(),
    });
    replica.tell(chosen(0, open.collect()));
    assert_eq!(replica.role.cut(), &ordered([[0; 2]; 2]));
    replica
}

/// Another replica answers.
fn chosen(slot: u64, changes: Vec<Change>) -> In {
    let (slot, replier) = (Slot(slot), ReplicaId(1));
    let value = value(batch_of(&changes));
    let message = Ordering::Chosen {
        slot,
        value,
        replier,
    };
    In::Ordering { message }
}

fn value(batch: Batch) -> Value {
    let stamp = Timestamp(3);
    Value { stamp, batch }
}

fn grown(slot: u64, shard: u8, lengths: [u64; 2]) -> In {
    let change = Change::Grow {
        shard,
        generation: FIRST,
        lengths: lengths.into(),
    };
    chosen(slot, vec![change])
}

fn pushed<const N: usize>(server: u8, first: u64, numbers: [u64; N]) -> In {
    In::Records {
        log: log(server),
        first,
        records: records(numbers),
    }
}

/// What all replicas execute for a slot.
fn put_together(cut: &Cut, numbers: &[u64]) -> Value {
    let mut builder = BatchBuilder::default();
    builder.push(&Command {
        client: ClientId(0),
        purpose: Purpose::Internal,
        number: 0,
        floor: 0,
        payload: encode_all(cut),
    });
    numbers
        .iter()
        .for_each(|number| builder.append(&record(*number)));
    value(builder.take())
}

fn executed(replica: &Stage<Replica>) -> Vec<(Slot, Value)> {
    let held = replica.role.core().chosen_from(Slot(1));
    let held = held.filter(|(slot, _)| *slot < replica.role.executed());
    held.map(|(slot, value)| (slot, value.clone())).collect()
}

#[test]
fn a_slot_is_executed_when_all_that_it_orders_is_here_and_none_before_it() {
    let mut replica = replica();
    replica.tell(pushed(2, 0, [9]));
    replica.tell(grown(2, 1, [1, 0]));
    replica.tell(grown(1, 0, [2, 1]));
    replica.tell(pushed(1, 0, [3]));
    replica.tell(pushed(0, 1, [2]));
    assert_eq!(
        executed(&replica),
        vec![],
        "record 0 of server 0 is missing"
    );
    replica.tell(pushed(0, 0, [1]));
    let cuts = [ordered([[2, 1], [0, 0]]), ordered([[2, 1], [1, 0]])];
    let first = (Slot(1), put_together(&cuts[0], &[1, 2, 3]));
    let second = (Slot(2), put_together(&cuts[1], &[9]));
    assert_eq!(executed(&replica), vec![first, second]);
}

#[test]
pub(crate) fn no_cut_goes_back_when_an_older_one_overtakes() {
    let mut replica = replica();
    replica.tell(pushed(0, 0, [1, 2]));
    replica.tell(grown(1, 0, [2, 0]));
    replica.tell(grown(2, 0, [1, 0]));
    let cut = ordered([[2, 0], [0, 0]]);
    let first = (Slot(1), put_together(&cut, &[1, 2]));
    let second = (Slot(2), put_together(&cut, &[]));
    assert_eq!(executed(&replica), vec![first, second]);
}

#[test]
fn records_that_do_not_come_are_asked_of_one_server_of_the_shard_after_the_other() {
    let mut replica = replica();
    replica.tell(pushed(0, 0, [1]));
    replica.tell(grown(1, 0, [3, 0]));
    let mut asked = vec![];
    for _ in 0..20 {
        for sent in replica.timer() {
            if let Envelope::ToServers(servers, server::In::FetchRecords { first, end, .. }) = sent
            {
                asked.push((servers, first, end));
            }
        }
    }
    let [one, other] = [0, 1].map(|server| (Set::one(ServerId(server)), 1, 3));
    let asked = &asked[..3];
    assert!(
        asked == [one, other, one] || asked == [other, one, other],
        "{asked:?}"
    );
    let (log, first, records) = (log(0), 1, records([2, 3]));
    replica.tell(In::Fetched {
        log,
        first,
        records,
    });
    let cut = ordered([[3, 0], [0, 0]]);
    assert_eq!(
        executed(&replica),
        vec![(Slot(1), put_together(&cut, &[1, 2, 3]))]
    );
}

#[test]
fn a_value_of_a_peer_says_where_the_cut_is() {
    let mut replica = replica();
    replica.tell(pushed(0, 0, [1, 2]));
    replica.tell(grown(2, 0, [2, 0]));
    let cuts = [ordered([[1, 0], [0, 0]]), ordered([[2, 0], [0, 0]])];
    let first = (Slot(1), put_together(&cuts[0], &[1]));
    let message = Ordering::Fetched {
        from: ReplicaId(1),
        slots: vec![first.clone()],
    };
    replica.tell(In::Ordering { message });
    let second = (Slot(2), put_together(&cuts[1], &[2]));
    assert_eq!(executed(&replica), vec![first, second]);
    assert_eq!(replica.role.cut(), &cuts[1]);
}

#[test]
fn records_beyond_the_last_cut_of_a_closed_shard_are_void() {
    let mut replica = replica();
    replica.tell(pushed(0, 0, [1, 2]));
    let (shard, generation) = (0, FIRST);
    replica.tell(grown(1, 0, [1, 0]));
    replica.tell(chosen(2, vec![Change::Close { shard, generation }]));
    assert_eq!(replica.role.cut(), &closed([[1, 0], [0, 0]], 2));
    assert_eq!(replica.figure("waiting_records"), 0);
    // It comes late, by whatever way.
    replica.tell(pushed(0, 1, [2]));
    replica.tell(grown(3, 0, [2, 0]));
    assert_eq!(replica.figure("waiting_records"), 0);
    let last = executed(&replica).pop();
    let nothing = put_together(&closed([[1, 0], [0, 0]], 2), &[]);
    assert_eq!(last, Some((Slot(3), nothing)));
}

#[test]
fn servers_and_aggregators_are_told_of_a_cut_by_the_replica_that_answers() {
    let mut replica = replica();
    replica.tell(pushed(0, 0, [1, 2]));
    let told = |sent: Vec<Envelope>| {
        let mut slots = sent.into_iter().filter_map(|envelope| match envelope {
            Envelope::ToServers(
                _,
                server::In::Ordered {
                    slot, kept, cut, ..
                },
            ) => Some((slot, kept, cut)),
            _ => None,
        });
        slots.next()
    };
    assert_eq!(told(replica.tell(grown(1, 0, [1, 0]))), None);
    let In::Ordering {
        message: Ordering::Chosen { slot, value, .. },
    } = grown(2, 0, [2, 0])
    else {
        unreachable!()
    };
    let replier = ReplicaId(0);
    let message = Ordering::Chosen {
        slot,
        value,
        replier,
    };
    let sent = told(replica.tell(In::Ordering { message }));
    let cut = ordered([[2, 0], [0, 0]]);
    // It has stored no snapshot.
    assert_eq!(sent, Some((Slot(3), Slot(0), cut)));
}

/// The questions for records that it sends.
fn questions(sent: Vec<Envelope>) -> Vec<(LogId, u64, u64)> {
    let each = sent.into_iter().filter_map(|envelope| match envelope {
        Envelope::ToServers(
            _,
            server::In::FetchRecords {
                log, first, end, ..
            },
        ) => Some((log, first, end)),
        _ => None,
    });
    each.collect()
}

/// What it asks at the first of its next timers at which it asks something.
fn next_questions(replica: &mut Stage<Replica>) -> Vec<(LogId, u64, u64)> {
    let mut asked = (0..100).map(|_| questions(replica.timer()));
    asked.find(|asked| !asked.is_empty()).expect("a question")
}

fn fetched<const N: usize>(server: u8, first: u64, numbers: [u64; N]) -> In {
    In::Fetched {
        log: log(server),
        first,
        records: records(numbers),
    }
}

/// After a stop of all nodes it lacks all records of many slots.
#[test]
fn one_that_is_far_behind_asks_for_the_records_of_many_slots_at_once() {
    let mut replica = replica();
    for slot in 1..=100 {
        replica.tell(grown(slot, 0, [slot, slot / 2]));
    }
    // A slot is missing behind these.
    replica.tell(grown(102, 0, [200, 50]));
    let asked = next_questions(&mut replica);
    assert_eq!(asked, vec![(log(0), 0, 100), (log(1), 0, 50)]);
    // An answer that holds a part leads to a question for the rest, one that brings nothing new to
    // none.
    let sent = replica.tell(fetched(0, 0, [0, 1, 2]));
    assert_eq!(questions(sent), vec![(log(0), 3, 100)]);
    let sent = replica.tell(fetched(0, 0, [0, 1, 2]));
    assert_eq!(questions(sent), vec![]);
    let sent = replica.tell(fetched(1, 0, [7, 8]));
    assert_eq!(questions(sent), vec![(log(1), 2, 50)]);
    assert_eq!(replica.role.executed(), Slot(4));
}

/// Else what is slow would come twice, and delay itself.
#[test]
fn what_slots_behind_the_next_one_order_is_asked_for_once() {
    let mut replica = replica();
    replica.tell(grown(1, 0, [1, 0]));
    replica.tell(grown(2, 1, [1, 0]));
    let asked = next_questions(&mut replica);
    assert_eq!(asked, vec![(log(0), 0, 1), (log(2), 0, 1)]);
    let at = replica.now;
    assert_eq!(next_questions(&mut replica), vec![(log(0), 0, 1)]);
    // 40 ms, and what two messages of 1 MiB take.
    assert_eq!(replica.now.since(at).as_micros(), 40_000 + 2 * 32_768);
    assert_eq!(questions(replica.tell(fetched(0, 0, [1]))), vec![]);
    assert_eq!(next_questions(&mut replica), vec![(log(2), 0, 1)]);
}

/// The answers are a message each.
#[test]
fn no_more_than_eight_logs_are_asked_for_at_a_time() {
    let mut layout = apart().layout().clone();
    let servers: Vec<NodeId> = (100..112).map(NodeId).collect();
    layout.instances[usize::from(kind::Server)] = servers.into();
    let config = Scalog::configure(layout).expect("a deployment");
    let mut replica = Stage::alone(config, kind::Replica, Replica::new);
    replica.timer();
    let (after, lives) = (Generation(0), vec![5, 6]);
    let open = |shard| Change::Open {
        shard,
        after,
        lives: lives.clone(),
    };
    replica.tell(chosen(0, (0..6).map(open).collect()));
    for shard in 0..6 {
        replica.tell(grown(u64::from(shard) + 1, shard, [1, 1]));
    }
    let first = next_questions(&mut replica);
    let all = (0..12).map(|server| (log(server), 0, 1));
    assert_eq!(first, all.clone().take(8).collect::<Vec<_>>());
    let sent = replica.tell(fetched(0, 0, [1]));
    assert_eq!(questions(sent), all.skip(8).take(1).collect::<Vec<_>>());
}

/// The shards whose records come late, as it tells aggregators when this time has passed.
fn late_after(replica: &mut Stage<Replica>, ms: u64) -> Option<Vec<Index>> {
    let sent = replica.waited(Duration::from_millis(ms)).sends;
    let mut told = sent.into_iter().filter_map(|(envelope, _)| match envelope {
        Envelope::ToAggregators(_, aggregator::In::Ordered { late, .. }) => Some(late),
        _ => None,
    });
    told.next()
}

#[test]
fn records_that_come_later_than_twice_the_time_of_a_failure_are_reported() {
    let mut replica = replica();
    replica.tell(pushed(2, 0, [9]));
    let shards = [(0, [1, 0]), (1, [1, 0])].map(|(shard, lengths)| Change::Grow {
        shard,
        generation: FIRST,
        lengths: lengths.into(),
    });
    replica.tell(chosen(1, shards.into()));
    let told = late_after(&mut replica, 1999);
    assert_eq!(told, Some(vec![]));
    let told = late_after(&mut replica, 250);
    assert_eq!(told, Some(vec![0]));
    replica.tell(pushed(0, 0, [1]));
    let told = late_after(&mut replica, 250);
    assert_eq!(told, Some(vec![]));
}

/// All servers of a shard have lost their memory, and the shard is closed and opened again: what is
/// ordered and lost is not passed over.
#[test]
fn records_that_no_server_has_are_waited_for_whatever_becomes_of_their_shard() {
    let mut replica = replica();
    replica.tell(grown(1, 0, [1, 0]));
    let (shard, generation) = (0, FIRST);
    replica.tell(chosen(2, vec![Change::Close { shard, generation }]));
    let (after, lives) = (FIRST, vec![50, 60]);
    replica.tell(chosen(
        3,
        vec![Change::Open {
            shard,
            after,
            lives,
        }],
    ));
    replica.tell(pushed(2, 0, [9]));
    replica.tell(grown(4, 1, [1, 0]));
    assert_eq!(late_after(&mut replica, 2000), Some(vec![0]));
    assert_eq!(replica.role.executed(), Slot(1));
    assert_eq!(replica.role.cut(), &ordered([[0; 2]; 2]));
}

/// Records of slots that were ordered while it was down were sent then: no wait for each slot.
#[test]
fn one_that_had_to_ask_for_records_asks_at_once_until_some_come_by_themselves() {
    let mut replica = replica();
    replica.tell(grown(1, 0, [1, 0]));
    assert_eq!(next_questions(&mut replica), vec![(log(0), 0, 1)]);
    assert_eq!(questions(replica.tell(fetched(0, 0, [1]))), vec![]);
    // What comes while an answer is under way is asked for with the next question.
    let sent = replica.tell(grown(2, 0, [2, 0]));
    assert_eq!(questions(sent), vec![(log(0), 1, 2)]);
    assert_eq!(questions(replica.tell(grown(3, 0, [3, 0]))), vec![]);
    assert_eq!(questions(replica.tell(grown(4, 0, [4, 1]))), vec![]);
    let sent = replica.tell(fetched(0, 1, [2]));
    assert_eq!(questions(sent), vec![(log(0), 2, 4), (log(1), 0, 1)]);
    assert_eq!(questions(replica.tell(fetched(0, 2, [3, 4]))), vec![]);
    // Sent by the server of its own accord.
    assert_eq!(questions(replica.tell(pushed(1, 0, [5]))), vec![]);
    assert_eq!(replica.role.executed(), Slot(5));
    let at = replica.now;
    assert_eq!(questions(replica.tell(grown(5, 0, [5, 1]))), vec![]);
    assert_eq!(next_questions(&mut replica), vec![(log(0), 4, 5)]);
    assert!(replica.now.since(at) >= Duration::from_millis(40));
    let cuts = [[1, 0], [2, 0], [3, 0], [4, 1]].map(|first| ordered([first, [0, 0]]));
    let numbers = [&[1][..], &[2], &[3], &[4, 5]];
    let all = (1..).map(Slot).zip(cuts.iter().zip(numbers));
    let all = all.map(|(slot, (cut, numbers))| (slot, put_together(cut, numbers)));
    assert_eq!(executed(&replica), all.collect::<Vec<_>>());
}
