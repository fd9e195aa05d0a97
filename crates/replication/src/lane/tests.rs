use super::*;
use crate::batch::AnswersByClient;
use ionian_kernel::id::{Members, SessionId};
use ionian_kernel::wire::encode_all;

mod logged;

const ME: ClientId = ClientId(2);

pub(super) fn lane() -> (Lane, Due, u64) {
    let options = Options {
        window_bytes: 4 << 20,
        ..Options::default()
    };
    let mut lane = Lane::new(ME, &options, Random::new(1));
    let mut due = Due::default();
    lane.start(Instant(0), &mut due);
    let nonce = due.writes.pop().expect("asks for a session").command.number;
    (lane, due, nonce)
}

pub(super) fn answer(purpose: Purpose, number: u64, outcome: Outcome) -> Answers {
    let mut answers = AnswersByClient::default();
    answers.push(&Answer {
        client: ME,
        purpose,
        number,
        outcome,
    });
    answers.take_some(0, Slot(7))
}

pub(super) fn write(token: u64) -> Request {
    Request {
        token,
        operation: Operation::Write,
        payload: Bytes::from(encode_all(&token)),
    }
}

fn tokens(due: &mut Due) -> Vec<(u64, bool)> {
    due.replies
        .drain(..)
        .map(|reply| (reply.token, reply.outcome.is_ok()))
        .collect()
}

#[test]
fn writes_wait_for_the_session_and_are_numbered_in_order() {
    let (mut lane, mut due, nonce) = lane();
    lane.submit(Instant(1), write(10), &mut due);
    lane.submit(Instant(1), write(11), &mut due);
    assert!(due.writes.is_empty());
    lane.on_answers(
        Instant(2),
        &answer(Purpose::Open, nonce + 1, Outcome::Opened(SessionId(4))),
        &mut due,
    );
    assert!(!lane.is_open(), "the session of another lane");
    lane.on_answers(
        Instant(2),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(4))),
        &mut due,
    );
    let sent: Vec<_> = due
        .writes
        .drain(..)
        .map(|DueWrite { command, .. }| (command.purpose, command.number))
        .collect();
    let four = Purpose::Execute(SessionId(4));
    assert_eq!(sent, [(four, 0), (four, 1)]);
    let done = Outcome::Done(Bytes::new());
    lane.on_answers(
        Instant(3),
        &answer(Purpose::Execute(SessionId(4)), 1, done.clone()),
        &mut due,
    );
    lane.on_answers(
        Instant(3),
        &answer(Purpose::Execute(SessionId(4)), 1, done.clone()),
        &mut due,
    );
    assert_eq!(tokens(&mut due), [(11, true)]);
    lane.submit(Instant(4), write(12), &mut due);
    assert_eq!(
        (due.writes[0].command.number, due.writes[0].command.floor),
        (2, 0),
        "number 0 is unanswered"
    );
    lane.on_answers(
        Instant(5),
        &answer(Purpose::Execute(SessionId(4)), 0, done),
        &mut due,
    );
    due.writes.clear();
    lane.submit(Instant(6), write(13), &mut due);
    assert_eq!(
        (due.writes[0].command.number, due.writes[0].command.floor),
        (3, 2)
    );
    assert_eq!(lane.seen(), Slot(7));
}

