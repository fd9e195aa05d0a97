//! One connection to one node. Any number of threads send; one thread reads the answers.

use super::ConnectError;
use crate::wire::frame::{self, GREETING, Outcome, Sort};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a node may take to accept a connection, to greet, or to take the bytes of a request.
const LIMIT: Duration = Duration::from_secs(1);

type Sender = SyncSender<(Outcome, Vec<u8>)>;

pub(super) struct Connection {
    stream: TcpStream,
    state: Mutex<State>,
    /// Held while a request is written.
    output: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// What waits for answers, by their ids. None when the connection is broken.
    waiting: Option<HashMap<u64, Sender>>,
    next: u64,
}

/// What came of waiting for an answer.
pub(super) enum Waited {
    Answer(Outcome, Vec<u8>),
    /// The connection is broken.
    Broken,
    /// There is no answer in time.
    TooLong,
}

impl Connection {
    /// Connects to a node; also returns how many bytes a payload may have.
    pub(super) fn open(node: &str) -> Result<(Arc<Connection>, usize), ConnectError> {
        let broken = |error: io::Error| ConnectError::Unreachable(format!("{node}: {error}"));
        let (stream, payload_bytes) = match greet(node).map_err(broken)? {
            Greeted::Mount(stream, payload_bytes) => (stream, payload_bytes),
            Greeted::Foreign => return Err(ConnectError::Foreign(node.to_owned())),
        };
        let input = stream.try_clone().map_err(broken)?;
        let state = State {
            waiting: Some(HashMap::new()),
            next: 0,
        };
        let connection = Arc::new(Connection {
            stream,
            state: Mutex::new(state),
            output: Mutex::new(()),
        });
        let reader = connection.clone();
        let started = std::thread::Builder::new()
            .name("netfs-answers".into())
            .spawn(move || {
                // Whatever the error is: who waits learns that the connection is broken.
                let _ = reader.read_answers(input);
                reader.close();
            });
        started.map_err(broken)?;
        Ok((connection, payload_bytes))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    pub(super) fn works(&self) -> bool {
        self.state().waiting.is_some()
    }

    /// Closes the connection. All who wait learn that it is broken.
    pub(super) fn close(&self) {
        self.state().waiting = None;
        // Fails if it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends a request, and waits for its answer.
    pub(super) fn call(&self, sort: Sort, payload: &[u8], deadline: Instant) -> Waited {
        let (sender, receiver) = mpsc::sync_channel(1);
        let id = {
            let mut state = self.state();
            let id = state.next;
            state.next += 1;
            let Some(waiting) = &mut state.waiting else {
                return Waited::Broken;
            };
            waiting.insert(id, sender);
            id
        };
        let mut bytes = Vec::with_capacity(payload.len() + 13);
        frame::push_request(id, sort, payload, &mut bytes);
        let written = {
            let _output = self.output.lock().expect("no holder of this lock panics");
            (&self.stream).write_all(&bytes)
        };
        if written.is_err() {
            self.close();
            return Waited::Broken;
        }
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((outcome, bytes)) => Waited::Answer(outcome, bytes),
            Err(RecvTimeoutError::Disconnected) => Waited::Broken,
            Err(RecvTimeoutError::Timeout) => Waited::TooLong,
        }
    }

    fn read_answers(&self, stream: TcpStream) -> io::Result<()> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut input = io::BufReader::with_capacity(64 << 10, stream);
        loop {
            let mut length = [0; 4];
            input.read_exact(&mut length)?;
            let length = frame::check_length(u32::from_le_bytes(length)).map_err(wrong)?;
            let mut frame = vec![0; length];
            input.read_exact(&mut frame)?;
            let (id, outcome, payload) = frame::answer(&frame).map_err(wrong)?;
            let mut state = self.state();
            let waiting = state
                .waiting
                .as_mut()
                .and_then(|waiting| waiting.remove(&id));
            drop(state);
            if let Some(sender) = waiting {
                // There is room for the one answer. It fails if nothing waits for it any more.
                let _ = sender.try_send((outcome, payload.to_vec()));
            }
        }
    }
}

enum Greeted {
    Mount(TcpStream, usize),
    /// The peer speaks another protocol, or another version.
    Foreign,
}

/// Connects to a node and greets it.
fn greet(node: &str) -> io::Result<Greeted> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let address = node.to_socket_addrs()?.next().ok_or_else(none)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_read_timeout(Some(LIMIT))?;
    // A gateway for Redis answers a line, so it gets one. Nodes of netfs expect no line.
    stream.write_all(GREETING)?;
    let mut greeting = [0; GREETING.len()];
    if let Err(error) = stream.read_exact(&mut greeting[..1]) {
        let is_silent = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        );
        // The gateway waits for the end of the line.
        if is_silent
            && stream.write_all(b"\r\n").is_ok()
            && stream.read_exact(&mut greeting[..1]).is_ok()
        {
            return Ok(Greeted::Foreign);
        }
        return Err(error);
    }
    if greeting[0] == GREETING[0] {
        stream.read_exact(&mut greeting[1..])?;
    }
    if greeting != *GREETING {
        return Ok(Greeted::Foreign);
    }
    let mut payload_bytes = [0; 4];
    stream.read_exact(&mut payload_bytes)?;
    stream.set_read_timeout(None)?;
    let payload_bytes = u32::from_le_bytes(payload_bytes) as usize;
    Ok(Greeted::Mount(
        stream,
        payload_bytes.min(frame::MAX_PAYLOAD),
    ))
}
