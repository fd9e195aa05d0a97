//! Changes of the membership: which nodes count, and what chain nodes do for a change.

use super::master::{join, suspect};
use super::*;
use crate::stage::only;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::role::Role;
use ionian_kernel::wire::{decode_all, encode_all};
use ionian_protocols::craq::client::ClientLane;
use ionian_protocols::craq::master::ChainMaster;
use ionian_protocols::craq::message::{Step, first_life};
use ionian_protocols::craq::roster::Roster;
use ionian_protocols::multipaxos::leader;

fn nodes(numbers: &[u8]) -> Set<ChainNodeId> {
    numbers.iter().map(|number| ChainNodeId(*number)).collect()
}

/// Chain node 2 is replaced by 3, in epoch 1; or the change is over, in that epoch.
fn members(epoch: u32, now: &[u8], next: Option<&[u8]>) -> Step {
    Step::Members {
        epoch: Epoch(epoch),
        now: nodes(now),
        next: next.map(nodes),
    }
}

const ABC: &[(u8, u64)] = &[(0, 1), (1, 1), (2, 1)];
const NEW: u64 = first_life(Epoch(1));

/// The master after these steps, of which suspicions leave two of three nodes.
fn master(leases: bool, steps: &[Step]) -> ChainMaster {
    let mut master = ChainMaster::new(chain(0, ABC), 2, leases);
    steps.iter().for_each(|step| master.step(*step));
    master
}

fn standing(master: &ChainMaster) -> Vec<u8> {
    let members = master.chain().members.iter();
    members.map(|member| member.node.0).collect()
}

fn is_handed_over(master: &ChainMaster) -> bool {
    master.roster().handed_over
}

fn joint() -> Step {
    members(1, &[0, 1, 2], Some(&[0, 1, 3]))
}

#[test]
fn a_new_node_joins_once_the_master_knows_of_it_and_then_the_chain_is_handed_over() {
    let joins = join(0, 3, NEW, 2);
    assert_eq!(standing(&master(false, &[joins])), [0, 1, 2], "not yet");
    let mut master = master(false, &[joint()]);
    assert!(!is_handed_over(&master));
    master.step(joins);
    assert_eq!(standing(&master), [0, 1, 2, 3]);
    assert!(is_handed_over(&master));
    // It stays so while the old nodes go.
    master.step(suspect(1, 1, 2));
    assert!(is_handed_over(&master));
}

/// The change can be abandoned, and the new node is gone then.
#[test]
pub(crate) fn until_the_chain_is_handed_over_only_the_nodes_before_count() {
    let all_new = members(1, &[0, 1, 2], Some(&[3, 4, 5]));
    let mut master = master(false, &[all_new, join(0, 3, NEW, 2)]);
    master.step(suspect(1, 1, 0));
    assert_eq!(standing(&master), [1, 2, 3], "two are left");
    master.step(suspect(2, 2, 1));
    assert_eq!(standing(&master), [1, 2, 3], "one would be");
    assert!(!is_handed_over(&master), "4 and 5 have nothing");
}

#[test]
fn when_the_chain_is_handed_over_enough_of_both_configurations_stay() {
    let joins = join(0, 3, NEW, 2);
    let mut master = master(false, &[joint(), joins, suspect(1, 1, 0)]);
    assert_eq!(standing(&master), [1, 2, 3]);
    for node in [1, 2, 3] {
        let from = if node == 1 { 2 } else { 1 };
        master.step(suspect(2, from, node));
        assert_eq!(standing(&master), [1, 2, 3], "{node}");
    }
    // The change is finished: the one that has left counts no longer.
    master.step(members(2, &[0, 1, 3], None));
    master.step(suspect(2, 1, 2));
    assert_eq!(standing(&master), [1, 3]);
    master.step(suspect(3, 1, 3));
    assert_eq!(standing(&master), [1, 3]);
}

/// Its neighbours may be dead.
#[test]
fn each_member_has_one_removed_that_has_left_the_cluster() {
    let mut head = leaving::with_session(node(0, 3));
    let (epoch, since) = (Epoch(2), Epoch(2));
    let layout = Layout {
        epoch,
        since,
        ..with(&[0, 1, 3])
    };
    head.reconfigure(Craq::configure(layout).expect("a deployment"));
    let roster = Roster {
        epoch,
        now: nodes(&[0, 1, 3]),
        ..Roster::default()
    };
    let abc = chain(0, ABC);
    let found = suspicion(&mut head, &[1], (&abc, &roster));
    assert_eq!(found, Some(suspect(0, 0, 2)));
}

