//! One client's connection, without its socket: bytes in, requests and reply bytes out.
//!
//! ```text
//! receive(bytes) -> parser -> words -+-> own command -------------------------------+-> output
//!                                    +-> waiting -> compound -> request ~> on_reply -+
//! ```
//!
//! A connection has at most one compound in flight. Commands that are parsed meanwhile wait, and go
//! together in the next one: so a lone command leaves at once, and a pipeline costs one compound
//! for many commands. The gateway's own commands keep their place among the others: such a command
//! waits, and all input behind it, until everything before it is answered.

use crate::commands::{self, Control, Own, Run};
use crate::host::{Client, ClientMemory, Host, count};
use crate::limits::MIN_BYTES_PER_SECOND;
use crate::output::Output;
use crate::parser::{Parser, ProtocolError};
use crate::reply::{self, Context};
use crate::resp3;
use crate::room;
use crate::tracking;
use crate::transaction::{self, Expected, Step, Transaction};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_machines::kv::{self, Command, Compound};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

const BAD_EXEC: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";

/// The state of one connection.
pub struct Connection {
    host: Rc<Host>,
    client: Rc<Client>,
    parser: Parser,
    /// Received and not parsed yet: what was read in one go, at most.
    input: Bytes,
    /// The parser's command has to wait until all before it are answered.
    stalled: bool,
    /// The client broke the protocol; it gets the error when all commands before are answered.
    failure: Option<ProtocolError>,
    /// The client sends no more.
    ended: bool,
    /// Nothing more is done for the client than to send it what is in `output`.
    closing: bool,
    /// What was written last came from the cluster, and not from the gateway alone.
    ends_with_answer: bool,
    transaction: Transaction,
    /// Commands for the state machine that no compound has taken yet.
    waiting: VecDeque<Command>,
    /// What is noted of each of these.
    notes: VecDeque<Note>,
    /// About what these take in memory.
    waiting_bytes: usize,
    flight: Option<Expected>,
    /// The compound in flight, until it is taken.
    request: Option<(Operation, Bytes)>,
    /// What the compound in flight takes, with the commands of it that may have to be sent again.
    flight_bytes: usize,
    /// What is noted of each command in flight, and when they left.
    flight_notes: Vec<Note>,
    flight_since: Instant,
    /// Since when the client waits for what is in flight, as far as its deadline goes.
    asked_at: Instant,
    /// Whether the cluster did not answer the last compound in time.
    unanswered: bool,
    /// How large the next reply is likely to be, if there has been one.
    forecast: Option<usize>,
    output: Output,
    /// The command that is not complete.
    unfinished: Option<Unfinished>,
    /// Since when it is `closing` for an error.
    failed_at: Option<Instant>,
}

/// What is noted of a command while it is executed.
struct Note {
    name: &'static str,
    /// When it was received.
    since: Instant,
    /// The keys that the client wants to hear of.
    tracked: Vec<Bytes>,
}

/// How a command comes that is not complete.
struct Unfinished {
    since: Instant,
    bytes: usize,
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
            ends_with_answer: false,
            transaction: Transaction::default(),
            waiting: VecDeque::new(),
            notes: VecDeque::new(),
            waiting_bytes: 0,
            flight: None,
            request: None,
            flight_bytes: 0,
            flight_notes: Vec::new(),
            flight_since: Instant::now(),
            asked_at: Instant::now(),
            unanswered: false,
            forecast: None,
            output: Output::default(),
            unfinished: None,
            failed_at: None,
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
        self.client.last_active.set(Instant::now());
        if let Some(unfinished) = &mut self.unfinished {
            unfinished.bytes += input.len();
        }
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

    /// Whether there is such a compound.
    pub fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// How large its reply is likely to be: as the largest to this connection lately.
    pub fn forecast(&self) -> Option<usize> {
        self.forecast
    }

    /// Whether a compound waits for its reply.
    pub fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Since when the client waits for the reply to the compound in flight: since it was formed,
    /// or, where the one before was not answered in time, since its first command was received:
    /// clients wait once, not once for each command.
    pub fn in_flight_since(&self) -> Option<Instant> {
        self.flight.is_some().then_some(self.asked_at)
    }

