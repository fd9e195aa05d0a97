//! One client's connection, without its socket: bytes in, requests and reply bytes out.
//!
//! ```text
//! receive(bytes) -> parser -> words -+-> own command -------------------------------+-> output
//!                                    +-> waiting -> compound -> request ~> on_reply -+
//! ```
//!
//! A connection has at most one compound in flight. Commands that are parsed meanwhile wait, and go
//! together in the next one: so a single command leaves at once, and a pipeline costs one compound
//! for many commands. The gateway's own commands keep their place among the others: such a command
//! waits, and all input behind it, until everything before it is answered.

mod admission;
mod blocking;
mod certified;
mod compound;
mod execution;
mod outdated;
mod paced;

use crate::host::{Client, ClientMemory, Host, Kill, count};
use crate::limits::MIN_BYTES_PER_SECOND;
use crate::login::LoginWait;
use crate::measured::Family;
use crate::output::Output;
use crate::parser::{Parser, ProtocolError};
use crate::quotas::Pace;
use crate::reply::{self};
use crate::rights::Judgement;
use crate::transaction::{Expected, Transaction};
use admission::Fetched;
use blocking::Blocked;
use bytes::Bytes;
use ionian_kernel::client::Operation;
use ionian_machines::kv::{Command, Demand};
use outdated::Outdated;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The work of the gateway's own commands, in bytes of replies, after which other connections have
/// their turn.
const TURN: usize = 256 << 10;

/// The state of one connection.
pub struct Connection {
    host: Rc<Host>,
    client: Rc<Client>,
    parser: Parser,
    /// Bytes received but not parsed: at most the bytes of one read.
    input: Bytes,
    /// The parsed command must wait until all commands before it are answered.
    stalled: bool,
    /// The client violated the protocol; it gets the error after the answers to all commands
    /// before.
    failure: Option<ProtocolError>,
    /// The client has closed its side of the connection.
    ended: bool,
    /// The gateway only sends the remaining output, and then closes the connection.
    closing: bool,
    /// The last output came from the cluster, not only from the gateway.
    ends_with_answer: bool,
    transaction: Transaction,
    /// Commands for the state machine that are not in a compound yet.
    waiting: VecDeque<Command>,
    /// A note for each of these commands.
    notes: VecDeque<Note>,
    /// Their approximate size in memory.
    waiting_bytes: usize,
    flight: Option<Expected>,
    /// XREAD with BLOCK, until it is answered. Nothing else is sent meanwhile.
    blocked: Option<Blocked>,
    /// The compound to send, until it is taken.
    request: Option<(Operation, Bytes)>,
    /// What it, or the compound in flight, demands besides what its bytes pay for.
    demand: Demand,
    /// The compound in flight, if it may have to be judged again.
    flight_request: Option<(Operation, Bytes)>,
    /// How often the compound in flight was judged again.
    judged_again: u32,
    /// The compound that was judged by users that have changed, while those of now are fetched.
    outdated: Option<Outdated>,
    fetched: Fetched,
    login_wait: LoginWait,
    /// What becomes of the next command, if its user has quotas.
    pace: Pace,
    /// Bytes of the next command, as far as they are parsed.
    command_bytes: usize,
    /// Size of the compound in flight, including the commands that may have to be sent again.
    flight_bytes: usize,
    /// Whether the compound in flight can change something.
    flight_changes: bool,
    /// The notes of the commands in flight.
    flight_notes: Vec<Note>,
    flight_since: Instant,
    /// Since when the client has waited for the compound in flight, for the deadline.
    asked_at: Instant,
    /// Whether the cluster did not answer the last compound in time.
    unanswered: bool,
    /// The expected size of the next reply, if there has been a reply.
    forecast: Option<usize>,
    output: Output,
    /// The work of the gateway's own commands in this turn, in bytes of replies.
    turn: usize,
    /// When the client last sent something, or took something if the time that it may rest is
    /// limited.
    rests_since: Instant,
    /// The incomplete command.
    unfinished: Option<Unfinished>,
    /// When the connection was closed because of an error.
    failed_at: Option<Instant>,
}

/// A note about a command in execution.
struct Note {
    name: &'static str,
    family: Family,
    /// The number of words of the command, its name included.
    words: usize,
    /// When it was received.
    since: Instant,
    /// The keys that the client tracks.
    tracked: Vec<Bytes>,
    judgement: Judgement,
}