/// After a change that was abandoned the next new node may have the number of one that has left.
#[test]
fn a_node_that_had_the_number_before_is_not_taken_for_the_new_one() {
    let over = members(2, &[0, 1, 2], None);
    let again = members(3, &[0, 1, 2], Some(&[0, 1, 3]));
    let steps = [joint(), join(0, 3, NEW, 2), over, again];
    for leases in [false, true] {
        let mut master = master(leases, &steps);
        assert_eq!(standing(&master), [0, 1, 2, 3]);
        assert!(!is_handed_over(&master), "this one has left");
        let life = first_life(Epoch(3));
        let node = ChainNodeId(3);
        master.step(Step::Begin { node, life });
        let stays: &[u8] = if leases { &[3] } else { &[] };
        assert_eq!(standing(&master)[3..], *stays, "it may have a lease");
        if leases {
            continue;
        }
        master.step(join(2, 3, NEW, 2));
        assert_eq!(standing(&master), [0, 1, 2], "its life is over");
        master.step(join(2, 3, life, 2));
        assert!(is_handed_over(&master));
    }
}

#[test]
fn a_snapshot_says_which_nodes_count() {
    let snapshot = |master: &ChainMaster| {
        let mut bytes = Vec::new();
        master.snapshot(&mut bytes);
        bytes
    };
    let roster = |master: &ChainMaster| {
        let mut reply = Vec::new();
        master.read(Timestamp(0), &[1], &mut reply).expect("a read");
        decode_all::<Roster>(&reply.into()).expect("a roster")
    };
    let before = master(false, &[]);
    assert_eq!(roster(&before), Roster::founding(nodes(&[0, 1, 2])));
    let after = master(false, &[joint(), join(0, 3, NEW, 2)]);
    let mut other = master(false, &[]);
    other.restore(&snapshot(&after)).expect("a snapshot");
    assert_eq!(
        (other.chain(), other.roster()),
        (after.chain(), after.roster())
    );
    assert_eq!(&roster(&other), after.roster());
    let longer = [snapshot(&after), vec![0]].concat();
    assert!(other.restore(&longer).is_err());
    other.restore(&snapshot(&before)).expect("a snapshot");
    assert_eq!(other.roster(), before.roster());
}

/// The layout with these chain nodes, each on the node of its number.
fn with(numbers: &[u8]) -> Layout {
    let mut layout = layout(3);
    let places = numbers
        .iter()
        .map(|index| (*index, NodeId((*index).into())));
    layout.instances[usize::from(kind::ChainNode)] = places.collect();
    layout
}

/// Chain node 2 is being replaced by 3.
fn changing(epoch: u32) -> Arc<Config> {
    let layout = Layout {
        epoch: Epoch(epoch),
        next: Some(Box::new(with(&[0, 1, 3]))),
        ..with(&[0, 1, 2])
    };
    Craq::configure(layout).expect("a deployment")
}

/// The master says which nodes count, when the node looks with a heartbeat. Returns what it sends.
fn look(node: &mut Stage<ChainNode>, roster: &Roster) -> Vec<Envelope> {
    for _ in 0..1000 {
        let sends = node.timer();
        if !inquiries(&sends).is_empty() {
            return master_answers(node, &sends, |query| match query {
                [] => encode_all(&chain(0, ABC)),
                _ => encode_all(roster),
            });
        }
    }
    panic!("it does not look")
}

/// Whom the node suspects, where it hears these and the master says this.
fn suspicion(
    node: &mut Stage<ChainNode>,
    heard: &[u8],
    (chain, roster): (&Chain, &Roster),
) -> Option<Step> {
    for _ in 0..300 {
        for from in heard {
            node.tell(beat(*from, chain.epoch.0, true));
        }
        let sends = node.timer();
        let sends = match inquiries(&sends)[..] {
            [] => sends,
            _ => master_answers(node, &sends, |query| match query {
                [] => encode_all(chain),
                _ => encode_all(roster),
            }),
        };
        let steps = leases::steps(node, &sends);
        let is_suspicion = |step: &Step| matches!(step, Step::Suspect { .. });
        if let Some(step) = steps.into_iter().find(is_suspicion) {
            return Some(step);
        }
    }
    None
}

