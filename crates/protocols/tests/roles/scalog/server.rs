//! The rules of a server of a shard. All that it asks of its driver is compared.

use super::*;
use crate::stage::{Stage, birth, only};
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::Asked;
use ionian_kernel::time::Duration;
use ionian_kernel::wire::encode_all;
use ionian_protocols::scalog::id::{AggregatorId, RecordPlace};
use ionian_protocols::scalog::server::{In, Record, Server};
use ionian_protocols::scalog::{Envelope, aggregator, client, kind, replica};

/// Server 0, which finds these records again, and before them its life.
fn after(records: Vec<Record>) -> Stage<Server> {
    let begun = vec![Record::Begun { life: 5 }];
    let birth = birth(kind::Server, 0, NodeId(99));
    Stage::after(apart(), &birth, [begun, records].concat(), Server::new)
}

/// Server 0 in the first generation, with nothing in its logs.
fn server() -> Stage<Server> {
    let mut server = after(vec![]);
    server.tell(told(0, 1, 0, ordered([[0; 2]; 2])));
    server
}

/// A replica has executed what is below a slot, and keeps what is below another.
fn told(from: u8, slot: u64, kept: u64, cut: Cut) -> In {
    In::Ordered {
        from: ReplicaId(from),
        slot: Slot(slot),
        kept: Slot(kept),
        cut,
    }
}

fn commands(number: u64) -> In {
    let commands = record(number);
    In::Commands { commands }
}

fn backup(first: u64, records: Vec<Batch>) -> In {
    asking(0, first, records)
}

/// The same of a server that asks the aggregator of this turn.
fn asking(turn: u64, first: u64, records: Vec<Batch>) -> In {
    let log = log(1);
    In::Backup {
        log,
        first,
        records,
        turn,
    }
}

fn kept(place: u64, server: u8, index: u64, number: u64) -> Record {
    Record::Kept {
        place: RecordPlace(place),
        log: log(server),
        index,
        batch: record(number),
    }
}

fn written(record: Record) -> (Vec<u8>, bool) {
    (encode_all(&record), false)
}

fn report(to: Set<AggregatorId>, life: u64, lengths: &[u64], seen: u64) -> Envelope {
    let generation = if lengths.is_empty() {
        Generation(0)
    } else {
        FIRST
    };
    let message = aggregator::In::Report {
        from: ServerId(0),
        life,
        generation,
        lengths: lengths.into(),
        seen: Slot(seen),
    };
    Envelope::ToAggregators(to, message)
}

fn reports(lengths: [u64; 2], seen: u64) -> Envelope {
    report(Set::first(1), 5, &lengths, seen)
}

fn pushed(first: u64, records: Vec<Batch>) -> Envelope {
    let log = log(0);
    let message = replica::In::Records {
        log,
        first,
        records,
    };
    Envelope::ToReplicas(Set::first(2), message)
}

fn backed_up(first: u64, records: Vec<Batch>) -> Envelope {
    turned(0, first, records)
}

fn turned(turn: u64, first: u64, records: Vec<Batch>) -> Envelope {
    let message = In::Backup {
        log: log(0),
        first,
        records,
        turn,
    };
    Envelope::ToServers(Set::one(ServerId(1)), message)
}

#[test]
pub(crate) fn what_is_sent_of_a_record_waits_for_it_and_so_does_the_report() {
    let mut server = server();
    let expected = vec![
        (pushed(0, records([7])), Some(1)),
        (backed_up(0, records([7])), Some(1)),
        (reports([1, 0], 1), Some(1)),
    ];
    let asked = server.asked(commands(7));
    assert_eq!(asked, only(vec![written(kept(0, 0, 0, 7))], expected));
}

#[test]
fn with_enough_reports_under_way_the_next_waits_as_long_as_a_batch() {
    let mut server = server();
    for number in 0..4 {
        let report = reports([number + 1, 0], 1);
        assert_eq!(server.tell(commands(number)).pop(), Some(report));
    }
    let written = vec![written(kept(4, 1, 0, 7))];
    assert_eq!(server.asked(backup(0, records([7]))), only(written, vec![]));
    let late = server.waited(Duration::from_millis(1));
    let expected = vec![(reports([4, 1], 1), Some(0))];
    assert_eq!(late, only(vec![], expected));
    // One of them is ordered.
    server.tell(told(0, 2, 0, ordered([[1, 0], [0, 0]])));
    let sent = server.tell(backup(1, records([8])));
    assert_eq!(sent, vec![reports([4, 2], 2)]);
}