    /// The compound in flight takes too long. [`advance`](Self::advance) is to follow.
    pub fn give_up(&mut self) {
        let sent = self.request.take().is_none();
        self.on_reply(Err(if sent {
            Refusal::Unknown
        } else {
            Refusal::Unavailable
        }));
    }

    /// The reply to the compound in flight. [`advance`](Self::advance) is to follow.
    pub fn on_reply(&mut self, outcome: Result<Bytes, Refusal>) {
        let Some(expected) = self.flight.take() else {
            return;
        };
        self.flight_bytes = 0;
        let mut notes = std::mem::take(&mut self.flight_notes);
        let took = self.flight_since.elapsed();
        if self.closing {
            // It was aborted meanwhile, and its client is to see no more than it has.
            return;
        }
        self.ends_with_answer = true;
        self.unanswered = matches!(outcome, Err(Refusal::Unavailable | Refusal::Unknown));
        if let Ok(reply) = &outcome {
            self.forecast = Some(room::forecast(self.forecast.unwrap_or(0), reply.len()));
        }
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        match (outcome, expected) {
            (Ok(reply), Expected::Pipeline(mut commands)) => {
                let (done, replies) = kv::answered(&reply);
                transaction::write_replies(&replies, &mut context);
                // The others are sent again when there is room for their replies.
                let done = done.unwrap_or(commands.len()).clamp(1, commands.len());
                let again = notes.split_off(done.min(notes.len()));
                count_executed(&replies, &notes, took, &mut context);
                again
                    .into_iter()
                    .rev()
                    .for_each(|note| self.notes.push_front(note));
                for command in commands.drain(done.min(commands.len())..).rev() {
                    self.waiting_bytes += footprint(&command);
                    self.waiting.push_front(command);
                }
            }
            (Ok(reply), Expected::One) => {
                let replies = kv::answered(&reply).1;
                transaction::write_replies(&replies, &mut context);
                count_executed(&replies, &notes, took, &mut context);
            }
            (Ok(reply), Expected::Transaction(own)) => {
                transaction::write_executed(&reply, &own, &mut context);
                count_executed(&reply, &notes, took, &mut context);
            }
            (Ok(reply), Expected::Info(words)) => {
                let keys = resp3::integers(&[b"*1\r\n", &*reply].concat())
                    .and_then(|keys| keys.first().copied());
                commands::server::write_info(&mut context, &words, keys);
            }
            (Err(_), Expected::Info(words)) => {
                commands::server::write_info(&mut context, &words, None)
            }
            (Ok(_), Expected::Check) => context.ok(),
            (Ok(reply), Expected::Versions(keys)) => {
                self.transaction.on_versions(keys, &reply, &mut context)
            }
            (Err(refusal), expected) => {
                count(&self.host.stats.compounds_refused, 1);
                let commands = match expected {
                    Expected::Pipeline(commands) => commands.len(),
                    Expected::Transaction(_)
                    | Expected::One
                    | Expected::Check
                    | Expected::Info(_) => 1,
                    Expected::Versions(_) => {
                        self.transaction.on_versions_refused();
                        1
                    }
                };
                (0..commands).for_each(|_| context.error(refusal_text(refusal)));
            }
        }
        self.account();
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

    /// Replies to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    /// This number of bytes of the output was sent. [`advance`](Self::advance) is to follow if the
    /// output [was full](Self::output_is_full).
    pub fn on_sent(&mut self, len: usize) {
        count(&self.host.stats.bytes_out, len as u64);
        self.output.on_sent(len);
        self.account();
    }

    /// Whether the client has to take replies before anything else is done for it: all of them
    /// while all clients together hold much.
    pub fn output_is_full(&self) -> bool {
        let limits = &self.host.limits;
        let scarce = self.host.held() > limits.memory_bytes / 2;
        self.output.len() >= if scarce { 1 } else { limits.output_bytes_soft }
    }

    /// Whether the connection is to be closed now.
    pub fn is_closed(&self) -> bool {
        self.closing && self.output.len() == 0
    }

    /// Whether nothing that the client has begun is left undone: no command, no part of one, no
    /// transaction.
    pub(crate) fn is_quiet(&self) -> bool {
        let begun = self.transaction.is_open()
            || self.client.watched.get() > 0
            || self.parser.is_unfinished();
        !begun && self.is_idle() && !self.stalled && self.input.is_empty()
    }

    /// Whether an answer of the cluster is on its way to the client, with nothing behind it.
    pub(crate) fn ends_with_answer(&self) -> bool {
        self.ends_with_answer && self.output.len() > 0
    }

    /// The client is to leave: nothing more is done for it than to send it what is in the output.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the client was told an error as the last: its system must not lose it.
    pub fn has_last_word(&self) -> bool {
        self.failed_at.is_some()
    }

    /// Bytes that the connection holds.
    pub fn held(&self) -> usize {
        self.client.memory.get().total()
    }

    /// Closes the connection, as it holds more than all others while all together hold too much.
    pub fn evict(&mut self) {
        let (held, all) = (self.held() >> 10, self.host.limits.memory_bytes >> 10);
        self.close_for_memory(format_args!(
            "of all clients of this node this one holds most of the memory that is for them, {held} of {all} KiB"
        ));
    }

    /// Whether [`on_time`](Self::on_time) has to be called now and then.
    pub fn has_deadline(&self) -> bool {
        self.unfinished.is_some() || self.failed_at.is_some()
    }

    /// Gives up what takes too long: a command that does not come to its end, a client that does
    /// not take its error.
    pub fn on_time(&mut self, now: Instant) {
        let limits = &self.host.limits;
        let seconds = limits.unfinished.as_secs();
        if self
            .failed_at
            .is_some_and(|at| now.saturating_duration_since(at) > limits.linger)
        {
            self.output.clear();
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
            // It is not read from, so the client cannot go on.
            *unfinished = Unfinished {
                since: now,
                bytes: 0,
            };
        }
        self.account();
    }

    /// Whether nothing more is done for the client than to send it what is in the output.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    fn close_for_memory(&mut self, why: std::fmt::Arguments<'_>) {
        count(&self.host.stats.evicted, 1);
        self.close_for(format_args!(
            "ERR closed: {why}. A command that was not answered may or may not have been executed"
        ));
    }

