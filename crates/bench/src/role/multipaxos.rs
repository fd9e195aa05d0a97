//! Who plays what around each role of MultiPaxos.

use super::commands::Commands;
use super::emulated::{Part, Stage};
use super::flow::Flow;
use super::work::Work;
use ionian_kernel::batch::{Batch, Value};
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::time::{Duration, Instant, Timestamp};
use ionian_protocols::multipaxos::config::Config;
use ionian_protocols::multipaxos::message::{Proposer, ReaderId};
use ionian_protocols::multipaxos::{
    Envelope, Instance, Message, MultiPaxos, acceptor, batcher, client, kind, leader, proxy_leader, read_batcher,
    replica, unbatcher,
};
use std::sync::Arc;

type Actor = Part<MultiPaxos>;
type OnStage<'a> = Stage<'a, MultiPaxos>;

/// How often acceptors are told what they can forget.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// When nothing is executed for so long, what is missing is said again.
const STUCK: Duration = Duration::from_millis(300);

/// What all parts know.
pub(crate) struct Play {
    pub(crate) config: Arc<Config>,
    pub(crate) flow: Flow,
    pub(crate) commands: Commands,
    pub(crate) work: Work,
    /// How many commands a client lane sends a batcher at once.
    pub(crate) gathered: u64,
}

/// Who stands at this address while instance 0 of `subject` is measured.
pub(crate) fn cast(play: &Arc<Play>, subject: u8, address: Address) -> Option<Actor> {
    let play = play.clone();
    match (subject, play.work) {
        (kind::Leader, Work::Write) => around_leader(play, address),
        (kind::ProxyLeader, Work::Write) => around_proxy_leader(play, address),
        (kind::Acceptor, Work::Write) => around_acceptor(play, address),
        (kind::Acceptor, _) => asking_acceptor(play, address),
        (kind::Replica, Work::Read) => reading_replica(play, address),
        (kind::Replica, _) => around_replica(play, address),
        (kind::Batcher, _) => around_batcher(play, address),
        (kind::ReadBatcher, _) => around_read_batcher(play, address),
        _ => around_unbatcher(play, address),
    }
}

impl Play {
    fn is_batched(&self) -> bool {
        !self.config.all::<BatcherId>(kind::Batcher).is_empty()
    }

    fn proposer(&self, number: u64) -> Proposer {
        match self.is_batched() {
            true => Proposer::Batcher { id: BatcherId(0), number },
            false => Proposer::Client { id: ClientId(0) },
        }
    }

    fn count(&self, kind: u8) -> u64 {
        self.config.layout().count(kind) as u64
    }

    /// Whether an instance of this kind proposes.
    fn proposes(&self, kind: u8) -> bool {
        kind == if self.is_batched() { kind::Batcher } else { kind::Client }
    }

    /// Whether an instance of this kind asks for reads.
    fn asks(&self, kind: u8) -> bool {
        kind == if self.config.all::<ReadBatcherId>(kind::ReadBatcher).is_empty() {
            kind::Client
        } else {
            kind::ReadBatcher
        }
    }

    fn value(&self, stage: &OnStage<'_>, batch: Batch) -> Value {
        Value { stamp: stage.now.timestamp(), batch }
    }
}

/// Whether the leader's part stands in front of the one that leads.
fn leads(stage: &OnStage<'_>) -> Option<Round> {
    match stage.real {
        Instance::Leader(leader) if leader.is_leading() => Some(leader.round()),
        _ => None,
    }
}

/// Notes the round when there is a leader; reports of replicas are not for it.
fn emulated_leader(play: Arc<Play>) -> Actor {
    let heard = play.clone();
    let reports = move |_: &mut OnStage<'_>, message: Message| match message {
        Message::Leader(leader::In::Executed { from: ReplicaId(0), executed, .. }) => {
            heard.flow.reach(executed.0);
            None
        }
        Message::Leader(leader::In::Executed { .. } | leader::In::Recover { .. }) => None,
        message => Some(message),
    };
    Part::default().hear(reports).tick(move |stage| {
        if let Some(round) = leads(stage) {
            play.flow.set_round(round.0);
        }
    })
}

