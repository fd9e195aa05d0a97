//! What a client lane does when batchers pass commands on, as servers of Scalog do.

use super::*;

/// Where the next write goes.
fn next_batcher(lane: &mut Stage<ClientLane>, token: u64) -> Set<BatcherId> {
    let sent = lane.tell(submit_write(token, "x"));
    match &sent[..] {
        [Envelope::ToBatchers(batchers, _)] => *batchers,
        other => panic!("{other:?}"),
    }
}

/// Which of them take commands in says nothing of one that has died.
#[test]
fn a_batcher_that_is_suspected_stays_so_when_others_are_left_out() {
    let mut lane = open();
    let usual = next_batcher(&mut lane, 0);
    lane.waited(Options::default().lane.retry_after);
    let to = Set::first(3).without(usual);
    assert_eq!(lane.tell(In::PassedOn { to }), vec![]);
    lane.now = lane.now + Duration::from_secs(1);
    let batchers = next_batcher(&mut lane, 1);
    assert!(batchers.covers(usual), "the suspect gets a copy");
    assert!(batchers.meets(to), "{batchers:?}");
    let next = next_batcher(&mut lane, 2);
    assert!(to.covers(next), "{next:?}");
}

/// The shard of one that died takes nothing in, so those that it has named are left.
#[test]
fn all_batchers_are_asked_again_when_one_of_those_that_take_commands_in_is_silent() {
    let mut lane = open();
    let usual = next_batcher(&mut lane, 0);
    lane.tell(done(0));
    let to = Set::first(3).without(usual);
    assert_eq!(lane.tell(In::PassedOn { to }), vec![]);
    let first = next_batcher(&mut lane, 1);
    assert!(to.covers(first), "{first:?}");
    lane.waited(Options::default().lane.retry_after);
    assert_eq!(next_batcher(&mut lane, 2), usual);
}

/// Servers of Scalog whose shard is closed or spare.
#[test]
fn batchers_that_pass_commands_on_are_left_out_for_a_while() {
    let mut lane = open();
    let usual = next_batcher(&mut lane, 0);
    let to = Set::first(2).without(usual);
    assert_eq!(lane.tell(In::PassedOn { to }), vec![]);
    assert_eq!([1, 2].map(|token| next_batcher(&mut lane, token)), [to; 2]);
    lane.now = lane.now + Duration::from_secs(1);
    assert_eq!(next_batcher(&mut lane, 3), usual);
    // It knows no others.
    let to = Set::EMPTY;
    assert_eq!(lane.tell(In::PassedOn { to }), vec![]);
    assert_eq!(next_batcher(&mut lane, 4), usual);
}
