//! The proxy leader: gets votes for instances that leaders hand to it, and passes on what is
//! decided. It exists where the roles are apart.
//!
//! Stands between leader and acceptor. It keeps nothing on disk: a leader hands an instance that
//! stays undecided to another proxy leader, with the same value. So there is one value for each
//! instance in ballot 0, however many proxy leaders propose it (compartmentalization 3.1; BPaxos).

use super::committing::commit;
use super::config::Config;
use super::instance::{InstanceId, OWN};
use super::message::{Choice, Replier};
use super::{Envelope, acceptor, branch, kind, leader, metrics};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::messages;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;
use ionian_replication::backoff::doubled;
use ionian_replication::suspicion::Suspicion;

messages! {
    /// The messages that a proxy leader receives.
    "proxy_leader" In {
        /// A leader wants this decided in its instance.
        0 for "accept" of id choice => Propose {
            /// The leader.
            from: LeaderId,
            /// The instance.
            id: InstanceId,
            /// The command, after the union of what dependency nodes have answered.
            choice: Choice,
            /// The dependency nodes that have the command.
            holders: AcceptorSet,
            /// The replica that answers the clients.
            replier: Replier,
        },
        /// An acceptor has voted in ballot 0.
        1 for "chosen" of id => Accepted {
            /// The acceptor.
            from: AcceptorId,
            /// The instance.
            id: InstanceId,
        },
    }
}

/// The most bytes of instances under way. What comes beyond is dropped, and its leader hands it
/// over again; one that comes alone always has room.
const MAX_BYTES: usize = 256 << 20;

/// What an instance takes beside its command and dependencies, about.
const BYTES_OF_EACH: usize = 256;

/// An instance is given up when acceptors were asked this number of times: its leader hands it to
/// another proxy leader, or recovers it.
const ATTEMPTS: u32 = 5;

/// A proxy leader.
pub struct ProxyLeader {
    id: ProxyLeaderId,
    config: Arc<Config>,
    near: AcceptorSet,
    pending: BTreeMap<InstanceId, Pending>,
    /// When each of them is asked for again.
    timers: BTreeSet<(Instant, InstanceId)>,
    bytes: usize,
    /// The acceptors that left a request unanswered.
    suspicion: Suspicion<AcceptorId>,
    turn: u64,
    chosen: u64,
    retries: u64,
    dropped: u64,
}

/// An instance under way.
struct Pending {
    from: LeaderId,
    choice: Choice,
    holders: AcceptorSet,
    replier: Replier,
    asked: AcceptorSet,
    voted: AcceptorSet,
    attempts: u32,
    at: Instant,
}

impl Pending {
    fn byte_len(&self) -> usize {
        self.choice.byte_len() + BYTES_OF_EACH
    }
}

