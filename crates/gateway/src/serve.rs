//! Sockets: the thin shell around [`Connection`]. All of it runs on one thread, the node's event
//! loop.
//!
//! ```text
//! task of a connection: readable -> receive -> submit(request)      (wakes the node's loop)
//! the node's loop:      on_reply, on_reply, ... flush -> one write a connection, submit(request)
//! ```
//!
//! No borrow of the slots is held while `submit` is called.

use crate::connection::Connection;
use crate::demand::Demands;
use crate::drain::Drain;
use crate::host::Host;
use crate::info::InfoWriter;
use crate::limits::Limits;
use crate::measured::Measured;
use crate::pauses::Pauses;
use crate::peers::Peer;
use crate::room::Room;
use crate::slots::{Open, Slots};
use crate::socket::{self, ClientTls, Input, Output};
use crate::waiting::Waiting;
use bytes::Bytes;
use ionian_kernel::client::{DiskRoom, Reply, Request};
use ionian_kernel::level::Level;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Bytes per read: a pipeline of a thousand short commands, or a piece of a large value.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Consecutive reads of one connection; then other connections get their turn.
const READS_PER_TURN: usize = 4;

/// The pause after a failure to accept a connection, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The Redis protocol front of a node. Clones are handles of the same gateway.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) host: Rc<Host>,
    pub(crate) submit: Box<dyn Fn(Request)>,
    pub(crate) slots: RefCell<Slots>,
    /// Connections with new replies since the last flush.
    pub(crate) dirty: RefCell<Vec<u32>>,
    /// The buffer for reads of all sockets.
    scratch: RefCell<Box<[u8]>>,
    /// Room for expected replies.
    pub(crate) room: RefCell<Room>,
    pub(crate) demands: RefCell<Demands>,
    /// Clients that wait until a stream grows.
    pub(crate) waiting: RefCell<Waiting>,
    pub(crate) timer_runs: Cell<bool>,
    /// Connections whose commands wait for the quotas of their users.
    pub(crate) pauses: Pauses,
    pub(crate) drain: Drain,
    /// Whether the task that checks for timeouts runs.
    pub(crate) watch_runs: Cell<bool>,
    /// The number of connections that are being rejected.
    pub(crate) rejecting: Cell<usize>,
    /// How connections are secured; `None` if they are not.
    tls: Option<ClientTls>,
    /// The number of connections in the TLS handshake.
    greeting: Cell<usize>,
    /// When a refused client was logged last.
    pub(crate) last_refusal: Cell<Option<Instant>>,
    /// Where the level of the cluster is known; `None` stands for the first one.
    pub(crate) level: RefCell<Option<Box<dyn Fn() -> Level>>>,
    /// Number of questions that the gateway has asked for itself.
    pub(crate) polls: Cell<u32>,
    /// When a question for the users was asked that has no answer.
    pub(crate) polling: Cell<Option<Instant>>,
    /// The same for the memory.
    pub(crate) measuring: Cell<Option<Instant>>,
}

impl Gateway {
    /// A gateway that passes its requests to `submit`, which must queue them and wake the node's
    /// loop. `info` adds the node's sections to INFO; it must not call the gateway. `tls` secures
    /// the connections of clients.
    pub fn new(
        limits: Limits,
        info: Box<dyn Fn(&mut InfoWriter)>,
        submit: Box<dyn Fn(Request)>,
        tls: Option<ClientTls>,
    ) -> Gateway {
        Gateway {
            inner: Rc::new(Inner {
                host: Host::new(limits, info),
                submit,
                slots: RefCell::default(),
                dirty: RefCell::default(),
                scratch: RefCell::new(vec![0; READ_BYTES].into()),
                room: RefCell::new(Room::new(limits.expected_bytes)),
                demands: RefCell::default(),
                waiting: RefCell::default(),
                timer_runs: Cell::new(false),
                pauses: Pauses::default(),
                drain: Drain::default(),
                watch_runs: Cell::new(false),
                rejecting: Cell::new(0),
                tls,
                greeting: Cell::new(0),
                last_refusal: Cell::new(None),
                level: RefCell::default(),
                polls: Cell::new(0),
                polling: Cell::new(None),
                measuring: Cell::new(None),
            }),
        }
    }