/// Without that the cut of either would wait for a timer.
#[test]
fn a_report_of_the_peers_record_does_not_wait_for_that_of_its_own() {
    let mut server = server();
    assert_eq!(server.tell(commands(7)).pop(), Some(reports([1, 0], 1)));
    let sent = server.tell(backup(0, records([8])));
    assert_eq!(sent, vec![reports([1, 1], 1)]);
}

#[test]
pub(crate) fn a_length_counts_only_what_has_no_gap_before_it() {
    let mut server = server();
    assert_eq!(server.asked(backup(1, records([8]))), only(vec![], vec![]));
    let written = vec![written(kept(0, 1, 0, 7)), written(kept(1, 1, 1, 8))];
    let expected = vec![(reports([0, 2], 1), Some(2))];
    let asked = server.asked(backup(0, records([7, 8])));
    assert_eq!(asked, only(written, expected));
    // What it has already is not kept twice.
    let more = server.asked(backup(1, records([8, 9])));
    let expected = vec![(reports([0, 3], 1), Some(1))];
    assert_eq!(more, only(vec![self::written(kept(2, 1, 2, 9))], expected));
}

#[test]
fn one_that_finds_its_records_goes_on_in_its_life() {
    // The note of the beginning of log 1 stands behind a record that comes after that.
    let records_found = vec![
        kept(3, 0, 0, 7),
        kept(4, 1, 2, 8),
        Record::Trimmed {
            log: log(1),
            below: 2,
        },
        kept(5, 1, 3, 9),
    ];
    let mut server = after(records_found);
    let mut sent = server.tell(told(0, 3, 0, ordered([[0, 2], [0, 0]])));
    assert_eq!(sent, vec![reports([1, 4], 3)]);
    // It does not know what its peer has.
    sent = server.timer();
    assert_eq!(sent, vec![backed_up(0, records([7]))]);
    assert_eq!(server.tell(commands(1))[0], pushed(1, records([1])));
}

/// Server 0, which has lost its memory, and the life that it begins.
fn amnesiac() -> (Stage<Server>, u64) {
    let birth = Birth {
        amnesiac: true,
        keeps_records: false,
        ..birth(kind::Server, 0, NodeId(99))
    };
    let life = ionian_kernel::random::Random::new(birth.seed).any();
    (Stage::after(apart(), &birth, vec![], Server::new), life)
}

/// Its shard is not opened again, as others are open.
#[test]
fn a_spare_server_that_has_lost_its_memory_is_relied_on_when_the_log_lists_its_life() {
    let (mut server, life) = amnesiac();
    let mut cut = closed([[1, 1], [0, 0]], 3);
    for from in 0..2 {
        server.tell(told(from, 9, 9, cut.clone()));
    }
    assert_eq!(server.figure("remembers"), 0);
    cut.shards[0].lives[0] = life;
    server.tell(told(0, 10, 10, cut));
    assert_eq!(server.figure("remembers"), 1);
}

#[test]
pub(crate) fn one_that_has_lost_its_memory_has_no_part_in_what_it_has_reported() {
    let (mut server, life) = amnesiac();
    assert_eq!(
        server.tell(told(0, 1, 0, ordered([[1, 1], [0, 0]]))),
        vec![]
    );
    assert_eq!(server.tell(backup(0, records([7]))), vec![]);
    assert_eq!(server.figure("remembers"), 0);
    let all = Set::first(2);
    let again = server.waited(Duration::from_millis(100));
    assert_eq!(
        again,
        only(vec![], vec![(report(all, life, &[], 1), Some(0))])
    );
    // A generation that lists its new life is one whose predecessors are over: when enough replicas
    // keep these it is missed no more.
    let mut opened = ordered([[0; 2]; 2]);
    (opened.shards[0].generation, opened.shards[0].since) = (Generation(9), Slot(9));
    opened.shards[0].lives = vec![life, 6];
    server.tell(told(0, 9, 9, opened.clone()));
    assert_eq!(server.figure("remembers"), 0);
    server.tell(told(1, 9, 8, opened.clone()));
    assert_eq!(server.figure("remembers"), 0);
    server.tell(told(1, 9, 9, opened));
    assert_eq!(server.figure("remembers"), 1);
}

