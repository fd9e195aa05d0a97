//! What replicas do that lack what others have.

use super::*;
use ionian_protocols::multipaxos::leader;
use ionian_replication::executor::Executor;
use std::collections::VecDeque;

const A: usize = 0;
const B: usize = 1;

/// Two replicas that reach each other; messages to other roles are only noted.
struct Pair {
    replicas: [Stage; 2],
    /// What they said to others.
    said: Vec<(usize, Message)>,
    /// How many snapshots were begun.
    snapshots: usize,
    /// For how many rounds pieces of snapshots are on their way, and those that are.
    snapshots_take: usize,
    on_their_way: VecDeque<(usize, usize, Message)>,
    round: usize,
}

impl Pair {
    fn new(options: Options, keeps_records: bool) -> Self {
        let replica = |index| {
            let options = (2, options.clone());
            Stage::new(options, (kind::Replica, index), keeps_records)
        };
        Pair {
            replicas: [replica(0), replica(1)],
            said: Vec::new(),
            snapshots: 0,
            snapshots_take: 0,
            on_their_way: VecDeque::new(),
            round: 0,
        }
    }

    fn pass_on(&mut self, from: usize, sent: Sent) {
        let mut left: VecDeque<_> = sent.into_iter().map(|it| (from, it)).collect();
        while let Some((from, envelope)) = left.pop_front() {
            let Routed::Roles {
                kind,
                members,
                message,
            } = envelope
            else {
                continue;
            };
            let to = |peer: usize| members.contains(peer as u8);
            for peer in (0..2).filter(|peer| kind == kind::Replica && to(*peer)) {
                self.snapshots += usize::from(begins_snapshot(&message));
                if self.snapshots_take > 0 && is_of_snapshot(&message) {
                    let arrives = self.round + self.snapshots_take;
                    self.on_their_way
                        .push_back((arrives, peer, message.clone()));
                    continue;
                }
                let answer = self.replicas[peer].tell(message.clone());
                left.extend(answer.into_iter().map(|it| (peer, it)));
            }
            if kind != kind::Replica {
                self.said.push((from, message));
            }
        }
    }

    fn tell(&mut self, to: usize, message: Message) {
        let sent = self.replicas[to].tell(message);
        self.pass_on(to, sent);
    }

    fn wait(&mut self, time: Duration) {
        self.round += 1;
        let arrived = self
            .on_their_way
            .partition_point(|(arrives, ..)| *arrives <= self.round);
        for (_, to, message) in self.on_their_way.drain(..arrived).collect::<Vec<_>>() {
            self.tell(to, message);
        }
        for place in [A, B] {
            let sent = self.replicas[place].waited(time);
            self.pass_on(place, sent);
        }
    }

    /// How far a replica has executed its logs, together.
    fn executed(&self, place: usize) -> u64 {
        let status = self.replicas[place].instance.status();
        status.executed.expect("a replica says so").0
    }
}

fn is_of_snapshot(message: &Message) -> bool {
    matches!(
        message,
        Message::InGroup {
            message: multipaxos::Message::Replica(replica::In::SnapshotChunk { .. }),
            ..
        }
    )
}

fn begins_snapshot(message: &Message) -> bool {
    matches!(message, Message::InGroup {
        message: multipaxos::Message::Replica(replica::In::SnapshotChunk { offset: 0, bytes, .. }),
        ..
    } if !bytes.is_empty())
}

/// Each replica keeps few slots for peers.
fn forgetful() -> Options {
    Options {
        retained_slots: 4,
        ..Options::default()
    }
}

#[test]
fn a_replica_far_behind_catches_up_under_load_with_one_snapshot() {
    let pair = Pair::new(forgetful(), true);
    assert_eq!(catches_up(pair), (true, 1));
}

/// The snapshot is on its way for longer than its sender keeps slots, and messages are lost too.
#[test]
fn a_replica_far_behind_catches_up_under_load_with_a_snapshot_that_takes_long() {
    let mut pair = Pair::new(forgetful(), true);
    pair.snapshots_take = 9;
    let (executed, snapshots) = catches_up(pair);
    assert!(executed);
    // It asks while the first is on its way, and is given the same. Would its peer not keep what
    // comes next, it would need another as soon as it has one.
    assert!(snapshots < 8, "{snapshots}");
}