    /// Accepts clients until the task is aborted. Call it in a tokio `LocalSet`.
    pub fn serve(&self, listener: TcpListener) -> JoinHandle<()> {
        if let Ok(address) = listener.local_addr() {
            self.inner.host.listening.replace(address.to_string());
        }
        let inner = self.inner.clone();
        tokio::task::spawn_local(async move {
            let mut listener = listener;
            loop {
                tokio::select! {
                    () = inner.accept_for_ever(&listener) => {}
                    () = inner.drain.begins() => listener = inner.pause(listener).await,
                    () = inner.follow_users() => {}
                }
            }
        })
    }

    /// Starts or ends a drain: no clients are accepted, and each leaves when it has its answers.
    pub fn drain(&self, drains: bool) {
        self.inner.clone().set_draining(drains);
    }

    /// Commands for which the disk of the node has no room are refused from now on.
    pub fn set_disk_room(&self, room: DiskRoom) {
        self.inner.host.set_disk_room(room);
    }

    /// Accepts the reply to a request, in the node's loop. Call [`flush`](Self::flush) at the end
    /// of the burst. Drops replies for which no client waits any more. Submits nothing.
    pub fn on_reply(&self, reply: Reply) {
        if self.inner.on_tails(&reply) || self.inner.on_polled(&reply) {
            return;
        }
        let length = reply.outcome.as_ref().map_or(0, Bytes::len);
        self.inner.room.borrow_mut().end(reply.token, length);
        self.inner.demands.borrow_mut().end(reply.token);
        let mut slots = self.inner.slots.borrow_mut();
        let Some((index, open)) = slots.waiting_for(reply.token) else {
            return;
        };
        open.connection.on_reply(reply.command, reply.outcome);
        self.inner.mark_dirty(index, open);
        drop(slots);
        // During the burst, not only at its end.
        self.inner.clone().shed();
    }

    /// Writes the replies since the last call, once per connection, and submits the commands that
    /// waited for them.
    pub fn flush(&self) {
        self.inner.clone().flush();
    }

    /// Sets the list of all gateways of the cluster, this one first, for clients that ask for it.
    pub fn set_gateways(&self, gateways: Vec<Peer>) {
        self.inner.host.gateways.replace(gateways);
    }

    /// Sets where the gateway learns the level of the cluster: it asks now, and once a second.
    pub fn set_level(&self, level: Box<dyn Fn() -> Level>) {
        self.inner.host.set_level(level());
        self.inner.level.replace(Some(level));
    }

    /// Clusters of this protocol keep their level: what needs a higher one is refused with its
    /// name.
    pub fn set_fixed_level(&self, protocol: &str) {
        self.inner.host.set_fixed_level(protocol);
    }

    /// Sets what the quotas of users take as the time, in place of the system's clock.
    pub fn set_clock(&self, clock: Box<dyn Fn() -> Instant>) {
        self.inner.host.set_clock(clock);
    }

    /// What the gateway has measured so far.
    pub fn measured(&self) -> Measured {
        self.inner.host.measured()
    }

    /// Open connections, and those in the TLS handshake: whose side of it is over may have sent a
    /// command.
    pub fn connections(&self) -> usize {
        self.inner.slots.borrow().len() + self.inner.greeting.get()
    }
}

