//! One connection of the generator: the commands of one unit on their way, and the replies to them.

use super::ledger::Ledger;
use super::scan::{Reply, Scanner};
use anyhow::{Context, Result, bail, ensure};
use ionian_tls::rustls::{ClientConnection, StreamOwned};
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

/// A connection that was made, with the session of TLS if it has one.
pub(crate) type Opened = (std::net::TcpStream, Option<ClientConnection>);

/// A socket that never waits.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &mut stream.sock,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    /// Writes records that the system has not taken; there are none without TLS.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(stream) => stream.flush(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }

    /// Whether nothing more has come, if a read has brought less than there was room for. With TLS
    /// it brings a record at most.
    fn tells_the_end(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }
}

/// See the top of this file.
pub(crate) struct Connection {
    address: SocketAddr,
    pub(crate) stream: Stream,
    scanner: Scanner,
    /// What is to be sent, and how much of it has been.
    output: Vec<u8>,
    sent: usize,
    /// Commands without a reply.
    outstanding: u64,
    /// When they began, by the rules of the ledger.
    begun: u64,
}

/// What has come in one go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) answered: u64,
    pub(crate) errors: u64,
}

impl Connection {
    pub(crate) fn new((stream, session): Opened) -> Result<Self> {
        let address = stream.peer_addr()?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        let stream = match session {
            None => Stream::Plain(stream),
            Some(session) => Stream::Tls(Box::new(StreamOwned::new(session, stream))),
        };
        Ok(Connection {
            address,
            stream,
            scanner: Scanner::default(),
            output: Vec::new(),
            sent: 0,
            outstanding: 0,
            begun: 0,
        })
    }

    /// Commands without a reply, and when they began.
    pub(crate) fn open(&self) -> (u64, u64) {
        (self.outstanding, self.begun)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Sends the commands that `fill` writes and counts, which begin at `begun`.
    pub(crate) fn begin(
        &mut self,
        begun: u64,
        fill: impl FnOnce(&mut Vec<u8>) -> u64,
    ) -> Result<()> {
        debug_assert!(
            self.is_idle() && self.sent == self.output.len(),
            "one unit at a time"
        );
        self.output.clear();
        self.sent = 0;
        self.begun = begun;
        self.outstanding = fill(&mut self.output);
        self.write()
    }

    /// Sends what is to be sent, as far as the system takes it.
    pub(crate) fn write(&mut self) -> Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| self.broke()),
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                Err(error).with_context(|| self.broke())
            }
            _ => Ok(()),
        }
    }

    /// Takes all that has come. `now` is asked once for each read.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        now: impl Fn() -> u64,
        ledger: &mut Ledger,
    ) -> Result<Came> {
        let mut came = Came::default();
        loop {
            let length = match self.stream.read(buffer) {
                Ok(0) => bail!(
                    "redis://{} closed the connection in the middle of the run",
                    self.address
                ),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).with_context(|| self.broke()),
            };
            let some = self.take(&buffer[..length], now(), ledger)?;
            came = Came {
                answered: came.answered + some.answered,
                errors: came.errors + some.errors,
            };
            // Nothing more was there; if more has come meanwhile, the event queue tells.
            if length < buffer.len() && self.stream.tells_the_end() {
                break;
            }
        }
        Ok(came)
    }

    fn take(&mut self, bytes: &[u8], now: u64, ledger: &mut Ledger) -> Result<Came> {
        let (mut came, mut nothing) = (Came::default(), 0);
        let taken = self.scanner.take(bytes, |reply| match reply {
            Reply::Something => came.answered += 1,
            Reply::Nothing => {
                came.answered += 1;
                nothing += 1;
            }
            Reply::Error(word) => {
                came.errors += 1;
                ledger.error(now, word);
            }
        });
        if let Err(garbage) = taken {
            bail!(
                "redis://{} does not speak the Redis protocol: {:?} is no reply",
                self.address,
                garbage.0
            );
        }
        let replies = came.answered + came.errors;
        ensure!(
            replies <= self.outstanding,
            "redis://{} sends more replies than it got commands",
            self.address
        );
        self.outstanding -= replies;
        if came.answered > 0 {
            ledger.answered(self.begun, now, came.answered, nothing);
        }
        Ok(came)
    }

    fn broke(&self) -> String {
        format!(
            "the connection to redis://{} broke in the middle of the run",
            self.address
        )
    }
}
