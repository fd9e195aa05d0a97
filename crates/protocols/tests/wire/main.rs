//! Every message of every protocol survives the wire, and no bytes of a stranger do harm.

pub(crate) mod epochs;
pub(crate) mod hostile;

use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Request};
use ionian_kernel::id::*;
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{Wire, decode_all, encode_all};
use ionian_protocols::mencius;
use ionian_protocols::mencius::message::Reserved;
use ionian_protocols::multipaxos::message::{Proposer, ReaderId, Times, Vote, Votes};
use ionian_protocols::multipaxos::{
    self, acceptor, batcher, client, leader, proxy_leader, read_batcher, replica, unbatcher,
};
use ionian_protocols::spaxos;
use ionian_protocols::spaxos::message::{Payload, PayloadId, Ticket};
use ionian_protocols::unreplicated;
use ionian_replication::batch::{
    Answer, Answers, AnswersByClient, Batch, BatchBuilder, Command, Outcome, Purpose, Value,
};
use proptest::prelude::*;

/// Draws the parts of messages.
struct Draw(Random);

impl Draw {
    fn number(&mut self) -> u64 {
        // Small numbers and the largest are where mistakes live.
        match self.0.below(4) {
            0 => self.0.below(3),
            1 => u64::MAX - self.0.below(3),
            _ => self.0.any(),
        }
    }
    fn epoch(&mut self) -> Epoch {
        // Roles see messages of epochs that are known: every other is of the first one.
        Epoch(if self.flag() {
            0
        } else {
            self.number() as u32 % (1 << 24)
        })
    }
    fn slot(&mut self) -> Slot {
        Slot(self.number())
    }
    fn round(&mut self) -> Round {
        Round::new(self.epoch(), self.number() % (1 << 33), self.id())
    }
    fn id<I: Id>(&mut self) -> I {
        I::at(self.0.below(MAX_INSTANCES as u64) as u8)
    }
    fn bytes(&mut self) -> Bytes {
        let length = self.0.below(20);
        (0..length).map(|_| self.0.any() as u8).collect()
    }
    fn flag(&mut self) -> bool {
        self.0.once_in(2)
    }
    fn command(&mut self) -> Command {
        Command {
            client: self.id(),
            purpose: self.purpose(),
            number: self.number(),
            floor: self.number(),
            payload: self.bytes(),
        }
    }
    fn purpose(&mut self) -> Purpose {
        let session = SessionId(self.0.any() >> 8);
        match self.0.below(6) {
            0 => Purpose::Open,
            1 => Purpose::Change,
            2 => Purpose::Read,
            3 => Purpose::Internal,
            4 => Purpose::KeepAlive(session),
            _ => Purpose::Execute(session),
        }
    }
    fn batch(&mut self) -> Batch {
        let mut builder = BatchBuilder::default();
        (0..self.0.below(4)).for_each(|_| builder.push(&self.command()));
        builder.take()
    }
    fn value(&mut self) -> Value {
        Value {
            stamp: Timestamp(self.number()),
            batch: self.batch(),
        }
    }
    fn answers(&mut self) -> Answers {
        let mut answers = AnswersByClient::default();
        for _ in 0..self.0.below(4) {
            let outcome = match self.0.below(5) {
                0 => Outcome::Done(self.bytes()),
                1 => Outcome::Opened(SessionId(self.number())),
                2 => Outcome::NoSession,
                3 => Outcome::NotARead,
                _ => Outcome::Failed,
            };
            answers.push(&Answer {
                client: self.id(),
                purpose: self.purpose(),
                number: self.number(),
                outcome,
            });
        }
        answers.take_all(self.0.below(MAX_INSTANCES as u64) as u8, self.slot())
    }
    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.below(4)).map(|_| one(self)).collect()
    }
    fn request(&mut self) -> Request {
        let operation = match self.0.below(4) {
            0 => Operation::Write,
            1 => Operation::Read(ReadLevel::Linearizable),
            2 => Operation::Read(ReadLevel::Sequential),
            _ => Operation::Read(ReadLevel::Eventual),
        };
        Request {
            token: self.number(),
            operation,
            payload: self.bytes(),
        }
    }
    fn proposer(&mut self) -> Proposer {
        match self.0.below(3) {
            0 => Proposer::Client { id: self.id() },
            1 => Proposer::Batcher {
                id: self.id(),
                number: self.number(),
            },
            _ => Proposer::Leader {},
        }
    }
    fn reader(&mut self) -> ReaderId {
        match self.flag() {
            true => ReaderId::Client { id: self.id() },
            false => ReaderId::ReadBatcher { id: self.id() },
        }
    }
    fn payload_id(&mut self) -> PayloadId {
        PayloadId {
            disseminator: self.id(),
            life: self.number(),
            number: self.number(),
        }
    }
    fn payload(&mut self) -> Payload {
        Payload {
            id: self.payload_id(),
            round: self.round(),
            until: self.slot(),
            batch: self.batch(),
        }
    }
    fn ticket(&mut self) -> Ticket {
        Ticket {
            id: self.payload_id(),
            until: self.slot(),
            round: self.round(),
            floor: self.number(),
        }
    }
    fn times(&mut self) -> Times {
        Times {
            clock: Timestamp(self.number()),
            log: Timestamp(self.number()),
        }
    }
    fn reserved(&mut self) -> Reserved {
        Reserved {
            round: self.round(),
            start: self.slot(),
            end: self.slot(),
        }
    }
    fn votes(&mut self) -> Votes {
        let votes = self.many(|draw| {
            (
                draw.slot(),
                Vote {
                    round: draw.round(),
                    value: draw.value(),
                },
            )
        });
        let start = self.slot();
        let (end, next, forgotten, watermark) =
            (self.slot(), self.slot(), self.slot(), self.slot());
        Votes {
            start,
            end,
            next,
            votes,
            forgotten,
            watermark,
        }
    }
}