impl Inner {
    async fn accept_for_ever(self: &Rc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.clone().accept(stream),
                Err(error) => {
                    tracing::warn!(id = "E0403", %error, "cannot accept a client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    pub(crate) fn accept(self: Rc<Self>, stream: TcpStream) {
        if self.slots.borrow().len() + self.greeting.get() >= self.host.limits.connections {
            return self.reject(stream, "ERR max number of clients reached");
        }
        if self.host.has_many_unauthenticated() {
            return self.reject(
                stream,
                "ERR max number of clients that have not logged in reached",
            );
        }
        if let Err(why) = self.host.check_new_connection() {
            return self.reject(stream, &why);
        }
        // Replies are written as a whole, so the system must not delay them.
        let _ = stream.set_nodelay(true);
        let text = |address: io::Result<std::net::SocketAddr>| {
            address.map_or(String::new(), |at| at.to_string())
        };
        let mut connection = Connection::new(
            &self.host,
            text(stream.peer_addr()),
            text(stream.local_addr()),
        );
        let Some(tls) = self.tls.clone() else {
            return self.host_client(connection, socket::plain(stream));
        };
        self.greeting.set(self.greeting.get() + 1);
        tokio::task::spawn_local(async move {
            let from = stream.peer_addr();
            let limit = self.host.limits.handshake;
            let greeted = socket::accept(stream, &tls, limit).await;
            self.greeting.set(self.greeting.get() - 1);
            match greeted {
                Ok((halves, user)) => {
                    user.iter().for_each(|user| connection.certify(user));
                    self.host_client(connection, halves);
                }
                Err(refused) => {
                    let from = from.map_or_else(|_| "?".to_owned(), |from| from.to_string());
                    self.refuse(&from, refused);
                }
            }
        });
    }

    /// Serves a client.
    fn host_client(self: Rc<Self>, connection: Connection, (mut input, socket): (Input, Output)) {
        let is_watched = connection.has_deadline() || !self.host.limits.idle.is_zero();
        let asks = connection.has_request();
        let index = self.slots.borrow_mut().insert(Open {
            connection,
            socket,
            waker: None,
            awaits_input: false,
            awaits_output: false,
            dirty: false,
            waits: false,
            paused_until: None,
        });
        if is_watched {
            self.clone().start_watch();
        }
        if asks {
            self.clone().settle(index);
        }
        tokio::task::spawn_local(async move {
            poll_fn(|context| self.clone().poll(index, &mut input, context)).await;
            if self
                .slots
                .borrow_mut()
                .get(index)
                .is_some_and(|open| open.connection.has_last_word())
            {
                poll_fn(|context| self.end_output(index, context)).await;
                let limits = &self.host.limits;
                let _ = tokio::time::timeout(
                    limits.linger,
                    self.discard(&mut input, limits.linger_bytes),
                )
                .await;
            } else {
                // A client with TLS can tell an end in order from a cut, if the socket has room for
                // that now.
                poll_fn(|context| Poll::Ready(self.end_output(index, context).is_ready())).await;
            }
            let removed = self.slots.borrow_mut().remove(index);
            removed.iter().for_each(|open| {
                self.forget_pause(index, open);
                if open.waits {
                    self.demands.borrow_mut().forget(index);
                }
            });
        });
    }

    /// Closes the output side of the connection.
    fn end_output(&self, index: u32, context: &mut Context<'_>) -> Poll<()> {
        let mut slots = self.slots.borrow_mut();
        let Some(open) = slots.get(index) else {
            return Poll::Ready(());
        };
        open.socket.poll_shutdown(context).map(drop)
    }

    /// The task of a connection: reads while input is wanted, and writes what a flush could not
    /// write. Ready when the connection must be closed.
    fn poll(self: Rc<Self>, index: u32, input: &mut Input, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS_PER_TURN {
            match self.poll_output(index, context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            let mut slots = self.slots.borrow_mut();
            let Some(open) = slots.get(index) else {
                return Poll::Ready(());
            };
            if open.connection.is_closed() {
                return Poll::Ready(());
            }
            if !open
                .waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(context.waker()))
            {
                open.waker = Some(context.waker().clone());
            }
            if open.connection.yields() {
                // It is woken for what is left.
                (open.awaits_input, open.awaits_output) = (false, false);
                drop(slots);
                self.clone().settle(index);
                return Poll::Pending;
            }
            open.awaits_output = open.has_output();
            open.awaits_input = open.connection.wants_input();
            if !open.awaits_input {
                return Poll::Pending;
            }
            let mut scratch = self.scratch.borrow_mut();
            match input.poll_read(context, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(arrived)) if arrived.is_empty() => open.connection.end_input(),
                Poll::Ready(Ok(arrived)) => open.connection.receive(arrived),
            }
            drop((scratch, slots));
            self.clone().settle(index);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes until all output is written, and asks to be woken when the socket accepts more.
    fn poll_output(self: &Rc<Self>, index: u32, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut slots = self.slots.borrow_mut();
            let Some(open) = slots.get(index) else {
                return Poll::Ready(Ok(()));
            };
            if open.connection.output().is_empty() {
                return open.socket.poll_flush(context);
            }
            open.connection.on_sending();
            let sent = match open.socket.poll_write(context, open.connection.output()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(sent) => sent?,
            };
            open.connection.on_sent(sent);
            drop(slots);
            // Input may have waited for the output to be sent.
            self.clone().settle(index);
        }
    }

    /// After input or replies: advances the connection, writes its output and submits its request.
    pub(crate) fn settle(self: Rc<Self>, index: u32) {
        let request = {
            let mut slots = self.slots.borrow_mut();
            let Some(open) = slots.get(index) else { return };
            open.dirty = false;
            open.go_on(self.drain.leave());
            if open.connection.has_deadline() {
                self.clone().start_watch();
            }
            if open.connection.is_in_flight() {
                self.clone().start_timer();
            }
            if open.connection.waits_for().is_some() {
                self.clone().start_waiting(index);
            }
            self.note_pause(index, open);
            let asks = open.connection.has_request() && !open.waits;
            open.waits |= asks && !self.admits(index, &open.connection);
            (asks && !open.waits)
                .then(|| self.begin(&mut slots, index))
                .flatten()
        };
        self.clone().shed();
        if let Some(request) = request {
            (self.submit)(request);
        }
    }

    /// Submits the request of a connection.
    fn begin(self: &Rc<Self>, slots: &mut Slots, index: u32) -> Option<Request> {
        let connection = &mut slots.get(index)?.connection;
        let (forecast, demand) = (connection.forecast(), connection.demand());
        let (operation, payload) = connection.take_request()?;
        let token = slots.next_token(index);
        self.demands.borrow_mut().begin(token, demand);
        self.room.borrow_mut().begin(token, forecast);
        Some(Request {
            token,
            operation,
            payload,
        })
    }

    /// The next [`flush`](Self::flush) settles this connection.
    pub(crate) fn mark_dirty(&self, index: u32, open: &mut Open) {
        if !std::mem::replace(&mut open.dirty, true) {
            self.dirty.borrow_mut().push(index);
        }
    }

    /// Submits requests that waited for room.
    fn use_room(self: &Rc<Self>) {
        self.measure_growth();
        while let Some(index) = self.next_admitted() {
            let mut slots = self.slots.borrow_mut();
            // The request may have timed out.
            let waits = slots
                .get(index)
                .is_some_and(|open| std::mem::take(&mut open.waits));
            let request = waits.then(|| self.begin(&mut slots, index)).flatten();
            drop(slots);
            request.into_iter().for_each(&self.submit);
        }
    }

    pub(crate) fn flush(self: Rc<Self>) {
        self.part_from_users();
        loop {
            let mut dirty = std::mem::take(&mut *self.dirty.borrow_mut());
            if dirty.is_empty() {
                return self.use_room();
            }
            dirty.drain(..).for_each(|index| self.clone().settle(index));
            // Kept for the next burst, unless `submit` answered at once and made a new list.
            let mut list = self.dirty.borrow_mut();
            if list.is_empty() {
                *list = dirty;
                drop(list);
                return self.use_room();
            }
        }
    }

    /// Closes the connections that CLIENT KILL has named, and those that use most memory while all
    /// together use too much.
    fn shed(self: Rc<Self>) {
        if self.host.any_killed.take() {
            self.close_killed();
        }
        while self.host.held() > self.host.limits.memory_bytes {
            let mut slots = self.slots.borrow_mut();
            let largest = slots.largest().and_then(|index| slots.get(index));
            let Some(open) = largest else { return };
            open.connection.evict();
            open.go_on(self.drain.leave());
            self.clone().start_watch();
        }
    }
}

impl Open {
    /// Whether bytes wait for the socket.
    fn has_output(&self) -> bool {
        !self.connection.output().is_empty() || self.socket.has_records()
    }

    /// Advances the connection and writes once; repeats this only if the client's slowness was the
    /// obstacle. Wakes the task if work is left that no event will trigger.
    pub(crate) fn go_on(&mut self, leave: Option<bool>) {
        self.connection.advance();
        loop {
            if let Some(idle_too) = leave {
                self.leave_if_quiet(idle_too);
            }
            let was_full = self.connection.output_is_full();
            if !self.connection.output().is_empty() {
                self.connection.on_sending();
                // The task sees an error again and handles it.
                if let Ok(sent) = self.socket.try_write(self.connection.output()) {
                    self.connection.on_sent(sent);
                }
            }
            if !was_full || self.connection.output_is_full() {
                break;
            }
            self.connection.go_on();
        }
        let output = self.has_output() && !self.awaits_output;
        let input = self.connection.wants_input() && !self.awaits_input;
        let Some(waker) = &self.waker else { return };
        if self.connection.yields() {
            // Behind what has arrived from other clients: at once would be before the runtime has
            // looked at their sockets.
            let later = pin!(tokio::task::yield_now());
            let _ = later.poll(&mut Context::from_waker(waker));
        } else if output || input || self.connection.is_closed() {
            waker.wake_by_ref();
        }
    }
}
