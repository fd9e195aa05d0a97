//! Clients for the time in which all nodes are stopped in order, one after the other: no command
//! may stay without a reply, and none may be executed twice.
//!
//! Each counts a key of its own up and never sends a command twice. Before it sends it looks
//! whether its connection has been closed, as client libraries do when they take one from their
//! pool. They are threads, so that no other work of this program comes between a look and what is
//! sent.

use anyhow::{Result, bail, ensure};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How many there are.
const CLIENTS: usize = 6;

/// A gateway that drains closes a connection on which nothing came for a quarter of a second
/// (docs/operations.md): a command that follows an earlier one within this time must be answered.
const BUSY_WITHIN: Duration = Duration::from_millis(200);

/// How long a reply, or a gateway that takes a client, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait before the next gateway is tried, or the same after a refusal.
const PAUSE: Duration = Duration::from_millis(20);

/// What clients were told during a roll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Commands that were answered, each exactly once.
    pub(crate) replies: u64,
    /// Connections that were closed after too long a silence.
    pub(crate) idle: u64,
    /// Commands of which the cluster said that it does not know.
    pub(crate) open: u64,
}

/// The clients of one roll.
pub(crate) struct Clients {
    over: Arc<AtomicBool>,
    running: JoinSet<Result<Told>>,
}

impl Clients {
    /// Starts them. `roll` is the number of the roll: each has keys of its own.
    pub(crate) fn start(roll: u64, gateways: &[SocketAddr]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for number in 0..CLIENTS {
            let mut client = Counter::new(format!("roll-{roll}-{number}"), gateways, number);
            let over = over.clone();
            running.spawn_blocking(move || {
                while !over.load(Ordering::Relaxed) {
                    client.count()?;
                }
                Ok(client.told)
            });
        }
        Clients { over, running }
    }

    /// Ends them, and returns what they were told.
    ///
    /// # Errors
    /// When one was told what it must not be, or nothing.
    pub(crate) async fn end(mut self) -> Result<Told> {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Told::default();
        while let Some(told) = self.running.join_next().await {
            let told = told??;
            all.replies += told.replies;
            all.idle += told.idle;
            all.open += told.open;
        }
        Ok(all)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

struct Counter {
    name: String,
    /// Goes up when it is not known what the present key holds.
    keys: u64,
    gateways: Vec<SocketAddr>,
    turn: usize,
    connection: Option<BufReader<TcpStream>>,
    /// When it last sent something on this connection.
    sent: Instant,
    /// What the present key holds.
    reached: u64,
    told: Told,
}

impl Counter {
    fn new(name: String, gateways: &[SocketAddr], turn: usize) -> Self {
        let (gateways, sent) = (gateways.to_vec(), Instant::now());
        Counter {
            name,
            keys: 0,
            gateways,
            turn,
            connection: None,
            sent,
            reached: 0,
            told: Told::default(),
        }
    }

    /// One more.
    fn count(&mut self) -> Result<()> {
        let (mut connection, is_new) = match self.connection.take().filter(is_open) {
            Some(connection) => (connection, false),
            None => (self.connect()?, true),
        };
        let key = format!("{}-{}", self.name, self.keys);
        let silence = self.sent.elapsed();
        self.sent = Instant::now();
        let command = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len());
        let sent = connection.get_mut().write_all(command.as_bytes());
        let mut reply = String::new();
        let read = sent.and_then(|()| connection.read_line(&mut reply));
        if reply.ends_with("\r\n") {
            self.take(&key, reply.trim_end())?;
            self.connection = Some(connection);
            return Ok(());
        }
        let gateway = connection.get_ref().peer_addr();
        let failed = |is: fn(ErrorKind) -> bool| matches!(&read, Err(error) if is(error.kind()));
        // A connection that is made while the gateway stops listening is reset by the system,
        // unread.
        let is_refused = is_new && failed(is_reset);
        ensure!(
            is_refused || (silence > BUSY_WITHIN && !failed(is_late)),
            "{key}: no reply from {gateway:?} {:?} after it was sent, {silence:?} after the command before: {read:?}",
            self.sent.elapsed()
        );
        self.told.idle += 1;
        self.other_key();
        Ok(())
    }

    fn take(&mut self, key: &str, reply: &str) -> Result<()> {
        if reply == format!(":{}", self.reached + 1) {
            self.reached += 1;
            self.told.replies += 1;
        } else if reply.starts_with("-BUSY ")
            || reply.starts_with("-TRYAGAIN ") && reply.ends_with("was not executed")
        {
            std::thread::sleep(PAUSE);
        } else if reply.starts_with("-TRYAGAIN ")
            && reply.ends_with("may or may not have been executed")
        {
            self.told.open += 1;
            self.other_key();
        } else {
            bail!(
                "{key}: the reply after {} acknowledged increments is {reply:?}",
                self.reached
            );
        }
        Ok(())
    }

    fn other_key(&mut self) {
        self.keys += 1;
        self.reached = 0;
    }

    /// To the next gateway that takes clients.
    fn connect(&mut self) -> Result<BufReader<TcpStream>> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.turn += 1;
            if let Ok(stream) = TcpStream::connect(self.gateways[self.turn % self.gateways.len()]) {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                self.sent = Instant::now();
                return Ok(BufReader::new(stream));
            }
            std::thread::sleep(PAUSE);
        }
        bail!(
            "{}: no gateway takes clients for {} s while one node is stopped",
            self.name,
            PATIENCE.as_secs()
        )
    }
}

fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn is_reset(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Whether the other side has not closed the connection.
fn is_open(connection: &BufReader<TcpStream>) -> bool {
    let stream = connection.get_ref();
    let peek = || {
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        peeked
    };
    matches!(peek(), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(replies: &[&str]) -> Result<Told> {
        let mut counter = Counter::new("k".to_owned(), &[], 0);
        replies
            .iter()
            .try_for_each(|reply| counter.take("k", reply))?;
        Ok(counter.told)
    }

    #[test]
    fn a_reply_that_skips_or_repeats_a_number_is_found() {
        let busy = "-BUSY too much in flight, the command was not executed";
        let open = "-TRYAGAIN no answer in time, the command may or may not have been executed";
        assert_eq!(
            told(&[":1", ":2", busy, ":3", open, ":1"]).unwrap(),
            Told {
                replies: 4,
                idle: 0,
                open: 1
            }
        );
        assert!(
            told(&[":1", ":3"])
                .unwrap_err()
                .to_string()
                .contains("after 1 acknowledged")
        );
        assert!(told(&[":1", ":1"]).is_err());
        assert!(told(&["-ERR closed"]).is_err());
    }

    /// A gateway that takes a command and leaves without a word.
    #[test]
    fn a_reply_that_does_not_come_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gateway = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            stream.read_line(&mut String::new()).unwrap();
        });
        let mut counter = Counter::new("k".to_owned(), &[address], 0);
        let error = counter.count().unwrap_err().to_string();
        assert!(error.starts_with("k-0: no reply from"), "{error}");
        gateway.join().unwrap();
    }
}
