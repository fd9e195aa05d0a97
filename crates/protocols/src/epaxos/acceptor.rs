//! The acceptor: reports which recorded instances a command conflicts with, votes, decides for the
//! leader of its node, and answers recoveries. It keeps every instance until replicas have it in
//! stored snapshots, and hands it to replicas that miss it. Where the roles are apart, it does one
//! half of this ([`Duty`]).
//!
//! Stands between leader and replica. Atlas (EuroSys 2020), algorithms 1 and 2.

mod deciding;
mod kept;
mod places;
mod returning;
mod serving;
mod store;
mod voting;

use self::kept::KeptVector;
use self::returning::Return;
use self::store::{Known, Store};
use super::config::Config;
use super::duty::Duty;
use super::index::ConflictIndex;
use super::instance::{Ballot, Deps, InstanceId, Space, next_life};
use super::message::{
    Choice, Evidence, Learned, Life, Lives, Page, Payload, PreAccepted, Reach, Replier, Run,
    Touched, Vote,
};
use super::{Envelope, leader, metrics};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Role};
use ionian_kernel::small_map::SmallMap;
use ionian_kernel::status::{Metrics, Status};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::WireError;
use ionian_kernel::{messages, wire_enum};

messages! {
    /// The messages that an acceptor receives.
    "acceptor" In {
        /// A leader wants a command recorded, and to know what it conflicts with.
        0 for "preaccept" of id payload => PreAccept {
            /// The leader.
            from: LeaderId,
            /// The instance.
            id: InstanceId,
            /// The command.
            payload: Payload,
            /// What the leader's own acceptor had recorded; nothing when it is asked itself.
            past: Deps,
            /// The fast quorum.
            fast: AcceptorSet,
        },
        /// A leader asks for a vote.
        1 for "accept" of id choice => Accept {
            /// The leader.
            from: LeaderId,
            /// The proxy leader that counts the votes for it; none if it does itself.
            proxy: Option<ProxyLeaderId>,
            /// The instance.
            id: InstanceId,
            /// The ballot.
            ballot: Ballot,
            /// What to vote for.
            choice: Choice,
        },
        /// The leader of this node decides on the fast path.
        2 for "learn" of id => Decide {
            /// The instance.
            id: InstanceId,
            /// What must be executed before.
            deps: Deps,
        },
        /// An instance is decided.
        3 for "learn" of id => Commit {
            /// The instance.
            id: InstanceId,
            /// What it is decided to be.
            learned: Learned,
            /// The replica that answers the clients.
            replier: Replier,
        },
        /// A recovery asks for a promise, and for what is known.
        4 => Prepare {
            /// The leader that recovers.
            from: LeaderId,
            /// The instance.
            id: InstanceId,
            /// The ballot to promise.
            ballot: Ballot,
            /// In which life of the leader it is asked.
            life: u32,
        },
        /// A replica asks what a read conflicts with.
        5 for "inquire" of inquiry => PreRead {
            /// The replica.
            from: ReplicaId,
            /// Its number for the question.
            inquiry: u64,
            /// What the read touches.
            touched: Touched,
        },
        /// A replica misses instances.
        6 => Fetch {
            /// The replica.
            from: ReplicaId,
            /// The instances; none to learn how far spaces reach.
            runs: Vec<Run>,
        },
        /// A replica has these in a stored snapshot.
        7 => Kept {
            /// The replica.
            from: ReplicaId,
            /// How far it has each space.
            reaches: Vec<Reach>,
        },
        /// Another acceptor does not know what these are decided to be.
        8 => Ask {
            /// The acceptor.
            from: AcceptorId,
            /// What it does.
            duty: Duty,
            /// The instances.
            ids: Vec<InstanceId>,
        },
        /// A leader tells an acceptor that has lost its memory which instances are new to it.
        9 => Boundary {
            /// The life of the acceptor that asked.
            life: u32,
            /// The space of the leader.
            space: Space,
            /// Below this number instances may have been known before.
            below: u64,
        },
        /// An acceptor that has lost its memory asks another for what that one has recorded.
        10 => Copy {
            /// The acceptor.
            from: AcceptorId,
            /// Its life.
            life: u32,
            /// The present spaces of leaders: those of earlier lives are over.
            spaces: Vec<Space>,
            /// The first instance to send.
            first: InstanceId,
        },
        /// A page of what an acceptor has recorded.
        11 => Copied {
            /// The acceptor.
            from: AcceptorId,
            /// The life of the acceptor that asked.
            life: u32,
            /// How many spaces the request named.
            spaces: u32,
            /// The instance that the request named.
            first: InstanceId,
            /// What it sends from that one on.
            page: Box<Page>,
        },
        /// Another one has forgotten what this one asked it for.
        12 => Forgotten {
            /// How far f + 1 replicas keep the spaces of it.
            reaches: Vec<Reach>,
        },
    }
}