/// It would append other records under indexes that are ordered, and a replica that is behind would
/// take these.
#[test]
pub(crate) fn none_takes_part_in_a_generation_again_that_it_has_left() {
    let mut server = server();
    server.tell(commands(7));
    let asked = server.asked(told(0, 4, 0, closed([[1, 0], [0, 0]], 3)));
    let left = Record::Left { generation: FIRST };
    assert_eq!(asked.records, vec![written(left.clone())]);
    // Crashed, and told by a replica that is behind.
    let mut server = after(vec![left]);
    assert_eq!(server.tell(told(1, 2, 0, ordered([[0; 2]; 2]))), vec![]);
    assert_eq!(server.role.generation(), None);
}

#[test]
fn commands_of_a_shard_that_is_closed_go_to_a_server_of_one_that_is_open() {
    let mut server = server();
    server.tell(commands(7));
    server.tell(commands(8));
    let to_open = |sent: &Envelope, number| match sent {
        Envelope::ToServers(servers, In::PassedOn { commands }) => {
            *commands == record(number) && Set::from_bits(0b1100).covers(*servers)
        }
        _ => false,
    };
    // Record 0 is ordered, record 1 is void.
    let sent = server.tell(told(0, 4, 0, closed([[1, 0], [0, 0]], 3)));
    assert!(to_open(&sent[0], 8), "{sent:?}");
    assert_eq!(sent[1..], [report(Set::first(1), 5, &[], 4)]);
    let sent = server.tell(commands(9));
    assert!(to_open(&sent[0], 9), "{sent:?}");
    // Their lane learns which servers take commands in.
    let to = Set::from_bits(0b1100);
    let lanes = Envelope::ToClients(Set::one(ClientId(0)), client::In::PassedOn { to });
    assert_eq!(sent[1..], [lanes]);
    // What others pass on is not passed on once more.
    let commands = record(1);
    assert_eq!(server.tell(In::PassedOn { commands }), vec![]);
}

#[test]
fn records_are_kept_until_enough_replicas_keep_what_they_led_to() {
    let mut server = server();
    for number in [7, 8, 9] {
        server.tell(commands(number));
    }
    let released = |asked: Asked<Envelope>| asked.release_below;
    let two = || ordered([[2, 0], [0, 0]]);
    assert_eq!(released(server.asked(told(0, 5, 5, two()))), Some(0));
    assert_eq!(released(server.asked(told(1, 5, 4, two()))), Some(0));
    let fetch = |first| In::FetchRecords {
        from: ReplicaId(1),
        log: log(0),
        first,
        end: 2,
    };
    let fetched = replica::In::Fetched {
        log: log(0),
        first: 1,
        records: records([8]),
    };
    let fetched = Envelope::ToReplicas(Set::one(ReplicaId(1)), fetched);
    assert_eq!(
        server.asked(fetch(1)),
        only(vec![], vec![(fetched, Some(0))])
    );
    assert_eq!(released(server.asked(told(1, 5, 5, two()))), Some(2));
    assert_eq!(server.tell(fetch(1)), vec![]);
    let checkpoint = server.checkpoint().records;
    let trimmed = |server, below| {
        let log = log(server);
        written(Record::Trimmed { log, below })
    };
    let generation = Generation(0);
    let (life, left) = (Record::Begun { life: 5 }, Record::Left { generation });
    let expected = [written(life), written(left), trimmed(0, 2), trimmed(1, 0)];
    assert_eq!(checkpoint, expected);
}

/// Four servers: each may hold 8 MiB that are not ordered.
#[test]
fn what_is_beyond_the_room_for_what_is_not_ordered_is_dropped() {
    let mut server = server();
    let large = |number, mebibytes: usize| In::Commands {
        commands: crate::stage::of_command(number, vec![7; mebibytes << 20]),
    };
    // One thing alone may be larger.
    assert_eq!(server.asked(large(0, 9)).records.len(), 1);
    assert_eq!(server.asked(commands(1)).records.len(), 0);
    assert_eq!(server.figure("dropped_commands"), 1);
    server.tell(told(0, 2, 0, ordered([[1, 0], [0, 0]])));
    assert_eq!(server.asked(large(2, 5)).records.len(), 1);
    assert_eq!(server.asked(large(3, 4)).records.len(), 0);
    assert_eq!(server.asked(large(3, 2)).records.len(), 1);
}

