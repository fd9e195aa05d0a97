//! An acceptor of EPaxos that has lost its memory, with all that it has persisted, and what others
//! tell it: what the tests of its return share.

use crate::epaxos_acceptor::to_leader;
use crate::epaxos_acceptor::{ID, accept, ballot, command, deps, payload, pre_accept, prepare};
use crate::stage::{self, Stage, only};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::machine::Footprint;
use ionian_kernel::protocol::{Birth, Protocol};
use ionian_kernel::role::{Asked, Role};
use ionian_kernel::wire::{decode_all, encode_all};
use ionian_protocols::epaxos::acceptor::{Acceptor, In, Record};
use ionian_protocols::epaxos::config::Config;
use ionian_protocols::epaxos::duty::Duty;
use ionian_protocols::epaxos::instance::{Ballot, InstanceId, OWN, Space};
use ionian_protocols::epaxos::message::{
    Choice, Copy, Evidence, Life, Lives, Page, Reach, Touched, Vote,
};
use ionian_protocols::epaxos::{EPaxos, Envelope, kind, leader, replica};
use std::sync::Arc;

/// Every role on each of `n` nodes, of which `f` may fail.
pub(crate) fn config(n: u16, f: usize, options: Options) -> Arc<Config> {
    let nodes: Vec<NodeId> = (0..n).map(NodeId).collect();
    let layout = Layout {
        f,
        instances: numbered(vec![nodes; 4]),
        options,
        ..Layout::default()
    };
    EPaxos::configure(layout).expect("a deployment")
}

/// The acceptor on node 1, with all that it has persisted.
pub(crate) struct Process {
    pub(crate) stage: Stage<Acceptor>,
    config: Arc<Config>,
    pub(crate) records: Vec<Record>,
}

impl Process {
    /// One that finds these records; with what it asks when it starts.
    pub(crate) fn of(
        config: Arc<Config>,
        records: Vec<Record>,
        amnesiac: bool,
    ) -> (Process, Asked<Envelope>) {
        Process::born(config, records, |birth| birth.amnesiac = amnesiac)
    }