/// One message of each kind.
fn multipaxos_messages(seed: u64) -> Vec<multipaxos::Message> {
    use multipaxos::Message::{
        Acceptor, Batcher, Client, Leader, ProxyLeader, ReadBatcher, Replica, Unbatcher,
    };
    let mut d = Draw(Random::new(seed));
    let d = &mut d;
    vec![
        Client(client::In::Submit {
            request: d.request(),
        }),
        Client(client::In::Answers {
            answers: d.answers(),
        }),
        Client(client::In::PreReadAck {
            from: d.id(),
            inquiry: d.number(),
            watermark: d.slot(),
            epoch: d.epoch(),
        }),
        Client(client::In::NewLeader { round: d.round() }),
        Client(client::In::NotLeader { round: d.round() }),
        Batcher(batcher::In::Commands {
            commands: d.batch(),
        }),
        Batcher(batcher::In::BatchesChosen {
            numbers: d.many(Draw::number),
        }),
        Batcher(batcher::In::NewLeader { round: d.round() }),
        Batcher(batcher::In::NotLeader { round: d.round() }),
        ReadBatcher(read_batcher::In::Reads { reads: d.batch() }),
        ReadBatcher(read_batcher::In::PreReadAck {
            from: d.id(),
            inquiry: d.number(),
            watermark: d.slot(),
            epoch: d.epoch(),
        }),
        ReadBatcher(read_batcher::In::ReplicaAlive { from: d.id() }),
        Leader(leader::In::Propose {
            proposer: d.proposer(),
            near: Set::from_bits(d.number()),
            batch: d.batch(),
            again: d.flag(),
        }),
        Leader(leader::In::Executed {
            from: d.id(),
            executed: d.slot(),
            kept: d.slot(),
            round: d.round(),
            times: d.times(),
        }),
        Leader(leader::In::ProxyAlive { from: d.id() }),
        Leader(leader::In::Phase1b {
            from: d.id(),
            round: d.round(),
            votes: d.votes(),
            clock: Timestamp(d.number()),
        }),
        Leader(leader::In::Nack { round: d.round() }),
        Leader(leader::In::Heartbeat { round: d.round() }),
        Leader(leader::In::PreVoteReply {
            from: d.id(),
            gone: d.flag(),
            promise: d.round(),
        }),
        Leader(leader::In::Recover {
            slots: d.many(Draw::slot),
        }),
        Leader(leader::In::AdvanceClock {
            deadline: Timestamp(d.number()),
        }),
        Leader(leader::In::Rejoin {
            from: d.id(),
            nonce: d.number(),
            promise: d.round(),
        }),
        Leader(leader::In::TakeOver {
            from: d.id(),
            round: d.round(),
        }),
        Leader(leader::In::Declined { from: d.id() }),
        ProxyLeader(proxy_leader::In::Phase2a {
            slot: d.slot(),
            round: d.round(),
            value: d.value(),
            proposer: d.proposer(),
            replier: d.id(),
        }),
        ProxyLeader(proxy_leader::In::Phase2b {
            from: d.id(),
            slot: d.slot(),
            round: d.round(),
        }),
        ProxyLeader(proxy_leader::In::Nack { round: d.round() }),
        ProxyLeader(proxy_leader::In::Forgotten { below: d.slot() }),
        Acceptor(acceptor::In::Phase1a {
            from: d.id(),
            round: d.round(),
            start: d.slot(),
            end: d.slot(),
        }),
        Acceptor(acceptor::In::Phase2a {
            from: d.id(),
            slot: d.slot(),
            round: d.round(),
            value: d.value(),
        }),
        Acceptor(acceptor::In::PreRead {
            from: d.reader(),
            inquiry: d.number(),
        }),
        Acceptor(acceptor::In::Heartbeat {
            round: d.round(),
            kept: d.slot(),
        }),
        Acceptor(acceptor::In::PreVote { from: d.id() }),
        Acceptor(acceptor::In::Admit {
            nonce: d.number(),
            round: d.round(),
            frontier: d.slot(),
        }),
        Acceptor(acceptor::In::Learn {
            slot: d.slot(),
            round: d.round(),
            replier: d.id(),
        }),
        Replica(replica::In::Chosen {
            slot: d.slot(),
            value: d.value(),
            replier: d.id(),
        }),
        Replica(replica::In::Read {
            reads: d.batch(),
            executed: d.slot(),
        }),
        Replica(replica::In::Heartbeat {
            round: d.round(),
            executed: d.slot(),
            keep: d.slot(),
            time: Timestamp(d.number()),
        }),
        Replica(replica::In::Fetch {
            from: d.id(),
            start: d.slot(),
            end: d.slot(),
            waits: d.flag(),
        }),
        Replica(replica::In::Fetched {
            from: d.id(),
            slots: d.many(|draw| (draw.slot(), draw.value())),
        }),
        Replica(replica::In::FetchSnapshot {
            from: d.id(),
            executed: d.slot(),
            offset: d.number(),
        }),
        Replica(replica::In::SnapshotChunk {
            from: d.id(),
            executed: d.slot(),
            offset: d.number(),
            last: d.flag(),
            bytes: d.bytes(),
        }),
        Replica(replica::In::UnbatcherAlive { from: d.id() }),
        Unbatcher(unbatcher::In::Results {
            answers: d.answers(),
        }),
    ]
}