/// Whether a replica that lacks the beginning of all logs has executed them when they have grown
/// for a while, and with how many snapshots.
fn catches_up(mut pair: Pair) -> (bool, usize) {
    let mut logs = Logs::new(2);
    let all = logs.all();
    for _ in 0..30 {
        logs.write(0, "a=x");
        logs.write(1, "b=x");
    }
    logs.messages().into_iter().for_each(|it| pair.tell(A, it));
    for round in 0..80 {
        // What comes now reaches both; now and then something touches all.
        let mut news = Vec::new();
        for (group, payload) in [(0, "a=y"), (1, "b=y")] {
            logs.write(group, payload);
            news.push((group, logs.logs[group].len() - 1));
        }
        if round % 8 == 7 {
            logs.write(all, "ab=z");
            news.push((all, logs.logs[all].len() - 1));
            for group in 0..all {
                let until = logs.logs[all].len() as u64;
                logs.mark(group, until);
                news.push((group, logs.logs[group].len() - 1));
            }
        }
        for (group, slot) in news {
            pair.tell(A, logs.chosen(group, slot));
            // Where a snapshot takes long, messages are lost too, up to the last rounds.
            if pair.snapshots_take == 0 || round % 3 != 1 || round > 60 {
                pair.tell(B, logs.chosen(group, slot));
            }
        }
        pair.wait(Duration::from_millis(300));
    }
    let total: usize = logs.logs.iter().map(Vec::len).sum();
    assert_eq!(pair.executed(A), total as u64);
    (pair.executed(B) == total as u64, pair.snapshots)
}

/// B is to answer what is chosen.
fn answered_by_b(message: &mut Message) {
    if let Message::InGroup { message, .. } = message
        && let multipaxos::Message::Replica(replica::In::Chosen { replier, .. }) = message
    {
        *replier = ReplicaId(B as u8);
    }
}

/// m13: all parts are of one cut. m14: what the picture contains is not executed again.
#[test]
fn a_state_that_is_taken_over_goes_on_as_that_of_its_peer() {
    let mut pair = Pair::new(forgetful(), true);
    let mut logs = Logs::new(2);
    let all = logs.all();
    for _ in 0..9 {
        logs.write(0, "a=x");
    }
    logs.mark(0, 2);
    logs.write(0, "a=y");
    for _ in 0..9 {
        logs.write(1, "b=x");
    }
    logs.mark(1, 2);
    logs.write(all, "ab=1");
    // B learns of the last slot only.
    let known = logs.messages();
    for message in &known {
        pair.tell(A, message.clone());
    }
    logs.write(0, "a=z");
    let last = logs.chosen(0, logs.logs[0].len() - 1);
    pair.tell(B, last.clone());
    pair.tell(A, last);
    // The next slot of g_all makes the picture.
    logs.logs[all].push(noop());
    logs.mark(0, 3);
    logs.mark(1, 3);
    for _ in 0..20 {
        pair.wait(Duration::from_millis(300));
    }
    for replica in [A, B] {
        for group in [all, 0, 1] {
            let slot = logs.logs[group].len() - 1;
            pair.tell(replica, logs.chosen(group, slot));
        }
        for _ in 0..20 {
            pair.wait(Duration::from_millis(300));
        }
    }
    assert_eq!(pair.snapshots, 1);
    assert_eq!(pair.executed(B), pair.executed(A));
    // All old slots come once more, and then one that shows the state.
    known.into_iter().for_each(|it| pair.tell(B, it));
    let mut sent = Vec::new();
    logs.write(all, "ab=2");
    logs.mark(0, 4);
    logs.mark(1, 4);
    for group in [all, 0, 1] {
        let slot = logs.logs[group].len() - 1;
        let mut message = logs.chosen(group, slot);
        answered_by_b(&mut message);
        sent.extend(pair.replicas[B].tell(message));
    }
    // The sessions of the groups are there too.
    logs.write(0, "a=w");
    let mut message = logs.chosen(0, logs.logs[0].len() - 1);
    answered_by_b(&mut message);
    sent.extend(pair.replicas[B].tell(message));
    let answered = [
        (2, 1, "xxxxxxxxx1yz2,xxxxxxxxx12"),
        (0, 11, "xxxxxxxxx1yz2w"),
    ];
    assert_eq!(answers(&sent), expected(&answered));
}

