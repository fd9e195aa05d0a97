//! The rules of a disseminator of S-Paxos (compartmentalization, section 7). All that it asks of
//! its driver is compared.

use crate::spaxos_servers::*;
use crate::stage::{self, Stage, birth};
use ionian_kernel::id::*;
use ionian_kernel::layout::{NodeId, Options};
use ionian_kernel::role::Role;
use ionian_kernel::time::Duration;
use ionian_protocols::spaxos::config::Config;
use ionian_protocols::spaxos::disseminator::{Disseminator, In};
use ionian_protocols::spaxos::id::{DisseminatorId, StabilizerId};
use ionian_protocols::spaxos::message::{Payload, PayloadId, Ticket};
use ionian_protocols::spaxos::{Envelope, batcher, kind, leader, stabilizer};
use ionian_replication::batch::Batch;

/// How long a leader may leave a payload unchosen before it is proposed again.
const PROPOSE_AGAIN_AFTER: Duration = Duration::from_millis(250);

fn disseminator_on(config: Config, node: NodeId) -> Stage<Disseminator> {
    let birth = birth(kind::Disseminator, 1, node);
    Stage::new(config, &birth, Disseminator::new)
}

/// Disseminator 1, alone on its node; a leader leads in round 1 and the log reaches to slot 3.
fn disseminator_with(options: Options) -> Stage<Disseminator> {
    let mut disseminator = disseminator_on(apart(2, options), NodeId(99));
    assert_eq!(disseminator.asked(progress(3)), only(vec![]));
    disseminator
}

fn disseminator() -> Stage<Disseminator> {
    disseminator_with(Options::default())
}

fn progress(executed: u64) -> In {
    In::Progress {
        round: round(1),
        executed: Slot(executed),
    }
}

/// Batch 4 of batcher 0.
fn disseminate(batch: Batch) -> In {
    In::Disseminate {
        from: BatcherId(0),
        number: 4,
        batch,
    }
}

/// The slot in which a payload is void that is disseminated when the log reaches to `reached`.
fn void_from(reached: u64) -> Slot {
    Slot(reached + 8 * Options::default().window_slots as u64)
}

/// A payload that it asked stabilizers to store, and those.
fn stores(sent: &[(Envelope, Option<usize>)]) -> (Payload, Set<StabilizerId>) {
    let [(Envelope::ToStabilizers(to, stabilizer::In::Store { payload, .. }), Some(0))] = sent
    else {
        panic!("{sent:?}")
    };
    (payload.clone(), *to)
}

/// A payload is in flight; a write quorum was asked to store it.
fn begun(disseminator: &mut Stage<Disseminator>) -> (Payload, Set<StabilizerId>) {
    let asked = disseminator.asked(disseminate(batch()));
    let (payload, to) = stores(&asked.sends);
    assert_eq!(asked, only(vec![store(&payload, to)]));
    (payload, to)
}

fn store(payload: &Payload, to: Set<StabilizerId>) -> Envelope {
    let message = stabilizer::In::Store {
        floor: payload.id.number,
        payload: payload.clone(),
    };
    Envelope::ToStabilizers(to, message)
}

fn of(payload: &Payload) -> Ticket {
    Ticket {
        id: payload.id,
        void_from: payload.void_from,
        round: payload.round,
        floor: payload.id.number,
    }
}

fn stored(payload: &Payload, from: u8, lives: &[(u8, u64)]) -> In {
    let lives = lives.iter().map(|(of, life)| (StabilizerId(*of), *life));
    In::Stored {
        from: StabilizerId(from),
        tickets: vec![of(payload)],
        lives: lives.collect(),
    }
}

fn proposes(payload: &Payload, stored: &[u8]) -> Envelope {
    let message = leader::In::propose(&of(payload), stabilizers(stored), Set::EMPTY);
    Envelope::ToLeaders(Set::one(payload.round.leader()), message)
}

fn chosen(payload: &Payload, below: Slot) -> In {
    In::Chosen {
        numbers: vec![payload.id.number],
        below,
    }
}

/// Its batcher learns that its batch is chosen.
fn settles() -> Envelope {
    let message = batcher::In::BatchesChosen {
        from: DisseminatorId(1),
        numbers: vec![4],
    };
    Envelope::ToBatchers(Set::one(BatcherId(0)), message)
}

