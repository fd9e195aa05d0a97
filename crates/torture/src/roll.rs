//! Clients for the time in which all nodes are stopped in order, one after the other: no command
//! may stay without a reply, and none may be executed twice.
//!
//! Each counts a key of its own up and never sends a command twice. Before it sends it looks
//! whether its connection has been closed, as client libraries do when they take one from their
//! pool. They are threads, so that no other work of this program comes between a look and what is
//! sent.

use crate::client::refusal;
use crate::gateway::Gateway;
use crate::keys::Ended;
use anyhow::{Result, bail, ensure};
use ionian_redis_client::{Connection, Error, Limits, Reply};
use std::io::ErrorKind;
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

const LIMITS: Limits = Limits {
    connect: PATIENCE,
    reply: PATIENCE,
    reply_bytes: 64 << 10,
};

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
    pub(crate) fn start(roll: u64, gateways: &[Gateway]) -> Self {
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
    gateways: Vec<Gateway>,
    turn: usize,
    connection: Option<Connection>,
    /// When it last sent something on this connection.
    sent: Instant,
    /// What the present key holds.
    reached: i64,
    told: Told,
}

impl Counter {
    fn new(name: String, gateways: &[Gateway], turn: usize) -> Self {
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
        let open = self.connection.take().filter(Connection::is_open);
        let (mut connection, is_new) = match open {
            Some(connection) => (connection, false),
            None => (self.connect()?, true),
        };
        let key = format!("{}-{}", self.name, self.keys);
        let silence = self.sent.elapsed();
        self.sent = Instant::now();
        let error = match connection.call(&[b"INCR", key.as_bytes()]) {
            Ok(reply) => {
                self.take(&key, &reply)?;
                self.connection = Some(connection);
                return Ok(());
            }
            Err(error) => error,
        };
        // A connection that is made while the gateway stops listening is reset by the system,
        // unread.
        let is_refused = is_new && is_reset(&error);
        ensure!(
            is_refused || (silence > BUSY_WITHIN && !matches!(error, Error::TimedOut(_))),
            "{key}: no reply from {} {:?} after it was sent, {silence:?} after the command before: {error}",
            self.gateways[self.turn % self.gateways.len()],
            self.sent.elapsed()
        );
        self.told.idle += 1;
        self.other_key();
        Ok(())
    }

    fn take(&mut self, key: &str, reply: &Reply) -> Result<()> {
        let refusal = match reply {
            Reply::Error(text) => refusal(text).ok(),
            _ => None,
        };
        match (reply, refusal) {
            (Reply::Integer(number), _) if *number == self.reached + 1 => {
                self.reached += 1;
                self.told.replies += 1;
            }
            (_, Some(Ended::Refused)) => std::thread::sleep(PAUSE),
            (_, Some(Ended::Unknown)) => {
                self.told.open += 1;
                self.other_key();
            }
            _ => bail!(
                "{key}: the reply after {} acknowledged increments is {reply:?}",
                self.reached
            ),
        }
        Ok(())
    }

    fn other_key(&mut self) {
        self.keys += 1;
        self.reached = 0;
    }

    /// To the next gateway that takes clients.
    fn connect(&mut self) -> Result<Connection> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.turn += 1;
            let gateway = &self.gateways[self.turn % self.gateways.len()];
            if let Ok(connection) = gateway.open_blocking(LIMITS) {
                self.sent = Instant::now();
                return Ok(connection);
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

fn is_reset(error: &Error) -> bool {
    let kind = match error {
        Error::Broken(error) => Some(error.kind()),
        _ => None,
    };
    matches!(
        kind,
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn told(replies: &[Reply]) -> Result<Told> {
        let mut counter = Counter::new("k".to_owned(), &[], 0);
        replies
            .iter()
            .try_for_each(|reply| counter.take("k", reply))?;
        Ok(counter.told)
    }

    #[test]
    fn a_reply_that_skips_or_repeats_a_number_is_found() {
        let error = |text: &str| Reply::Error(text.to_owned());
        let busy = error("BUSY too much in flight, the command was not executed");
        let open =
            error("TRYAGAIN no answer in time, the command may or may not have been executed");
        let [one, two, three] = [1, 2, 3].map(Reply::Integer);
        assert_eq!(
            told(&[one.clone(), two, busy, three.clone(), open, one.clone()]).unwrap(),
            Told {
                replies: 4,
                idle: 0,
                open: 1
            }
        );
        assert!(
            told(&[one.clone(), three])
                .unwrap_err()
                .to_string()
                .contains("after 1 acknowledged")
        );
        assert!(told(&[one.clone(), one]).is_err());
        assert!(told(&[error("ERR closed")]).is_err());
    }

    /// A gateway that takes a command and leaves without a word.
    #[test]
    fn a_reply_that_does_not_come_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gateway = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0; 23]).unwrap();
        });
        let mut counter = Counter::new("k".to_owned(), &[address.into()], 0);
        let error = counter.count().unwrap_err().to_string();
        assert!(error.starts_with("k-0: no reply from"), "{error}");
        gateway.join().unwrap();
    }
}
