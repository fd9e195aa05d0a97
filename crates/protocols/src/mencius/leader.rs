//! The leader (Mencius 4; compartmentalization 6): suggests in its own stripe, skips when it is
//! behind the others, and revokes the stripe of a dead one.
//!
//! Stands between client or batcher and proxy leader. In each stripe that it serves it does the
//! work of a MultiPaxos leader; that is all of suggesting, of rounds, elections, phase 1 and
//! repair. What is its own: all leaders tell each other how far they are, and one that is behind
//! leaves its unused slots to noops (Rule 2); it tells replicas so, without a vote (`skips.rs`;
//! `reservation.rs` says why that is safe). When it stands in for a dead leader it revokes (Rule
//! 3): phase 1 ends what was begun, and from there on it skips the stripe, far ahead (Optimization
//! 3). A leader that comes back takes its stripe over again, above everything that was skipped
//! meanwhile; what it had suggested and lost its proposers send again (Rule 4).

mod change;
mod gaps;
mod index;
mod links;
mod long_runs;
mod long_skips;
mod missing;
mod port;
mod reservation;
mod reserved;
mod reserving;
mod returning;
mod serving;
mod skips;

use self::change::Change;
use self::gaps::Gaps;
use self::links::Links;
use self::long_skips::LongSkips;
use self::port::Port;
use self::reservation::Reservation;
pub(super) use self::reserved::ReservedRanges;
use self::reserving::reserve;
use self::returning::Returning;
use self::skips::{Range, Skips};
use super::branch;
use super::config::Config;
use super::message::Reserved;
use super::metrics;
use super::stripe::{Stripe, StripePosition};
use super::{Envelope, replica};
use crate::multipaxos;
use crate::multipaxos::message::{Times, Votes};
use crate::parts;
use crate::parts::leader::{LeaderCore, LeaderPort, Proposal};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::NodeId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::status::{Leads, Metrics, Status};
use ionian_kernel::time::{Instant, Timestamp, earliest};
use ionian_kernel::{messages, wire_struct};

messages! {
    /// The messages that a leader receives.
    "leader" In {
        /// What MultiPaxos's receives, of the slots of a stripe.
        0 in stripe => InStripe via message {
            /// The stripe.
            stripe: Stripe,
            /// The message.
            message: multipaxos::leader::In,
        },
        /// A replica lives and has executed every slot of the log below `executed`.
        1 => Executed {
            /// The replica.
            from: ReplicaId,
            /// The slot that it executes next.
            executed: Slot,
            /// It would find every slot below this one again after a crash.
            kept: Slot,
            /// The highest round of each stripe that it had heard of when it said so.
            rounds: Vec<Round>,
            /// What it knows of the time.
            times: Times,
        },
        /// A replica misses these slots of the log and its peers do not have them.
        2 => Recover {
            /// The replica.
            from: ReplicaId,
            /// The slots, lowest first.
            slots: Vec<Slot>,
        },
        /// The state machine's answers change with time alone: the log must be given the time.
        3 => AdvanceClock {
            /// The time at which they do.
            deadline: Timestamp,
        },
        /// A proxy leader lives.
        4 => ProxyAlive {
            /// The proxy leader.
            from: ProxyLeaderId,
        },
        /// Another leader has suggested something below this slot of the log, and will go on from
        /// there.
        5 => Index {
            /// The leader.
            from: LeaderId,
            /// The slot.
            slot: Slot,
        },
        /// An acceptor has noted a reservation.
        6 => Reserved {
            /// The acceptor.
            from: AcceptorId,
            /// The stripe.
            stripe: Stripe,
            /// What was reserved, in which round.
            reserved: Reserved,
        },
        /// A leader has not heard of some others for an election timeout: it is to be told what is
        /// heard of them.
        7 => Misses {
            /// The leader.
            from: LeaderId,
            /// The others.
            leaders: Set<LeaderId>,
        },
        /// An acceptor's promise in a stripe, and a page of its votes.
        9 => Phase1b {
            /// The acceptor.
            from: AcceptorId,
            /// The stripe.
            stripe: Stripe,
            /// The round that it promised.
            round: Round,
            /// The votes.
            votes: Votes,
            /// What leaders have reserved of the stripe.
            reserved: Vec<Reserved>,
            /// What its clock shows; zero says nothing.
            clock: Timestamp,
        },
        /// The membership is changing, and leaders of the epoch of both configurations lead these
        /// stripes: in each, no slot from this one on is or will be used by a round of an earlier
        /// epoch.
        10 => Frontiers {
            /// The epoch of both configurations.
            epoch: Epoch,
            /// The stripes, and the slots of the log.
            frontiers: Vec<(Stripe, Slot)>,
        },
        /// What another leader has said of itself, passed on to one that does not hear it.
        8 => PassedOn {
            /// That leader.
            from: LeaderId,
            /// As in `Index`.
            slot: Slot,
        },
    }
}