    /// Forgets all that the client wants, and closes the connection. The client gets the reason,
    /// unless it is in the middle of a large reply.
    fn close_for(&mut self, text: std::fmt::Arguments<'_>) {
        if self.closing {
            return;
        }
        tracing::warn!(
            client = self.client.id,
            address = self.client.address,
            "{text}"
        );
        (self.parser, self.input) = (Parser::default(), Bytes::new());
        (self.waiting, self.notes, self.waiting_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        self.flight_notes = Vec::new();
        (self.flight, self.request, self.flight_bytes) = (None, None, 0);
        (self.stalled, self.failure, self.unfinished) = (false, None, None);
        self.transaction.reset(&self.client);
        if self.output.drop_unsent() {
            reply::error(self.output.tail(), text);
        }
        self.closing = true;
        self.failed_at = Some(Instant::now());
        self.account();
    }

    /// Counts what the connection holds, and closes it if that is too much.
    fn account(&mut self) {
        let memory = ClientMemory {
            input: self.parser.held() + self.input.len(),
            commands: self.waiting_bytes + self.flight_bytes,
            transaction: self.transaction.held(),
            output: self.output.held(),
            replies: self.output.len(),
        };
        self.host.account(&self.client, memory);
        if memory.total() > self.host.limits.client_bytes && !self.closing {
            let (held, most) = (memory.total() >> 10, self.host.limits.client_bytes >> 10);
            self.close_for_memory(format_args!(
                "commands and replies of this client take {held} KiB, {most} are allowed"
            ));
        }
    }

    /// Notes since when there is a command that is not complete.
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
            || self.waiting.len() < limits.compound_commands
                && self.waiting_bytes < 2 * limits.compound_bytes
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
                    self.failed_at = Some(Instant::now());
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
            self.unfinished = None;
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
            Ok(command) => {
                self.waiting_bytes += footprint(&command);
                self.waiting.push_back(command);
                let note = self.note(words);
                self.notes.push_back(note);
            }
            Err(_) if is_http(words) => {
                tracing::warn!(
                    client = self.client.id,
                    address = self.client.address,
                    "closed: it speaks HTTP"
                );
                self.abort();
            }
            Err(_) if !self.is_idle() => return false,
            Err(text) => {
                self.count_refused(words, &text);
                reply::error(self.output.tail(), text);
            }
        }
        true
    }

    /// What is noted of a command for the state machine.
    fn note(&mut self, words: &[Bytes]) -> Note {
        let name = kv::command_info(&words[0]).map_or("unknown", |info| info.name);
        self.client.last_command.set(name);
        let tracked = tracking::keys(&self.client, words);
        self.client.caching.set(None);
        Note {
            name,
            since: self.client.last_active.get(),
            tracked,
        }
    }

    /// Counts a command that was not given to the state machine.
    fn count_refused(&self, words: &[Bytes], text: &str) {
        let usage = &self.host.usage;
        match kv::command_info(&words[0]) {
            None => usage.error(text.as_bytes()),
            Some(info) if text.starts_with("ERR wrong number") => {
                usage.rejected(info.name, text.as_bytes())
            }
            Some(info) => {
                usage.called(info.name, Duration::ZERO);
                usage.failed(info.name, text.as_bytes());
            }
        }
    }

    /// Executes one of the gateway's own commands. Nothing is in flight.
    fn execute_own(&mut self, own: &'static Own, words: &[Bytes]) -> bool {
        if matches!(own.run, Run::Control(Control::Exec)) && !own.takes(words.len()) {
            self.transaction.reset(&self.client);
            let mut context = Context {
                host: &self.host,
                client: &self.client,
                out: self.output.tail(),
            };
            context.error(BAD_EXEC);
            return true;
        }
        let at_once = match own.run {
            Run::Control(Control::Unwatch) | Run::Plain(_) => !self.transaction.is_open(),
            Run::Control(_) => true,
        };
        if !at_once || self.transaction.is_open() && !own.takes(words.len()) {
            self.queue(words);
            return true;
        }
        self.ends_with_answer = false;
        self.client.last_command.set(own.name);
        let began = Instant::now();
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        if !own.takes(words.len()) {
            context.wrong_number(own.name);
            return true;
        }
        match own.run {
            // What only the cluster knows; a replica says it at once.
            Run::Plain(_) if own.name == "info" && commands::server::wants_keys(words) => {
                let size = Command::parse(&[Bytes::from_static(b"dbsize")])
                    .expect("a command without arguments");
                self.submit_at(
                    Operation::Read(ReadLevel::Eventual),
                    &Compound::Pipeline(vec![size]),
                );
                self.flight = Some(Expected::Info(words.to_vec()));
            }
            Run::Plain(_)
                if own.name == "ionian" && words.len() == 2 && commands::is(&words[1], "CHECK") =>
            {
                self.submit_at(
                    Operation::Read(ReadLevel::Linearizable),
                    &Compound::Versions(Vec::new()),
                );
                self.flight = Some(Expected::Check);
            }
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
                if let Step::Submit(compound, expected) =
                    self.transaction.control(control, words, &mut context)
                {
                    if let Expected::Transaction(_) = expected {
                        let tracked = self.transaction.take_tracked();
                        self.flight_notes = vec![Note {
                            name: own.name,
                            since: began,
                            tracked,
                        }];
                        self.client.caching.set(None);
                    }
                    self.submit(&compound);
                    self.flight = Some(expected);
                }
            }
        }
        if self.flight_notes.is_empty() {
            self.host.usage.called(own.name, began.elapsed());
        }
        true
    }

    fn queue(&mut self, words: &[Bytes]) {
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        self.transaction.queue(words, &mut context);
    }

    /// Sends what waits as one compound: the reads at its front, if there are any; else all, the
    /// reads between the writes included, which keeps the order. True if something was sent.
    fn dispatch(&mut self) -> bool {
        if self.flight.is_some() || self.closing || self.output_is_full() {
            return false;
        }
        let Some(first) = self.waiting.front() else {
            return false;
        };
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
        self.flight_notes = self.notes.drain(..commands).collect();
        let commands: Vec<_> = self.waiting.drain(..commands).collect();
        self.waiting_bytes -= commands.iter().map(footprint).sum::<usize>();
        let compound = Compound::Pipeline(commands);
        self.submit(&compound);
        if self.unanswered
            && let Some(first) = self.flight_notes.first()
        {
            self.asked_at = first.since;
        }
        let Compound::Pipeline(commands) = compound else {
            unreachable!("it was made a pipeline")
        };
        self.flight = Some(if commands.len() > 1 {
            self.flight_bytes *= 2;
            Expected::Pipeline(commands)
        } else {
            Expected::One
        });
        true
    }

    fn submit(&mut self, compound: &Compound) {
        let operation = match compound {
            _ if !compound.is_read() => Operation::Write,
            // What is watched has to be what is there now, whatever the connection's other reads
            // may see.
            Compound::Versions(_) => Operation::Read(ReadLevel::Linearizable),
            Compound::Transaction { watched, .. } if !watched.is_empty() => {
                Operation::Read(ReadLevel::Linearizable)
            }
            Compound::Transaction { .. } | Compound::Pipeline(_) => {
                Operation::Read(self.client.level.get())
            }
        };
        self.submit_at(operation, compound);
    }

    fn submit_at(&mut self, operation: Operation, compound: &Compound) {
        assert!(
            self.flight.is_none(),
            "a connection has one compound in flight"
        );
        count(&self.host.stats.compounds, 1);
        self.flight_since = Instant::now();
        self.asked_at = self.flight_since;
        let payload = Bytes::from(compound.encode());
        self.flight_bytes = payload.len();
        self.request = Some((operation, payload));
    }
}

