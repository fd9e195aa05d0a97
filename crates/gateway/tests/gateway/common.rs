//! A cluster of one state machine, and clients whose connections have no sockets.

use bytes::Bytes;
use ionian_gateway::{Connection, Host, InfoWriter, Limits};
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::Kv;
use std::rc::Rc;

/// Executes compounds as replicas would.
#[derive(Default)]
pub(crate) struct Cluster {
    machine: Kv,
    now: u64,
}

impl Cluster {
    pub(crate) fn execute(
        &mut self,
        operation: Operation,
        payload: &[u8],
    ) -> Result<Bytes, Refusal> {
        self.now += 1;
        let mut reply = Vec::new();
        match operation {
            Operation::Write => self.machine.apply(Timestamp(self.now), payload, &mut reply),
            Operation::Change => unreachable!("the gateway changes no membership"),
            Operation::Read(_) => self
                .machine
                .read(Timestamp(self.now), payload, &mut reply)
                .map_err(|_| Refusal::NotARead)?,
        }
        Ok(reply.into())
    }
}

pub(crate) fn host(limits: Limits) -> Rc<Host> {
    Host::new(
        limits,
        Box::new(|info: &mut InfoWriter| {
            info.section("Replication")
                .field("role", "master")
                .field("protocol", "multipaxos");
        }),
    )
}

/// A client that holds all of its input back until the connection wants it.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    unsent: Vec<u8>,
    /// What has been sent to the cluster and not been answered.
    pub(crate) request: Option<(Operation, Bytes)>,
    /// Every compound so far: how it was sent.
    pub(crate) operations: Vec<Operation>,
}

impl Client {
    pub(crate) fn new(host: &Rc<Host>) -> Client {
        Client {
            connection: Connection::new(host, "1.2.3.4:5".into(), "6.7.8.9:10".into()),
            unsent: Vec::new(),
            request: None,
            operations: Vec::new(),
        }
    }

    /// Sends bytes, in pieces of at most `piece`, as far as they are wanted.
    pub(crate) fn send_pieces(&mut self, bytes: &[u8], piece: usize) {
        self.unsent.extend_from_slice(bytes);
        self.push(piece);
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.send_pieces(bytes.as_ref(), 64 << 10);
    }

    fn push(&mut self, piece: usize) {
        loop {
            if let Some(request) = self.connection.take_request() {
                assert!(self.request.is_none(), "at most one compound is in flight");
                self.operations.push(request.0);
                self.request = Some(request);
            }
            assert_eq!(self.request.is_some(), self.connection.is_in_flight());
            if self.unsent.is_empty() || !self.connection.wants_input() {
                return;
            }
            let len = self.unsent.len().min(piece);
            let input = Bytes::copy_from_slice(&self.unsent[..len]);
            self.unsent.drain(..len);
            self.connection.receive(input);
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Answers the request in flight with `outcome`.
    pub(crate) fn answer(&mut self, outcome: Result<Bytes, Refusal>) {
        assert!(
            self.request.take().is_some(),
            "there is a request to be answered"
        );
        self.connection.on_reply(None, outcome);
        self.connection.advance();
        self.push(64 << 10);
    }

    /// Lets the cluster execute the request in flight; false if there is none.
    pub(crate) fn step(&mut self, cluster: &mut Cluster) -> bool {
        let Some((operation, payload)) = self.request.clone() else {
            return false;
        };
        self.answer(cluster.execute(operation, &payload));
        true
    }

    /// What the client has got since it last looked.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let output = self.connection.output().to_vec();
        self.connection.on_sent(output.len());
        self.connection.advance();
        self.push(64 << 10);
        output
    }

    /// Runs until nothing is in flight; all that came of it.
    pub(crate) fn finish(&mut self, cluster: &mut Cluster) -> Vec<u8> {
        let mut output = Vec::new();
        loop {
            while self.step(cluster) {}
            let more = self.take();
            if more.is_empty() && self.request.is_none() {
                return output;
            }
            output.extend(more);
        }
    }

    /// Sends an inline pipeline and gives all replies as text.
    pub(crate) fn ask(&mut self, cluster: &mut Cluster, lines: &str) -> String {
        self.send(lines.replace('\n', "\r\n") + "\r\n");
        text(&self.finish(cluster))
    }
}

/// Replies as text, a line for each line.
pub(crate) fn text(replies: &[u8]) -> String {
    String::from_utf8_lossy(replies).replace("\r\n", "\n")
}

/// A client on a host of its own.
pub(crate) fn client() -> Client {
    Client::new(&host(Limits::default()))
}

/// The request of these words.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub(crate) const WRITE: Operation = Operation::Write;
pub(crate) const READ: Operation = Operation::Read(ReadLevel::Linearizable);
