//! The stabilizer: keeps payloads, and hands the replicas those that are chosen.
//!
//! Stands between disseminators and leader, for what it holds can be ordered, and between proxy
//! leaders and replicas. What it says it holds must survive its crash: every answer is fenced
//! behind the record of the payload.

mod copies;
mod copying;
mod delivering;
mod payloads;
mod stale;
mod taking_over;
mod waiting;

use self::copying::Copying;
use self::payloads::Payloads;
use self::stale::Stale;
use self::taking_over::TakingOver;
use self::waiting::{Order, Waiting};
use super::branch;
use super::config::Config;
use super::id::{DisseminatorId, PayloadNumber, RecordPlace, StabilizerId};
use super::lives::Lives;
use super::message::{Payload, PayloadId, Places, Ticket};
use super::metrics;
use super::{Envelope, disseminator, kind, leader, proxy_leader};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::protocol::Birth;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::{Duration, Instant, earliest};
use ionian_kernel::{messages, wire_enum};
use ionian_replication::batch::{Batch, Value};

messages! {
    /// The messages that a stabilizer receives.
    "stabilizer" In {
        /// A disseminator wants a payload kept.
        0 for "store" of payload => Store {
            /// The disseminator proposes nothing more that has a number below this one.
            floor: PayloadNumber,
            /// The payload.
            payload: Payload,
        },
        /// A value is chosen: these replicas are to be told.
        1 for "deliver" of slot value => Chosen {
            /// The slot.
            slot: Slot,
            /// The value: a reference in place of the commands.
            value: Value,
            /// The replica that answers the clients.
            replier: ReplicaId,
            /// The replicas to tell.
            replicas: Set<ReplicaId>,
        },
        /// f+1 replicas keep every slot below `kept`.
        2 => Kept {
            /// The highest round of which the sender knows that a leader leads in it.
            round: Round,
            /// That slot.
            kept: Slot,
        },
        /// Another stabilizer misses a payload.
        3 for "fetch" of id => Fetch {
            /// The stabilizer.
            from: StabilizerId,
            /// The payload.
            id: PayloadId,
            /// The slot in which it is chosen.
            slot: Slot,
        },
        /// A payload that this one misses.
        4 for "store" of payload => Fetched {
            /// The payload.
            payload: Payload,
        },
        /// Payloads that other stabilizers have handed to replicas.
        5 => Delivered {
            /// The payloads, with the slots in which they are chosen.
            places: Places,
        },
        /// A stabilizer that lost its memory wants to know what this one holds.
        6 => Copy {
            /// The stabilizer.
            from: StabilizerId,
            /// Its life.
            life: u64,
            /// Set by one that takes over, while the membership is changing: only payloads of
            /// rounds before this epoch are wanted, and from now on the one that is asked
            /// acknowledges no other.
            seals: Option<Epoch>,
            /// It has everything that comes before this payload, in the order of their names, and
            /// this one.
            after: Option<PayloadId>,
        },
        /// What another stabilizer holds.
        7 => Copied {
            /// The stabilizer.
            from: StabilizerId,
            /// The life of the one that asked.
            life: u64,
            /// As the one that asked said it.
            seals: Option<Epoch>,
            /// The payloads, in the order of their names.
            payloads: Vec<Payload>,
            /// Whether there are no more.
            last: bool,
        },
        /// The membership is changing, and this leader leads by the quorums of both configurations:
        /// a stabilizer of the new one is to copy what those of the one before hold.
        8 => TakeOver {
            /// The leader's round.
            round: Round,
        },
    }
}

/// What a stabilizer must find again.
#[derive(Clone, Debug)]
pub enum Record {
    /// A payload.
    Kept {
        /// The place of the record among those of payloads.
        place: RecordPlace,
        /// The payload.
        payload: Payload,
    },
    /// Records of payloads with places below this one are not needed any more: recovery may still
    /// find them in the log.
    Released {
        /// The place.
        below: RecordPlace,
    },
    /// It has begun a life: it has lost its memory, or another configuration began. Vital: what it
    /// said in an earlier life must not count for a later one.
    Begun {
        /// The number of the life.
        life: u64,
    },
    /// Another stabilizer has lost its memory, lives this life, and copies from this one. Vital:
    /// every acknowledgement from now on says so, those of its own later lives too. One small
    /// record for each time that a stabilizer loses its memory.
    Renewed {
        /// The other stabilizer.
        stabilizer: StabilizerId,
        /// The number of its life.
        life: u64,
    },
    /// It acknowledges no payload of a round before this epoch any more. Vital: another has copied
    /// what it held, and takes its place.
    Sealed {
        /// The epoch.
        epoch: Epoch,
    },
}

