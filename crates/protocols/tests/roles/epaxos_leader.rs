//! The leader of EPaxos between a command and its decision: whom it asks, when it takes the fast
//! path, and what it does when answers are missing. All that it asks of its driver is compared.

use crate::epaxos_acceptor::{ballot, deps};
use crate::epaxos_process::{config, of};
use crate::stage::{self, Stage, Touching, batch, of_command, only};
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options};
use ionian_kernel::level::Level;
use ionian_kernel::machine::Footprint;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Asked;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::epaxos::acceptor;
use ionian_protocols::epaxos::config::Config;
use ionian_protocols::epaxos::instance::{InstanceId, OWN};
use ionian_protocols::epaxos::leader::{In, Leader, Record};
use ionian_protocols::epaxos::message::{Choice, Learned, Lives, Payload, Replier, Run};
use ionian_protocols::epaxos::{EPaxos, Envelope, kind};
use std::sync::Arc;

pub(crate) const RESEND: Duration = Duration::from_millis(40);

/// Each byte of its commands is a key, which they write; a barrier is marked.
pub(crate) fn writes(command: &[u8], footprint: &mut Footprint) {
    footprint.everything |= command.first() == Some(&b'!');
    footprint
        .writes
        .extend(command.iter().map(|key| u64::from(*key)));
}

/// Leader 0 of five, in its second life. It knows the clocks of others, and sends no heartbeat in
/// the time of a test.
pub(crate) fn leader(amnesiac: bool) -> Stage<Leader> {
    leader_with(amnesiac, Options::default())
}

fn leader_with(amnesiac: bool, options: Options) -> Stage<Leader> {
    leader_of(amnesiac, options, |options| config(5, 2, options))
}

/// The same in the deployment that this makes.
pub(crate) fn leader_of(
    amnesiac: bool,
    options: Options,
    config: impl FnOnce(Options) -> Arc<Config>,
) -> Stage<Leader> {
    let options = Options {
        heartbeat: Duration::from_secs(1000),
        election_timeout: Duration::from_secs(4000),
        resend_after: RESEND,
        ..options
    };
    let mut birth = stage::birth(kind::Leader, 0, NodeId(0));
    birth.amnesiac = amnesiac;
    birth.machine = &|| Touching::machine(writes);
    let records = vec![Record::Life { life: 1 }];
    let mut leader = Stage::after(config(options), &birth, records, Leader::new);
    for from in [1, 2] {
        leader.tell(In::Heartbeat {
            from: LeaderId(from),
            life: 1,
            clock: Timestamp(0),
        });
    }
    leader
}

pub(crate) fn propose(text: &'static str) -> In {
    In::Propose {
        near: Set::EMPTY,
        batch: batch(text),
    }
}

pub(crate) fn says(sends: Vec<Envelope>) -> Asked<Envelope> {
    let sends = sends.into_iter().map(|one| (one, Some(0))).collect();
    only(vec![], sends)
}

pub(crate) fn nothing() -> Asked<Envelope> {
    says(vec![])
}

pub(crate) fn to(acceptors: &[u8], message: acceptor::In) -> Envelope {
    let acceptors = acceptors.iter().copied().map(AcceptorId).collect();
    Envelope::ToAcceptors(acceptors, message)
}

/// What the leader proposes.
#[derive(Clone)]
pub(crate) struct Proposed {
    pub(crate) id: InstanceId,
    pub(crate) payload: Payload,
    pub(crate) fast: AcceptorSet,
}

impl Proposed {
    /// That of a single request to the leader's own acceptor, which is all that it asks.
    pub(crate) fn of(asked: &Asked<Envelope>) -> Proposed {
        let Some((Envelope::ToAcceptors(_, message), _)) = asked.sends.first() else {
            panic!("it proposes nothing: {asked:?}");
        };
        let acceptor::In::PreAccept {
            id, payload, fast, ..
        } = message.clone()
        else {
            panic!("it proposes nothing: {asked:?}");
        };
        let proposed = Proposed { id, payload, fast };
        assert_eq!(
            *asked,
            says(vec![proposed.pre_accept(Set::one(AcceptorId(0)))])
        );
        proposed
    }