/// What an acceptor must find again. The number `at` counts its records.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// It lost its memory, and has begun this life.
    Life {
        /// Which: the first is 1.
        life: u32,
    },
    /// It has recorded a command.
    PreAccepted {
        /// The number of the record.
        at: u64,
        /// The instance.
        id: InstanceId,
        /// Its answer.
        answer: PreAccepted,
    },
    /// It has promised a ballot.
    Promised {
        /// The number of the record.
        at: u64,
        /// The instance.
        id: InstanceId,
        /// The ballot.
        ballot: Ballot,
    },
    /// It has voted.
    Voted {
        /// The number of the record.
        at: u64,
        /// The instance.
        id: InstanceId,
        /// The vote.
        vote: Vote,
    },
    /// It knows a decision.
    Decided {
        /// The number of the record.
        at: u64,
        /// The instance.
        id: InstanceId,
        /// The decision, without the command if an earlier record has it.
        learned: Learned,
    },
    /// All that it knows of an instance, written again so that older records can be dropped.
    Whole {
        /// The number of the record.
        at: u64,
        /// The instance.
        id: InstanceId,
        /// The highest ballot promised.
        promised: Ballot,
        /// What it has answered, voted for and learned.
        evidence: Box<Evidence>,
        /// What another acceptor knows of it, perhaps the command.
        copied: Option<Option<Payload>>,
    },
    /// How far f + 1 replicas have each space in stored snapshots.
    Kept {
        /// The number of the next record. If replicas keep all, no other record tells it; and
        /// those that were dropped may be found again after a crash.
        next: u64,
        /// How far.
        reaches: Vec<Reach>,
    },
    /// It has lost its memory, and knows again so much.
    Returning {
        /// Whether it has copied what others have recorded.
        copied: bool,
        /// It is silent about the instances below these numbers, about earlier spaces of the same
        /// leaders, and about all spaces of other leaders.
        boundaries: Vec<Reach>,
        /// The leaders about whose earlier spaces it is silent only where others know an instance.
        over: Set<LeaderId>,
    },
    /// Others have lost their memory.
    Peers {
        /// Their lives.
        lives: Lives,
        /// The first lives of leaders that are not over.
        closed: Vec<Space>,
    },
    /// It has taken over what another acceptor has recorded.
    Copied {
        /// The number of the record.
        at: u64,
        /// The instance.
        id: InstanceId,
        /// The command, if that one has it.
        payload: Option<Payload>,
    },
}

wire_enum! { Record {
    0 => Life { life },
    1 => PreAccepted { at, id, answer },
    2 => Promised { at, id, ballot },
    3 => Voted { at, id, vote },
    4 => Decided { at, id, learned },
    5 => Whole { at, id, promised, evidence, copied },
    6 => Kept { next, reaches },
    7 => Returning { copied, boundaries, over },
    8 => Peers { lives, closed },
    9 => Copied { at, id, payload },
} }

