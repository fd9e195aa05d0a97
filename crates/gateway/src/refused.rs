//! Clients that are not served, or no longer: the error that they get, and what becomes of what
//! they still send.

use crate::host::count;
use crate::serve::{Inner, READ_BYTES};
use crate::socket::{self, Input, Refused};
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// At most this many clients at a time get their error; the gateway closes further ones without it.
const REJECTED_AT_ONCE: usize = 128;

/// The time between two lines of the log about refused clients.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);

/// The error of a client that does not speak TLS, which can read it.
const ONLY_TLS: &str = "ERR Protocol error: this port accepts only TLS connections";

/// How long to wait until they have read the error.
const REJECTION: Duration = Duration::from_secs(2);

impl Inner {
    /// Counts and logs a client whose connection does not begin.
    pub(crate) fn refuse(self: Rc<Self>, from: &str, refused: Refused) {
        let stats = &self.host.stats;
        match refused {
            Refused::Silent => {}
            Refused::Handshake(error) => {
                count(&stats.handshakes_failed, 1);
                self.log_refused(from, &error);
            }
            Refused::Plain(stream) => {
                count(&stats.protocol_errors, 1);
                self.log_refused(from, &"the client does not speak TLS, which is required");
                self.dismiss(stream, ONLY_TLS);
            }
        }
    }

    /// At most one line a second: connections in a loop must not fill the disk.
    fn log_refused(&self, from: &str, why: &dyn Display) {
        let now = Instant::now();
        let is_quiet = |last: Instant| now.saturating_duration_since(last) >= REFUSALS_EVERY;
        if self.last_refusal.get().is_none_or(is_quiet) {
            self.last_refusal.set(Some(now));
            tracing::warn!(id = "E0903", "a client at {from} is refused: {why}");
        }
    }

    /// Refuses one more client.
    pub(crate) fn reject(self: Rc<Self>, stream: TcpStream, why: &str) {
        count(&self.host.stats.connections_rejected, 1);
        self.dismiss(stream, why);
    }

    /// Sends a client an error, and closes the connection when it can have read that.
    fn dismiss(self: Rc<Self>, stream: TcpStream, why: &str) {
        if self.rejecting.get() >= REJECTED_AT_ONCE {
            return;
        }
        self.rejecting.set(self.rejecting.get() + 1);
        let error = format!("-{why}\r\n");
        tokio::task::spawn_local(async move {
            // Non-blocking, and a new socket's buffer has room.
            let _ = stream.try_write(error.as_bytes());
            let (mut input, mut output) = socket::plain(stream);
            let _ = poll_fn(|context| output.poll_shutdown(context)).await;
            let _ = tokio::time::timeout(REJECTION, self.discard(&mut input, READ_BYTES)).await;
            self.rejecting.set(self.rejecting.get() - 1);
        });
    }

    /// Reads until the client closes the connection, or has sent a limited number of bytes.
    pub(crate) async fn discard(&self, input: &mut Input, most: usize) -> io::Result<()> {
        let mut left = most;
        while left > 0 {
            let mut some = [0; 4096];
            match input.drop_some(&mut some).await? {
                0 => return Ok(()),
                read => left = left.saturating_sub(read),
            }
            // Other tasks get their turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