    /// The same, with what this sets of its birth.
    pub(crate) fn born(
        config: Arc<Config>,
        records: Vec<Record>,
        set: impl FnOnce(&mut Birth<'_>),
    ) -> (Process, Asked<Envelope>) {
        let mut birth = stage::birth(kind::Acceptor, ID.0, NodeId(1));
        set(&mut birth);
        let mut role = Acceptor::new(config.clone(), &birth);
        let recovered = records.iter().cloned();
        recovered.for_each(|record| role.recover(record));
        let mut process = Process {
            stage: Stage::unstarted(role, true),
            config,
            records,
        };
        let asked = process.stage.started();
        process.note(&asked);
        (process, asked)
    }

    /// One of three in its first life.
    pub(crate) fn first() -> Process {
        Process::of(config(3, 1, Options::default()), Vec::new(), false).0
    }

    /// One of three in its second life: all that it finds is the number of the first.
    pub(crate) fn second() -> Process {
        Process::second_of(3, 1)
    }

    pub(crate) fn second_of(n: u16, f: usize) -> Process {
        let records = vec![Record::Life { life: 1 }];
        Process::of(config(n, f, Options::default()), records, true).0
    }

    /// The same when all leaders have answered, its own as the last.
    pub(crate) fn asking() -> Process {
        let mut process = Process::second();
        process.hear([0, 2, 1].map(boundary));
        process
    }

    /// One of three in its second life that has copied these from acceptor 0 and nothing from
    /// acceptor 2.
    pub(crate) fn returned(instances: Vec<Copy>) -> Process {
        let mut process = Process::asking();
        process.asked(page(0, instances));
        let asked = process.asked(page(2, vec![]));
        assert!(asked.sends.iter().any(|(to, _)| *to == returned()));
        process
    }

    /// The process after this one, which finds these records.
    pub(crate) fn restarted(&self, records: Vec<Record>) -> Process {
        Process::of(self.config.clone(), records, false).0
    }

    fn note(&mut self, asked: &Asked<Envelope>) {
        let bytes = asked.records.iter().map(|(bytes, _)| bytes.clone());
        let records = bytes.map(|bytes| decode_all(&Bytes::from(bytes)).expect("a record"));
        self.records.extend(records);
    }

    /// It receives these, whatever it does about them.
    pub(crate) fn hear(&mut self, messages: impl IntoIterator<Item = In>) {
        for message in messages {
            self.asked(message);
        }
    }

    pub(crate) fn asked(&mut self, message: In) -> Asked<Envelope> {
        let asked = self.stage.asked(message);
        self.note(&asked);
        asked
    }

    /// What it writes when its records without a key are about to be forgotten.
    pub(crate) fn checkpoint(&mut self) -> Vec<Record> {
        let asked = self.stage.checkpoint();
        let before = self.records.len();
        self.note(&asked);
        self.records[before..].to_vec()
    }

    pub(crate) fn woken(&mut self) -> Asked<Envelope> {
        let asked = self.stage.woken();
        self.note(&asked);
        asked
    }
}

/// The records, and these messages behind them.
pub(crate) fn does(records: &[Record], sends: Vec<Envelope>) -> Asked<Envelope> {
    let count = Some(records.len());
    let sends = sends.into_iter().map(|one| (one, count)).collect();
    only(encoded(records), sends)
}

pub(crate) fn encoded(records: &[Record]) -> Vec<(Vec<u8>, bool)> {
    let encoded = records.iter().map(encode_all);
    encoded.map(|record| (record, false)).collect()
}

pub(crate) fn nothing() -> Asked<Envelope> {
    does(&[], vec![])
}

pub(crate) fn space(leader: u8, life: u32) -> Space {
    let leader = LeaderId(leader);
    Space { leader, life }
}

/// An instance of a life of a leader.
pub(crate) fn of(leader: u8, life: u32, number: u64) -> InstanceId {
    InstanceId::new(space(leader, life), number)
}

/// Where the instances of three leaders begin to be new.
pub(crate) fn reaches() -> [Reach; 3] {
    let reach = |(space, below)| Reach { space, below };
    [(space(0, 3), 2), (space(1, 2), 0), (space(2, 1), 0)].map(reach)
}

/// What a leader answers.
pub(crate) fn boundary(leader: u8) -> In {
    let Reach { space, below } = reaches()[usize::from(leader)];
    begins(space, below)
}

pub(crate) fn begins(space: Space, below: u64) -> In {
    let life = 2;
    In::Boundary { life, space, below }
}

/// All that another acceptor has recorded.
pub(crate) fn page(from: u8, instances: Vec<Copy>) -> In {
    part(from, InstanceId::default(), instances, None)
}

/// The same, to a request that named this number of spaces: all of leaders that had answered.
pub(crate) fn page_for(spaces: u32, from: u8, instances: Vec<Copy>) -> In {
    let mut page = page(from, instances);
    if let In::Copied { spaces: named, .. } = &mut page {
        *named = spaces;
    }
    page
}

/// A part of it, to a request that named three spaces.
pub(crate) fn part(
    from: u8,
    first: InstanceId,
    instances: Vec<Copy>,
    next: Option<InstanceId>,
) -> In {
    In::Copied {
        from: AcceptorId(from),
        life: 2,
        spaces: 3,
        first,
        page: Box::new(Page {
            instances,
            next,
            reaches: vec![],
            lives: Lives::default(),
            closed: vec![],
        }),
    }
}

/// It asks these leaders where their new instances begin.
pub(crate) fn begin(leaders: &[u8]) -> Envelope {
    let leaders = leaders.iter().copied().map(LeaderId).collect();
    let message = leader::In::Begin {
        from: ID,
        duty: Duty::All {},
        life: 2,
    };
    Envelope::ToLeaders(leaders, message)
}

/// It asks another acceptor for a page.
pub(crate) fn ask(to: u8, reaches: &[Reach], first: InstanceId) -> Envelope {
    let message = In::Copy {
        from: ID,
        life: 2,
        spaces: reaches.iter().map(|reach| reach.space).collect(),
        first,
    };
    Envelope::ToAcceptors(Set::one(AcceptorId(to)), message)
}

/// It asks both others for their first pages.
pub(crate) fn asks(reaches: &[Reach]) -> Vec<Envelope> {
    let first = InstanceId::default();
    [0, 2].map(|to| ask(to, reaches, first)).into()
}

pub(crate) fn returned() -> Envelope {
    to_leader(1, leader::In::Returned {})
}

/// How far it is.
pub(crate) fn returning(copied: bool, boundaries: &[Reach], over: &[u8]) -> Record {
    Record::Returning {
        copied,
        boundaries: boundaries.to_vec(),
        over: over.iter().copied().map(LeaderId).collect(),
    }
}

/// What replicas keep, which is nothing; and the number of the next record.
pub(crate) fn kept(next: u64) -> Record {
    let reaches = vec![];
    Record::Kept { next, reaches }
}

pub(crate) fn lives(acceptor: u8, life: u32) -> Lives {
    let (acceptor, mut lives) = (AcceptorId(acceptor), Lives::default());
    lives.learn(Life { acceptor, life });
    lives
}

/// What it has copied of an instance.
pub(crate) fn copied(at: u64, id: InstanceId, has_payload: bool) -> Record {
    let payload = has_payload.then(payload);
    Record::Copied { at, id, payload }
}

/// What others have recorded.
pub(crate) fn open(id: InstanceId) -> Copy {
    let payload = Some(payload());
    Copy::Open { id, payload }
}

pub(crate) fn decided(id: InstanceId) -> Copy {
    let choice = command(&[]);
    Copy::Decided { id, choice }
}

/// Its answer to a command in its second life.
pub(crate) fn answer(id: InstanceId, on: &[InstanceId]) -> Envelope {
    let message = leader::In::PreAccepted {
        from: ID,
        lives: lives(1, 2),
        id,
        deps: deps(on),
    };
    to_leader(id.space.leader.0, message)
}

/// Its answer to a recovery in its second life.
pub(crate) fn testimony(id: InstanceId, ballot: Ballot, evidence: Evidence) -> Envelope {
    let message = leader::In::Prepared {
        from: ID,
        lives: lives(1, 2),
        id,
        ballot,
        asked_in: 1,
        evidence: Box::new(evidence),
    };
    to_leader(ballot.leader().0, message)
}

pub(crate) fn promised(at: u64, id: InstanceId, ballot: Ballot) -> Record {
    Record::Promised { at, id, ballot }
}

pub(crate) fn voted(at: u64, id: InstanceId, ballot: Ballot, choice: Choice) -> Record {
    let vote = Vote { ballot, choice };
    Record::Voted { at, id, vote }
}

/// A replica asks what a read of key 7 conflicts with.
pub(crate) fn read() -> In {
    In::PreRead {
        from: ReplicaId(2),
        inquiry: 5,
        touched: Touched(Footprint {
            reads: vec![7],
            ..Footprint::default()
        }),
    }
}

pub(crate) fn sees(on: &[InstanceId]) -> Asked<Envelope> {
    let message = replica::In::PreReadAck {
        from: ID,
        inquiry: 5,
        deps: deps(on),
    };
    let to = Envelope::ToReplicas(Set::one(ReplicaId(2)), message);
    only(vec![], vec![(to, None)])
}

/// All that leaders ask about an instance.
pub(crate) fn questions(id: InstanceId) -> [In; 3] {
    let leader = id.space.leader.0;
    let recovery = prepare(id, ballot(1, (leader + 1) % 3));
    [
        pre_accept(id, &[]),
        accept(leader, id, OWN, command(&[])),
        recovery,
    ]
}

pub(crate) fn is_silent(process: &mut Process, id: InstanceId) {
    for question in questions(id) {
        assert_eq!(process.asked(question), nothing(), "about {id:?}");
    }
}