    /// A request that tells nothing of what its own acceptor had recorded.
    pub(crate) fn pre_accept(&self, to: AcceptorSet) -> Envelope {
        self.pre_accept_after(&[], to)
    }

    fn pre_accept_after(&self, past: &[InstanceId], to: AcceptorSet) -> Envelope {
        let message = acceptor::In::PreAccept {
            from: LeaderId(0),
            id: self.id,
            payload: self.payload.clone(),
            past: deps(past),
            fast: self.fast,
        };
        Envelope::ToAcceptors(to, message)
    }

    pub(crate) fn choice(&self, after: &[InstanceId]) -> Choice {
        Choice::Command {
            payload: self.payload.clone(),
            deps: deps(after),
        }
    }

    pub(crate) fn accept(&self, after: &[InstanceId]) -> Envelope {
        let message = acceptor::In::Accept {
            from: LeaderId(0),
            proxy: None,
            id: self.id,
            ballot: OWN,
            choice: self.choice(after),
        };
        to(&[0, 1, 2, 3, 4], message)
    }

    /// An acceptor has recorded it after these.
    fn answer(&self, from: u8, after: &[InstanceId]) -> In {
        In::PreAccepted {
            from: AcceptorId(from),
            lives: Lives::default(),
            id: self.id,
            deps: deps(after),
        }
    }

    /// An acceptor has recorded it after nothing, and knows of these lives.
    pub(crate) fn answer_in(&self, from: u8, lives: Lives) -> In {
        In::PreAccepted {
            from: AcceptorId(from),
            lives,
            id: self.id,
            deps: deps(&[]),
        }
    }
}

/// Its own acceptor has recorded the command, and others are asked.
pub(crate) fn proposed(leader: &mut Stage<Leader>) -> Proposed {
    let proposed = Proposed::of(&leader.asked(propose("one")));
    let asked = leader.asked(proposed.answer(0, &[]));
    let others = proposed.fast.without(Set::one(AcceptorId(0)));
    assert_eq!(asked, says(vec![proposed.pre_accept(others)]));
    proposed
}

/// The replica that answers the first command of a leader is a matter of its turn.
fn replier(asked: &Asked<Envelope>) -> Replier {
    let commit = asked.sends.iter().find_map(|(envelope, _)| match envelope {
        Envelope::ToAcceptors(_, acceptor::In::Commit { replier, .. }) => Some(*replier),
        _ => None,
    });
    commit.expect("a commit")
}

/// The commits of a command that these hold, by this replica.
fn commits(
    proposed: &Proposed,
    choice: &Choice,
    holders: &[u8],
    replier: Replier,
) -> Vec<Envelope> {
    let others: Vec<u8> = (0..5).filter(|id| !holders.contains(id)).collect();
    let parts: [(&[u8], Learned); 2] =
        [(holders, choice.brief()), (&others, choice.clone().into())];
    let parts = parts.into_iter().filter(|(to, _)| !to.is_empty());
    let commit = |(all, learned): (&[u8], Learned)| {
        let id = proposed.id;
        to(
            all,
            acceptor::In::Commit {
                id,
                learned,
                replier,
            },
        )
    };
    parts.map(commit).collect()
}

fn decide(id: InstanceId, after: &[InstanceId]) -> Asked<Envelope> {
    let deps = deps(after);
    says(vec![to(&[0], acceptor::In::Decide { id, deps })])
}

fn vote(proposed: &Proposed, from: u8) -> In {
    In::Accepted {
        from: AcceptorId(from),
        id: proposed.id,
        ballot: OWN,
    }
}