#[test]
pub(crate) fn a_state_is_taken_when_all_parts_are_in_the_machine() {
    let mut replica = a_replica(3);
    let mut logs = Logs::new(3);
    let all = logs.all();
    let begun = |sent: Sent| {
        let messages = sent.into_iter().filter_map(|envelope| match envelope {
            Routed::Roles { message, .. } => Some(message),
            Routed::Application { .. } => None,
        });
        messages.filter(begins_snapshot).count()
    };
    let told = |replica: &mut Stage, logs: &Logs, groups: &[usize]| {
        let last = |group: &usize| logs.chosen(*group, logs.logs[*group].len() - 1);
        let sent = groups.iter().flat_map(|it| replica.tell(last(it)));
        begun(sent.collect())
    };
    let known = logs.messages();
    let (from, executed) = (ReplicaId(1), Slot(1));
    let need = Message::NeedState { from, executed };
    for message in known.into_iter().chain([need]) {
        assert_eq!(begun(replica.tell(message)), 0);
    }
    logs.write(all, "ab=1");
    (0..2).for_each(|group| logs.mark(group, 2));
    assert_eq!(
        told(&mut replica, &logs, &[0, 1, all]),
        0,
        "part 2 is with its worker"
    );
    logs.logs[all].push(noop());
    (0..3).for_each(|group| logs.mark(group, 3));
    assert_eq!(told(&mut replica, &logs, &[0, 1, 2, all]), 1);
}

/// The slots that a replica reports as kept in each group: the highest.
fn kept(pair: &Pair, replica: usize) -> [u64; 3] {
    let mut kept = [0; 3];
    for (from, message) in &pair.said {
        if let Message::InGroup {
            group,
            message: multipaxos::Message::Leader(message),
        } = message
            && let leader::In::Executed { kept: slot, .. } = message
            && *from == replica
        {
            let most = &mut kept[usize::from(*group)];
            *most = slot.0.max(*most);
        }
    }
    kept
}

/// Nodes keep nothing through a crash: what each replica has executed of a group by itself must
/// not be forgotten by acceptors, because the other lacks what it has forgotten itself.
#[test]
fn two_replicas_that_each_need_what_the_other_has_get_it_from_the_leaders() {
    let mut pair = Pair::new(forgetful(), false);
    let mut logs = Logs::new(2);
    let all = logs.all();
    for message in logs.messages() {
        pair.tell(A, message.clone());
        pair.tell(B, message);
    }
    // A learns nothing of group 1, B nothing of group 0.
    for (group, replica, payload) in [(0, A, "a=x"), (1, B, "b=x")] {
        for _ in 0..20 {
            logs.write(group, payload);
            pair.tell(replica, logs.chosen(group, logs.logs[group].len() - 1));
        }
    }
    logs.logs[all].push(noop());
    logs.mark(0, 2);
    logs.mark(1, 2);
    for group in 0..=all {
        let slot = logs.logs[group].len() - 1;
        pair.tell(A, logs.chosen(group, slot));
        pair.tell(B, logs.chosen(group, slot));
    }
    for _ in 0..20 {
        pair.wait(Duration::from_millis(300));
    }
    // Neither can execute the noop: what f+1 have kept is what was executed when workers stopped.
    for replica in [A, B] {
        assert_eq!(kept(&pair, replica), [2, 2, 1], "replica {replica}");
    }
    assert_eq!(
        pair.snapshots, 0,
        "neither has a state that contains the other's"
    );
    // Each asks the leaders, which still have all of it.
    for (group, replica) in [(1_u8, A), (0, B)] {
        let asked = pair
            .said
            .iter()
            .rev()
            .find_map(|(from, message)| match message {
                Message::InGroup {
                    group: of,
                    message: multipaxos::Message::Leader(leader::In::Recover { slots }),
                } if *of == group && *from == replica => Some(slots.clone()),
                _ => None,
            });
        for slot in asked.expect("it asks the leaders") {
            pair.tell(replica, logs.chosen(group.into(), slot.0 as usize));
        }
    }
    let total: usize = logs.logs.iter().map(Vec::len).sum();
    assert_eq!([A, B].map(|it| pair.executed(it)), [total as u64; 2]);
}