/// All of MultiPaxos's that is carried over, and what is not.
fn spaxos_messages(seed: u64) -> Vec<spaxos::Message> {
    use multipaxos::Message as Theirs;
    use spaxos::Message::{
        Acceptor, Batcher, Client, Disseminator, Leader, ProxyLeader, ReadBatcher, Replica,
        Stabilizer, Unbatcher,
    };
    use spaxos::{batcher, disseminator, leader, proxy_leader, stabilizer};
    let mut d = Draw(Random::new(seed));
    let d = &mut d;
    let shared = multipaxos_messages(d.number())
        .into_iter()
        .filter_map(|message| {
            Some(match message {
                Theirs::Client(message) => Client(message),
                // Disseminators stand in for them.
                Theirs::Batcher(_) => return None,
                Theirs::ReadBatcher(message) => ReadBatcher(message),
                Theirs::Leader(message) => Leader(leader::In::Ordering { message }),
                Theirs::ProxyLeader(message) => ProxyLeader(proxy_leader::In::Ordering { message }),
                Theirs::Acceptor(message) => Acceptor(message),
                Theirs::Replica(message) => Replica(message),
                Theirs::Unbatcher(message) => Unbatcher(message),
            })
        });
    let mut messages: Vec<_> = shared.collect();
    messages.extend([
        Batcher(batcher::In::Commands {
            commands: d.batch(),
        }),
        Batcher(batcher::In::BatchesChosen {
            from: d.id(),
            numbers: d.many(Draw::number),
        }),
        Disseminator(disseminator::In::Commands {
            commands: d.batch(),
        }),
        Disseminator(disseminator::In::Disseminate {
            from: d.id(),
            number: d.number(),
            batch: d.batch(),
        }),
        Disseminator(disseminator::In::Stored {
            from: d.id(),
            tickets: d.many(Draw::ticket),
            lives: d.many(|draw| (draw.id(), draw.number())),
        }),
        Disseminator(disseminator::In::Chosen {
            numbers: d.many(Draw::number),
            below: d.slot(),
        }),
        Disseminator(disseminator::In::NewLeader { round: d.round() }),
        Disseminator(disseminator::In::NotLeader { round: d.round() }),
        Disseminator(disseminator::In::Progress {
            round: d.round(),
            executed: d.slot(),
        }),
        Leader(leader::In::propose(
            &d.ticket(),
            Set::from_bits(d.number()),
            Set::EMPTY,
        )),
        Leader(leader::In::CarryTo { slot: d.slot() }),
        Leader(leader::In::StabilizerAlive { from: d.id() }),
        Leader(leader::In::TookOver {
            from: d.id(),
            round: d.round(),
            lives: d.many(|draw| (draw.id(), draw.number())),
        }),
        ProxyLeader(proxy_leader::In::StabilizerAlive { from: d.id() }),
        Stabilizer(stabilizer::In::Store {
            floor: d.number(),
            payload: d.payload(),
        }),
        Stabilizer(stabilizer::In::Chosen {
            slot: d.slot(),
            value: d.value(),
            replier: d.id(),
            replicas: Set::from_bits(d.number()),
        }),
        Stabilizer(stabilizer::In::Kept {
            round: d.round(),
            kept: d.slot(),
        }),
        Stabilizer(stabilizer::In::Fetch {
            from: d.id(),
            id: d.payload_id(),
            slot: d.slot(),
        }),
        Stabilizer(stabilizer::In::Fetched {
            payload: d.payload(),
        }),
        Stabilizer(stabilizer::In::Delivered {
            places: d.many(|draw| (draw.payload_id(), draw.slot())),
        }),
        Stabilizer(stabilizer::In::Copy {
            from: d.id(),
            life: d.number(),
            seals: d.flag().then(|| d.epoch()),
            after: d.flag().then(|| d.payload_id()),
        }),
        Stabilizer(stabilizer::In::Copied {
            from: d.id(),
            life: d.number(),
            seals: d.flag().then(|| d.epoch()),
            payloads: d.many(Draw::payload),
            last: d.flag(),
        }),
        Stabilizer(stabilizer::In::TakeOver { round: d.round() }),
    ]);
    messages
}