fn ready(sends: &[Envelope]) -> Vec<Epoch> {
    let ready = |envelope: &Envelope| match envelope {
        Envelope::ToLeaders(_, leader::In::Ready { epoch }) => Some(*epoch),
        _ => None,
    };
    sends.iter().filter_map(ready).collect()
}

#[test]
fn leaders_are_told_when_the_master_says_that_the_chain_is_handed_over() {
    let mut head = leaving::with_session(node(0, 3));
    head.reconfigure(changing(1));
    let sends = look(&mut head, &Roster::founding(nodes(&[0, 1, 2])));
    assert_eq!(ready(&sends), []);
    assert_eq!(leases::steps(&mut head, &sends), [joint()]);
    let mut roster = Roster {
        epoch: Epoch(1),
        now: nodes(&[0, 1, 2]),
        next: Some(nodes(&[0, 1, 3])),
        ..Roster::default()
    };
    let sends = look(&mut head, &roster);
    assert_eq!(ready(&sends), [], "it is not");
    roster.handed_over = true;
    let sends = look(&mut head, &roster);
    assert_eq!(ready(&sends), [Epoch(1)]);
    // Of an earlier change it says nothing of this one.
    head.reconfigure(changing(3));
    let sends = look(&mut head, &roster);
    assert_eq!(ready(&sends), []);
}

/// It is another member than one that had its number before.
#[test]
fn a_node_that_joins_the_cluster_begins_a_life_of_that_epoch() {
    let begin = |config: Arc<Config>, records: Vec<Record>| {
        let birth = birth(3);
        let mut role = ChainNode::new(config, &birth);
        records.into_iter().for_each(|record| role.recover(record));
        Stage::unstarted(role, birth.keeps_records)
            .started()
            .records
    };
    let life = |life| (encode_all(&Record::Life { life }), true);
    assert_eq!(begin(changing(1), vec![]), [life(NEW)]);
    let known = Record::Life { life: NEW };
    assert_eq!(begin(changing(1), vec![known.clone()]), [], "it restarts");
    let anew = first_life(Epoch(3));
    assert_eq!(begin(changing(3), vec![known]), [life(anew)], "added again");
}

/// A node that was added again, and whose log has records of the time before it had left.
#[test]
fn entries_are_missing_only_in_the_log_of_a_node_that_may_have_left() {
    let life = |life| Record::Life { life };
    let entry = |slot| Record::Entry {
        slot: Slot(slot),
        committed: Slot(slot),
        value: value(b"a"),
    };
    let role = |config: Arc<Config>, records: &[Record]| {
        let mut role = ChainNode::new(config, &birth(3));
        records.iter().for_each(|record| {
            role.check_record(record).expect("nothing is missing");
            role.recover(record.clone());
        });
        role
    };
    let founding = role(config(4), &[life(1)]);
    assert!(founding.check_record(&entry(0)).is_ok());
    assert!(founding.check_record(&entry(5)).is_err());
    let begin = |records: &[Record]| {
        let mut node = Stage::unstarted(role(changing(1), records), true);
        (node.started().records, node.role.received())
    };
    let before = [life(1), entry(5), entry(6)];
    let after = [life(NEW), entry(0), entry(1)];
    let all = [&before[..], &after].concat();
    assert_eq!(begin(&all), (vec![], Slot(1)), "what is committed");
    // The first record of its life was cut off, and it has said that again.
    let cut = [entry(0), entry(1), life(NEW), entry(2)];
    assert_eq!(role(changing(1), &cut).received(), Slot(3));
    // Of the last life something is missing: the node counts as one that has lost its memory.
    let began = encode_all(&life(NEW + 1));
    let lacks = [life(NEW), entry(5)];
    assert_eq!(begin(&lacks), (vec![(began, true)], Slot(0)));
    // It lacks them once: a later life has begun behind them.
    let began = [life(NEW + 1), entry(0), entry(1)];
    let again = [&lacks[..], &began].concat();
    assert_eq!(begin(&again), (vec![], Slot(1)));
}

fn change(client: u8, number: u64) -> Batch {
    Batch::one(&Command {
        client: ClientId(client),
        purpose: Purpose::Change,
        number,
        floor: 0,
        payload: (&b"change"[..]).into(),
    })
}

