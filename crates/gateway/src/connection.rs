//! One client's connection, without its socket: bytes in, requests and reply bytes out.
//!
//! ```text
//! receive(bytes) -> parser -> words -+-> own command -------------------------------+-> output
//!                                    +-> waiting -> compound -> request ~> on_reply -+
//! ```
//!
//! A connection has at most one compound in flight. Commands that are parsed meanwhile wait, and go
//! together in the next one: so a lone command leaves at once, and a pipeline costs one compound for
//! many commands. The gateway's own commands keep their place among the others: such a command waits,
//! and all input behind it, until everything before it is answered.

use crate::commands::{self, Control, Own, Run};
use crate::host::{Client, Host, count};
use crate::output::Output;
use crate::parser::{Parser, ProtocolError};
use crate::reply::{self, Context};
use crate::transaction::{self, Expected, Step, Transaction};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_machines::kv::{self, Command, Compound};
use std::collections::VecDeque;
use std::rc::Rc;

/// The state of one connection.
pub struct Connection {
    host: Rc<Host>,
    client: Rc<Client>,
    parser: Parser,
    /// Received and not parsed yet: what was read in one go, at most.
    input: Bytes,
    /// The parser's command has to wait until all before it are answered.
    stalled: bool,
    /// The client broke the protocol; it is told when all commands before are answered.
    failure: Option<ProtocolError>,
    /// The client sends no more.
    ended: bool,
    /// Nothing more is done for the client than to send it what is in `output`.
    closing: bool,
    transaction: Transaction,
    /// Commands for the state machine that no compound has taken yet.
    waiting: VecDeque<Command>,
    /// Bytes received since `waiting` was empty: it may keep as many alive.
    waiting_input: usize,
    flight: Option<Expected>,
    /// The compound in flight, as long as nobody has taken it.
    request: Option<(Operation, Bytes)>,
    output: Output,
}