/// The progress of an incomplete command.
struct Unfinished {
    since: Instant,
    bytes: usize,
}

impl Connection {
    /// A connection from `address` to `local_address`, which are only displayed.
    pub fn new(host: &Rc<Host>, address: String, local_address: String) -> Connection {
        Connection {
            host: host.clone(),
            client: host.connect(address, local_address),
            parser: Parser::default(),
            input: Bytes::new(),
            stalled: false,
            failure: None,
            ended: false,
            closing: false,
            ends_with_answer: false,
            transaction: Transaction::default(),
            waiting: VecDeque::new(),
            notes: VecDeque::new(),
            waiting_bytes: 0,
            flight: None,
            blocked: None,
            request: None,
            demand: Demand::default(),
            flight_request: None,
            judged_again: 0,
            outdated: None,
            fetched: Fetched::default(),
            login_wait: LoginWait::default(),
            pace: Pace::default(),
            command_bytes: 0,
            flight_bytes: 0,
            flight_changes: false,
            flight_notes: Vec::new(),
            flight_since: Instant::now(),
            asked_at: Instant::now(),
            unanswered: false,
            forecast: None,
            output: Output::default(),
            turn: 0,
            rests_since: Instant::now(),
            unfinished: None,
            failed_at: None,
        }
    }

    /// Whether the connection accepts more input. Otherwise the input must stay in the socket.
    pub fn wants_input(&self) -> bool {
        !self.closing
            && !self.ended
            && self.failure.is_none()
            && !self.stalled
            && self.input.is_empty()
            && self.has_room()
            && !self.output_is_full()
    }