/// Each dependency was named by two of four: a recovery that hears from all but one finds it.
#[test]
pub(crate) fn what_the_fast_quorum_names_twice_its_acceptor_decides_and_all_learn() {
    let mut leader = leader(false);
    let (one, other) = (of(1, 1, 4), of(2, 1, 0));
    let proposed = Proposed::of(&leader.asked(propose("x")));
    let others = proposed.fast.without(Set::one(AcceptorId(0)));
    let past = proposed.pre_accept_after(&[one], others);
    assert_eq!(leader.asked(proposed.answer(0, &[one])), says(vec![past]));
    let fast: Vec<u8> = others.iter().map(|id| id.0).collect();
    assert_eq!(fast.len(), 3, "four of five are the fast quorum");
    let both = [one, other];
    assert_eq!(leader.asked(proposed.answer(fast[0], &both)), nothing());
    assert_eq!(leader.asked(proposed.answer(fast[1], &both)), nothing());
    // The answer of one that is not a member stands for none of them.
    let spare = (1..5).find(|id| !fast.contains(id)).expect("one of five");
    assert_eq!(leader.asked(proposed.answer(spare, &both)), nothing());
    let decided = decide(proposed.id, &both);
    assert_eq!(leader.asked(proposed.answer(fast[2], &[one])), decided);
    // It asks its acceptor again when that says nothing.
    assert_eq!(leader.waited(RESEND), decided);
    let asked = leader.asked(In::Decided { id: proposed.id });
    let (choice, holders) = (proposed.choice(&both), [0, 1, 2, 3, 4]);
    let expected = commits(&proposed, &choice, &holders, replier(&asked));
    assert_eq!(asked, says(expected));
    assert_eq!((leader.figure("fast"), leader.figure("slow")), (1, 0));
    // It is over: nothing more is said about it.
    assert_eq!(leader.asked(In::Decided { id: proposed.id }), nothing());
    assert_eq!(leader.asked(proposed.answer(fast[0], &[])), nothing());
}

/// A recovery that does not hear from that acceptor would decide with fewer dependencies.
#[test]
pub(crate) fn the_fast_quorum_is_told_what_the_leaders_own_acceptor_had_recorded() {
    let mut leader = leader(false);
    let proposed = Proposed::of(&leader.asked(propose("x")));
    let others = proposed.fast.without(Set::one(AcceptorId(0)));
    let past = [of(1, 1, 4), of(2, 1, 0)];
    let told = proposed.pre_accept_after(&past, others);
    assert_eq!(leader.asked(proposed.answer(0, &past)), says(vec![told]));
    // And spares, when they are asked.
    let told = proposed.pre_accept_after(&past, (1..5).map(AcceptorId).collect());
    assert_eq!(leader.waited(RESEND), says(vec![told]));
}

#[test]
pub(crate) fn what_one_member_alone_names_takes_the_slow_path() {
    let mut leader = leader(false);
    let alone = of(1, 1, 4);
    let proposed = proposed(&mut leader);
    let fast: Vec<u8> = proposed.fast.iter().map(|id| id.0).collect();
    leader.asked(proposed.answer(fast[1], &[]));
    leader.asked(proposed.answer(fast[2], &[]));
    let accept = says(vec![proposed.accept(&[alone])]);
    assert_eq!(leader.asked(proposed.answer(fast[3], &[alone])), accept);
    assert_eq!(leader.asked(vote(&proposed, 0)), nothing());
    // A second vote of the same acceptor is none.
    assert_eq!(leader.asked(vote(&proposed, 0)), nothing());
    assert_eq!(leader.asked(vote(&proposed, 4)), nothing());
    let asked = leader.asked(vote(&proposed, 1));
    // Those have the command: the fast quorum and those that voted.
    let mut holders = fast.clone();
    holders.extend([0, 1, 4]);
    holders.sort_unstable();
    holders.dedup();
    let choice = proposed.choice(&[alone]);
    let expected = commits(&proposed, &choice, &holders, replier(&asked));
    assert_eq!(asked, says(expected));
    assert_eq!((leader.figure("fast"), leader.figure("slow")), (0, 1));
}

/// Once a second a request goes to all, so that their distances are known.
#[test]
fn the_fast_quorum_is_of_the_nearest() {
    let mut leader = leader(false);
    let first = proposed(&mut leader);
    assert_eq!(first.fast, (0..4).map(AcceptorId).collect());
    let over = |id| In::Learned { id, noop: false };
    leader.asked(over(first.id));
    leader.waited(Duration::from_secs(1));
    let second = Proposed::of(&leader.asked(propose("two")));
    let all = second.pre_accept((1..5).map(AcceptorId).collect());
    assert_eq!(leader.asked(second.answer(0, &[])), says(vec![all]));
    for (wait, from) in [(2, [3, 4]), (20, [2, 1])] {
        leader.waited(Duration::from_millis(wait));
        for from in from {
            leader.asked(second.answer(from, &[]));
        }
    }
    leader.asked(over(second.id));
    let third = proposed(&mut leader);
    assert_eq!(
        third.fast,
        [0, 1, 3, 4].map(AcceptorId).into_iter().collect()
    );
}