wire_enum! {
    Record {
        0 => Kept { place, payload }, 1 => Released { below }, 2 => Begun { life }, 3 => Renewed { stabilizer, life },
        4 => Sealed { epoch }
    }
}

/// How often a stabilizer says that it lives.
const ALIVE_EVERY: Duration = Duration::from_millis(250);

/// Other stabilizers learn what was delivered after this number of payloads, or after this long: it
/// delays no command, and only memory is held meanwhile.
const ANNOUNCE_PAYLOADS: usize = 512;
const ANNOUNCE_AFTER: Duration = Duration::from_millis(50);

/// Bytes of payloads in one message to a stabilizer that lost its memory, at least one payload.
const COPY_BYTES: usize = 1 << 20;

/// A stabilizer.
pub struct Stabilizer {
    id: StabilizerId,
    config: Config,
    /// Whether its node stores its records.
    keeps_records: bool,
    payloads: Payloads,
    /// What was found again, until it starts.
    recovered: Recovered,
    /// Every slot below this one is kept by f+1 replicas.
    kept: Slot,
    waiting: Waiting,
    stale: Stale,
    /// What was stored in this burst, by the disseminator that waits to hear of it.
    acknowledgements: SmallMap<DisseminatorId, Vec<Ticket>>,
    /// Those that receive all acknowledgements, because they propose for the others.
    helpers: Set<DisseminatorId>,
    /// What this one has sent to replicas, and the other stabilizers do not know yet.
    unannounced: Places,
    announce_at: Option<Instant>,
    lives: Lives,
    /// Payloads of rounds before this epoch are acknowledged no more.
    sealed: Epoch,
    /// Set while an earlier process's payloads are lost.
    copying: Option<Copying>,
    taking_over: Option<TakingOver>,
    alive_at: Instant,
    stored: u64,
    delivered: u64,
    fetched: u64,
    void: u64,
    refused: u64,
}

/// Records come in the order of the log, and some were released before.
#[derive(Default)]
struct Recovered {
    payloads: BTreeMap<RecordPlace, Payload>,
    released: RecordPlace,
    /// Whether there was any record: it has lived before.
    any: bool,
}

impl Stabilizer {
    /// The stabilizer of this birth.
    pub fn new(config: Config, birth: &Birth<'_>) -> Self {
        let id = StabilizerId(birth.address.index);
        let mut random = Random::new(birth.seed);
        Stabilizer {
            id,
            keeps_records: birth.keeps_records,
            payloads: Payloads::default(),
            recovered: Recovered::default(),
            kept: Slot::ZERO,
            waiting: Waiting::new(id, random.any() >> 1),
            stale: Stale::default(),
            acknowledgements: SmallMap::new(),
            helpers: config.helpers().map(|(helper, _)| helper).collect(),
            unannounced: Places::new(),
            announce_at: None,
            lives: Lives::default(),
            sealed: Epoch::default(),
            copying: birth.amnesiac.then(Copying::default),
            taking_over: None,
            alive_at: Instant::ZERO,
            stored: 0,
            delivered: 0,
            fetched: 0,
            void: 0,
            refused: 0,
            config,
        }
    }

    /// Whether it holds this payload.
    pub fn holds(&self, id: PayloadId) -> bool {
        self.payloads.get(id).is_some()
    }

    /// The payloads that it holds, each with the round in which it is to be ordered.
    pub fn payloads(&self) -> impl Iterator<Item = (PayloadId, Round, &Batch)> {
        self.payloads.iter()
    }

    /// How often it has taken a payload in or forgotten some.
    pub fn changes(&self) -> u64 {
        self.payloads.changes()
    }

    /// Whether what an earlier process held is lost and not copied yet.
    pub fn is_amnesiac(&self) -> bool {
        self.copying.is_some()
    }

    /// Whether what it holds survives a crash.
    pub fn keeps_records(&self) -> bool {
        self.keeps_records
    }

    fn others(&self) -> Set<StabilizerId> {
        self.config.stabilizers.members().without(Set::one(self.id))
    }

    // Payloads come in.