/// An acceptor.
pub struct Acceptor {
    id: AcceptorId,
    duty: Duty,
    config: Arc<Config>,
    /// How often it has begun without the memory of an earlier process.
    life: u32,
    /// Whether this node keeps nothing through a crash.
    loses_state: bool,
    /// Whether this process has begun without the memory of an earlier one.
    amnesiac: bool,
    /// How many acceptors with its number were lost with their disks.
    predecessors: u32,
    /// How far it is with its return, if it has lost its memory.
    returning: Option<Return>,
    /// The lives of the acceptors that have lost their memory: its own, and those of others that
    /// have copied from this one.
    lives: Lives,
    /// Earlier lives of leaders than these are over.
    closed: SmallMap<LeaderId, u32>,
    index: ConflictIndex<Payload>,
    store: Store,
    kept: KeptVector,
    /// When it asks other acceptors for decisions, of instances with records before this one.
    ask_at: Instant,
    ask_before: u64,
    /// From which instance on it asks next.
    ask_first: InstanceId,
    turn: u64,
    answered: u64,
    refused: u64,
    stale: u64,
}

impl Acceptor {
    /// The acceptor of this birth.
    pub fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        let duty = config.duty(birth.address.kind);
        Acceptor {
            id: AcceptorId(birth.address.index),
            duty,
            life: 0,
            loses_state: !birth.keeps_records,
            amnesiac: birth.amnesiac,
            predecessors: birth.predecessors,
            returning: None,
            lives: Lives::default(),
            closed: SmallMap::new(),
            index: ConflictIndex::new(birth.seed),
            store: Store::new(duty.records()),
            kept: KeptVector::new(config.f()),
            ask_at: Instant::ZERO,
            ask_before: 0,
            ask_first: InstanceId::default(),
            turn: 0,
            answered: 0,
            refused: 0,
            stale: 0,
            config,
        }
    }

    /// What it knows as decided, for invariants.
    pub fn decisions(&self) -> impl Iterator<Item = (InstanceId, &Choice)> {
        self.store.decisions()
    }

    /// How many decisions it has learned: as long as this stays, it knows what it knew.
    pub fn learned(&self) -> u64 {
        self.store.learned()
    }

    /// The leader of its node, if it is paired with one.
    fn leader(&self) -> Option<LeaderId> {
        self.config.leader_of(self.id)
    }

    /// Those that know the same instances.
    fn others(&self) -> AcceptorSet {
        let peers = self.config.peers(self.duty, self.id);
        peers.without(Set::one(self.id))
    }

    /// Notes a command in the index, and gives what it conflicts with, if it records commands.
    fn note(&mut self, id: InstanceId, payload: &Payload) -> Deps {
        match self.duty.records() {
            true => self.index.record(id, payload),
            false => Deps::NONE,
        }
    }

    /// Whether a message asks for what this one does not do, where the roles are apart.
    fn is_of_the_other_half(&self, message: &In) -> bool {
        match message {
            In::PreAccept { .. } | In::PreRead { .. } => !self.duty.records(),
            In::Accept { .. } | In::Decide { .. } | In::Prepare { .. } => !self.duty.votes(),
            _ => false,
        }
    }

    /// What is to be kept on disk of what replicas keep.
    fn kept_record(&self) -> Record {
        Record::Kept {
            next: self.store.next_place(),
            reaches: self.kept.reaches(),
        }
    }

    fn tell(&self, to: LeaderId, message: leader::In, out: &mut Out<'_, Self>) {
        out.send(Envelope::ToLeaders(Set::one(to), message));
    }
}

impl Role for Acceptor {
    type In = In;
    type Send = Envelope;
    type Config = Arc<Config>;
    type Record = Record;

    /// The number after that of each record must exist.
    fn check_record(&self, record: &Record) -> Result<(), WireError> {
        let number = match record {
            Record::Kept { next, .. } => Some(*next),
            _ => Self::key(record),
        };
        match number.unwrap_or(0) {
            u64::MAX => Err(WireError::OutOfRange {
                what: "number of a record",
                value: u64::MAX,
            }),
            _ => Ok(()),
        }
    }

