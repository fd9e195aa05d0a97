//! What a leader of Mencius ignores: messages that are out of all proportion, or malformed.

use super::*;

#[test]
fn notes_of_a_reservation_that_begins_elsewhere_do_not_count() {
    let mut leader = unreserved(&[]);
    leader.tell(propose("a"));
    for from in 0..3 {
        let other = noted(HOME, from, first(), 1, AHEAD);
        assert_eq!(leader.asked(other), only(vec![]));
    }
}

/// A leader that has restarted knows nothing of the log before a replica tells it, and does not
/// lead for a while.
#[test]
pub(crate) fn a_leader_that_has_restarted_hears_how_far_the_others_are_wherever_the_log_is() {
    let far = 1 << 50;
    let mut leader = leader(&[]);
    leader.tell(index_of(1, far + 8));
    assert_eq!(leader.figure("frontier"), 0, "nothing is known yet");
    leader.tell(executed(0, far));
    leader.tell(index_of(1, far + 8));
    assert_eq!(leader.figure("frontier"), far + 8);
    leader.tell(index_of(1, far + (1 << 45)));
    assert_eq!(leader.figure("frontier"), far + 8, "absurdly far ahead");
}

/// A replica asks for no more at a time.
#[test]
fn of_the_slots_that_a_replica_misses_a_leader_heeds_the_first_32() {
    let mut leader = leads();
    for _ in 0..40 {
        leader.tell(propose("a"));
    }
    leader.now = leader.now + Options::default().resend_after;
    let missed = In::Recover {
        from: ReplicaId(2),
        slots: (0..40).map(|position| Slot(3 * position)).collect(),
    };
    let asked = leader.asked(missed);
    let expected = (0..32).map(|position| suggests(first(), position, "a"));
    assert_eq!(asked, only(expected.collect()));
}