    fn on_store(
        &mut self,
        now: Instant,
        floor: PayloadNumber,
        payload: Payload,
        out: &mut Out<'_, Self>,
    ) {
        let Payload {
            id,
            round,
            void_from,
            ..
        } = payload;
        let is_sealed = round.epoch() < self.sealed;
        if is_sealed {
            out.reached(branch::SEALED);
        }
        if void_from <= self.kept || self.payloads.is_full() || is_sealed {
            self.refused += 1;
            return;
        }
        if self.is_amnesiac() {
            out.reached(branch::ACKNOWLEDGES_FORGETFUL);
        }
        self.keep(now, payload, out);
        let ticket = Ticket {
            id,
            void_from,
            round,
            floor,
        };
        self.acknowledgements
            .entry(id.disseminator)
            .or_default()
            .push(ticket);
    }

    /// Holds a payload so that it would be found again.
    fn keep(&mut self, now: Instant, payload: Payload, out: &mut Out<'_, Self>) {
        let id = payload.id;
        if let Some(place) = self.payloads.keep(payload.clone()) {
            self.stored += 1;
            out.persist(Record::Kept { place, payload });
            self.deliver_waiting(now, id, out);
            self.move_oldest(out);
            if self.payloads.is_half_full() {
                self.stale.look_soon(now);
            }
        }
    }

    /// A payload that no leader orders holds back the log behind its record: it is written again,
    /// at the end.
    fn move_oldest(&mut self, out: &mut Out<'_, Self>) {
        while let Some((place, payload)) = self.payloads.move_oldest() {
            out.persist(Record::Kept { place, payload });
        }
        out.release_below(self.payloads.first_place().0);
    }

    /// Fenced behind the records: what is acknowledged would be found again.
    fn acknowledge(&mut self, out: &mut Out<'_, Self>) {
        while let Some((disseminator, tickets)) = self.acknowledgements.pop_first() {
            let message = disseminator::In::Stored {
                from: self.id,
                tickets,
                lives: self.lives.all(),
            };
            let all = self.helpers.or(Set::one(disseminator));
            let all = all.and(self.config.disseminators);
            out.send(Envelope::ToDisseminators(all, message));
        }
    }

    // Forgetting.

    fn on_kept(&mut self, now: Instant, round: Round, kept: Slot, out: &mut Out<'_, Self>) {
        self.stale.follow(now, round);
        if kept > self.kept {
            self.kept = kept;
            self.payloads.forget_kept(kept);
            self.waiting.forget_kept(kept);
            out.release_below(self.payloads.first_place().0);
        }
    }

    /// Has the leader carry the log past payloads of earlier rounds when they hold too much, and
    /// past the older half of all that no leader orders when half of the room is used.
    fn look_for_stale(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if !self.stale.is_due(now) {
            return;
        }
        let round = self.stale.round();
        let (bytes, void_from) = self.payloads.undecided_before(round);
        let is_crowded = self.payloads.is_half_full();
        let slot = match bytes > self.config.stale_bytes {
            true => Some(void_from),
            false if is_crowded => self.payloads.older_half(),
            false => None,
        };
        if is_crowded || slot.is_some() {
            self.stale.look_soon(now);
        }
        if let Some(slot) = slot {
            out.reached(branch::STALE);
            let leader = Set::one(round.leader()).and(self.config.all(kind::Leader));
            out.send(Envelope::ToLeaders(leader, leader::In::CarryTo { slot }));
        }
    }

    fn on_delivered(&mut self, places: &Places) {
        for (id, slot) in places {
            self.payloads.chosen(*id, *slot);
        }
        self.payloads.forget_kept(self.kept);
    }
}

impl Role for Stabilizer {
    type In = In;
    type Send = Envelope;
    type Config = Config;
    type Record = Record;

    fn recover(&mut self, record: Record) {
        match record {
            Record::Kept { place, payload } => {
                self.recovered.payloads.insert(place, payload);
            }
            Record::Released { below } => {
                self.recovered.released = self.recovered.released.max(below)
            }
            Record::Begun { life } => {
                self.lives.learn(self.id, life);
            }
            Record::Renewed { stabilizer, life } => {
                self.lives.learn(stabilizer, life);
            }
            Record::Sealed { epoch } => self.sealed = self.sealed.max(epoch),
        }
        self.recovered.any = true;
    }

