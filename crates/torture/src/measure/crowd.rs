//! Clients that are a burden, on a thread of their own, so that those that are measured do not wait
//! behind them.

use super::arguments::Burden;
use crate::settle::ANSWER_LIMIT;
use anyhow::{Context, Result};
use ionian_redis_client::Reply;
use ionian_redis_client::asynchronous::Connection;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// The value that is asked for, and how long it is.
pub(crate) const ASKED: (&[u8], usize) = (b"asked", 1 << 20);

/// How long a pipelined value is, and how many of them are sent at once.
const PIPELINED: (usize, u64) = (1 << 10, 64);

/// How many keys each of these clients sets.
const KEYS: u64 = 100;

/// After a connection was closed, or when nothing more is to be said on it.
const PAUSE: Duration = Duration::from_millis(100);

/// What they have done so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Bytes that connections have taken whole commands of.
    pub(crate) sent: AtomicU64,
    pub(crate) large_tried: AtomicU64,
    pub(crate) large_written: AtomicU64,
    /// Connections that were closed on the other side, or not made.
    pub(crate) broken: AtomicU64,
}

/// All of them at work.
pub(crate) struct Crowd {
    pub(crate) counts: Arc<Counts>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl Crowd {
    /// They begin.
    pub(crate) fn gather(arguments: &Burden, gateways: &[SocketAddr]) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = oneshot::channel();
        let (arguments, gateways, of_thread) =
            (arguments.clone(), gateways.to_vec(), counts.clone());
        let thread = std::thread::Builder::new()
            .name("crowd".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let work = async {
                    let mut all = spawn_all(&arguments, &gateways, &of_thread);
                    tokio::select! {
                        _ = stopped => Ok(()),
                        Some(one) = all.join_next() => one.context("a client failed"),
                    }
                };
                runtime.block_on(LocalSet::new().run_until(work))
            })?;
        Ok(Crowd {
            counts,
            stop,
            thread,
        })
    }

    /// They leave in the middle of what they do.
    pub(crate) fn leave(self) -> Result<Arc<Counts>> {
        // Who ended by himself says why.
        let _ = self.stop.send(());
        self.thread.join().expect("a thread that does not panic")?;
        Ok(self.counts)
    }
}

/// Starts all of them, spread over the gateways. None ends.
fn spawn_all(arguments: &Burden, gateways: &[SocketAddr], counts: &Arc<Counts>) -> JoinSet<()> {
    let mut all = JoinSet::new();
    let mut gateways = gateways.iter().copied().cycle();
    let mut next = || (gateways.next().expect("there are gateways"), counts.clone());
    // A little less, so that the command with its other words is no longer.
    let value = Rc::new(vec![b'l'; arguments.large_bytes as usize - 128]);
    for number in 0..arguments.large {
        let (gateway, counts) = next();
        all.spawn_local(write_large(gateway, counts, number, value.clone()));
    }
    for number in 0..arguments.deaf {
        let (gateway, counts) = next();
        all.spawn_local(pipeline(gateway, counts, number));
    }
    for _ in 0..arguments.askers {
        let (gateway, counts) = next();
        all.spawn_local(ask(gateway, counts));
    }
    all
}

/// A connection, as soon as one can be had.
async fn connect(gateway: SocketAddr, counts: &Counts) -> Connection {
    loop {
        match Connection::open(gateway).await {
            Ok(connection) => return connection,
            Err(_) => counts.broken.fetch_add(1, Relaxed),
        };
        sleep(PAUSE).await;
    }
}

async fn write_large(gateway: SocketAddr, counts: Arc<Counts>, number: u16, value: Rc<Vec<u8>>) {
    let key = format!("large:{number}");
    loop {
        let mut connection = connect(gateway, &counts).await;
        loop {
            counts.large_tried.fetch_add(1, Relaxed);
            match timeout(
                ANSWER_LIMIT,
                connection.call(&[b"SET", key.as_bytes(), &value]),
            )
            .await
            {
                Ok(Ok(reply)) => {
                    counts.sent.fetch_add(value.len() as u64, Relaxed);
                    let written = matches!(reply, Reply::SimpleString(_));
                    counts.large_written.fetch_add(written.into(), Relaxed);
                }
                Ok(Err(_)) | Err(_) => break,
            }
        }
        counts.broken.fetch_add(1, Relaxed);
        sleep(PAUSE).await;
    }
}

async fn pipeline(gateway: SocketAddr, counts: Arc<Counts>, number: u16) {
    let (length, commands) = PIPELINED;
    let value = vec![b'p'; length];
    loop {
        let mut connection = connect(gateway, &counts).await;
        for key in (0..).step_by(commands as usize) {
            for place in key..key + commands {
                connection.push(&[
                    b"SET",
                    format!("deaf:{number}:{}", place % KEYS).as_bytes(),
                    &value,
                ]);
            }
            // A connection that takes nothing more stays as it is.
            if connection.flush().await.is_err() {
                break;
            }
            counts.sent.fetch_add(commands * length as u64, Relaxed);
        }
        counts.broken.fetch_add(1, Relaxed);
        sleep(PAUSE).await;
    }
}

async fn ask(gateway: SocketAddr, counts: Arc<Counts>) {
    let mut connection = connect(gateway, &counts).await;
    connection.push(&[b"GET", ASKED.0]);
    connection.push(&[b"GET", ASKED.0]);
    if connection.flush().await.is_err() {
        counts.broken.fetch_add(1, Relaxed);
    }
    // It keeps the connection, and reads nothing.
    std::future::pending().await
}