#[test]
fn another_window_of_bytes_is_taken_over_while_writes_are_under_way() {
    let (mut lane, mut due, nonce) = lane();
    let window = |window_bytes| Options {
        window_bytes,
        ..Options::default()
    };
    lane.reconfigure(Instant(0), &window(64));
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    let sent = |lane: &mut Lane, due: &mut Due| {
        lane.invariants();
        due.writes
            .drain(..)
            .map(|DueWrite { command, .. }| command.number)
            .collect::<Vec<_>>()
    };
    let payload = Bytes::from_static(&[7; 60]);
    for token in 0..4 {
        let request = Request {
            token,
            operation: Operation::Write,
            payload: payload.clone(),
        };
        lane.submit(Instant(0), request, &mut due);
    }
    assert_eq!(sent(&mut lane, &mut due), [0], "the others wait for room");
    // What was large is small now; and the other way round.
    lane.reconfigure(Instant(1), &window(60 * 64));
    lane.on_answers(
        Instant(1),
        &answer(
            Purpose::Execute(SessionId(1)),
            0,
            Outcome::Done(Bytes::new()),
        ),
        &mut due,
    );
    assert_eq!(sent(&mut lane, &mut due), [1, 2, 3]);
    lane.reconfigure(Instant(2), &window(64));
    lane.submit(
        Instant(2),
        Request {
            token: 4,
            operation: Operation::Write,
            payload,
        },
        &mut due,
    );
    for number in 1..4 {
        assert_eq!(sent(&mut lane, &mut due), []);
        lane.on_answers(
            Instant(2),
            &answer(
                Purpose::Execute(SessionId(1)),
                number,
                Outcome::Done(Bytes::new()),
            ),
            &mut due,
        );
    }
    assert_eq!(sent(&mut lane, &mut due), [4]);
}

#[test]
fn the_unanswered_is_asked_again_and_given_up_honestly() {
    let (mut lane, mut due, nonce) = lane();
    lane.submit(Instant(0), write(1), &mut due);
    lane.on_timer(Instant(5_000_000), &mut due);
    assert_eq!(
        due.replies.pop().unwrap().outcome,
        Err(Refusal::Unavailable),
        "it was never sent"
    );
    due.writes.clear();
    lane.on_answers(
        Instant(5_000_000),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    lane.submit(Instant(5_000_000), write(2), &mut due);
    let mut asked = 1;
    while due.replies.is_empty() {
        let timer = lane.next_timer().expect("something is in flight");
        lane.on_timer(timer, &mut due);
        asked += 1;
        assert!(asked < 20);
    }
    assert!(asked > 4, "asked only {asked} times");
    assert_eq!(due.replies.pop().unwrap().outcome, Err(Refusal::Unknown));
    lane.invariants();
}

#[test]
fn a_lost_session_is_replaced_and_doubt_is_admitted() {
    let (mut lane, mut due, nonce) = lane();
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    lane.submit(Instant(0), write(1), &mut due);
    due.writes.clear();
    lane.on_answers(
        Instant(1),
        &answer(Purpose::Execute(SessionId(1)), 0, Outcome::NoSession),
        &mut due,
    );
    assert_eq!(tokens(&mut due), [(1, false)]);
    assert_eq!(due.writes.pop().unwrap().command.purpose, Purpose::Open);
    assert!(!lane.is_open());
}

/// The first command after a long pause was answered with doubt, at once, and had not been
/// executed.
#[test]
fn a_lane_that_was_paused_for_long_opens_another_session_before_it_sends() {
    let (mut lane, mut due, nonce) = lane();
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    due.writes.clear();
    let (expiry, quarter) = (600_000_000, 150_000_000);
    lane.submit(Instant(3 * quarter - 1), write(1), &mut due);
    assert_eq!(
        due.writes.pop().unwrap().command.purpose,
        Purpose::Execute(SessionId(1)),
        "it may still be open"
    );
    lane.on_answers(
        Instant(3 * quarter),
        &answer(
            Purpose::Execute(SessionId(1)),
            0,
            Outcome::Done(Bytes::new()),
        ),
        &mut due,
    );
    due.replies.clear();
    lane.submit(Instant(3 * quarter + expiry), write(2), &mut due);
    let asked: Vec<_> = due.writes.drain(..).map(|write| write.command).collect();
    assert_eq!(
        asked
            .iter()
            .map(|command| command.purpose)
            .collect::<Vec<_>>(),
        [Purpose::Open]
    );
    let opened = answer(
        Purpose::Open,
        asked[0].number,
        Outcome::Opened(SessionId(2)),
    );
    lane.on_answers(Instant(3 * quarter + expiry), &opened, &mut due);
    assert_eq!(
        due.writes.pop().unwrap().command.purpose,
        Purpose::Execute(SessionId(2))
    );
    assert!(due.replies.is_empty(), "{:?}", due.replies);
    lane.invariants();
}

#[test]
fn an_idle_session_is_kept_alive() {
    let (mut lane, mut due, nonce) = lane();
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    lane.on_timer(Instant(150_000_000), &mut due);
    let command = due.writes.pop().unwrap().command;
    assert_eq!(
        (command.purpose, command.number),
        (Purpose::KeepAlive(SessionId(1)), 0)
    );
    assert!(lane.next_timer() > Some(Instant(150_000_000)));
    // Where the session has expired all the same, the lane opens another.
    lane.on_answers(
        Instant(150_000_001),
        &answer(Purpose::KeepAlive(SessionId(1)), 0, Outcome::NoSession),
        &mut due,
    );
    assert_eq!(due.writes.pop().unwrap().command.purpose, Purpose::Open);
}

fn numbers(due: &mut Due) -> Vec<(u64, bool)> {
    due.writes
        .drain(..)
        .map(|write| (write.command.number, write.again))
        .collect()
}

fn large(token: u64, bytes: usize) -> Request {
    Request {
        token,
        operation: Operation::Write,
        payload: Bytes::from(alloc::vec![7; bytes]),
    }
}

/// Lanes handed everything to every new leader at once, which then could not get it chosen
/// before the next one came.
#[test]
fn a_window_of_bytes_is_under_way_to_a_new_leader_as_well_and_small_writes_pass_large_ones() {
    let (mut lane, mut due, nonce) = lane();
    let open = answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1)));
    lane.on_answers(Instant(0), &open, &mut due);
    due.writes.clear();
    for number in 0..8 {
        lane.submit(Instant(1), large(number, 1_000_000), &mut due);
    }
    lane.submit(Instant(1), write(8), &mut due);
    assert_eq!(
        numbers(&mut due),
        [(0, false), (1, false), (2, false), (3, false), (8, false)]
    );
    let done = |number| {
        answer(
            Purpose::Execute(SessionId(1)),
            number,
            Outcome::Done(Bytes::new()),
        )
    };
    lane.on_answers(Instant(2), &done(2), &mut due);
    assert_eq!(numbers(&mut due), [(4, false)]);
    lane.resend_writes(Instant(3), &mut due);
    assert_eq!(
        numbers(&mut due),
        [(8, true), (0, true), (1, true), (3, true), (4, true)]
    );
    lane.on_answers(Instant(4), &done(0), &mut due);
    assert_eq!(numbers(&mut due), [(5, false)]);
    lane.invariants();
    // What never left is refused as such when its time is up.
    lane.on_timer(Instant(6_000_000), &mut due);
    let refused: Vec<_> = due
        .replies
        .iter()
        .rev()
        .take(3)
        .map(|reply| reply.outcome.clone())
        .collect();
    assert!(
        refused.contains(&Err(Refusal::Unavailable)) && refused.contains(&Err(Refusal::Unknown)),
        "{refused:?}"
    );
    lane.invariants();
    assert_eq!(lane.window.bytes(), 0);
}