/// "It assigns the command a globally unique id and begins a dissemination phase with the goal of
/// persisting the command and its id on at least a majority" (7.1).
#[test]
fn a_write_quorum_of_stabilizers_is_asked_to_store_a_batch_under_a_name_of_its_own() {
    let mut disseminator = disseminator();
    let (payload, to) = begun(&mut disseminator);
    let expected = Payload {
        id: PayloadId {
            disseminator: DisseminatorId(1),
            ..payload.id
        },
        round: round(1),
        void_from: void_from(3),
        batch: batch(),
    };
    assert_eq!((&payload, to.len()), (&expected, 2));
    let asked = disseminator.asked(disseminate(batch()));
    let (next, _) = stores(&asked.sends);
    assert_eq!(next.id.number, payload.id.number.next());
}

/// It must know a round in which a leader leads, and where the log ends.
#[test]
fn nothing_is_stored_before_a_leader_is_heard() {
    let mut disseminator = disseminator_on(apart(2, Options::default()), NodeId(99));
    assert_eq!(disseminator.asked(disseminate(batch())), only(vec![]));
    let asked = disseminator.asked(progress(3));
    let (payload, to) = stores(&asked.sends);
    assert_eq!(
        (payload.round, payload.void_from, to.len()),
        (round(1), void_from(3), 2)
    );
}

/// "Upon receiving acknowledgements from a majority of the servers, the leader knows the command is
/// stable" (7.1).
#[test]
pub(crate) fn a_payload_is_proposed_when_a_write_quorum_stores_it() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    assert_eq!(disseminator.asked(stored(&payload, 2, &[])), only(vec![]));
    assert_eq!(disseminator.asked(stored(&payload, 2, &[])), only(vec![]));
    let asked = disseminator.asked(stored(&payload, 0, &[]));
    assert_eq!(asked, only(vec![proposes(&payload, &[0, 2])]));
    assert_eq!(disseminator.asked(stored(&payload, 1, &[])), only(vec![]));
}

/// Its acknowledgement is of what it has lost.
#[test]
pub(crate) fn an_acknowledgement_from_before_a_stabilizer_lost_its_memory_does_not_count() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    disseminator.asked(stored(&payload, 2, &[]));
    // Stabilizer 0 stored it after 2 had lost its memory.
    let asked = disseminator.asked(stored(&payload, 0, &[(2, 1)]));
    assert_eq!(asked, only(vec![]));
    assert_eq!(disseminator.asked(stored(&payload, 2, &[])), only(vec![]));
    let asked = disseminator.asked(stored(&payload, 2, &[(2, 1)]));
    assert_eq!(asked, only(vec![proposes(&payload, &[0, 2])]));
}

#[test]
fn an_acknowledgement_to_an_earlier_process_does_not_count() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    let mut earlier = payload.clone();
    earlier.id.life += 1;
    for from in [0, 1] {
        assert_eq!(
            disseminator.asked(stored(&earlier, from, &[])),
            only(vec![])
        );
    }
}

#[test]
fn a_payload_that_is_not_stored_in_time_goes_to_another_quorum_and_then_to_all() {
    let mut disseminator = disseminator();
    let (payload, first) = begun(&mut disseminator);
    let asked = disseminator.woken();
    let (_, second) = stores(&asked.sends);
    assert_eq!(asked, only(vec![store(&payload, second)]));
    assert!(
        second != first && second.len() >= 2,
        "{first:?}, then {second:?}"
    );
    let all = store(&payload, Set::first(3));
    assert_eq!(disseminator.woken(), only(vec![all]));
    // What stores it is not asked again.
    disseminator.asked(stored(&payload, 1, &[]));
    let rest = store(&payload, stabilizers(&[0, 2]));
    assert_eq!(disseminator.woken(), only(vec![rest]));
}

#[test]
fn without_work_no_stabilizer_is_reported_as_suspected_for_long() {
    let mut disseminator = disseminator();
    let (payload, first) = begun(&mut disseminator);
    let answers = first.iter().next().expect("a quorum");
    disseminator.tell(stored(&payload, answers.0, &[]));
    let (_, to) = stores(&disseminator.woken().sends);
    for from in to.without(first).iter() {
        disseminator.tell(stored(&payload, from.0, &[]));
    }
    disseminator.tell(chosen(&payload, Slot(9)));
    assert_eq!(disseminator.figure("suspected_stabilizers"), 1);
    let idle_since = disseminator.now;
    while disseminator.role.next_timer().is_some() {
        assert_eq!(disseminator.timer(), vec![]);
    }
    assert!(disseminator.now.since(idle_since) <= Duration::from_secs(10));
    assert_eq!(disseminator.figure("suspected_stabilizers"), 0);
}