/// Batchers, or clients, propose; proxy leaders take what the leader hands them; replicas report.
fn around_leader(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match kind {
        kind::Client | kind::Batcher if !play.proposes(kind) || index > 0 => Some(Part::alone()),
        kind::Client | kind::Batcher => {
            let batch = play.commands.writes(0);
            Some(Part::alone().tick(move |stage| {
                if play.flow.round().is_none() {
                    return;
                }
                for number in 0..play.flow.begin(play.commands.batch) {
                    let (proposer, near, batch) = (play.proposer(number), Set::EMPTY, batch.clone());
                    let message = leader::In::Propose { proposer, near, batch };
                    stage.send(Envelope::ToLeaders(Set::one(LeaderId(0)), message));
                }
            }))
        }
        kind::ProxyLeader => Some(Part::default().hear(move |_, message| match message {
            Message::ProxyLeader(proxy_leader::In::Phase2a { slot, value, .. }) => {
                play.flow.finish(value.batch.len() as u64);
                play.flow.reach(slot.next().0);
                None
            }
            message => Some(message),
        })),
        kind::Replica => Some(reporting_replica(play, ReplicaId(index))),
        _ => None,
    }
}

/// Says that it has executed whatever was handed to proxy leaders.
fn reporting_replica(play: Arc<Play>, from: ReplicaId) -> Actor {
    let (mut reported, heard) = (0, play.clone());
    let hear = move |_: &mut OnStage<'_>, message| {
        if let Message::Replica(replica::In::Heartbeat { round, .. }) = message {
            heard.flow.set_round(round.0);
        }
        None
    };
    Part::alone().hear(hear).tick(move |stage| {
        let executed = play.flow.executed();
        if let Some(round) = play.flow.round()
            && executed > reported
        {
            reported = executed;
            let (executed, kept, round) = (Slot(executed), Slot(executed), Round(round));
            let message = leader::In::Executed { from, executed, kept, round };
            stage.send(Envelope::ToLeaders(Set::one(LeaderId(0)), message));
        }
    })
}

/// A leader hands slots over; acceptors vote; replicas take what is chosen.
fn around_proxy_leader(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match (kind, index) {
        (kind::Leader, 0) => {
            let batch = play.commands.writes(0);
            Some(Part::default().tick(move |stage| {
                let Some(round) = leads(stage) else { return };
                for _ in 0..play.flow.begin(play.commands.batch) {
                    let slot = play.flow.take_slot();
                    let (value, proposer) = (play.value(stage, batch.clone()), play.proposer(slot));
                    let replier = ReplicaId((slot % play.count(kind::Replica)) as u8);
                    let message = proxy_leader::In::Phase2a { slot: Slot(slot), round, value, proposer, replier };
                    stage.send(Envelope::ToProxyLeaders(Set::one(ProxyLeaderId(0)), message));
                }
            }))
        }
        (kind::Acceptor, _) => Some(Part::default().hear(move |stage, message| match message {
            Message::Acceptor(acceptor::In::Phase2a { from, slot, round, .. }) => {
                let vote = proxy_leader::In::Phase2b { from: AcceptorId(index), slot, round };
                stage.send(Envelope::ToProxyLeaders(Set::one(from), vote));
                None
            }
            message => Some(message),
        })),
        (kind::Replica, _) => Some(Part::default().hear(move |_, message| match message {
            Message::Replica(replica::In::Chosen { value, .. }) => {
                // All are told; one counts.
                play.flow.finish(if index == 0 { value.batch.len() as u64 } else { 0 });
                None
            }
            Message::Replica(replica::In::Heartbeat { .. }) => None,
            message => Some(message),
        })),
        (kind::Client | kind::Batcher, _) => Some(Part::alone()),
        _ => None,
    }
}

/// Proxy leaders ask for votes; the leader says now and then what can be forgotten.
fn around_acceptor(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match (kind, index) {
        (kind::Leader, 0) => {
            let mut heartbeat_at = Instant::ZERO;
            Some(Part::default().tick(move |stage| {
                let Some(round) = leads(stage) else { return };
                play.flow.set_round(round.0);
                if heartbeat_at <= stage.now {
                    heartbeat_at = stage.now + HEARTBEAT;
                    // Nothing below is under way: parts take slots in order, and no more than the window at once.
                    let under_way = 16 * play.flow.window();
                    let kept = Slot(play.flow.slots_taken().saturating_sub(under_way));
                    let message = acceptor::In::Heartbeat { round, kept };
                    stage.send(Envelope::ToAcceptors(Set::one(AcceptorId(0)), message));
                }
            }))
        }
        (kind::ProxyLeader, _) => {
            let (batch, asker) = (play.commands.writes(0), play.clone());
            let ask = move |stage: &mut OnStage<'_>| {
                let Some(round) = asker.flow.round() else { return };
                for _ in 0..asker.flow.begin(asker.commands.batch) {
                    let (from, slot) = (ProxyLeaderId(index), Slot(asker.flow.take_slot()));
                    let value = asker.value(stage, batch.clone());
                    let message = acceptor::In::Phase2a { from, slot, round: Round(round), value };
                    stage.send(Envelope::ToAcceptors(Set::one(AcceptorId(0)), message));
                }
            };
            let again = ask.clone();
            Some(Part::default().tick(ask).hear(move |stage, message| match message {
                Message::ProxyLeader(proxy_leader::In::Phase2b { .. }) => {
                    play.flow.finish(play.commands.batch);
                    again(stage);
                    None
                }
                message => Some(message),
            }))
        }
        (kind::Replica, _) => Some(Part::default().hear(|_, message| match message {
            Message::Replica(replica::In::Heartbeat { .. }) => None,
            message => Some(message),
        })),
        (kind::Client | kind::Batcher, _) => Some(Part::alone()),
        _ => None,
    }
}