/// What a leader must find again, of each stripe that it serves.
#[derive(Clone, Debug)]
pub struct Record {
    /// The stripe.
    pub stripe: Stripe,
    /// The record.
    pub record: parts::leader::Record,
}

wire_struct! { Record { stripe, record } }

/// An Index further than this ahead of what is known to be used or executed is ignored: one bad
/// message must not use up the slot space.
const MAX_JUMP: u64 = 1 << 40;

/// A leader.
pub struct Leader {
    id: LeaderId,
    node: NodeId,
    config: Arc<Config>,
    random: Random,
    /// The stripe that is its own. A leader that a change of members adds has none before the
    /// change is finished.
    home: Option<Stripe>,
    /// The stripes that it serves, its own first.
    served: Vec<Served>,
    /// The change of members under way.
    change: Option<Box<Change>>,
    /// How far the log is used, by this leader or another, in its own stripe.
    frontier: Slot,
    /// The slot after the last that it suggested in its own stripe.
    suggested: Slot,
    /// The slot that the other leaders were told last.
    told: Slot,
    tell_at: Instant,
    skips: Skips,
    /// The replicas that wait for this leader to skip.
    prompt: Set<ReplicaId>,
    returning: Returning,
    links: Links,
    skipped: u64,
}

/// What it does in one stripe.
struct Served {
    stripe: Stripe,
    core: LeaderCore<ReservedRanges>,
    reservation: Reservation,
    /// The round in which it leads.
    round: Option<Round>,
    /// Positions from the watermark to this leader's first; skipped once the reservation is
    /// granted.
    vacant: Option<Range>,
    /// Left by earlier leaders below what was voted for.
    gaps: Gaps,
    /// What it has skipped in this round, as far as it is long.
    long_skips: LongSkips,
}

