//! Carrying a change of the membership through (`docs/protocols/multipaxos.md`, "Membership").
//!
//! While a change is under way two configurations are in force, in an epoch of their own. A leader
//! enters that epoch, by a round of it, as soon as enough acceptors of both can be reached, all
//! that are new among them, and the new replicas have caught up: from then on the new configuration
//! must be able to work for the old one to be left or returned to. What was chosen before that
//! round is below its *frontier*; when the replicas of the new configuration keep all of it,
//! nothing depends on the old one any more, and the leader has the change finished by a command in
//! the log.

use super::progress::Progress;
use crate::multipaxos::config::{Config, Highest};
use ionian_kernel::id::*;
use ionian_kernel::membership::Change;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::{Duration, Instant};
use ionian_kernel::wire::encode_all;
use ionian_replication::batch::{Batch, Command, Purpose};
use ionian_replication::suspicion::PRESENT_FOR;

/// How long a command that finishes a change may take before another is proposed: it was lost with
/// a proxy leader, or in an election. A second one changes nothing.
pub const FINISH_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a leader knows of the change under way.
#[derive(Default)]
pub(super) struct Handover {
    /// Acceptors that have answered since they were asked last, and the highest rounds that they
    /// have promised.
    answered: AcceptorSet,
    promised: Highest<Round>,
    /// Acceptors that have lost their memory, and when each last asked to take part again: they
    /// answer nothing else, and a round of both configurations is what can let them in.
    rejoining: SmallMap<AcceptorId, Instant>,
    /// Set when this leader leads in the epoch of both configurations.
    frontier: Option<Slot>,
    finish_at: Instant,
    ready: Ready,
}

/// What must be ready for a change beside acceptors and replicas: always, unless the protocol has
/// other roles that keep state (S-Paxos).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// A round of both configurations can begin.
    pub for_joint_round: bool,
    /// The new configuration has what it needs of the one before.
    pub to_finish: bool,
}

impl Default for Ready {
    fn default() -> Self {
        Ready {
            for_joint_round: true,
            to_finish: true,
        }
    }
}

impl Handover {
    /// Another configuration, or another round: all begins anew.
    pub(super) fn clear(&mut self) {
        *self = Handover {
            ready: self.ready,
            ..Handover::default()
        };
    }

    /// Says what the other roles that keep state are ready for.
    pub(super) fn set_ready(&mut self, ready: Ready) {
        self.ready = ready;
    }

    /// The epoch in which a round can begin, and a lower round; see [`Config::electable`].
    pub(super) fn electable(
        &self,
        now: Instant,
        config: &Config,
        (answered, promised): (AcceptorSet, Highest<Round>),
        progress: &Progress,
    ) -> Option<(Epoch, Round)> {
        let present = answered.or(self.rejoining(now));
        let joint = config.is_joint() && self.may_begin_joint(config, present, progress);
        config.electable(answered, promised, joint)
    }

    /// Whether a first round of both configurations may begin. What is new must be `present` and
    /// near: it may have a wrong address, and then the change could neither be finished nor,
    /// after one more failure, be abandoned, because both need quorums of both configurations.
    fn may_begin_joint(&self, config: &Config, present: AcceptorSet, progress: &Progress) -> bool {
        let options = config.options();
        let slack = options.retained_slots + options.window_slots;
        self.ready.for_joint_round
            && present.covers(config.added_acceptors())
            && progress.are_within_reach()
            && progress.added_have_caught_up(slack)
    }

    /// An acceptor asks to take part again.
    pub(super) fn rejoins(&mut self, now: Instant, from: AcceptorId) {
        self.rejoining.insert(from, now);
    }

    /// Those that asked to take part again lately: they go on asking while they are there.
    fn rejoining(&self, now: Instant) -> AcceptorSet {
        let asking = |(_, at): &(&AcceptorId, &Instant)| now.since(**at) <= PRESENT_FOR;
        let asking = self.rejoining.iter().filter(asking);
        asking.map(|(acceptor, _)| *acceptor).collect()
    }

    /// Whether the replicas of the new configuration keep everything below the frontier.
    pub(super) fn replicas_are_ready(&self, progress: &Progress) -> bool {
        self.frontier
            .is_some_and(|frontier| progress.is_handed_over(frontier))
    }

    /// Whether the leader of `round` has yet to begin a round in the epoch of both configurations,
    /// and looks for acceptors that answer.
    pub(super) fn is_waiting(config: &Config, round: Round) -> bool {
        config.is_joint() && round.epoch() < config.epoch()
    }

    /// The acceptors are asked anew: only those that answer now can be reached. Once a round of
    /// both configurations has begun nothing can be done without a quorum of each.
    pub(super) fn asks(&mut self) {
        self.answered = AcceptorSet::EMPTY;
        self.promised = Highest::default();
    }

    /// An acceptor answers a leader of `round`. When a round in the epoch of both configurations
    /// can begin: a round that is lower.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        (from, promised): (AcceptorId, Round),
        config: &Config,
        round: Round,
        progress: &Progress,
    ) -> Option<Round> {
        self.answered.insert(from);
        self.promised.raise(config, from, promised);
        let promised = self.promised.at_least(round);
        let (epoch, above) = self.electable(now, config, (self.answered, promised), progress)?;
        let is_joint = Handover::is_waiting(config, round) && epoch == config.epoch();
        is_joint.then_some(above)
    }

    /// This leader leads in the epoch of both configurations: every slot that earlier epochs can
    /// use is below `frontier`.
    pub(super) fn begin(&mut self, frontier: Slot) {
        self.frontier = Some(frontier);
    }

    /// What replicas are to keep through a crash as soon as they can.
    pub(super) fn wanted(&self) -> Slot {
        self.frontier.unwrap_or_default()
    }

    /// See [`LeaderCore::frontier`](super::LeaderCore::frontier).
    pub(super) fn frontier(&self) -> Option<Slot> {
        self.frontier
    }

    /// Whether it is time to finish the change.
    pub(super) fn may_finish(&self, now: Instant, frontier: Slot, progress: &Progress) -> bool {
        now >= self.finish_at && self.ready.to_finish && progress.is_handed_over(frontier)
    }

    /// The command that finishes the change is proposed.
    pub(super) fn finishes(&mut self, now: Instant) {
        self.finish_at = now + FINISH_AGAIN_AFTER;
    }
}

/// The command that finishes the change of `epoch`.
pub(super) fn finish(epoch: Epoch, frontier: Slot) -> Batch {
    let payload = encode_all(&Change::Finish { epoch, frontier }).into();
    // No client waits for the answer.
    let (client, purpose) = (ClientId(0), Purpose::Change);
    Batch::one(&Command {
        client,
        purpose,
        number: 0,
        floor: 0,
        payload,
    })
}