#[test]
fn a_payload_that_the_leader_leaves_unchosen_is_proposed_again() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    disseminator.asked(stored(&payload, 0, &[]));
    disseminator.asked(stored(&payload, 1, &[]));
    let proposed_at = disseminator.now;
    // It looked for the acknowledgements first.
    assert_eq!(disseminator.woken(), only(vec![]));
    let again = only(vec![proposes(&payload, &[0, 1])]);
    assert_eq!(disseminator.woken(), again);
    let waited = disseminator.now.since(proposed_at);
    let most = PROPOSE_AGAIN_AFTER + Duration::from_millis(1);
    assert!((PROPOSE_AGAIN_AFTER..most).contains(&waited), "{waited:?}");
}

#[test]
fn a_payload_that_is_chosen_is_settled_and_its_batcher_learns_it() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    let message = chosen(&payload, payload.void_from);
    assert_eq!(disseminator.asked(message.clone()), only(vec![settles()]));
    assert_eq!(disseminator.asked(message), only(vec![]));
    for from in [0, 1] {
        assert_eq!(
            disseminator.asked(stored(&payload, from, &[])),
            only(vec![])
        );
    }
}

/// In that slot it stands for nothing.
#[test]
fn a_payload_that_may_be_void_where_it_was_chosen_is_stored_under_another_name() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    let asked = disseminator.asked(chosen(&payload, payload.void_from.next()));
    let (again, to) = stores(&asked.sends);
    assert_eq!(asked, only(vec![store(&again, to)]));
    let expected = Payload {
        id: PayloadId {
            number: payload.id.number.next(),
            ..payload.id
        },
        // The log reaches to where it was chosen.
        void_from: void_from(payload.void_from.0 + 1),
        ..payload
    };
    assert_eq!(again, expected);
}

/// What the failed leader took may be lost, or come to light: no payload has two rounds.
#[test]
fn what_is_in_flight_is_stored_under_another_name_when_another_leader_leads() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    disseminator.asked(stored(&payload, 0, &[]));
    disseminator.asked(stored(&payload, 1, &[]));
    let asked = disseminator.asked(In::NewLeader { round: round(2) });
    let (again, to) = stores(&asked.sends);
    assert_eq!(asked, only(vec![store(&again, to)]));
    assert_eq!(again.round, round(2));
    assert_eq!(again.id.number, payload.id.number.next());
    // The one before is nothing to it any more.
    let asked = disseminator.asked(chosen(&payload, Slot(4)));
    assert_eq!(asked, only(vec![]));
    // Nor is the leader of the round before, to which it would propose what is stable.
    disseminator.asked(stored(&again, 0, &[]));
    let asked = disseminator.asked(stored(&again, 1, &[]));
    assert_eq!(asked, only(vec![proposes(&again, &[0, 1])]));
    let earlier = In::NewLeader { round: round(1) };
    assert_eq!(disseminator.asked(earlier), only(vec![]));
}

/// The leader may have received none of it.
#[test]
fn what_is_stable_is_proposed_again_when_the_leader_says_that_it_leads_in_the_same_round() {
    let mut disseminator = disseminator();
    let (payload, _) = begun(&mut disseminator);
    let again = || In::NewLeader { round: round(1) };
    assert_eq!(disseminator.asked(again()), only(vec![]));
    disseminator.asked(stored(&payload, 0, &[]));
    disseminator.asked(stored(&payload, 1, &[]));
    let proposes = proposes(&payload, &[0, 1]);
    assert_eq!(disseminator.asked(again()), only(vec![proposes]));
}

/// A deposed leader names the highest round that it heard of: in that one no leader may ever lead.
#[test]
fn a_leader_that_turns_a_payload_away_changes_nothing() {
    let mut disseminator = disseminator();
    begun(&mut disseminator);
    let turned_away = In::NotLeader { round: round(9) };
    assert_eq!(disseminator.asked(turned_away), only(vec![]));
    let asked = disseminator.asked(disseminate(batch()));
    assert_eq!(stores(&asked.sends).0.round, round(1));
}