impl Leader {
    /// The leader of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let (id, node) = (LeaderId(birth.address.index), birth.node);
        let mut random = Random::new(birth.seed);
        let new = |stripe| Served::new(&config, stripe, (id, node), !birth.amnesiac, random.any());
        let served = config.served_by(id).into_iter().map(new).collect();
        Leader {
            id,
            node,
            random,
            home: config.home_of(id),
            served,
            change: Change::under_way(&config, None),
            frontier: Slot::ZERO,
            suggested: Slot::ZERO,
            told: Slot::ZERO,
            tell_at: Instant::ZERO,
            skips: Skips::default(),
            prompt: Set::EMPTY,
            returning: Returning::new(config.options().election_timeout),
            links: Links::default(),
            skipped: 0,
            config,
        }
    }

    /// What it does in each stripe that it serves.
    pub fn stripes(&self) -> impl Iterator<Item = (Stripe, &LeaderCore<ReservedRanges>)> {
        self.served
            .iter()
            .map(|served| (served.stripe, &served.core))
    }

    /// The stripe that is its own, if it has one.
    pub fn home(&self) -> Option<Stripe> {
        self.home
    }

    /// Whether the stripe in this place is its own.
    fn is_own(&self, place: usize) -> bool {
        place == 0 && self.home.is_some()
    }

    /// What it does in its own stripe.
    fn own(&self) -> Option<&Served> {
        self.served.first().filter(|_| self.home.is_some())
    }

    /// Whether it leads its own stripe.
    fn leads_own(&self) -> bool {
        self.own().is_some_and(|own| own.round.is_some())
    }

    fn place(&self, stripe: Stripe) -> Option<usize> {
        self.served
            .iter()
            .position(|served| served.stripe == stripe)
    }

    /// Calls the core of one served stripe.
    #[inline]
    fn call(
        &mut self,
        now: Instant,
        place: usize,
        out: &mut Out<'_, Self>,
        act: impl FnOnce(&mut LeaderCore<ReservedRanges>, &mut Port<'_, '_>),
    ) {
        let is_own = self.is_own(place);
        let (before, rest) = self.served.split_at_mut(place);
        let (Served { stripe, core, .. }, after) =
            rest.split_first_mut().expect("a stripe that it serves");
        let mut port = Port {
            id: self.id,
            config: &self.config,
            stripe: *stripe,
            others: (before, after),
            suggested: is_own.then_some(&mut self.suggested),
            frontier: self.frontier,
            keep: self
                .change
                .as_ref()
                .map_or(Slot::ZERO, |change| change.keep()),
            out,
        };
        act(core, &mut port);
        self.follow_round(now, place);
    }

    /// Takes in a message of one stripe.
    fn in_stripe(
        &mut self,
        now: Instant,
        stripe: Stripe,
        message: multipaxos::leader::In,
        out: &mut Out<'_, Self>,
    ) {
        use multipaxos::leader::In as Message;
        if let Message::Propose {
            proposer,
            near,
            batch,
            again,
        } = message
        {
            let proposal = Proposal {
                proposer,
                near,
                batch,
            };
            return self.on_propose(now, stripe, proposal, again, out);
        }
        let Some(place) = self.place(stripe) else {
            return;
        };
        let has_home = self.home.is_some();
        self.call(now, place, out, |core, port| match message {
            Message::Nack { round } => core.on_nack(now, round, port),
            Message::Heartbeat { round } => core.on_heartbeat(now, round, port),
            Message::PreVoteReply {
                from,
                gone,
                promise,
            } => core.on_pre_vote_reply(now, from, gone, promise, port),
            Message::Rejoin {
                from,
                nonce,
                promise,
            } => core.on_rejoin(now, from, nonce, promise, port),
            // It has no stripe of its own until the change is finished, and a leader of both
            // configurations must lead its own to finish it.
            Message::TakeOver { from, .. } if !has_home => port.decline(from),
            Message::TakeOver { from, round } => core.on_take_over(now, from, round, port),
            Message::Declined { from } => core.on_declined(now, from, port),
            // A proposal is taken in above; for the others there are messages of Mencius.
            Message::Propose { .. }
            | Message::Phase1b { .. }
            | Message::Executed { .. }
            | Message::ProxyAlive { .. }
            | Message::Recover { .. }
            | Message::AdvanceClock { .. } => {}
            // Of relays, which it does not have, and of state that it waits for no word of.
            Message::Relayed { .. } | Message::Promises { .. } | Message::Ready { .. } => {}
        });
    }

    /// Takes note of where it leads.
    fn follow_round(&mut self, now: Instant, place: usize) {
        let served = &mut self.served[place];
        let round = served.core.is_leading().then(|| served.core.round());
        if served.round == round {
            return;
        }
        served.round = round;
        served.reservation = Reservation::default();
        served.long_skips = LongSkips::default();
        let (start, end) = served.vacant_at_start();
        let stripe = served.stripe;
        served.vacant = (round.is_some() && start < end).then_some(Range { stripe, start, end });
        served.gaps = round
            .map(|_| Gaps::new(now, served.core.left_out()))
            .unwrap_or_default();
        let deposed = served.core.is_standby();
        if self.is_own(place) {
            self.returning.follow(now, round.is_some(), deposed);
            if round.is_some() {
                self.leads_its_own(stripe);
            }
        }
    }

    /// It continues above everything skipped in its absence; its Index makes the others catch up.
    fn leads_its_own(&mut self, stripe: Stripe) {
        let next = self.served[0].next();
        self.suggested = self.suggested.max(self.config.stripes.end(stripe, next));
        if let Some(change) = &mut self.change {
            change.begin_round();
        }
    }

    // Skipping.

    /// Everything that is behind is skipped, as far as it is reserved. Whether that is all.
    fn catch_up(&mut self, now: Instant, out: &mut Out<'_, Self>) -> bool {
        self.frontier = self.frontier.max(self.suggested);
        let mut done = true;
        for place in 0..self.served.len() {
            self.reserve_gaps(now, place, out);
            let wanted = self.wanted_index(place);
            let resend_after = self.config.options().resend_after;
            let served = &mut self.served[place];
            let index = self.config.stripes.from(served.stripe, self.frontier);
            let Some(round) = served.round else { continue };
            let next = served.next();
            let wanted = wanted.max(next);
            if let Some(end) = served.reservation.want(now, wanted, index, resend_after) {
                let (start, stripe) = (served.vacant_at_start().0, served.stripe);
                let acceptors = self.config.acceptors_of(stripe, round);
                reserve(
                    self.id,
                    stripe,
                    Reserved { round, start, end },
                    acceptors,
                    out,
                );
            }
            let granted = served.reservation.granted();
            if let Some(range) = served.vacant.take_if(|range| range.end <= granted) {
                out.reached(branch::VACANT_SKIPPED);
                served.long_skips.add(range.start, range.end);
                self.skips.add(now, range, self.config.replicas());
                self.prompt = self.config.replicas();
            }
            let end = wanted.min(granted);
            done &= end >= wanted && served.vacant.is_none();
            if end > next {
                if !self.is_own(place) {
                    out.reached(branch::SKIPS_FOR_ANOTHER);
                }
                self.skip(now, place, next, end);
            }
        }
        done
    }

    /// The position that a stripe should go on at: that of its own beyond the frontier (Rule 2),
    /// and that of a stripe that it revokes far ahead of it (Optimization 3), so that none has to
    /// wait for the next revocation.
    fn wanted_index(&self, place: usize) -> StripePosition {
        let (stripe, beta) = (self.served[place].stripe, self.revoke_slots());
        let from = |slot| self.config.stripes.from(stripe, slot);
        if self.is_own(place) {
            return from(self.frontier);
        }
        let next = self.served[place].next();
        if next < from(self.frontier.plus(beta)) {
            from(self.frontier.plus(2 * beta))
        } else {
            next
        }
    }

    fn revoke_slots(&self) -> u64 {
        self.config.settings.revoke_slots
    }

    fn skip(&mut self, now: Instant, place: usize, start: StripePosition, end: StripePosition) {
        let stripe = self.served[place].stripe;
        self.served[place].core.skip_to(end.in_part());
        self.served[place].long_skips.add(start, end);
        self.skipped += end.distance(start);
        self.skips
            .add(now, Range { stripe, start, end }, self.config.replicas());
        if !self.is_own(place) {
            self.prompt = self.config.replicas();
        }
    }

    /// Tells replicas of skipped slots: those that wait for it, and all when it is time to. Those
    /// that wait do so no longer if everything that is behind is skipped (`done`), and else until
    /// the rest is reserved.
    fn tell_skips(
        &mut self,
        now: Instant,
        (proposes, done): (bool, bool),
        out: &mut Out<'_, Self>,
    ) {
        let settings = self.config.settings;
        let many = self.skips.slots() > settings.skip_slots;
        let late = self
            .skips
            .oldest()
            .is_some_and(|oldest| oldest + settings.skip_delay <= now);
        let whom = if proposes || many || late {
            self.config.replicas()
        } else {
            self.prompt
        };
        self.skips
            .tell(whom, |replicas, Range { stripe, start, end }| {
                // Unfenced: that these slots may be skipped is on the disks of a write quorum.
                out.send_unfenced(Envelope::ToReplicas(
                    replicas,
                    replica::In::Skip { stripe, start, end },
                ));
            });
        if done {
            self.prompt = Set::EMPTY;
        }
    }

    // What others ask of it.

    /// Commands go into its own stripe, in whatever stripe their proposer follows the leaders. In a
    /// stripe that it revokes they would come far too late.
    fn on_propose(
        &mut self,
        now: Instant,
        stripe: Stripe,
        proposal: Proposal,
        again: bool,
        out: &mut Out<'_, Self>,
    ) {
        if self.home.is_some() {
            return self.call(now, 0, out, |core, port| {
                core.on_propose(now, proposal, again, port);
            });
        }
        let place = self.place(stripe).unwrap_or(0);
        self.call(now, place, out, |core, port| {
            core.turn_away(proposal.proposer, port);
        });
    }

    fn on_executed(
        &mut self,
        now: Instant,
        from: ReplicaId,
        (executed, kept): (Slot, Slot),
        (rounds, times): (&[Round], Times),
        out: &mut Out<'_, Self>,
    ) {
        if let (Some(change), Some(own)) = (&mut self.change, self.served.first()) {
            let heard = rounds.get(usize::from(own.stripe.0)).copied();
            change.report(from, executed, kept, heard >= Some(own.core.round()));
        }
        for place in 0..self.served.len() {
            let stripe = self.served[place].stripe;
            // By the number of stripes, not by that of the leaders that serve this one (s3).
            let of_stripe = |slot| self.config.stripes.from(stripe, slot).in_part();
            let (executed, kept) = (of_stripe(executed), of_stripe(kept));
            let round = rounds
                .get(usize::from(stripe.0))
                .copied()
                .unwrap_or_default();
            self.call(now, place, out, |core, port| {
                core.on_executed(now, from, (executed, kept), (round, times), port);
            });
        }
    }

    fn come_back(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.returning.is_due(now) {
            assert!(self.home.is_some(), "takes the stripe of another");
            self.returning.try_again(now);
            out.reached(branch::COMES_BACK);
            // It does nothing while the node drains.
            self.call(now, 0, out, |core, port| core.take_over(now, port));
        }
    }
}