impl ProxyLeader {
    /// The proxy leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        ProxyLeader {
            id: ProxyLeaderId(birth.address.index),
            near: config.layout().near(kind::Acceptor, birth.node),
            pending: BTreeMap::new(),
            timers: BTreeSet::new(),
            bytes: 0,
            suspicion: Suspicion::default(),
            turn: Random::new(birth.seed).any() >> 1,
            chosen: 0,
            retries: 0,
            dropped: 0,
            config,
        }
    }

    /// A leader hands over an instance. Of one that is under way acceptors are asked again when it
    /// is time to.
    fn on_propose(
        &mut self,
        now: Instant,
        id: InstanceId,
        mut pending: Pending,
        out: &mut Out<'_, Self>,
    ) {
        if self.pending.contains_key(&id) {
            return;
        }
        if self.bytes > 0 && self.bytes + pending.byte_len() > MAX_BYTES {
            self.dropped += 1;
            return;
        }
        pending.at = now + self.config.options().resend_after;
        pending.asked = self.pick_quorum(id);
        let to = pending.asked.or(self.probe(now, id));
        self.ask(id, &pending, to, out);
        self.put(id, pending);
    }

    /// A majority of those that vote for an instance and that answer, that of this node first; or
    /// all of them.
    fn pick_quorum(&mut self, id: InstanceId) -> AcceptorSet {
        let mut left = self.config.voters(id);
        if !self.config.options().thrifty {
            return left;
        }
        let trusted = self.suspicion.trusted(left);
        let mut asked = AcceptorSet::EMPTY;
        self.turn += 1;
        while asked.len() < self.config.slow_quorum(id) {
            let from = left.preferring(trusted).preferring(self.near);
            let Some(next) = from.pick(self.turn) else {
                break;
            };
            asked.insert(next);
            left.remove(next);
        }
        asked
    }

    /// Suspects that are asked too, so that they can show that they answer.
    fn probe(&mut self, now: Instant, id: InstanceId) -> AcceptorSet {
        self.suspicion.probe(now).and(self.config.voters(id))
    }

    fn ask(&self, id: InstanceId, pending: &Pending, to: AcceptorSet, out: &mut Out<'_, Self>) {
        let message = acceptor::In::Accept {
            from: pending.from,
            proxy: Some(self.id),
            id,
            ballot: OWN,
            choice: pending.choice.clone(),
        };
        out.send(Envelope::ToAcceptors(to, message));
    }

    /// An acceptor has voted.
    fn on_accepted(&mut self, from: AcceptorId, id: InstanceId, out: &mut Out<'_, Self>) {
        self.suspicion.heard(from);
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        let voters = self.config.voters(id);
        pending.voted = pending.voted.or(Set::one(from)).and(voters);
        if pending.voted.len() < self.config.slow_quorum(id) {
            return;
        }
        let pending = self.take(id).expect("just seen");
        self.chosen += 1;
        let Pending {
            choice,
            holders,
            replier,
            ..
        } = pending;
        let messages = commit(&self.config, id, &choice, holders, replier);
        messages.for_each(|message| out.send(message));
        let message = leader::In::Chosen { from: self.id, id };
        out.send(Envelope::ToLeaders(Set::one(pending.from), message));
    }

    /// Acceptors are asked for its votes.
    fn put(&mut self, id: InstanceId, pending: Pending) {
        self.bytes += pending.byte_len();
        self.timers.insert((pending.at, id));
        self.pending.insert(id, pending);
    }

    /// It is decided, given up, or to be asked for again.
    fn take(&mut self, id: InstanceId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.timers.remove(&(pending.at, id));
        self.bytes -= pending.byte_len();
        Some(pending)
    }

    /// Asks all that have not voted.
    fn ask_again(&mut self, now: Instant, id: InstanceId, out: &mut Out<'_, Self>) {
        let after = self.config.options().resend_after;
        let voters = self.config.voters(id);
        let mut pending = self.take(id).expect("a timer is of an instance");
        let silent = voters.without(pending.voted);
        self.suspicion.silent(pending.asked.and(silent), now);
        pending.attempts += 1;
        if pending.attempts >= ATTEMPTS {
            return out.reached(branch::PROXY_GIVES_UP);
        }
        self.retries += 1;
        pending.asked = voters;
        pending.at = now + doubled(after, pending.attempts, ATTEMPTS);
        self.ask(id, &pending, silent, out);
        self.put(id, pending);
    }
}

impl Role for ProxyLeader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Never;

    fn recover(&mut self, record: Never) {
        match record {}
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Propose {
                from,
                id,
                choice,
                holders,
                replier,
            } => {
                let pending = Pending {
                    from,
                    choice,
                    holders: holders.and(self.config.recorders()),
                    replier,
                    asked: Set::EMPTY,
                    voted: Set::EMPTY,
                    attempts: 0,
                    at: now,
                };
                self.on_propose(now, id, pending, out);
            }
            In::Accepted { from, id } => self.on_accepted(from, id, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.ask_again(now, id, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn invariants(&self) {
        let bytes = self.pending.values().map(|it| it.byte_len());
        assert_eq!(
            bytes.sum::<usize>(),
            self.bytes,
            "a proxy leader lost count of its bytes"
        );
        let timers = self.pending.iter().map(|(id, it)| (it.at, *id));
        assert!(
            timers.collect::<BTreeSet<_>>() == self.timers,
            "no timer for an instance"
        );
    }

    const METRICS: Metrics = &[metrics::PROXY_LEADER];

    fn status(&self, status: &mut Status) {
        status.add([
            self.pending.len() as u64,
            self.bytes as u64,
            self.chosen,
            self.retries,
            self.dropped,
        ]);
    }
}