#[test]
fn a_change_goes_from_any_node_to_the_master_and_its_answer_to_the_client() {
    let mut middle = node(1, 3);
    let write = |client, number| In::Write {
        batch: change(client, number),
        from: None,
        handed: false,
    };
    let asked = middle.asked(write(1, 7));
    let [(envelope, _)] = &asked.sends[..] else {
        panic!("{asked:?}");
    };
    let Envelope::ToLeaders(_, leader::In::Propose { batch, .. }) = envelope else {
        panic!("{envelope:?}");
    };
    let command = batch.commands().next().expect("a command");
    let (purpose, payload) = (command.purpose, command.payload);
    assert_eq!((purpose, payload), (Purpose::Change, &b"change"[..]));
    assert_eq!(asked, only(vec![], asked.sends.clone()), "and no more");
    // Another one waits for its client to ask again. That of another client does not.
    assert_eq!(middle.asked(write(1, 8)), only(vec![], vec![]));
    let other = middle.asked(write(2, 1));
    assert!(
        matches!(other.sends[..], [(Envelope::ToLeaders(..), _)]),
        "{other:?}"
    );
    let mut answers = ionian_replication::batch::AnswersByClient::default();
    answers.push(&Answer {
        client: ClientId(1),
        purpose: Purpose::Change,
        number: command.number,
        outcome: Outcome::Done(b"verdict"),
    });
    let message = multipaxos::client::In::Answers {
        answers: answers.take_some(0, Slot(0)),
    };
    let sends = middle.tell(In::Master { message });
    let [Envelope::ToClients(to, client::In::Answers { answers })] = &sends[..] else {
        panic!("{sends:?}");
    };
    let answers: Vec<_> = answers.iter().collect();
    let [
        Answer {
            purpose,
            number,
            outcome,
            ..
        },
    ] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(*to, Set::one(ClientId(1)));
    assert_eq!((*purpose, *number), (Purpose::Change, 7));
    assert!(matches!(outcome, Outcome::Done(verdict) if verdict[..] == b"verdict"[..]));
}

#[test]
fn a_lane_sends_a_change_to_each_chain_node_in_turn() {
    let birth = stage::birth(kind::Client, 0, NodeId(30));
    let mut lane = Stage::new(config(3), &birth, |config, birth| {
        ClientLane::new(&config, birth)
    });
    let request = Request {
        token: 1,
        operation: Operation::Change,
        payload: (&b"a"[..]).into(),
    };
    let mut sends = lane.tell(client::In::Submit { request });
    let mut asked = Vec::new();
    for _ in 0..100 {
        asked.extend(sends.iter().filter_map(|envelope| match envelope {
            Envelope::ToChainNodes(to, In::Write { batch, .. })
                if batch.commands().any(|one| one.purpose == Purpose::Change) =>
            {
                to.iter().next()
            }
            _ => None,
        }));
        sends = lane.timer();
    }
    let all: Set<ChainNodeId> = asked.iter().take(3).copied().collect();
    assert_eq!(all, nodes(&[0, 1, 2]), "{asked:?}");
}

#[test]
fn chain_nodes_are_replaced_and_their_number_stays() {
    let transition = |from: &Layout, to: &[u8]| Craq::transition(from, &with(to));
    let refused = |from: &Layout, to: &[u8]| transition(from, to).unwrap_err().0;
    use ionian_kernel::protocol::Transition;
    assert_eq!(
        transition(&with(&[0, 1, 2]), &[0, 1, 2]),
        Ok(Transition::AtOnce)
    );
    assert_eq!(
        transition(&with(&[0, 1, 2]), &[0, 1, 3]),
        Ok(Transition::Joint)
    );
    let more = refused(&with(&[0, 1, 2]), &[0, 1, 2, 3]);
    assert!(more.contains("3 nodes and f=1, and would have 4"), "{more}");
    // What the master's log began with could not be told any more.
    let numbered = refused(&with(&[0, 1, 5]), &[0, 1, 6]);
    assert!(numbered.contains("numbered from 0"), "{numbered}");
    let later = Layout {
        since: Epoch(2),
        ..with(&[0, 1, 5])
    };
    assert_eq!(transition(&later, &[0, 1, 6]), Ok(Transition::Joint));
    let founding = |layout| Craq::configure(layout).expect("a deployment").founding();
    assert_eq!(founding(later), chain(0, ABC), "0, 1 and 2 were the first");
    let first = [(0, 1), (1, 1), (5, 1)];
    assert_eq!(founding(with(&[0, 1, 5])), chain(0, &first));
}