    /// Accepts input. Call it only if `wants_input` is true.
    pub fn receive(&mut self, input: Bytes) {
        debug_assert!(self.wants_input(), "input has to wait");
        count(&self.host.stats.bytes_in, input.len() as u64);
        self.rests_since = Instant::now();
        self.client.last_active.set(self.rests_since);
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.bytes += input.len();
        }
        self.input = input;
        self.advance();
    }

    /// The client sends no more. It still gets its replies.
    pub fn end_input(&mut self) {
        self.ended = true;
        if self.waits_for().is_some() {
            // As in Redis, a client that is gone waits for nothing.
            self.closing = true;
        }
        self.advance();
    }

    /// Begins a turn, and does what can be done in it without further input or replies.
    pub fn advance(&mut self) {
        self.turn = 0;
        self.go_on();
    }

    /// Whether other connections are to have their turn before this one goes on.
    pub(crate) fn yields(&self) -> bool {
        self.turn >= TURN && !self.closing && (self.stalled || !self.input.is_empty())
    }

    /// Goes on in the same turn, after output was sent.
    pub(crate) fn go_on(&mut self) {
        self.end_killed();
        self.work_off_input();
        if self.dispatch() {
            // There may be room again, for commands that the next compound takes.
            self.work_off_input();
        }
        if self.input.is_empty() {
            // An empty rest would still keep alive all that was read with it.
            self.input = Bytes::new();
        }
        if self.ended
            && !self.stalled
            && self.failure.is_none()
            && self.input.is_empty()
            && self.is_idle()
        {
            self.closing = true;
        }
        self.watch_unfinished();
        self.account();
    }

    /// Output to send.
    pub fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    /// Tells that output is about to be sent.
    pub fn on_sending(&self) {
        self.host.on_writing(&self.client);
    }

    /// Tells that this number of output bytes was sent. Call [`advance`](Self::advance) afterwards
    /// if the output [was full](Self::output_is_full).
    pub fn on_sent(&mut self, len: usize) {
        count(&self.host.stats.bytes_out, len as u64);
        if !self.host.limits.idle.is_zero() {
            self.rests_since = Instant::now();
        }
        self.output.on_sent(len);
        if self.output.len() == 0 {
            self.host.on_written(&self.client);
        }
        self.account();
    }

    /// Whether the client must read replies before the gateway continues: all of them while all
    /// clients together use much memory.
    pub fn output_is_full(&self) -> bool {
        let limits = &self.host.limits;
        let scarce = self.host.held() > limits.memory_bytes / 2;
        self.output.len() >= if scarce { 1 } else { limits.output_bytes_soft }
    }

    /// Whether the connection must be closed now.
    pub fn is_closed(&self) -> bool {
        self.closing && self.output.len() == 0
    }

    /// Whether nothing of the client is unfinished: no command, no part of a command, no
    /// transaction.
    pub(crate) fn is_quiet(&self) -> bool {
        let begun = self.transaction.is_open()
            || self.client.watched.get() > 0
            || self.parser.is_unfinished();
        let waits = self.stalled || self.failure.is_some() || !self.input.is_empty();
        !begun && !waits && self.is_idle()
    }

    /// Whether the output ends with an answer of the cluster.
    pub(crate) fn ends_with_answer(&self) -> bool {
        self.ends_with_answer && self.output.len() > 0
    }

    /// Stops serving the client: only the remaining output is sent.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the last output is an error, which must reach the client.
    pub fn has_last_word(&self) -> bool {
        self.failed_at.is_some()
    }

    /// Memory of the connection in bytes.
    pub fn held(&self) -> usize {
        self.client.memory.get().total()
    }

    /// Closes the connection because it uses more memory than any other while all together use too
    /// much. A connection that is already closing loses its remaining output, and uses no memory
    /// afterwards.
    pub fn evict(&mut self) {
        if self.closing {
            // Otherwise it was counted, and the client may have read the reason.
            if self.failed_at.is_none() {
                count(&self.host.stats.evicted, 1);
            }
            self.discard();
            self.output.clear();
            return self.account();
        }
        let (held, all) = (self.held() >> 10, self.host.limits.memory_bytes >> 10);
        self.close_for_memory(format_args!(
            "the memory of this node's clients is exhausted, and this client uses most of it: {held} of {all} KiB"
        ));
    }

    /// Whether [`on_time`](Self::on_time) must be called from time to time.
    pub fn has_deadline(&self) -> bool {
        let waits =
            self.login_wait != LoginWait::None || self.client.unauthenticated.get().is_some();
        waits || self.unfinished.is_some() || self.failed_at.is_some()
    }

    /// Closes the connection if a command remains incomplete for too long, if the client does not
    /// log in, or if it does not read its error. Call [`advance`](Self::advance) afterwards.
    pub fn on_time(&mut self, now: Instant) {
        self.login_wait.on_time(now);
        let limits = &self.host.limits;
        let seconds = limits.unfinished.as_secs();
        if self
            .failed_at
            .is_some_and(|at| now.saturating_duration_since(at) > limits.linger)
        {
            self.output.clear();
        } else if self.is_late_to_log_in(now) {
            count(&self.host.stats.unauthenticated_closed, 1);
            let seconds = self.host.limits.login.as_secs();
            self.close_for(format_args!(
                "ERR closed: the client has not logged in after {seconds} s"
            ));
        } else if self.wants_input()
            && let Some(Unfinished { since, bytes }) = self.unfinished
        {
            let allowed =
                limits.unfinished + Duration::from_secs(bytes as u64) / MIN_BYTES_PER_SECOND;
            if now.saturating_duration_since(since) > allowed {
                count(&self.host.stats.unfinished, 1);
                self.close_for(format_args!(
                    "ERR Protocol error: the command was not complete after {seconds} s"
                ));
            }
        } else if let Some(unfinished) = &mut self.unfinished {
            // The gateway no longer reads from it, so the client cannot complete the command.
            *unfinished = Unfinished {
                since: now,
                bytes: 0,
            };
        }
        self.account();
    }

    /// Closes the connection if its client rests for longer than it may, as Redis does after
    /// `timeout`: without an error, which would seem to answer the next command.
    pub(crate) fn leave_if_idle(&mut self, now: Instant) -> bool {
        let most = self.host.limits.idle;
        let rests = now.saturating_duration_since(self.rests_since);
        let leaves = !most.is_zero() && rests > most && self.is_idle() && !self.closing;
        if leaves {
            count(&self.host.stats.idle, 1);
            self.discard();
            self.output.clear();
            self.closing = true;
            self.account();
        }
        leaves
    }

    /// Whether only the remaining output is sent.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    fn close_for_memory(&mut self, why: std::fmt::Arguments<'_>) {
        count(&self.host.stats.evicted, 1);
        self.close_for(format_args!(
            "ERR closed: {why}. A command that was not answered may or may not have been executed"
        ));
    }

    /// Discards all commands of the client and closes the connection. The client gets the reason,
    /// unless the output ends within a large reply.
    fn close_for(&mut self, text: std::fmt::Arguments<'_>) {
        if self.closing {
            return;
        }
        tracing::warn!(
            id = "E0402",
            client = self.client.id,
            address = self.client.address,
            "{text}"
        );
        self.discard();
        if self.output.drop_unsent() {
            reply::error(self.output.tail(), text);
        }
        self.closing = true;
        self.failed_at = Some(Instant::now());
        self.account();
    }

    /// Discards all commands of the client.
    fn discard(&mut self) {
        (self.parser, self.input) = (Parser::default(), Bytes::new());
        (self.waiting, self.notes, self.waiting_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        self.flight_notes = Vec::new();
        (self.flight, self.request, self.flight_bytes) = (None, None, 0);
        (self.flight_request, self.outdated) = (None, None);
        (self.stalled, self.failure, self.unfinished) = (false, None, None);
        (self.pace, self.command_bytes) = (Pace::Unpaid, 0);
        self.unblock();
        self.transaction.reset(&self.client);
    }

    /// What it uses now.
    fn memory_now(&self) -> ClientMemory {
        ClientMemory {
            input: self.parser.held() + self.input.len(),
            commands: self.waiting_bytes + self.flight_bytes + self.blocked_bytes(),
            transaction: self.transaction.held(),
            output: self.output.held(),
            replies: self.output.len(),
        }
    }

    /// Counts the memory of the connection, and closes it if it uses too much.
    fn account(&mut self) {
        let memory = self.memory_now();
        self.host.account(&self.client, memory);
        if memory.total() > self.host.limits.client_bytes && !self.closing {
            let (held, most) = (memory.total() >> 10, self.host.limits.client_bytes >> 10);
            self.close_for_memory(format_args!(
                "commands and replies of this client use {held} KiB, the limit is {most} KiB"
            ));
        }
    }

    /// Notes since when a command is incomplete.
    fn watch_unfinished(&mut self) {
        if self.closing || !self.parser.is_unfinished() {
            self.unfinished = None;
        } else if self.unfinished.is_none() {
            self.unfinished = Some(Unfinished {
                since: Instant::now(),
                bytes: 0,
            });
        }
    }

    /// Whether CLIENT KILL has named it, and it does not know yet.
    pub(crate) fn is_killed(&self) -> bool {
        self.client.killed.get().is_some()
    }

    /// Closes the connection if CLIENT KILL has named it.
    fn end_killed(&mut self) {
        let Some(how) = self.client.killed.take() else {
            return;
        };
        self.discard();
        self.closing = true;
        if how == Kill::Now {
            self.output.clear();
        }
    }

    fn abort(&mut self) {
        self.closing = true;
        self.output.clear();
    }

    fn is_idle(&self) -> bool {
        self.flight.is_none() && self.waiting.is_empty() && self.blocked.is_none()
    }

    fn has_room(&self) -> bool {
        let limits = &self.host.limits;
        self.waiting.is_empty()
            || self.waiting.len() < limits.compound_commands
                && self.waiting_bytes < 2 * limits.compound_bytes
    }

    fn work_off_input(&mut self) {
        // Commands behind one that waits stay in the input, which is at most one read.
        while !self.closing && self.blocked.is_none() && !self.output_is_full() && self.turn < TURN
        {
            if self.stalled {
                if !self.is_idle() || self.login_wait.is_on() {
                    return;
                }
                self.act();
                if self.stalled && self.is_idle() {
                    // It waits for a time.
                    return;
                }
            } else if let Some(failure) = self.failure {
                if self.is_idle() {
                    reply::error(self.output.tail(), failure);
                    self.closing = true;
                    self.failed_at = Some(Instant::now());
                }
                return;
            } else if !self.has_room() {
                return;
            } else {
                match self.parse() {
                    Ok(true) => self.act(),
                    Ok(false) => return,
                    Err(failure) => {
                        count(&self.host.stats.protocol_errors, 1);
                        self.failure = Some(failure);
                        // The client may take long to read the error.
                        (self.parser, self.input) = (Parser::default(), Bytes::new());
                    }
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.unblock();
        self.host.disconnect(&self.client);
    }
}