#[test]
fn what_is_late_is_asked_again_ever_more_slowly_by_what_is_under_way() {
    let (mut lane, mut due, nonce) = lane();
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    due.writes.clear();
    lane.limits.patience = Duration::from_secs(60);
    lane.submit(Instant(0), large(1, 3_200_000), &mut due);
    due.writes.clear();
    let mut times = Vec::new();
    while times.len() < 4 {
        let timer = lane.next_timer().expect("it is asked again");
        lane.on_timer(timer, &mut due);
        times.extend(numbers(&mut due).iter().map(|_| timer.0 / 1000));
    }
    // 300 ms and 100 ms for the bytes, and each time twice as long after.
    assert_eq!(times, [400, 1200, 2800, 6000]);
}

fn read(token: u64) -> Request {
    Request {
        token,
        operation: Operation::Read(ReadLevel::Linearizable),
        payload: Bytes::from_static(b"?"),
    }
}

/// When each read that is in flight is asked again for the first time, in milliseconds.
fn asked_again(lane: &mut Lane, due: &mut Due, count: usize) -> Vec<u64> {
    due.reads.clear();
    let mut times = Vec::new();
    while times.len() < count {
        let timer = lane.next_timer().expect("they are asked again");
        lane.on_timer(timer, due);
        times.extend(due.reads.drain(..).map(|_| timer.0 / 1000));
    }
    times
}