/// First those that are missing, later and later.
#[test]
fn a_silent_member_is_asked_again_after_a_time_that_doubles() {
    let mut leader = leader(false);
    let proposed = proposed(&mut leader);
    let silent = || (1..5).map(AcceptorId).collect();
    let again = || says(vec![proposed.pre_accept(silent())]);
    assert_eq!(leader.waited(RESEND), again());
    assert_eq!(leader.waited(RESEND), nothing());
    assert_eq!(leader.waited(RESEND), again());
    for _ in 0..3 {
        assert_eq!(leader.waited(RESEND), nothing());
    }
    assert_eq!(leader.waited(RESEND), again());
}

/// Another leader recovers it: its own acceptor has promised. It joins in when it has waited twice.
#[test]
fn a_refused_instance_is_recovered_by_its_own_leader() {
    let mut leader = leader(false);
    let proposed = proposed(&mut leader);
    let refused = In::Refused {
        from: AcceptorId(0),
        id: proposed.id,
        promised: ballot(1, 3),
    };
    assert_eq!(leader.asked(refused), nothing());
    leader.waited(RESEND);
    let asked = leader.waited(RESEND + RESEND);
    let prepare = acceptor::In::Prepare {
        from: LeaderId(0),
        id: proposed.id,
        ballot: ballot(1, 0),
        life: 2,
    };
    assert_eq!(asked.sends[0], (to(&[0, 1, 2, 3, 4], prepare), Some(0)));
}

#[test]
fn a_command_whose_instance_became_nothing_is_proposed_again_once() {
    let mut leader = leader(false);
    let first = proposed(&mut leader);
    let learned = |id, noop| In::Learned { id, noop };
    let second = Proposed::of(&leader.asked(learned(first.id, true)));
    assert_eq!(second.id, of(0, 2, 1));
    assert_eq!(second.payload.value.batch, first.payload.value.batch);
    assert_eq!(leader.asked(learned(first.id, true)), nothing());
    // This time it is decided as proposed.
    assert_eq!(leader.asked(learned(second.id, false)), nothing());
    assert_eq!(leader.figure("proposed_again"), 1);
}

#[test]
fn a_copy_of_a_command_under_way_is_not_proposed() {
    let mut leader = leader(false);
    let first = proposed(&mut leader);
    assert_eq!(leader.asked(propose("one")), nothing());
    leader.asked(In::Learned {
        id: first.id,
        noop: false,
    });
    // It is not under way any more: sessions find the copy.
    Proposed::of(&leader.asked(propose("one")));
}

#[test]
fn what_does_not_fit_the_window_waits() {
    let mut leader = leader_with(
        false,
        Options {
            window_slots: 1,
            ..Options::default()
        },
    );
    let first = proposed(&mut leader);
    let next = In::Propose {
        near: Set::EMPTY,
        batch: of_command(1, "two"),
    };
    assert_eq!(leader.asked(next), nothing());
    let learned = In::Learned {
        id: first.id,
        noop: false,
    };
    let second = Proposed::of(&leader.asked(learned));
    assert_eq!(second.payload.value.batch, of_command(1, "two"));
}

/// Replicas of such a cluster report what they execute.
fn leader_with_reports() -> Stage<Leader> {
    leader_of(false, Options::default(), |options| {
        let layout = Layout {
            founding_level: Level::LATEST,
            ..config(5, 2, options).layout().clone()
        };
        EPaxos::configure(layout).expect("a deployment")
    })
}

fn write(number: u64, keys: &'static str) -> In {
    In::Propose {
        near: Set::EMPTY,
        batch: of_command(number, keys),
    }
}

/// A replica has executed the instances of the leader below this number.
fn executed(end: u64) -> In {
    let (space, start) = (of(0, 2, 0).space, 0);
    let executed = vec![Run { space, start, end }];
    In::Progress { executed }
}

fn learned(proposed: &Proposed) -> In {
    let (id, noop) = (proposed.id, false);
    In::Learned { id, noop }
}