/// Readers ask an acceptor for its watermark.
fn asking_acceptor(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    let from = match kind {
        kind::Client => ReaderId::Client { id: ClientId(index) },
        kind::ReadBatcher => ReaderId::ReadBatcher { id: ReadBatcherId(index) },
        _ => return None,
    };
    if !play.asks(kind) {
        return Some(Part::alone());
    }
    let asker = play.clone();
    let ask = move |stage: &mut OnStage<'_>| {
        for inquiry in 0..asker.flow.begin(asker.commands.batch) {
            let message = acceptor::In::PreRead { from, inquiry };
            stage.send(Envelope::ToAcceptors(Set::one(AcceptorId(0)), message));
        }
    };
    let again = ask.clone();
    Some(Part::alone().tick(ask).hear(move |stage, message| {
        if let Message::Client(client::In::PreReadAck { .. })
        | Message::ReadBatcher(read_batcher::In::PreReadAck { .. }) = message
        {
            play.flow.finish(play.commands.batch);
            again(stage);
        }
        None
    }))
}

/// How many slots open the sessions of all lanes and, `filling`, set every key.
fn first_slots(play: &Play, filling: bool) -> u64 {
    play.commands.lanes() + if filling { play.commands.keys().div_ceil(play.commands.batch) } else { 0 }
}

/// Says which slots are chosen: this proxy leader's share of those below `end`, never more than the window ahead of
/// what is executed.
fn choosing(play: Arc<Play>, index: u8, end: u64) -> Actor {
    let proxies = play.count(kind::ProxyLeader);
    let mut slot = u64::from(index);
    let mut progress = (0, Instant::ZERO);
    Part::default().tick(move |stage| {
        let executed = play.flow.executed();
        if executed > progress.0 || progress.1 == Instant::ZERO {
            progress = (executed, stage.now);
        } else if stage.now.since(progress.1) >= STUCK {
            // What was said before the connection stood is lost.
            slot = executed + (u64::from(index) + proxies - executed % proxies) % proxies;
            progress.1 = stage.now;
        }
        let ahead = (play.flow.window() / play.commands.batch).max(1);
        while slot < end.min(executed + ahead) {
            let lanes = play.commands.lanes();
            let batch = match slot.checked_sub(lanes) {
                None => Commands::open(slot),
                Some(number) => play.commands.writes(number),
            };
            // Whoever says it and how often, it is the same value.
            let value = Value { stamp: Timestamp(slot), batch };
            let replier = ReplicaId(u8::from(play.work == Work::Execute));
            let message = replica::In::Chosen { slot: Slot(slot), value, replier };
            stage.send(Envelope::ToReplicas(Set::one(ReplicaId(0)), message));
            slot += proxies;
        }
    })
}

/// Proxy leaders say what is chosen; the replica's reports say what it has executed.
fn around_replica(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match kind {
        kind::Leader => {
            let counting = play.clone();
            let first = first_slots(&play, true);
            let mut counted = first;
            Some(emulated_leader(play).tick(move |_| {
                let executed = counting.flow.executed();
                if executed > counted {
                    counting.flow.finish((executed - counted) * counting.commands.batch);
                    counted = executed;
                }
            }))
            .filter(|_| index == 0)
        }
        kind::ProxyLeader => Some(choosing(play, index, u64::MAX)),
        kind::Client | kind::Batcher | kind::Unbatcher => Some(quiet_receiver(kind)),
        _ => None,
    }
}

/// Takes answers and does nothing; an unbatcher lives on.
fn quiet_receiver(kind: u8) -> Actor {
    match kind {
        kind::Unbatcher => Part::default().hear(|_, message| match message {
            Message::Unbatcher(unbatcher::In::Results { .. }) => None,
            other => Some(other),
        }),
        _ => Part::alone(),
    }
}

