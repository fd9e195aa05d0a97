//! What goes through the log without a session.

use super::*;

/// A read of several parts in P-SMR: it went to the wrong leader again and again.
#[test]
fn a_read_that_goes_through_the_log_is_asked_again_with_writes() {
    let (mut lane, mut due, nonce) = lane();
    lane.logs_reads();
    let opened = answer(Purpose::Open, nonce, Outcome::Opened(SessionId(1)));
    lane.on_answers(Instant(0), &opened, &mut due);
    due.writes.clear();
    let purposes = |due: &mut Due| {
        let writes = due.writes.drain(..);
        let purposes: Vec<_> = writes.map(|due| (due.command.purpose, due.again)).collect();
        assert!(due.reads.is_empty(), "nothing goes to replicas");
        purposes
    };
    lane.submit(Instant(1), read(1), &mut due);
    assert_eq!(purposes(&mut due), [(Purpose::Read, false)]);
    lane.resend_writes(Instant(2), &mut due);
    assert_eq!(purposes(&mut due), [(Purpose::Read, true)]);
    lane.resend_small_writes(Instant(3), 100, &mut due);
    assert_eq!(purposes(&mut due), [(Purpose::Read, true)]);
    let late = lane.next_timer().expect("it is asked again");
    lane.on_timer(late + Duration::from_secs(2), &mut due);
    assert!(due.writes_overdue, "the leader may be silent");
}

/// Otherwise it is asked again by a timer alone, which tries another leader each time.
#[test]
fn a_new_leader_is_asked_for_changes_of_the_membership_too() {
    let (mut lane, mut due, _) = lane();
    let payload = Bytes::from_static(b"change");
    lane.submit(
        Instant(0),
        Request {
            token: 1,
            operation: Operation::Change,
            payload,
        },
        &mut due,
    );
    due.writes.clear();
    lane.resend_writes(Instant(1), &mut due);
    let sessions: Vec<_> = due.writes.iter().map(|due| due.command.purpose).collect();
    assert_eq!(sessions, [Purpose::Open, Purpose::Change]);
}