    fn recover(&mut self, record: Record) {
        self.recover_record(record);
    }

    fn key(record: &Record) -> Option<u64> {
        match record {
            Record::Life { .. }
            | Record::Kept { .. }
            | Record::Returning { .. }
            | Record::Peers { .. } => None,
            Record::PreAccepted { at, .. }
            | Record::Promised { at, .. }
            | Record::Voted { at, .. }
            | Record::Decided { at, .. }
            | Record::Whole { at, .. }
            | Record::Copied { at, .. } => Some(*at),
        }
    }

    fn checkpoint(&self, out: &mut Out<'_, Self>) {
        out.persist_vital(Record::Life { life: self.life });
        out.persist(self.kept_record());
        out.persist(self.peers());
        if let Some(returning) = &self.returning {
            out.persist(returning.record());
        }
    }

    fn on_start(&mut self, _: Instant, out: &mut Out<'_, Self>) {
        let is_first = self.life == 0;
        let is_lost = self.amnesiac || is_first && self.predecessors > 0;
        if is_lost {
            // Recorded before the life: a process that finds a life and no return has lost nothing.
            let returning = self.returning.insert(Return::default());
            out.persist(returning.record());
        } else {
            self.resume_return(out);
        }
        if is_first || is_lost {
            self.life = next_life(self.life, self.predecessors);
            out.persist_vital(Record::Life { life: self.life });
        }
        let (acceptor, life) = (self.id, self.life);
        self.lives.learn(Life { acceptor, life });
        self.release(out);
    }

    fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
        if self.is_of_the_other_half(&message) {
            self.stale += 1;
            return;
        }
        match message {
            In::PreAccept {
                from,
                id,
                payload,
                past,
                fast,
            } => self.on_pre_accept(from, id, (payload, past, fast), out),
            In::Accept {
                from,
                proxy,
                id,
                ballot,
                choice,
            } => self.on_accept((from, proxy), id, Vote { ballot, choice }, out),
            In::Decide { id, deps } => self.on_decide(id, deps, out),
            In::Commit {
                id,
                learned,
                replier,
            } => self.on_commit(id, learned, replier, out),
            In::Prepare {
                from,
                id,
                ballot,
                life,
            } => self.on_prepare((from, life), id, ballot, out),
            In::PreRead {
                from,
                inquiry,
                touched,
            } => self.on_pre_read(from, inquiry, &touched, out),
            In::Fetch { from, runs } => self.on_fetch(from, &runs, out),
            In::Kept { from, reaches } => self.on_kept(from, &reaches, out),
            In::Ask { from, duty, ids } => self.on_ask((from, duty), &ids, out),
            In::Forgotten { reaches } => self.on_forgotten(&reaches, out),
            In::Boundary { life, space, below } => {
                self.on_boundary(now, life, (space, below), out);
            }
            In::Copy {
                from,
                life,
                spaces,
                first,
            } => self.on_copy((from, life), &spaces, first, out),
            In::Copied {
                from,
                life,
                spaces,
                first,
                page,
            } => {
                self.learn_peers(&page.lives, &page.closed, out);
                self.on_copied(now, (from, life, spaces), first, *page, out);
            }
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        self.ask_for_decisions(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        (self.store.undecided() > 0 || self.is_returning()).then_some(self.ask_at)
    }

    fn invariants(&self) {
        self.store.invariants();
    }

    const METRICS: Metrics = &[metrics::ACCEPTOR];

    fn status(&self, status: &mut Status) {
        status.remembers = Some(self.returning.as_ref().is_none_or(Return::is_whole));
        status.add([
            self.store.len() as u64,
            self.store.bytes() as u64,
            self.store.undecided() as u64,
            self.index.len() as u64,
            self.life.into(),
            self.answered,
            self.refused,
            self.stale,
        ]);
    }
}