/// Payloads above this number are still proposed; below it nothing is.
#[test]
fn the_floor_of_a_proposal_is_the_lowest_number_in_flight() {
    let mut disseminator = disseminator();
    let (first, _) = begun(&mut disseminator);
    let asked = disseminator.asked(disseminate(batch()));
    let (second, _) = stores(&asked.sends);
    disseminator.asked(stored(&second, 0, &[]));
    let floors = |number| {
        let ticket = Ticket {
            floor: number,
            ..of(&second)
        };
        let message = leader::In::propose(&ticket, stabilizers(&[0, 1]), Set::EMPTY);
        only(vec![Envelope::ToLeaders(Set::one(LeaderId(0)), message)])
    };
    let asked = disseminator.asked(stored(&second, 1, &[]));
    assert_eq!(asked, floors(first.id.number));
    disseminator.asked(chosen(&first, Slot(4)));
    let asked = disseminator.asked(In::NewLeader { round: round(1) });
    assert_eq!(asked, floors(second.id.number));
}

#[test]
fn without_batching_each_command_of_a_client_is_a_payload() {
    let mut disseminator = disseminator_with(Options {
        batch_commands: 1,
        ..Options::default()
    });
    let mut two = ionian_replication::batch::BatchBuilder::default();
    for command in batch().commands().chain(batch().commands()) {
        two.push(&command);
    }
    let asked = disseminator.asked(In::Commands {
        commands: two.take(),
    });
    let payloads: Vec<_> = asked
        .sends
        .iter()
        .map(|one| stores(core::slice::from_ref(one)).0.batch)
        .collect();
    assert_eq!(payloads, [batch(), batch()]);
}

#[test]
fn batches_beyond_64_mib_in_flight_are_dropped() {
    let mut disseminator = disseminator();
    let large = stage::batch(vec![7; 40 << 20]);
    assert_eq!(
        disseminator.asked(disseminate(large.clone())).sends.len(),
        1
    );
    assert_eq!(disseminator.asked(disseminate(large)), only(vec![]));
    assert_eq!(disseminator.asked(disseminate(batch())).sends.len(), 1);
}

#[test]
fn payloads_beyond_131072_in_flight_are_dropped() {
    let mut disseminator = disseminator_with(Options {
        batch_commands: 1,
        ..Options::default()
    });
    let commands = |count| {
        let mut commands = ionian_replication::batch::BatchBuilder::default();
        (0..count).for_each(|number| commands.append(&stage::of_command(number, "x")));
        let commands = commands.take();
        In::Commands { commands }
    };
    let sent = disseminator.tell(commands(1 << 17)).len();
    assert_eq!(sent, 1 << 17);
    assert_eq!(disseminator.tell(commands(3)).len(), 0);
    assert_eq!(disseminator.figure("dropped_commands"), 3);
}

// Where roles share a node.

/// They hand it to the replicas on their own nodes.
#[test]
fn stabilizers_beside_replicas_are_always_asked_to_store() {
    let mut disseminator = disseminator_on(together(), NodeId(1));
    disseminator.asked(progress(3));
    let (_, to) = begun(&mut disseminator);
    assert_eq!(to, Set::first(3));
}

/// "It then broadcasts an acknowledgement to all servers" (7.1): the one beside the leader proposes
/// by a function call.
#[test]
fn the_disseminator_beside_the_leader_proposes_for_the_others_and_they_do_not() {
    let leads = Round::new(Epoch::default(), 1, LeaderId(1));
    let payload = |of: u8| {
        let mut payload = payload(7, 1000);
        (payload.id.disseminator, payload.round) = (DisseminatorId(of), leads);
        payload
    };
    let mut beside = disseminator_on(together(), NodeId(1));
    let helped = payload(2);
    assert_eq!(beside.asked(stored(&helped, 0, &[])), only(vec![]));
    let message = leader::In::propose(&of(&helped), stabilizers(&[0, 2]), Set::one(ReplicaId(2)));
    let proposes = Envelope::ToLeaders(Set::one(LeaderId(1)), message);
    assert_eq!(beside.asked(stored(&helped, 2, &[])), only(vec![proposes]));
    assert_eq!(beside.asked(stored(&helped, 1, &[])), only(vec![]));

    // The payload's own disseminator, which does not share a node with leader 0.
    let mut own = disseminator_on(together(), NodeId(1));
    own.asked(progress(3));
    let (payload, _) = begun(&mut own);
    for from in [0, 1, 2] {
        assert_eq!(own.asked(stored(&payload, from, &[])), only(vec![]));
    }
    // Unless the answer to the other one was lost.
    let message = leader::In::propose(&of(&payload), Set::first(3), Set::one(ReplicaId(1)));
    let proposes = Envelope::ToLeaders(Set::one(LeaderId(0)), message);
    let asked = own.waited(Options::default().resend_after + Duration::from_millis(1));
    assert_eq!(asked, only(vec![proposes]));
}