/// Requests of a few bytes had answers of a megabyte, which were all asked for again while they
/// were on their way.
#[test]
fn reads_are_not_asked_again_while_as_large_answers_as_the_last_are_on_their_way() {
    let (mut lane, mut due, _) = lane();
    let number = lane.reads.floor;
    lane.submit(Instant(0), read(1), &mut due);
    let reply = Outcome::Done(Bytes::from(alloc::vec![7; 3_200_000]));
    lane.on_answers(Instant(0), &answer(Purpose::Read, number, reply), &mut due);
    (2..12).for_each(|token| lane.submit(Instant(0), read(token), &mut due));
    // Ten answers take a second.
    assert_eq!(asked_again(&mut lane, &mut due, 10), [1300; 10]);
    // It forgets.
    for number in number + 1..number + 11 {
        let done = Outcome::Done(Bytes::new());
        lane.on_answers(
            Instant(2_000_000),
            &answer(Purpose::Read, number, done),
            &mut due,
        );
    }
    assert_eq!((lane.read_answer_bytes, lane.in_flight()), (1_678_271, 0));
}

/// A request is not asked again later because an older one is asked ever more slowly.
#[test]
fn each_request_has_its_own_time_of_asking_again_and_of_giving_up() {
    let (mut lane, mut due, _) = lane();
    lane.submit(Instant(0), read(1), &mut due);
    let mut ended = Vec::new();
    let mut asked = 0;
    // The second comes right after the first was asked for the third time, at 900 ms, and is
    // again after 2100 ms.
    while asked < 2 {
        let timer = lane.next_timer().expect("it is asked again");
        due.reads.clear();
        lane.on_timer(timer, &mut due);
        asked += due.reads.len();
    }
    lane.submit(Instant(900_001), read(2), &mut due);
    assert!(
        lane.next_timer() <= Some(Instant(1_200_001)),
        "{:?}",
        lane.next_timer()
    );
    while lane.in_flight() > 0 {
        let timer = lane.next_timer().expect("something is in flight");
        lane.on_timer(timer, &mut due);
        ended.extend(
            due.replies
                .drain(..)
                .map(|reply| (reply.token, reply.outcome.is_ok(), timer.0)),
        );
    }
    assert_eq!(ended, [(1, false, 5_000_000), (2, false, 5_900_001)]);
}

/// A driver that still has the first copy of a large write knows the second by its bytes.
#[test]
fn what_is_asked_again_is_the_same_bytes() {
    let (mut lane, mut due, nonce) = lane();
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    due.writes.clear();
    lane.submit(Instant(0), write(0), &mut due);
    lane.submit(Instant(0), write(1), &mut due);
    let first = due.writes.pop().unwrap().command;
    lane.on_answers(
        Instant(1),
        &answer(
            Purpose::Execute(SessionId(1)),
            0,
            Outcome::Done(Bytes::new()),
        ),
        &mut due,
    );
    due.writes.clear();
    lane.on_timer(Instant(1_000_000), &mut due);
    assert_eq!(due.writes.pop().unwrap().command, first);
    lane.resend_writes(Instant(1_000_001), &mut due);
    assert_eq!(due.writes.pop().unwrap().command, first);
}