impl Role for Leader {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        if let Some(place) = self.place(record.stripe) {
            self.served[place].core.recover(record.record);
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        for Served { stripe, core, .. } in &self.served {
            let record = core.checkpoint();
            out.persist_vital(Record {
                stripe: *stripe,
                record,
            });
        }
    }

    fn on_start(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.home.is_some() {
            self.returning.follow(now, false, false);
        }
        self.links.start(now);
        for place in 0..self.served.len() {
            self.call(now, place, out, |core, _| core.start(now));
        }
    }

    fn on_reconfigure(&mut self, now: Instant, config: Arc<Config>, out: &mut Out<'_, Self>) {
        self.returning
            .set_timeout(config.options().election_timeout);
        self.change = Change::under_way(&config, self.change.take());
        self.skips.reconfigure(config.replicas());
        self.prompt = self.prompt.and(config.replicas());
        self.links
            .reconfigure(now, config.leaders().without(Set::one(self.id)));
        self.config = config;
        self.serve_anew(now, out);
        for place in 0..self.served.len() {
            let within = self.config.of(self.served[place].stripe).clone();
            self.call(now, place, out, |core, port| {
                core.reconfigure(now, within, port);
            });
        }
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::InStripe { stripe, message } => self.in_stripe(now, stripe, message, out),
            In::Executed {
                from,
                executed,
                kept,
                rounds,
                times,
            } => {
                self.on_executed(now, from, (executed, kept), (&rounds, times), out);
            }
            In::Recover { from, slots } => self.on_recover(now, from, &slots, out),
            In::AdvanceClock { deadline } if self.home.is_some() => {
                self.call(now, 0, out, |core, port| {
                    core.on_advance_clock(now, deadline, port);
                });
            }
            In::AdvanceClock { .. } => {}
            In::ProxyAlive { from } => {
                for served in &mut self.served {
                    served.core.on_proxy_alive(now, from);
                }
            }
            In::Index { from, slot } => self.on_index(now, from, slot, out),
            // The replica that waits for it may not hear this leader either: all learn it, and pass
            // it on.
            In::PassedOn { slot, .. } => self.reach(slot, self.config.replicas()),
            In::Misses { from, leaders } => {
                self.links
                    .asks(from, leaders, now + self.config.options().election_timeout);
            }
            In::Phase1b {
                from,
                stripe,
                round,
                votes,
                reserved,
                clock,
            } => {
                self.on_phase1b(now, (from, stripe, round), (votes, reserved), clock, out);
            }
            In::Reserved {
                from,
                stripe,
                reserved,
            } => self.on_reserved(now, from, stripe, reserved, out),
            In::Frontiers { epoch, frontiers } => self.on_frontiers(epoch, frontiers, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        for place in 0..self.served.len() {
            self.call(now, place, out, |core, port| core.on_timer(now, port));
            self.reserve_again(now, place, out);
        }
        self.come_back(now, out);
        if self.tell_at <= now && self.leads_own() {
            self.tell_index(now, out);
            self.ask_for_missing(now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let inner = self.served.iter().fold(None, |next, served| {
            let reserves = earliest(served.reservation.next_timer(), served.gaps.next_timer());
            earliest(earliest(next, served.core.next_timer()), reserves)
        });
        let skips = self
            .skips
            .oldest()
            .map(|oldest| oldest + self.config.settings.skip_delay);
        let tell = self.leads_own().then_some(self.tell_at);
        let change = self.change.as_ref().and_then(|change| change.next_timer());
        earliest(
            earliest(earliest(inner, skips), change),
            earliest(tell, self.returning.next_timer()),
        )
    }

    fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.change.is_some() {
            self.hand_over(now, out);
        }
        let proposes = self.suggested > self.told;
        let done = self.catch_up(now, out);
        self.tell_skips(now, (proposes, done), out);
        if proposes {
            self.tell_index(now, out);
        }
    }

    fn on_drain(&mut self, now: Instant, drains: bool, out: &mut Out<'_, Self>) {
        for place in 0..self.served.len() {
            self.call(now, place, out, |core, port| {
                core.on_drain(now, drains, port);
            });
        }
    }

    fn is_drained(&self) -> bool {
        self.served.iter().all(|served| served.core.is_drained())
    }

    fn invariants(&self) {
        for served in &self.served {
            served.core.invariants();
            assert_eq!(
                served.round,
                served.core.is_leading().then(|| served.core.round()),
                "a round went by unseen"
            );
            served.reservation.invariants();
            assert!(
                served.round.is_some() || served.reservation.granted() == StripePosition::ZERO,
                "a leader may skip in a round that is over"
            );
        }
        assert!(
            self.told <= self.suggested,
            "the other leaders were told of slots that are not suggested"
        );
    }

    const METRICS: Metrics = &[
        parts::metrics::LEADER_POSITIONS,
        parts::metrics::LEADER,
        metrics::LEADER,
    ];

    fn status(&self, status: &mut Status) {
        // While it has no stripe that is its own: one in which it stands in.
        let home = &self.served[0];
        let of_log = |position| self.config.stripes.slot(home.stripe, position).0;
        let led = |served: &&Served| served.round.is_some();
        let parts = self.served.iter().filter(led).count() as u64;
        let own = self.leads_own();
        status.leads = Some(Leads {
            own,
            others: parts.saturating_sub(own.into()),
            elections: home.core.elections(),
        });
        status.add([
            of_log(home.next()),
            self.config.stripes.end(home.stripe, home.executed()).0,
        ]);
        home.core.report_work(status);
        status.add([self.frontier.0, self.skipped, self.skips.slots()]);
    }
}