/// A batch that is larger than the room.
#[test]
fn a_large_batch_waits_until_nothing_else_does_and_meanwhile_no_others_are_taken_in() {
    let of_mebibytes = |number, mebibytes: usize| In::Commands {
        commands: crate::stage::of_command(number, vec![7; mebibytes << 20]),
    };
    let mut server = server();
    server.tell(commands(1));
    assert_eq!(server.asked(of_mebibytes(2, 9)).records.len(), 0);
    assert_eq!(server.asked(commands(3)).records.len(), 0);
    assert_eq!(server.figure("dropped_commands"), 1);
    let asked = server.asked(told(0, 2, 0, ordered([[1, 0], [0, 0]])));
    let length = asked.records.iter().map(|(record, _)| record.len()).max();
    assert!(length > Some(9 << 20), "{length:?}");
    // When its shard is closed it goes where one is open.
    assert_eq!(server.asked(of_mebibytes(4, 10)).records.len(), 0);
    let sent = server.tell(told(0, 4, 0, closed([[1, 0], [0, 0]], 3)));
    let passed = sent.iter().filter_map(|sent| match sent {
        Envelope::ToServers(_, In::PassedOn { commands }) => Some(commands.byte_len() >> 20),
        _ => None,
    });
    assert_eq!(passed.collect::<Vec<_>>(), [9, 10]);
}

/// The room is that of the shards that are open.
#[test]
fn a_server_has_the_room_that_servers_of_spare_shards_do_not_need() {
    let mut layout = apart().layout().clone();
    layout.options.own.insert("open_shards", 1);
    let config = Scalog::configure(layout).expect("a deployment");
    let mut server = server();
    server.reconfigure(config);
    for (number, records) in [(1, 1), (2, 1), (3, 0)] {
        let commands = crate::stage::of_command(number, vec![7; 7 << 20]);
        let asked = server.asked(In::Commands { commands });
        assert_eq!(asked.records.len(), records, "{number}");
    }
}

/// Commands that replicas do not keep yet: 256 MiB of them, all ordered.
fn full() -> Stage<Server> {
    let mut server = server();
    let large = crate::stage::of_command(0, vec![7; 8 << 20]);
    let commands = || In::Commands {
        commands: large.clone(),
    };
    for number in 0..32 {
        assert_eq!(server.asked(commands()).records.len(), 1, "{number}");
        let cut = ordered([[number + 1, 0], [0, 0]]);
        server.tell(told(0, number + 2, 0, cut));
    }
    server
}

/// Else its peer's commands would not be ordered that the peer has taken in.
#[test]
fn a_server_that_is_full_takes_in_no_commands_but_what_its_peer_has_taken_in() {
    let mut server = full();
    assert!(server.figure("held_bytes") > 256 << 20);
    assert_eq!(server.asked(commands(7)), only(vec![], vec![]));
    assert_eq!(server.figure("dropped_commands"), 1);
    let asked = server.asked(backup(0, records([8])));
    assert_eq!(asked.records, vec![written(kept(32, 1, 0, 8))]);
    // When enough replicas keep what it holds there is room again.
    let cut = || ordered([[32, 1], [0, 0]]);
    server.tell(told(0, 40, 40, cut()));
    assert_eq!(server.asked(commands(7)).records, vec![]);
    server.tell(told(1, 40, 40, cut()));
    assert_eq!(server.figure("held_bytes"), 0);
    assert_eq!(server.asked(commands(7)).records.len(), 1);
}

/// Replicas that are down would have it keep them until they are back.
#[test]
fn records_of_all_logs_that_no_cut_covers_are_dropped_when_the_shard_is_closed() {
    let mut server = server();
    server.tell(commands(7));
    server.tell(backup(0, records([8, 9])));
    server.tell(told(0, 4, 0, closed([[0, 1], [0, 0]], 3)));
    let extents = [0, 1].map(|server_of| server.role.extent(log(server_of)));
    assert_eq!(extents, [(0, 0), (0, 1)]);
}

/// Records that are sent again at this time, whichever aggregator is asked.
fn is_backup(sent: &Envelope) -> bool {
    let Envelope::ToServers(_, In::Backup { records, .. }) = sent else {
        return false;
    };
    *records == self::records([7])
}

#[test]
fn records_that_are_not_ordered_are_sent_again_less_and_less_often() {
    let mut server = server();
    server.tell(commands(7));
    let (mut last, mut waits) = (server.now, vec![]);
    for _ in 0..100 {
        if server.timer().iter().any(is_backup) {
            waits.push(server.now.since(last).as_millis());
            last = server.now;
        }
    }
    assert_eq!(waits[..4], [40, 80, 160, 320]);
}

/// The aggregators that one server asks alone, and when, in milliseconds from now on.
fn asks(server: &mut Stage<Server>, until_ms: u64) -> Vec<(u64, AggregatorId)> {
    let (from, mut asked) = (server.now, vec![]);
    while server.now.since(from) < Duration::from_millis(until_ms) {
        for sent in server.timer() {
            if let Envelope::ToAggregators(to, _) = sent
                && to.len() == 1
            {
                let ms = server.now.since(from).as_millis() as u64;
                asked.extend(to.iter().map(|to| (ms, to)));
            }
        }
    }
    asked
}

