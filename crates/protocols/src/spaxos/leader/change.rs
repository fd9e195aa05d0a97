//! What the leader asks of stabilizers while the membership is changing.
//!
//! It begins no round of both configurations before stabilizers of both answer, and all that are
//! new: payloads of that round are stable only when a write quorum of each stores them, and without
//! these the change could not even be abandoned. And it has the change finished only when a write
//! quorum of the new stabilizers has taken over (see `stabilizer/taking_over.rs`).

use crate::parts::leader::Ready;
use crate::spaxos::config::Config;
use crate::spaxos::id::StabilizerId;
use crate::spaxos::lives::Lives;
use crate::spaxos::proxy_leader::STABILIZER_PRESENCE;
use crate::spaxos::{Envelope, stabilizer};
use ionian_kernel::id::*;
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::time::Instant;

/// What a leader knows of the stabilizers in a change of the membership.
#[derive(Default)]
pub(super) struct Change {
    /// When each stabilizer was heard of.
    heard: SmallMap<StabilizerId, Instant>,
    /// The round in which they were asked to take over.
    round: Round,
    /// Those that have taken over, each in the life that it lives.
    took_over: Set<StabilizerId>,
    lives: Lives,
}

impl Change {
    /// The membership has changed.
    pub(super) fn reconfigure(&mut self, config: &Config) {
        let members = config.stabilizers.members();
        self.heard
            .retain(|stabilizer, _| members.contains(*stabilizer));
        self.took_over = Set::EMPTY;
    }

    /// A stabilizer lives.
    pub(super) fn heard(&mut self, from: StabilizerId, now: Instant) {
        self.heard.insert(from, now);
    }

    /// A stabilizer says that it has taken over, in a change that `round` leads; true when that
    /// completes a write quorum. It counts in the life in which it says so: one that loses its
    /// memory afterwards may hold less.
    pub(super) fn on_took_over(
        &mut self,
        from: StabilizerId,
        round: Round,
        lives: &[(StabilizerId, u64)],
        config: &Config,
    ) -> bool {
        let heard = self.lives.hear(from, lives);
        self.took_over = self.took_over.without(heard.renewed);
        if round.epoch() != config.epoch() || !heard.is_present {
            return false;
        }
        let was_done = self.is_taken_over(config);
        self.took_over.insert(from);
        !was_done && self.is_taken_over(config)
    }

    /// Whether a write quorum of the new stabilizers has taken over.
    pub(super) fn is_taken_over(&self, config: &Config) -> bool {
        let after = config.stabilizers_after();
        after.is_some_and(|after| after.is_write_quorum(self.took_over))
    }

    /// Asks stabilizers of the new configuration to take over; `round` is the leader's.
    pub(super) fn take_over(&mut self, round: Round, config: &Config) -> Envelope {
        let message = stabilizer::In::TakeOver { round };
        Envelope::ToStabilizers(self.ask(round, config), message)
    }

    /// The stabilizers to ask to take over, for the leader of `round`: none unless the round is of
    /// both configurations.
    fn ask(&mut self, round: Round, config: &Config) -> Set<StabilizerId> {
        let after = config.stabilizers_after();
        let Some(after) = after.filter(|_| round.epoch() == config.epoch()) else {
            return Set::EMPTY;
        };
        if self.round != round {
            // They say so again: a process of another leader may have lost what they said.
            (self.round, self.took_over) = (round, Set::EMPTY);
        }
        after.members().without(self.took_over)
    }

    /// What the stabilizers are ready for.
    pub(super) fn ready(&self, now: Instant, config: &Config) -> Ready {
        let lately = |at: Instant| now.since(at) <= STABILIZER_PRESENCE;
        let present = self.heard.iter().filter(|(_, at)| lately(**at));
        let present: Set<StabilizerId> = present.map(|(stabilizer, _)| *stabilizer).collect();
        Ready {
            for_joint_round: config.stabilizers.is_write_quorum(present)
                && present.covers(config.added_stabilizers()),
            to_finish: self.is_taken_over(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaxos::kind;
    use alloc::boxed::Box;
    use ionian_kernel::layout::{Layout, NodeId, numbered};
    use ionian_kernel::time::Duration;

    const JOINT: Round = Round::new(Epoch(1), 1, LeaderId(1));

    /// Stabilizers 0, 1 and 2 are replaced by 2, 3 and 4.
    fn joint() -> Config {
        let with = |stabilizers: [u8; 3]| {
            let mut next = (0..).map(NodeId);
            let counts = [1, 0, 2, 0, 2, 2, 3, 3, 2, 0];
            let instances = counts.map(|count| next.by_ref().take(count).collect());
            let mut layout = Layout {
                f: 1,
                instances: numbered(instances.to_vec()),
                ..Layout::default()
            };
            let places = stabilizers.map(|index| (index, NodeId(30 + u16::from(index))));
            layout.instances[usize::from(kind::Stabilizer)] = places.into_iter().collect();
            layout
        };
        Config::new(Layout {
            epoch: Epoch(1),
            next: Some(Box::new(with([2, 3, 4]))),
            ..with([0, 1, 2])
        })
        .unwrap()
    }

    #[test]
    fn no_joint_round_begins_before_write_quorums_of_both_were_heard_of_lately() {
        let (mut change, config) = (Change::default(), joint());
        let ready = |change: &Change, at| change.ready(Instant(at), &config).for_joint_round;
        for stabilizer in [0, 1, 2] {
            change.heard(StabilizerId(stabilizer), Instant(5));
        }
        assert!(!ready(&change, 5), "C alone");
        change.heard(StabilizerId(4), Instant(6));
        assert!(!ready(&change, 6), "one that is new has not answered");
        change.heard(StabilizerId(3), Instant(6));
        assert!(ready(&change, 6));
        let late = Instant(6) + STABILIZER_PRESENCE;
        assert!(ready(&change, 5 + STABILIZER_PRESENCE.as_micros() as u64));
        assert!(!ready(&change, (late + Duration::from_micros(1)).0));
    }

    #[test]
    fn a_change_is_finished_when_a_write_quorum_of_the_new_ones_has_taken_over() {
        let (mut change, config) = (Change::default(), joint());
        let new = |index: &[u8]| index.iter().map(|index| StabilizerId(*index)).collect();
        let asked: Set<StabilizerId> = new(&[2, 3, 4]);
        assert_eq!(change.ask(JOINT, &config), asked);
        let old = Round::new(Epoch(0), 1, LeaderId(1));
        assert_eq!(change.ask(old, &config), Set::EMPTY);
        let mut took_over = |from, lives: &[(StabilizerId, u64)]| {
            change.on_took_over(StabilizerId(from), JOINT, lives, &config)
        };
        assert!(!took_over(0, &[]) && !took_over(1, &[]), "they leave");
        assert!(!took_over(3, &[]));
        // Stabilizer 3 has lost its memory since, as 2 knows.
        let life = [(StabilizerId(3), 1)];
        assert!(!took_over(2, &life));
        assert!(!took_over(3, &[]), "of its former life");
        assert!(took_over(3, &life) && !took_over(4, &life), "once");
        assert!(change.ready(Instant(0), &config).to_finish);
        assert_eq!(change.ask(JOINT, &config), Set::EMPTY);
        // Another leader asks anew.
        let later = Round::new(Epoch(1), 2, LeaderId(0));
        assert_eq!(change.ask(later, &config), asked);
        assert!(!change.ready(Instant(0), &config).to_finish);
    }
}