    fn key(record: &Record) -> Option<u64> {
        match record {
            Record::Kept { place, .. } => Some(place.0),
            Record::Released { .. }
            | Record::Begun { .. }
            | Record::Renewed { .. }
            | Record::Sealed { .. } => None,
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist(Record::Released {
            below: self.payloads.first_place(),
        });
        if self.sealed > Epoch::default() {
            out.persist_vital(Record::Sealed { epoch: self.sealed });
        }
        for (stabilizer, life) in self.lives.all() {
            out.persist_vital(match stabilizer == self.id {
                true => Record::Begun { life },
                false => Record::Renewed { stabilizer, life },
            });
        }
    }

    fn on_start(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        let Recovered {
            payloads,
            released,
            any,
        } = core::mem::take(&mut self.recovered);
        let is_new = self.is_new(any);
        let first = self.first_life(is_new);
        let mut released = released;
        let first_place = RecordPlace(first);
        if is_new && first_place > released {
            // What a stabilizer of this number stored that lived on this node before is of no use,
            // and does not mix with what this one stores. On disk before the life that it begins.
            released = first_place;
            out.persist(Record::Released { below: released });
        }
        let known = self.lives.of(self.id);
        self.begin_life(known.max(first) + u64::from(self.is_amnesiac()), out);
        self.payloads.recover(released, payloads);
        out.release_below(self.payloads.first_place().0);
    }

    fn on_reconfigure(&mut self, now: Instant, config: Config, out: &mut Out<'_, Self>) {
        self.helpers = config.helpers().map(|(helper, _)| helper).collect();
        self.config = config;
        self.begin_life(self.first_life(false), out);
        self.reconfigure_copies(now, out);
        // A leader is to know soon that this one is ready for the change.
        self.alive_at = now;
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        match message {
            In::Store { floor, payload } => self.on_store(now, floor, payload, out),
            In::Chosen {
                slot,
                value,
                replier,
                replicas,
            } => {
                self.on_chosen(
                    now,
                    Order {
                        slot,
                        stamp: value.stamp,
                        replier,
                        replicas,
                    },
                    &value,
                    out,
                );
            }
            In::Kept { round, kept } => self.on_kept(now, round, kept, out),
            In::Fetch { from, id, slot } => self.on_fetch(from, id, slot, out),
            In::Fetched { payload } => self.on_fetched(now, payload, out),
            In::Delivered { places } => self.on_delivered(&places),
            In::Copy {
                from,
                life,
                seals,
                after,
            } => self.on_copy(from, life, (seals, after), out),
            In::Copied {
                from,
                life,
                seals,
                payloads,
                last,
            } if life == self.lives.of(self.id) => {
                self.on_copied(now, from, seals, (payloads, last), out);
            }
            // The answer to an earlier process.
            In::Copied { .. } => {}
            In::TakeOver { round } => self.on_take_over(now, round, out),
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        if self.announce_at.is_some_and(|at| at <= now) {
            self.announce_delivered(out);
        }
        self.fetch_waiting(now, out);
        self.ask_for_copies(now, out);
        self.ask_for_rest(now, out);
        self.look_for_stale(now, out);
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            // One that lost its memory is of no help.
            if !self.is_amnesiac() {
                let message = proxy_leader::In::StabilizerAlive { from: self.id };
                out.send(Envelope::ToProxyLeaders(
                    self.config.all(kind::ProxyLeader),
                    message,
                ));
                if self.config.is_joint() {
                    let message = leader::In::StabilizerAlive { from: self.id };
                    out.send(Envelope::ToLeaders(self.config.all(kind::Leader), message));
                }
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let asks = earliest(
            self.waiting.next_timer(),
            earliest(
                self.copying.as_ref().map(Copying::next_timer),
                self.taking_over.as_ref().and_then(TakingOver::next_timer),
            ),
        );
        earliest(
            earliest(Some(self.alive_at), self.announce_at),
            earliest(asks, self.stale.next_timer()),
        )
    }

    fn on_burst_end(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        self.acknowledge(out);
    }

    fn invariants(&self) {
        self.payloads.invariants();
        assert!(
            self.unannounced.is_empty() || self.announce_at.is_some(),
            "what was delivered is never announced"
        );
    }

    const METRICS: Metrics = &[metrics::STABILIZER];

    fn status(&self, status: &mut Status) {
        status.remembers = Some(!self.is_amnesiac());
        status.add([
            self.payloads.len() as u64,
            self.payloads.byte_len() as u64,
            self.kept.0,
            self.stored,
            self.delivered,
            self.waiting.len() as u64,
            self.fetched,
            self.void,
            self.refused,
        ]);
    }
}