#[test]
fn an_aggregator_that_leads_to_no_cut_is_left_for_the_next_with_all_peers() {
    let mut server = server();
    server.tell(commands(7));
    let [first, second] = [0, 1].map(AggregatorId);
    // The longer the more often it has turned without success. The times of reports to all are not
    // among these.
    let expected = [(40, first), (80, second), (160, second), (240, first)];
    assert_eq!(asks(&mut server, 240), expected);
    // All that it sends says so.
    let sent = server.tell(commands(8));
    assert!(sent.contains(&turned(2, 1, records([8]))), "{sent:?}");
}

/// Another turn, for these servers.
fn turn(to: u64, turn: u64) -> Envelope {
    let from = ServerId(0);
    Envelope::ToServers(Set::from_bits(to), In::Turn { from, turn })
}

#[test]
fn a_turn_to_another_aggregator_is_told_to_all_servers_at_once() {
    let mut server = server();
    server.tell(commands(7));
    server.waited(Duration::from_millis(40));
    let sent = server.waited(Duration::from_millis(40)).sends;
    let expected = [
        (turn(0b1110, 1), Some(0)),
        (report(Set::one(AggregatorId(1)), 5, &[1, 0], 1), Some(0)),
    ];
    assert_eq!(sent, expected);
}

/// A server asks the aggregator of this turn.
fn turns(from: u8, turn: u64) -> In {
    let from = ServerId(from);
    In::Turn { from, turn }
}

/// Else servers would run past one that works, back to the one that does not.
#[test]
fn an_aggregator_that_another_server_turned_to_has_its_whole_time() {
    let mut server = server();
    server.tell(commands(7));
    server.waited(Duration::from_millis(40));
    server.waited(Duration::from_millis(38));
    server.tell(asking(1, 0, vec![]));
    let turn_after = |server: &mut Stage<Server>, ms| {
        server.waited(Duration::from_millis(ms));
        server.figure("turn")
    };
    assert_eq!([2, 38, 39].map(|ms| turn_after(&mut server, ms)), [1; 3]);
    assert_eq!(turn_after(&mut server, 1), 2);
}

/// A shard turns too when its own server is slow.
#[test]
fn a_server_leaves_no_aggregator_that_works_for_what_another_shard_says() {
    let mut server = server();
    server.tell(commands(7));
    server.tell(turns(2, 1));
    assert_eq!(server.figure("turn"), 0, "a cut came just now");
    server.waited(Duration::from_millis(40));
    server.tell(turns(2, 1));
    assert_eq!(server.figure("turn"), 1, "a report has led to nothing");
    // One that has reported nothing for long knows no better.
    let mut server = self::server();
    server.waited(Duration::from_millis(80));
    server.tell(turns(2, 1));
    assert_eq!(server.figure("turn"), 1);
}

#[test]
fn a_server_asks_the_aggregator_that_another_asks() {
    for says in [turns(1, 1), asking(1, 0, vec![])] {
        let mut server = server();
        server.tell(commands(7));
        let sent = server.tell(says);
        let second = report(Set::one(AggregatorId(1)), 5, &[1, 0], 1);
        assert_eq!(sent, vec![second]);
        // A peer that is behind learns of it.
        assert_eq!(server.tell(asking(0, 0, vec![])), vec![turn(0b10, 1)]);
        assert_eq!(server.tell(turns(1, 0)), vec![]);
    }
}

/// Cuts that another aggregator makes of reports to all come late: those do not clear the one that
/// is asked.
#[test]
fn an_aggregator_is_left_although_cuts_come_now_and_then() {
    let mut server = server();
    server.tell(commands(0));
    let mut turned = vec![];
    for number in 1..=3 {
        server.waited(Duration::from_millis(60));
        turned.push(server.figure("turn"));
        server.tell(told(0, number + 1, 0, ordered([[number, 0], [0, 0]])));
        server.tell(commands(number));
    }
    assert_eq!(turned, [0, 1, 1]);
    // When all goes well for a while that is forgotten.
    server.tell(told(0, 9, 0, ordered([[4, 0], [0, 0]])));
    server.waited(Duration::from_millis(700));
    server.tell(commands(4));
    server.tell(told(0, 10, 0, ordered([[5, 0], [0, 0]])));
    server.tell(commands(5));
    assert_eq!(asks(&mut server, 80).len(), 2);
}