/// Every key is set; then readers ask, and count the answers.
fn reading_replica(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    let first = first_slots(&play, true);
    match kind {
        kind::Leader => Some(emulated_leader(play)),
        kind::ProxyLeader => Some(choosing(play, index, first)),
        kind::Client | kind::ReadBatcher | kind::Unbatcher | kind::Batcher => {
            let (counting, is_reader) = (play.clone(), play.asks(kind));
            let count = move |_: &mut OnStage<'_>, message: Message| match message {
                Message::Client(client::In::Answers { answers })
                | Message::Unbatcher(unbatcher::In::Results { answers }) => {
                    // While keys are set, and a session opened, somebody else answers.
                    counting.flow.finish(answers.iter().count() as u64);
                    None
                }
                message => Some(message),
            };
            let part = if kind == kind::Client { Part::alone() } else { Part::default() };
            let (part, mut number) = (part.hear(count), 0);
            Some(match is_reader {
                false => part,
                true => part.tick(move |stage| {
                    if play.flow.executed() < first {
                        return;
                    }
                    for _ in 0..play.flow.begin(play.commands.batch) {
                        number += 1;
                        let reads = play.commands.reads(number, play.commands.batch);
                        let message = replica::In::Read { reads, executed: Slot(first) };
                        stage.send(Envelope::ToReplicas(Set::one(ReplicaId(0)), message));
                    }
                }),
            })
        }
        _ => None,
    }
}

/// Clients send commands, a few at once; the leader takes batches, and they are chosen at once.
fn around_batcher(play: Arc<Play>, Address { kind, .. }: Address) -> Option<Actor> {
    match kind {
        kind::Client => {
            let commands = play.commands.gathered(play.gathered);
            Some(Part::alone().tick(move |stage| {
                for _ in 0..play.flow.begin(play.gathered) {
                    let message = batcher::In::Commands { commands: commands.clone() };
                    stage.send(Envelope::ToBatchers(Set::one(BatcherId(0)), message));
                }
            }))
        }
        kind::Leader => Some(Part::default().hear(move |stage, message| match message {
            Message::Leader(leader::In::Propose { proposer: Proposer::Batcher { number, .. }, batch, .. }) => {
                play.flow.finish(batch.len() as u64);
                let message = batcher::In::BatchesChosen { numbers: vec![number] };
                stage.send(Envelope::ToBatchers(Set::one(BatcherId(0)), message));
                None
            }
            message => Some(message),
        })),
        _ => None,
    }
}

/// Clients send reads, a few at once; acceptors answer, replicas take the reads.
fn around_read_batcher(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match kind {
        kind::Client => {
            let reads = play.commands.reads(0, play.gathered);
            Some(Part::alone().tick(move |stage| {
                for _ in 0..play.flow.begin(play.gathered) {
                    let message = read_batcher::In::Reads { reads: reads.clone() };
                    stage.send(Envelope::ToReadBatchers(Set::one(ReadBatcherId(0)), message));
                }
            }))
        }
        kind::Replica => Some(Part::default().hear(move |_, message| match message {
            Message::Replica(replica::In::Read { reads, .. }) => {
                play.flow.finish(reads.len() as u64);
                None
            }
            message => Some(message),
        })),
        kind::Acceptor => Some(Part::default().hear(move |stage, message| match message {
            Message::Acceptor(acceptor::In::PreRead { from: ReaderId::ReadBatcher { id }, inquiry }) => {
                let (from, watermark, epoch) = (AcceptorId(index), Slot::ZERO, Epoch::default());
                let message = read_batcher::In::PreReadAck { from, inquiry, watermark, epoch };
                stage.send(Envelope::ToReadBatchers(Set::one(id), message));
                None
            }
            message => Some(message),
        })),
        _ => None,
    }
}

/// Replicas send results; clients count their answers.
fn around_unbatcher(play: Arc<Play>, Address { kind, .. }: Address) -> Option<Actor> {
    match kind {
        kind::Replica => {
            let answers = play.commands.answers();
            Some(Part::default().tick(move |stage| {
                for _ in 0..play.flow.begin(play.commands.batch) {
                    let message = unbatcher::In::Results { answers: answers.clone() };
                    stage.send(Envelope::ToUnbatchers(Set::one(UnbatcherId(0)), message));
                }
            }))
        }
        kind::Client => Some(Part::alone().hear(move |_, message| {
            if let Message::Client(client::In::Answers { answers }) = message {
                play.flow.finish(answers.iter().count() as u64);
            }
            None
        })),
        _ => None,
    }
}
