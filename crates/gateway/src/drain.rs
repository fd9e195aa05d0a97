//! A gateway that does without clients: none is taken in, and each leaves as soon as it has what it
//! waits for.
//!
//! A client that asks one thing after the other must not have a command under way when its
//! connection is closed: it could not know what became of it. So the connection ends together with
//! a reply: the same segment brings the end of the reply and the end of the connection, and a
//! client that has read the one can see the other before it sends again. Who says nothing for
//! [`QUIET`] is idle, and is closed as Redis closes idle clients.

use crate::serve::Inner;
use crate::slots::Open;
use socket2::SockRef;
use std::cell::Cell;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

/// How long an active client may take to send its next command: a round trip, and the time that a
/// busy program needs. A client that is silent for longer is idle.
const QUIET: Duration = Duration::from_millis(250);

/// Interval between two checks for idle clients.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Length of the queue in which the system holds new connections while the event loop is busy.
const BACKLOG: u32 = 1024;

/// The pause before the gateway tries again to listen.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The drain state of the gateway.
#[derive(Default)]
pub(crate) struct Drain {
    on: Cell<bool>,
    /// Whether the gateway has stopped listening. A client that is disconnected before would
    /// reconnect at once.
    leaving: Cell<bool>,
    /// Whether the drain has lasted long enough that a silent client counts as idle.
    idle_too: Cell<bool>,
    /// Incremented whenever a drain starts or ends.
    turns: Cell<u64>,
    changed: Notify,
}

impl Drain {
    /// Whether clients must leave and, if so, whether clients without a pending reply must leave,
    /// too.
    pub(crate) fn leave(&self) -> Option<bool> {
        self.leaving.get().then(|| self.idle_too.get())
    }

    /// Completes when the gateway drains.
    pub(crate) async fn begins(&self) {
        self.becomes(true).await;
    }

    async fn becomes(&self, on: bool) {
        while self.on.get() != on {
            self.changed.notified().await;
        }
    }
}

impl Inner {
    pub(crate) fn set_draining(self: Rc<Self>, drains: bool) {
        if self.drain.on.replace(drains) == drains {
            return;
        }
        self.drain.turns.set(self.drain.turns.get() + 1);
        self.drain.leaving.set(false);
        self.drain.idle_too.set(false);
        // Remembered for a task that is not waiting at this moment.
        self.drain.changed.notify_one();
        if drains {
            let turn = self.drain.turns.get();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(QUIET).await;
                while self.drain.turns.get() == turn {
                    self.drain.idle_too.set(self.drain.leaving.get());
                    self.clone().close_idle();
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
        }
    }

    fn close_idle(self: Rc<Self>) {
        let indices: Vec<u32> = self.slots.borrow().open().collect();
        for index in indices {
            self.clone().settle(index);
        }
    }

    /// Stops listening until the gateway serves again. A client whose connection the system has
    /// already accepted may have sent a command, and is served like all others.
    pub(crate) async fn pause(self: &Rc<Self>, listener: TcpListener) -> TcpListener {
        let address = listener.local_addr();
        // Asks the system directly: the event queue may not have reported the last connections yet,
        // and closing the socket resets those in its queue.
        if let Ok(listener) = listener.into_std() {
            while let Ok((stream, _)) = listener.accept() {
                let stream = stream
                    .set_nonblocking(true)
                    .and_then(|()| TcpStream::from_std(stream));
                let _ = stream.map(|stream| self.clone().accept(stream));
            }
        }
        self.drain.leaving.set(self.drain.on.get());
        self.drain.becomes(false).await;
        loop {
            match address
                .as_ref()
                .map_err(|error| std::io::Error::from(error.kind()))
                .and_then(|at| listen(*at))
            {
                Ok(listener) => return listener,
                Err(error) => {
                    tracing::error!(
                        id = "E0401",
                        "cannot serve clients again, still trying: {error}"
                    )
                }
            }
            tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Open {
    /// Closes the connection, together with the end of the last reply, if the client has no
    /// unfinished command. `idle_too` says whether to close it also if no reply of the cluster is
    /// in the output: a client that has only been greeted is about to send a command.
    pub(crate) fn leave_if_quiet(&mut self, idle_too: bool) {
        let leaves = idle_too || self.connection.ends_with_answer();
        if !leaves || !self.connection.is_quiet() || self.has_input() {
            return;
        }
        // The system holds back further output until the connection is closed, unless it fills a
        // segment.
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(self.socket.stream()).set_tcp_cork(true);
        self.connection.close();
    }

    /// Whether the client has sent something that was not read yet.
    fn has_input(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(self.socket.stream()).peek(&mut byte) {
            Ok(count) => count > 0,
            // The connection's task handles a broken connection.
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }
}
