//! Those who ask: connections that wait for the replies to what they sent, and then send more. They
//! are made to cost little, for they share the processors with what is measured.

use anyhow::{Result, bail};
use ionian_kernel::random::Random;
use ionian_redis_client::Reply;
use ionian_redis_client::asynchronous::Connection;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Which key a command is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// Any of this number.
    AtRandom(u64),
    /// One after the other, never one twice.
    InTurn,
}

/// What all connections share.
pub(crate) struct Load {
    keys: Keys,
    /// Of a hundred commands.
    reads: u8,
    value: Vec<u8>,
    begun: Cell<u64>,
    /// Commands that may still be begun.
    left: Cell<u64>,
    acknowledged: Cell<u64>,
    refused: Cell<u64>,
    /// In microseconds, of each command since the last look; none are kept if there are no looks.
    latencies: RefCell<Option<Vec<u32>>>,
}

/// What was done in some time.
pub(crate) struct Window {
    pub(crate) acknowledged: u64,
    /// In microseconds, of each command.
    pub(crate) latencies: Vec<u32>,
}

impl Load {
    /// `commands` in all.
    pub(crate) fn new(keys: Keys, reads: u8, value_bytes: u32, commands: u64) -> Rc<Self> {
        Rc::new(Load {
            keys,
            reads,
            value: vec![b'v'; value_bytes as usize],
            begun: Cell::new(0),
            left: Cell::new(commands),
            acknowledged: Cell::new(0),
            refused: Cell::new(0),
            latencies: RefCell::new(None),
        })
    }

    /// Begins: `connections` spread over the gateways, each of which sends `pipeline` commands at
    /// once.
    pub(crate) async fn spread(
        self: &Rc<Self>,
        gateways: &[SocketAddr],
        connections: u16,
        pipeline: u64,
    ) -> Result<JoinSet<Result<()>>> {
        let mut opened = Vec::new();
        for gateway in gateways.iter().cycle().take(connections.into()) {
            opened.push(Connection::open(*gateway).await?);
        }
        let mut all = JoinSet::new();
        for (number, connection) in opened.into_iter().enumerate() {
            all.spawn_local(self.clone().work(
                connection,
                pipeline,
                Random::new(number as u64 + 1),
            ));
        }
        Ok(all)
    }

    async fn work(
        self: Rc<Self>,
        mut connection: Connection,
        pipeline: u64,
        mut random: Random,
    ) -> Result<()> {
        let mut key = String::new();
        loop {
            let count = pipeline.min(self.left.get());
            if count == 0 {
                return Ok(());
            }
            self.left.set(self.left.get() - count);
            for _ in 0..count {
                self.push(&mut connection, &mut key, &mut random);
            }
            let sent = Instant::now();
            connection.flush().await?;
            for _ in 0..count {
                self.take(&connection.reply().await?)?;
            }
            if let Some(latencies) = &mut *self.latencies.borrow_mut() {
                let us = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
                latencies.extend((0..count).map(|_| us));
            }
        }
    }

    fn push(&self, connection: &mut Connection, key: &mut String, random: &mut Random) {
        let number = match self.keys {
            Keys::AtRandom(keys) => random.below(keys),
            Keys::InTurn => self.begun.get(),
        };
        self.begun.set(self.begun.get() + 1);
        key.clear();
        // Into memory: cannot fail.
        let _ = write!(key, "key:{number:012}");
        match random.below(100) < self.reads.into() {
            true => connection.push(&[b"GET", key.as_bytes()]),
            false => connection.push(&[b"SET", key.as_bytes(), &self.value]),
        }
    }

    fn take(&self, reply: &Reply) -> Result<()> {
        let counter = match reply {
            Reply::SimpleString(_) | Reply::BulkString(_) | Reply::Null => &self.acknowledged,
            Reply::Error(text) if text.starts_with("TRYAGAIN") || text.starts_with("BUSY") => {
                &self.refused
            }
            other => bail!("no reply to SET or GET: {other:?}"),
        };
        counter.set(counter.get() + 1);
        Ok(())
    }

    /// Nothing more is begun.
    pub(crate) fn stop(&self) {
        self.left.set(0);
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.get()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// What is done while `during` passes.
    pub(crate) async fn window(&self, during: Duration) -> Window {
        let before = self.acknowledged.get();
        *self.latencies.borrow_mut() = Some(Vec::new());
        tokio::time::sleep(during).await;
        let latencies = self.latencies.borrow_mut().take().unwrap_or_default();
        Window {
            acknowledged: self.acknowledged.get() - before,
            latencies,
        }
    }
}

/// Waits until all of them have ended.
///
/// # Errors
/// When a connection broke or a reply made no sense.
pub(crate) async fn ended(mut all: JoinSet<Result<()>>) -> Result<()> {
    while let Some(one) = all.join_next().await {
        one??;
    }
    Ok(())
}