impl Connection {
    /// A connection from `address` to `local_address`, which are only shown.
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
            transaction: Transaction::default(),
            waiting: VecDeque::new(),
            waiting_input: 0,
            flight: None,
            request: None,
            output: Output::default(),
        }
    }

    /// Whether more input can be taken. If not, it has to stay where it is.
    pub fn wants_input(&self) -> bool {
        !self.closing
            && !self.ended
            && self.failure.is_none()
            && !self.stalled
            && self.input.is_empty()
            && self.has_room()
            && !self.output_is_full()
    }

    /// Takes input. To be called only while input is wanted.
    pub fn receive(&mut self, input: Bytes) {
        debug_assert!(self.wants_input(), "input has to wait");
        count(&self.host.stats.bytes_in, input.len() as u64);
        self.waiting_input += input.len();
        self.input = input;
        self.advance();
    }

    /// The client sends no more. It still gets its replies.
    pub fn end_input(&mut self) {
        self.ended = true;
        self.advance();
    }

    /// The compound that is to be sent to the cluster now, once.
    pub fn take_request(&mut self) -> Option<(Operation, Bytes)> {
        self.request.take()
    }

    /// Whether a compound waits for its reply.
    pub fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// The reply to the compound in flight. [`advance`](Self::advance) is to follow.
    pub fn on_reply(&mut self, outcome: Result<Bytes, Refusal>) {
        let Some(expected) = self.flight.take() else { return };
        if self.closing {
            // It was aborted meanwhile, and its client is to see no more than it has.
            return;
        }
        let mut context = Context { host: &self.host, client: &self.client, out: self.output.tail() };
        match (outcome, expected) {
            (Ok(reply), Expected::Pipeline(mut commands)) => {
                let (done, replies) = kv::answered(&reply);
                transaction::write_replies(&replies, &mut context);
                // The others are sent again when there is room for their replies.
                let done = done.unwrap_or(commands.len()).max(1);
                commands.drain(done.min(commands.len())..).rev().for_each(|command| self.waiting.push_front(command));
            }
            (Ok(reply), Expected::Transaction(own)) => transaction::write_executed(&reply, &own, &mut context),
            (Ok(reply), Expected::Versions(keys)) => self.transaction.on_versions(keys, &reply, &mut context),
            (Err(refusal), expected) => {
                count(&self.host.stats.compounds_refused, 1);
                let commands = match expected {
                    Expected::Pipeline(commands) => commands.len(),
                    Expected::Transaction(_) => 1,
                    Expected::Versions(_) => {
                        self.transaction.on_versions_refused();
                        1
                    }
                };
                (0..commands).for_each(|_| context.error(refusal_text(refusal)));
            }
        }
        if self.output.len() > self.host.limits.output_bytes_hard {
            tracing::warn!(client = self.client.id, address = self.client.address, "closed: too much output waits");
            self.abort();
        }
    }

    /// Does everything that can be done without further input or replies.
    pub fn advance(&mut self) {
        self.work_off_input();
        if self.dispatch() {
            // There may be room again, for commands that the next compound takes.
            self.work_off_input();
        }
        if self.input.is_empty() {
            // An empty rest would still keep alive all that was read with it.
            self.input = Bytes::new();
        }
        if self.ended && !self.stalled && self.failure.is_none() && self.input.is_empty() && self.is_idle() {
            self.closing = true;
        }
    }

    /// Replies to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    /// So many bytes of the output were sent. [`advance`](Self::advance) is to follow if the output
    /// [was full](Self::output_is_full).
    pub fn on_sent(&mut self, len: usize) {
        count(&self.host.stats.bytes_out, len as u64);
        self.output.on_sent(len);
    }

    /// Whether the client has to take replies before anything else is done for it.
    pub fn output_is_full(&self) -> bool {
        self.output.len() >= self.host.limits.output_bytes_soft
    }

    /// Whether the connection is to be closed now.
    pub fn is_closed(&self) -> bool {
        self.closing && self.output.len() == 0
    }

    /// Whether nothing that the client has begun is left undone: no command, no part of one, no transaction.
    pub(crate) fn is_quiet(&self) -> bool {
        let begun = self.transaction.is_open() || self.client.watched.get() > 0 || self.parser.is_within_command();
        !begun && self.is_idle() && !self.stalled && self.input.is_empty()
    }

    /// The client is to leave: nothing more is done for it than to send it what is in the output.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    fn abort(&mut self) {
        self.closing = true;
        self.output.clear();
    }

    fn is_idle(&self) -> bool {
        self.flight.is_none() && self.waiting.is_empty()
    }

    fn has_room(&self) -> bool {
        let limits = &self.host.limits;
        self.waiting.is_empty()
            || self.waiting.len() < limits.compound_commands && self.waiting_input < 2 * limits.compound_bytes
    }

    fn work_off_input(&mut self) {
        while !self.closing && !self.output_is_full() {
            if self.stalled {
                if !self.is_idle() {
                    return;
                }
                self.act();
            } else if let Some(failure) = self.failure {
                if self.is_idle() {
                    reply::error(self.output.tail(), failure);
                    self.closing = true;
                }
                return;
            } else if !self.has_room() {
                return;
            } else {
                match self.parser.next(&mut self.input, &self.host.limits) {
                    Ok(true) => self.act(),
                    Ok(false) => return,
                    Err(failure) => {
                        count(&self.host.stats.protocol_errors, 1);
                        self.failure = Some(failure);
                        self.input = Bytes::new();
                    }
                }
            }
        }
    }

    /// Acts upon the parser's command, or finds that it has to wait.
    fn act(&mut self) {
        let mut words = self.parser.take_words();
        self.stalled = !self.execute(&words);
        if !self.stalled {
            count(&self.host.stats.commands, 1);
            count(&self.client.commands, 1);
            words.clear();
        }
        self.parser.put_words(words);
    }

    /// Executes a command; false if that has to wait until all before it are answered.
    fn execute(&mut self, words: &[Bytes]) -> bool {
        match commands::find(&words[0]) {
            Some(own) => self.is_idle() && self.execute_own(own, words),
            None if self.transaction.is_open() => {
                self.queue(words);
                true
            }
            None => self.execute_replicated(words),
        }
    }

    /// Lets a command for the state machine wait for its compound.
    fn execute_replicated(&mut self, words: &[Bytes]) -> bool {
        match Command::parse(words) {
            Ok(command) => self.waiting.push_back(command),
            Err(_) if is_http(words) => {
                tracing::warn!(client = self.client.id, address = self.client.address, "closed: it speaks HTTP");
                self.abort();
            }
            Err(_) if !self.is_idle() => return false,
            Err(text) => reply::error(self.output.tail(), text),
        }
        true
    }

    /// Executes one of the gateway's own commands. Nothing is in flight.
    fn execute_own(&mut self, own: &'static Own, words: &[Bytes]) -> bool {
        let at_once = match own.run {
            Run::Control(Control::Unwatch) | Run::Plain(_) => !self.transaction.is_open(),
            Run::Control(_) => true,
        };
        if !at_once || self.transaction.is_open() && !own.takes(words.len()) {
            self.queue(words);
            return true;
        }
        let mut context = Context { host: &self.host, client: &self.client, out: self.output.tail() };
        if !own.takes(words.len()) {
            context.wrong_number(own.name);
            return true;
        }
        match own.run {
            Run::Plain(run) => run(&mut context, words),
            Run::Control(Control::Quit) => {
                context.ok();
                self.closing = true;
            }
            Run::Control(Control::Reset) => {
                self.transaction.reset(&self.client);
                self.client.reset();
                context.simple("RESET");
            }
            Run::Control(control) => {
                if let Step::Submit(compound, expected) = self.transaction.control(control, words, &mut context) {
                    self.submit(&compound);
                    self.flight = Some(expected);
                }
            }
        }
        true
    }

    fn queue(&mut self, words: &[Bytes]) {
        let mut context = Context { host: &self.host, client: &self.client, out: self.output.tail() };
        self.transaction.queue(words, &mut context);
    }

    /// Sends what waits as one compound: the reads at its front, if there are any; else all, the reads
    /// between the writes included, which keeps the order. True if something was sent.
    fn dispatch(&mut self) -> bool {
        if self.flight.is_some() || self.closing || self.output_is_full() {
            return false;
        }
        let Some(first) = self.waiting.front() else { return false };
        let reads = first.is_read();
        let limits = &self.host.limits;
        let (mut commands, mut bytes) = (0, 0);
        for command in self.waiting.iter().take(limits.compound_commands) {
            bytes += command.encoded_len();
            if reads && !command.is_read() || commands > 0 && bytes > limits.compound_bytes {
                break;
            }
            commands += 1;
        }
        let commands: Vec<_> = self.waiting.drain(..commands).collect();
        if self.waiting.is_empty() {
            self.waiting_input = self.input.len();
        }
        let compound = Compound::Pipeline(commands);
        self.submit(&compound);
        let Compound::Pipeline(commands) = compound else { unreachable!("it was made a pipeline") };
        self.flight = Some(Expected::Pipeline(commands));
        true
    }

    fn submit(&mut self, compound: &Compound) {
        assert!(self.flight.is_none(), "a connection has one compound in flight");
        let operation = match compound {
            _ if !compound.is_read() => Operation::Write,
            // What is watched has to be what is there now, whatever the connection's other reads may see.
            Compound::Versions(_) => Operation::Read(ReadLevel::Linearizable),
            Compound::Transaction { watched, .. } if !watched.is_empty() => Operation::Read(ReadLevel::Linearizable),
            Compound::Transaction { .. } | Compound::Pipeline(_) => Operation::Read(self.client.level.get()),
        };
        count(&self.host.stats.compounds, 1);
        self.request = Some((operation, Bytes::from(compound.encode())));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.host.disconnect(&self.client);
    }
}

/// A web page can make a browser send a request here, whose body would be commands. Like Redis, close
/// the connection at the first words of such a request.
fn is_http(words: &[Bytes]) -> bool {
    debug_assert!(!kv::knows(b"post") && !kv::knows(b"host:"));
    words[0].eq_ignore_ascii_case(b"post") || words[0].eq_ignore_ascii_case(b"host:")
}

/// What a client is told. Clients know the codes: both mean that the same command may succeed later.
fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => "BUSY Ionian is overloaded: too much in flight, the command was not executed, try again later",
        Refusal::Unavailable => "TRYAGAIN the cluster did not answer in time, the command was not executed",
        Refusal::Unknown => {
            "TRYAGAIN the cluster did not answer in time, the command may or may not have been executed"
        }
        Refusal::NotARead => "ERR the command changes state and cannot be sent as a read",
        Refusal::TooLarge => "ERR the command is larger than the cluster's limit",
    }
}