/// The numbers of the commands that an instance has.
fn numbers(proposed: &Proposed) -> Vec<u64> {
    let commands = proposed.payload.value.batch.commands();
    commands.map(|command| command.number).collect()
}

/// A component would have no end if the next one could become a member.
#[test]
fn a_write_waits_until_the_one_before_on_its_key_is_executed() {
    let mut leader = leader_with_reports();
    let first = Proposed::of(&leader.asked(write(0, "x")));
    for number in 1..4 {
        assert_eq!(leader.asked(write(number, "x")), nothing());
    }
    // It is no matter of other keys.
    let other = Proposed::of(&leader.asked(write(4, "y")));
    assert_eq!(numbers(&other), [4]);
    assert_eq!(leader.asked(learned(&first)), nothing());
    assert_eq!(leader.figure("unexecuted"), 2);
    // Those that wait are joined.
    let joined = Proposed::of(&leader.asked(executed(1)));
    assert_eq!(numbers(&joined), [1, 2, 3]);
    assert_eq!(leader.figure("queued"), 0);
    // A copy of what is under way is not proposed.
    assert_eq!(leader.asked(write(2, "x")), nothing());
    assert_eq!(leader.figure("repeated"), 1);
}

/// What is a noop is in no component.
#[test]
fn a_key_is_free_when_its_writer_became_a_noop() {
    let mut leader = leader_with_reports();
    let first = Proposed::of(&leader.asked(write(0, "x")));
    assert_eq!(leader.asked(write(1, "x")), nothing());
    let (id, noop) = (first.id, true);
    let joined = Proposed::of(&leader.asked(In::Learned { id, noop }));
    // The one that waited, and the one that is proposed again waits in turn.
    assert_eq!(numbers(&joined), [1]);
    let again = Proposed::of(&leader.asked(executed(2)));
    assert_eq!(numbers(&again), [0]);
}

/// Otherwise writes of each key alone could keep it waiting.
#[test]
fn a_write_that_waits_for_several_keys_is_next_on_each_of_them() {
    let mut leader = leader_with_reports();
    leader.tell(write(0, "x"));
    leader.tell(write(1, "y"));
    assert_eq!(leader.asked(write(2, "xy")), nothing());
    // It claims its keys when the first is free.
    assert_eq!(leader.asked(executed(1)), nothing());
    assert_eq!(leader.asked(write(3, "x")), nothing());
    let both = Proposed::of(&leader.asked(executed(2)));
    assert_eq!(numbers(&both), [2]);
    let last = Proposed::of(&leader.asked(executed(3)));
    assert_eq!(numbers(&last), [3]);
}

/// A barrier conflicts with everything: two of them would make a component of all keys.
#[test]
fn barriers_wait_until_the_one_before_is_executed() {
    let mut leader = leader_with_reports();
    let first = Proposed::of(&leader.asked(write(0, "!")));
    assert!(first.payload.is_barrier());
    assert_eq!(leader.asked(write(1, "!")), nothing());
    assert_eq!(leader.asked(write(2, "!")), nothing());
    let other = Proposed::of(&leader.asked(write(3, "x")));
    assert_eq!(numbers(&other), [3]);
    assert_eq!(leader.asked(learned(&first)), nothing());
    let joined = Proposed::of(&leader.asked(executed(1)));
    assert_eq!(numbers(&joined), [1, 2]);
    assert!(joined.payload.is_barrier());
}

/// Programs of such a level do not know the report.
#[test]
fn at_level_17_a_write_waits_until_the_one_before_is_decided() {
    let mut leader = leader(false);
    let first = Proposed::of(&leader.asked(write(0, "x")));
    assert_eq!(leader.asked(write(1, "x")), nothing());
    let next = Proposed::of(&leader.asked(learned(&first)));
    assert_eq!(numbers(&next), [1]);
}

/// It may have been executed, and a session that is opened twice is two.
#[test]
fn what_replicas_keep_is_not_proposed_again() {
    let mut leader = leader_with_reports();
    let first = Proposed::of(&leader.asked(write(0, "x")));
    assert_eq!(leader.asked(In::Kept { id: first.id }), nothing());
    assert_eq!(leader.figure("unexecuted"), 0);
    let again = Proposed::of(&leader.asked(write(0, "x")));
    assert_eq!(numbers(&again), [0]);
}