/// The cluster keeps the result of each command from the first unanswered one on, each as large
/// as a reply may be.
#[test]
fn results_that_the_cluster_keeps_are_bounded_in_bytes() {
    let (mut lane, mut due, nonce) = lane();
    lane.on_answers(
        Instant(0),
        &answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1))),
        &mut due,
    );
    lane.limits.in_flight_bytes = 100;
    (0..4).for_each(|token| lane.submit(Instant(0), write(token), &mut due));
    let done = |number| {
        answer(
            Purpose::Execute(SessionId(1)),
            number,
            Outcome::Done(Bytes::from_static(&[7; 60])),
        )
    };
    lane.on_answers(Instant(1), &done(1), &mut due);
    lane.submit(Instant(1), write(4), &mut due);
    lane.on_answers(Instant(1), &done(2), &mut due);
    lane.submit(Instant(1), write(5), &mut due);
    lane.invariants();
    let replies: Vec<_> = due
        .replies
        .drain(..)
        .map(|reply| (reply.token, reply.outcome.err()))
        .collect();
    assert_eq!(replies, [(1, None), (2, None), (5, Some(Refusal::Busy))]);
    // With the first one answered, and the floor raised, there is room again.
    lane.on_answers(Instant(2), &done(0), &mut due);
    lane.submit(Instant(2), write(6), &mut due);
    lane.invariants();
    assert_eq!(
        due.replies
            .iter()
            .map(|reply| reply.token)
            .collect::<Vec<_>>(),
        [0]
    );
}

#[test]
fn bytes_beyond_the_limit_are_refused_unless_they_come_alone() {
    let (mut lane, mut due, _) = lane();
    lane.limits.in_flight_bytes = 100;
    lane.submit(Instant(0), large(1, 200), &mut due);
    lane.submit(Instant(0), large(2, 1), &mut due);
    let outcomes: Vec<_> = due
        .replies
        .iter()
        .map(|reply| (reply.token, reply.outcome.clone()))
        .collect();
    assert_eq!(outcomes, [(2, Err(Refusal::Busy))]);
}

#[test]
fn limits_refuse_clearly() {
    let (mut lane, mut due, _) = lane();
    lane.limits.in_flight = 1;
    lane.limits.payload_bytes = 8;
    lane.submit(Instant(0), write(1), &mut due);
    lane.submit(Instant(0), write(2), &mut due);
    let large = Request {
        token: 3,
        operation: Operation::Write,
        payload: Bytes::from_static(b"nine byte"),
    };
    lane.submit(Instant(0), large, &mut due);
    let outcomes: Vec<_> = due
        .replies
        .iter()
        .map(|reply| reply.outcome.clone())
        .collect();
    assert_eq!(outcomes, [Err(Refusal::Busy), Err(Refusal::TooLarge)]);
}

/// A replica answers sequential and eventual reads itself: its number says nothing of the reader
/// with the same number.
#[test]
fn only_answers_to_linearizable_reads_clear_those_that_carried_them() {
    let (mut lane, mut due, _) = lane();
    for (level, cleared) in [(ReadLevel::Linearizable, 8), (ReadLevel::Eventual, 0)] {
        let mut request = write(1);
        request.operation = Operation::Read(level);
        lane.submit(Instant(1), request, &mut due);
        let number = due.reads.pop().expect("a read is sent").1.number;
        lane.sent_via(Purpose::Read, number, 3);
        let answer = answer(Purpose::Read, number, Outcome::Done(Bytes::new()));
        let via = lane.on_answers(Instant(2), &answer, &mut due);
        let reads = Members::from_bits(cleared);
        assert_eq!((via.writes, via.reads), (Members::EMPTY, reads));
    }
}

/// Each request for a session went the same way, though nothing came back on it.
#[test]
fn a_session_is_asked_for_again_by_another_way() {
    let (mut lane, mut due, nonce) = lane();
    lane.sent_via(Purpose::Open, nonce, 3);
    let timer = lane.next_timer().expect("it is asked again");
    lane.on_timer(timer, &mut due);
    let again = due.writes.pop().expect("it is asked for again");
    assert_eq!((again.command.number, again.via), (nonce, Some(3)));
    lane.sent_via(Purpose::Open, nonce, 1);
    // A new leader may have none of it: no instance has left it unanswered.
    lane.resend_writes(timer, &mut due);
    assert_eq!(due.writes.pop().map(|write| write.via), Some(None));
    let open = answer(Purpose::Open, nonce, Outcome::Opened(SessionId(4)));
    let via = lane.on_answers(timer, &open, &mut due);
    assert_eq!(via.writes, Members::from_bits(1 << 1));
}