/// Counts commands that were executed within `took`, and invalidates what they have read.
fn count_executed(replies: &[u8], notes: &[Note], took: Duration, context: &mut Context<'_>) {
    let usage = &context.host.usage;
    let mut rest = replies;
    for Note { name, .. } in notes {
        usage.called(name, took);
        let Some((reply, after)) = resp3::split_reply(rest) else {
            continue;
        };
        if let Some(text) = reply.strip_prefix(b"-") {
            usage.failed(name, text);
        }
        rest = after;
    }
    notes
        .iter()
        .for_each(|note| tracking::invalidate(&note.tracked, context));
}

/// About what a waiting command takes in memory: its words lie in what was received, with their
/// lengths around them.
fn footprint(command: &Command) -> usize {
    command.encoded_len() + size_of::<Command>()
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.host.disconnect(&self.client);
    }
}

/// A web page can make a browser send a request here, whose body would be commands. Like Redis,
/// close the connection at the first words of such a request.
fn is_http(words: &[Bytes]) -> bool {
    debug_assert!(!kv::knows(b"post") && !kv::knows(b"host:"));
    words[0].eq_ignore_ascii_case(b"post") || words[0].eq_ignore_ascii_case(b"host:")
}

/// The error that a client gets. Clients know the codes: both mean that the same command may
/// succeed later.
fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => {
            "BUSY Ionian is overloaded: too much in flight, the command was not executed, try again later"
        }
        Refusal::Unavailable => {
            "TRYAGAIN the cluster did not answer in time, the command was not executed"
        }
        Refusal::Unknown => {
            "TRYAGAIN the cluster did not answer in time, the command may or may not have been executed"
        }
        Refusal::NotARead => "ERR the command changes state and cannot be sent as a read",
        Refusal::TooLarge => "ERR the command is larger than the cluster's limit",
        Refusal::Failed => "ERR the state machine fails on this command, which was not executed",
    }
}