/// The slots of a group that replicas ask leaders for, and leaders have: those that no f+1 replicas
/// have kept, where one that is gone has kept whatever these have. From the message `known` on.
fn recovered(pair: &Pair, known: usize) -> Vec<(usize, u8, Slot)> {
    let kept = [A, B].map(|replica| kept(pair, replica));
    let mut found = Vec::new();
    for (from, message) in &pair.said[known..] {
        if let Message::InGroup {
            group,
            message: multipaxos::Message::Leader(leader::In::Recover { slots }),
        } = message
        {
            let forgotten = kept.iter().map(|kept| kept[usize::from(*group)]).max();
            let has = |slot: &&Slot| Some(slot.0) >= forgotten;
            found.extend(slots.iter().filter(has).map(|slot| (*from, *group, *slot)));
        }
    }
    found
}

/// Nodes keep nothing through a crash, markers come twice, and the second one is lost on its way
/// to A in group 0 and on its way to B in group 1. The third replica keeps all, and crashes.
#[test]
fn two_replicas_that_have_stopped_at_the_same_places_need_nothing_that_is_forgotten() {
    let mut pair = Pair::new(forgetful(), false);
    let mut logs = Logs::new(2);
    let all = logs.all();
    let tell = |pair: &mut Pair, logs: &Logs, (group, slot)| {
        for replica in [A, B] {
            if (group, slot, replica) != (0, 3, A) && (group, slot, replica) != (1, 3, B) {
                pair.tell(replica, logs.chosen(group, slot));
            }
        }
    };
    logs.logs[all].push(noop());
    for group in 0..all {
        logs.mark(group, 2);
        logs.mark(group, 2);
        (0..4).for_each(|slot| tell(&mut pair, &logs, (group, slot)));
    }
    (0..2).for_each(|slot| tell(&mut pair, &logs, (all, slot)));
    for (group, payload) in [(0, "a=x"), (1, "b=x")] {
        for _ in 0..20 {
            logs.write(group, payload);
            tell(&mut pair, &logs, (group, logs.logs[group].len() - 1));
        }
    }
    let mut known = 0;
    for round in 0..80 {
        // As replicas ask for now and then.
        if round % 8 == 0 {
            logs.logs[all].push(noop());
            let until = logs.logs[all].len() as u64;
            (0..all).for_each(|group| logs.mark(group, until));
            for group in 0..=all {
                tell(&mut pair, &logs, (group, logs.logs[group].len() - 1));
            }
        }
        pair.wait(Duration::from_millis(300));
        let given = recovered(&pair, known);
        known = pair.said.len();
        for (replica, group, slot) in given {
            if (slot.0 as usize) < logs.logs[usize::from(group)].len() {
                pair.tell(replica, logs.chosen(group.into(), slot.0 as usize));
            }
        }
    }
    let total: usize = logs.logs.iter().map(Vec::len).sum();
    assert_eq!([A, B].map(|it| pair.executed(it)), [total as u64; 2]);
}

/// A faulty peer sends a state that does not say how far the groups are.
#[test]
fn a_state_that_tells_of_one_log_alone_is_not_taken_over() {
    let mut executor = Executor::new(texts(), Duration::from_secs(60));
    let chunk = replica::In::SnapshotChunk {
        from: ReplicaId(1),
        executed: Slot(9),
        offset: 0,
        last: true,
        bytes: executor.snapshot(),
    };
    let (mut replica, mut logs) = (a_replica(2), Logs::new(2));
    let all = logs.all();
    let chunk = within(all, multipaxos::Message::Replica(chunk));
    assert_eq!(replica.tell(chunk).len(), 0);
    logs.write(all, "ab=1");
    (0..all).for_each(|group| logs.mark(group, 2));
    let sent = logs.messages().into_iter().flat_map(|it| replica.tell(it));
    let sent = sent.collect();
    assert_eq!(answers(&sent), expected(&[(2, 0, "1,1")]));
}
