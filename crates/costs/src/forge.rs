//! Commands as client lanes number them, and answers as replicas give them.

use bytes::Bytes;
use ionian_kernel::id::{ClientId, SessionId, Slot};
use ionian_kernel::time::Instant;
use ionian_machines::kv;
use ionian_replication::batch::{
    Answer, Answers, AnswersByClient, Batch, BatchBuilder, Command, Outcome, Purpose, Value,
};

/// How many keys are written and read.
const KEYS: u64 = 1000;

/// How many commands a lane has in flight.
const IN_FLIGHT: u64 = 64;

/// The answer to a SET.
const OK: &[u8] = b"+OK\r\n";

/// The commands of all client lanes of a deployment, in turn; the session of lane `n` is number `n
/// + 1`.
pub(crate) struct Commands {
    clients: u64,
    next: u64,
    writes: Vec<Bytes>,
    reads: Vec<Bytes>,
}

impl Commands {
    pub(crate) fn new(clients: usize) -> Self {
        let key = |number: u64| Bytes::from(format!("key:{number:012}"));
        let value = Bytes::from_static(b"a 16-byte value!");
        let set = |number| encoded(&[Bytes::from_static(b"SET"), key(number), value.clone()]);
        let get = |number| encoded(&[Bytes::from_static(b"GET"), key(number)]);
        let (writes, reads) = ((0..KEYS).map(set).collect(), (0..KEYS).map(get).collect());
        Commands {
            clients: clients as u64,
            next: 0,
            writes,
            reads,
        }
    }

    /// A SET of a 16-byte value, for the state machine.
    pub(crate) fn payload(&self) -> Bytes {
        self.writes[(self.next % KEYS) as usize].clone()
    }

    /// A SET of a 16-byte value.
    pub(crate) fn write(&mut self) -> Command {
        let (client, number, payload) = (self.client(), self.next / self.clients, self.payload());
        self.next += 1;
        Command {
            client,
            purpose: Purpose::Execute(session_of(client)),
            number,
            floor: number.saturating_sub(IN_FLIGHT),
            payload,
        }
    }

    /// A GET.
    pub(crate) fn read(&mut self) -> Command {
        let (client, number) = (self.client(), self.next / self.clients);
        let payload = self.reads[(self.next % KEYS) as usize].clone();
        self.next += 1;
        Command {
            client,
            purpose: Purpose::Read,
            number,
            floor: 0,
            payload,
        }
    }

    /// One command for each lane, by which its session is opened.
    pub(crate) fn openings(&self) -> Batch {
        let open = |(client, _)| Command {
            client,
            purpose: Purpose::Open,
            number: 0,
            floor: 0,
            payload: Bytes::new(),
        };
        batch(self.sessions().map(open))
    }

    /// The lanes with their sessions.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (ClientId, SessionId)> {
        (0..self.clients)
            .map(|client| ClientId(client as u8))
            .map(|client| (client, session_of(client)))
    }

    /// A batch of writes.
    pub(crate) fn writes(&mut self, count: usize) -> Batch {
        batch((0..count).map(|_| self.write()))
    }

    /// A batch of reads.
    pub(crate) fn reads(&mut self, count: usize) -> Batch {
        batch((0..count).map(|_| self.read()))
    }

    fn client(&self) -> ClientId {
        ClientId((self.next % self.clients) as u8)
    }
}

fn session_of(client: ClientId) -> SessionId {
    SessionId(u64::from(client.0) + 1)
}

fn encoded(words: &[Bytes]) -> Bytes {
    let command = kv::Command::parse(words).expect("a command");
    kv::Compound::Pipeline(vec![command]).encode().into()
}

fn batch(commands: impl Iterator<Item = Command>) -> Batch {
    let mut builder = BatchBuilder::default();
    commands.for_each(|command| builder.push(&command));
    builder.take()
}

/// A value of the log, proposed now.
pub(crate) fn value(now: Instant, batch: Batch) -> Value {
    Value {
        stamp: now.timestamp(),
        batch,
    }
}

/// What a replica answers to writes, before it executes slot `executed`.
pub(crate) fn answers(executed: Slot, commands: impl Iterator<Item = Command>) -> Answers {
    let mut answers = AnswersByClient::default();
    for Command {
        client,
        purpose,
        number,
        ..
    } in commands
    {
        let outcome = Outcome::Done(Bytes::from_static(OK));
        answers.push(&Answer {
            client,
            purpose,
            number,
            outcome,
        });
    }
    answers.take_all(0, executed)
}

/// What a replica answers when it has opened a session.
pub(crate) fn opened(asked: &Command, session: SessionId) -> Answers {
    let mut answers = AnswersByClient::default();
    let (client, number, outcome) = (asked.client, asked.number, Outcome::Opened(session));
    answers.push::<Bytes>(&Answer {
        client,
        purpose: Purpose::Open,
        number,
        outcome,
    });
    answers.take_all(0, Slot(1))
}