/// All of MultiPaxos's in a stripe, and what is not carried over.
fn mencius_messages(seed: u64) -> Vec<mencius::Message> {
    use mencius::Message::{
        Acceptor, Batcher, Client, Leader, ProxyLeader, ReadBatcher, Replica, Unbatcher,
    };
    use mencius::stripe::Stripe;
    use mencius::{acceptor, leader, proxy_leader, replica};
    use multipaxos::Message as Theirs;
    let mut d = Draw(Random::new(seed));
    let stripe = Stripe(d.0.below(3) as u8);
    let shared = multipaxos_messages(d.number())
        .into_iter()
        .map(|message| match message {
            Theirs::Client(message) => Client(message),
            Theirs::Batcher(message) => Batcher(message),
            Theirs::ReadBatcher(message) => ReadBatcher(message),
            Theirs::Leader(message) => Leader(leader::In::InStripe { stripe, message }),
            Theirs::ProxyLeader(message) => {
                ProxyLeader(proxy_leader::In::InStripe { stripe, message })
            }
            Theirs::Acceptor(message) => Acceptor(acceptor::In::InStripe { stripe, message }),
            Theirs::Replica(message) => Replica(replica::In::OfLog { message }),
            Theirs::Unbatcher(message) => Unbatcher(message),
        });
    let mut messages: Vec<_> = shared.collect();
    let d = &mut d;
    let (from, executed, kept) = (d.id(), d.slot(), d.slot());
    messages.extend([
        Leader(leader::In::Executed {
            from,
            executed,
            kept,
            rounds: d.many(Draw::round),
            times: d.times(),
        }),
        Leader(leader::In::Recover {
            from: d.id(),
            slots: d.many(Draw::slot),
        }),
        Leader(leader::In::AdvanceClock {
            deadline: Timestamp(d.number()),
        }),
        Leader(leader::In::ProxyAlive { from: d.id() }),
        Leader(leader::In::Index {
            from: d.id(),
            slot: d.slot(),
        }),
        Leader(leader::In::Phase1b {
            from: d.id(),
            stripe,
            round: d.round(),
            votes: d.votes(),
            reserved: vec![d.reserved()],
            clock: Timestamp(d.number()),
        }),
        Leader(leader::In::Reserved {
            from: d.id(),
            stripe,
            reserved: d.reserved(),
        }),
        Acceptor(acceptor::In::PreRead {
            from: d.reader(),
            inquiry: d.number(),
        }),
        Acceptor(acceptor::In::Reserve {
            from: d.id(),
            stripe,
            reserved: d.reserved(),
        }),
        Replica(replica::In::Skip {
            stripe,
            start: d.slot(),
            end: d.slot(),
        }),
        Replica(replica::In::Suggested {
            slot: d.slot(),
            value: d.value(),
        }),
    ]);
    let (round, executed, time) = (d.round(), d.slot(), Timestamp(d.number()));
    messages.push(Replica(replica::In::Heartbeat {
        stripe,
        round,
        executed,
        time,
    }));
    messages
}

fn unreplicated_messages(seed: u64) -> Vec<unreplicated::Message> {
    use unreplicated::Message::{Batcher, Client, Server, Unbatcher};
    let mut d = Draw(Random::new(seed));
    let d = &mut d;
    vec![
        Client(unreplicated::client::In::Submit {
            request: d.request(),
        }),
        Client(unreplicated::client::In::Answers {
            answers: d.answers(),
        }),
        Batcher(unreplicated::batcher::In::Commands {
            commands: d.batch(),
        }),
        Batcher(unreplicated::batcher::In::BatchesDone {
            numbers: d.many(Draw::number),
        }),
        Server(unreplicated::server::In::Execute {
            from: Some((d.id(), d.number())),
            batch: d.batch(),
        }),
        Server(unreplicated::server::In::Execute {
            from: None,
            batch: d.batch(),
        }),
        Server(unreplicated::server::In::Read { reads: d.batch() }),
        Unbatcher(unreplicated::unbatcher::In::Results {
            answers: d.answers(),
        }),
    ]
}

/// The message comes back the same, which its text shows: messages have no equality of their own.
fn survives<M: Wire + std::fmt::Debug>(message: &M) {
    let bytes = Bytes::from(encode_all(message));
    let back: M = decode_all(&bytes).expect("what was encoded decodes");
    assert_eq!(format!("{back:?}"), format!("{message:?}"));
    for length in 0..bytes.len() {
        decode_all::<M>(&bytes.slice(..length)).expect_err("a message cut short is an error");
    }
}

/// Damaged bytes are an error, or a message that encodes as those very bytes: nothing is read past.
fn harmless<M: Wire>(bytes: Vec<u8>) {
    let bytes = Bytes::from(bytes);
    if let Ok(message) = decode_all::<M>(&bytes) {
        assert_eq!(encode_all(&message), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_message_survives_the_wire(seed: u64) {
        multipaxos_messages(seed).iter().for_each(survives);
        mencius_messages(seed).iter().for_each(survives);
        spaxos_messages(seed).iter().for_each(survives);
        unreplicated_messages(seed).iter().for_each(survives);
    }

    /// b1: an empty or unknown message is an error, and nothing more.
    #[test]
    fn b1_garbage_is_harmless(bytes: Vec<u8>) {
        harmless::<multipaxos::Message>(bytes.clone());
        harmless::<unreplicated::Message>(bytes.clone());
        harmless::<mencius::Message>(bytes.clone());
        harmless::<spaxos::Message>(bytes.clone());
        harmless::<spaxos::stabilizer::Record>(bytes.clone());
        harmless::<acceptor::Record>(bytes.clone());
        harmless::<leader::Record>(bytes.clone());
        harmless::<unreplicated::server::Record>(bytes);
    }

    #[test]
    fn b1_damaged_messages_are_harmless(seed: u64, at: prop::sample::Index, damage: u8) {
        for message in multipaxos_messages(seed) {
            let mut bytes = encode_all(&message);
            let at = at.index(bytes.len());
            bytes[at] ^= damage;
            harmless::<multipaxos::Message>(bytes);
        }
        for message in spaxos_messages(seed) {
            let mut bytes = encode_all(&message);
            let at = at.index(bytes.len());
            bytes[at] ^= damage;
            harmless::<spaxos::Message>(bytes);
        }
    }

    /// What is inside a batch is a stranger's too: it is looked at by replicas only, and all of
    /// them must read the same.
    #[test]
    fn b2_damaged_batches_are_read_alike_and_end(seed: u64, at: prop::sample::Index, damage: u8) {
        let mut bytes = encode_all(&Draw(Random::new(seed)).batch());
        let at = at.index(bytes.len());
        bytes[at] ^= damage;
        if let Ok(batch) = decode_all::<Batch>(&Bytes::from(bytes)) {
            let read: Vec<_> = batch.commands().collect();
            assert_eq!(read, batch.commands().collect::<Vec<_>>());
        }
    }
}

#[test]
fn b1_an_empty_message_is_an_error() {
    assert!(decode_all::<multipaxos::Message>(&Bytes::new()).is_err());
    assert!(decode_all::<spaxos::Message>(&Bytes::new()).is_err());
    assert!(decode_all::<unreplicated::Message>(&Bytes::new()).is_err());
}
