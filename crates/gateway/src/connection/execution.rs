//! Executes commands: the gateway's own at once, those for the state machine by queueing them for a
//! compound.

use super::admission::Admission;
use super::compound::footprint;
use super::{Connection, Note};
use crate::commands::{self, Control, Named, Own, Run};
use crate::host::count;
use crate::login::LoginWait;
use crate::measured::{Family, Outcome, micros};
use crate::parser::compact;
use crate::quotas::Pace;
use crate::reply::{self, Context};
use crate::rights::Judgement;
use crate::tracking;
use crate::transaction::{Expected, Step};
use bytes::Bytes;
use ionian_kernel::client::{DiskRoom, Operation, ReadLevel};
use ionian_machines::kv::{self, Command, Compound};
use std::time::{Duration, Instant};

const BAD_EXEC: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";

/// The error for commands that need memory while the disk of the node is full. Redis has the same
/// word for what it cannot make durable.
const DISK_FULL: &str = "MISCONF the disk of this node is full: only reads and commands that free \
                         memory are accepted";

/// The error for long commands while the disk of the node is full, though they may free memory.
const DISK_FULL_LONG: &str = "MISCONF the disk of this node is full: commands and transactions of at \
                              most 4096 bytes are accepted";

/// The error for writes while even the log has no more room.
const LOG_FULL: &str =
    "MISCONF the log of this node is full, and its disk: only reads and FLUSHALL are accepted";

/// The same for reads that the protocol writes to the log.
const LOG_FULL_FOR_READS: &str = "MISCONF the log of this node is full, and its disk: only FLUSHALL \
                                  and reads of lower consistency are accepted";

/// The bytes of the words of a command that is executed while the disk is full. A long one that
/// frees nothing would take more of the log than the next snapshot makes free.
const SHORT: usize = 4096;

impl Connection {
    /// Executes the parsed command, or marks it as waiting.
    pub(super) fn act(&mut self) {
        let mut words = self.parser.take_words();
        self.stalled = !self.execute(&words);
        if !self.stalled {
            count(&self.host.stats.commands, 1);
            count(&self.client.commands, 1);
            self.unfinished = None;
            self.login_wait = LoginWait::None;
            (self.pace, self.command_bytes) = (Pace::Unpaid, 0);
            words.clear();
        }
        self.parser.put_words(words);
        self.end_killed();
    }

    /// Executes a command; returns false if the command must wait until all before it are answered.
    fn execute(&mut self, words: &[Bytes]) -> bool {
        let named = Named::of(words);
        match self.admit(named, words) {
            Admission::Granted => {}
            Admission::Waits => return false,
            Admission::Answered => return true,
        }
        if let Some(refusal) = self.lacks_room(named, words) {
            if self.is_idle() {
                self.refuse(words, refusal);
                return true;
            }
            return false;
        }
        match named {
            Named::Own(own) => self.is_idle() && self.execute_own(own, words),
            _ if self.transaction.is_open() => {
                self.queue(words);
                true
            }
            _ => self.execute_replicated(named, words),
        }
    }

    /// The error if the disk of the node has no room for this command.
    fn lacks_room(&self, named: Named, words: &[Bytes]) -> Option<&'static str> {
        match self.host.disk_room.get() {
            DiskRoom::Enough => None,
            _ if named.grows() => Some(DISK_FULL),
            DiskRoom::None if self.is_logged_read(named) => Some(LOG_FULL_FOR_READS),
            _ if named.is_read() => None,
            DiskRoom::None => (!named.frees_all()).then_some(LOG_FULL),
            DiskRoom::Little => {
                let bytes: usize = words.iter().map(Bytes::len).sum();
                (bytes + self.transaction.queued_bytes() > SHORT).then_some(DISK_FULL_LONG)
            }
        }
    }

    /// Whether the protocol writes this read to the log.
    fn is_logged_read(&self, named: Named) -> bool {
        let is_machine = matches!(named, Named::Machine(_)) && named.is_read();
        let is_linearizable = self.client.level.get() == ReadLevel::Linearizable;
        is_machine && is_linearizable && self.host.limits.logs_reads
    }

    /// Queues a command for the state machine for the next compound.
    fn execute_replicated(&mut self, named: Named, words: &[Bytes]) -> bool {
        let known = |command| self.host.rights.check_known(command, words);
        match Command::parse(words).and_then(known) {
            Ok(command) if command.block_ms().is_some() => {
                return self.is_idle() && self.execute_blocking(named, words);
            }
            // A transaction in flight may contain HELLO, which changes the client's protocol.
            Ok(command) if command.has_maps() && !self.is_idle() => return false,
            Ok(command) => {
                let command = self.for_client(command);
                self.waiting_bytes += footprint(&command);
                self.waiting.push_back(command);
                let note = self.note(named, words);
                self.notes.push_back(note);
            }
            Err(_) if is_http(words) => {
                tracing::warn!(
                    id = "E0404",
                    client = self.client.id,
                    address = self.client.address,
                    "closed: HTTP is not supported"
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

    /// Executes XREAD with BLOCK, while nothing is in flight.
    fn execute_blocking(&mut self, named: Named, words: &[Bytes]) -> bool {
        // It may wait for long, so its words are copied to release the input.
        let command = Command::parse(&compact(words));
        match command.and_then(|command| self.may_block(&command).map(|()| command)) {
            Ok(command) => {
                let note = self.note(named, words);
                self.block(self.for_client(command), note);
            }
            Err(text) => {
                self.count_refused(words, &text);
                reply::error(self.output.tail(), text);
            }
        }
        true
    }

    /// Whether XREAD with BLOCK is within the limits; otherwise the error.
    fn may_block(&self, command: &Command) -> Result<(), String> {
        let limits = &self.host.limits;
        let streams = command.read_keys().len();
        let (most, bytes) = (limits.compound_commands, limits.compound_bytes);
        if streams > most {
            return Err(format!("ERR XREAD with BLOCK reads at most {most} streams"));
        }
        // The gateway sends its keys again and again.
        if command.encoded_len() > bytes {
            return Err(format!("ERR XREAD with BLOCK is larger than {bytes} bytes"));
        }
        let (all, most) = (
            self.host.awaited.borrow().streams() + streams,
            limits.awaited_streams,
        );
        if all > most {
            return Err(format!(
                "ERR clients of this node would wait for {all} streams, the limit is {most}"
            ));
        }
        Ok(())
    }

    /// The command whose reply is in the client's protocol.
    fn for_client(&self, command: Command) -> Command {
        match self.client.resp3.get() {
            true => command.with_maps(),
            false => command,
        }
    }

    /// The note for a command for the state machine.
    fn note(&mut self, named: Named, words: &[Bytes]) -> Note {
        let Named::Machine(info) = named else {
            unreachable!("a command that was parsed is in the table")
        };
        let name = info.name;
        self.client.last_command.set(name);
        let tracked = tracking::keys(&self.client, words);
        self.client.caching.set(None);
        Note {
            name,
            family: Family::of(info.flags),
            words: words.len(),
            since: self.client.last_active.get(),
            tracked,
            judgement: self.host.rights.judgement(words),
        }
    }

    /// Counts a command that did not reach the state machine.
    fn count_refused(&self, words: &[Bytes], text: &str) {
        let usage = &self.host.usage;
        match kv::command_info(words) {
            None => {
                self.host.meter.answered(Family::Admin, Outcome::Error);
                usage.error(text.as_bytes());
            }
            Some(info) if text.starts_with("ERR wrong number") => {
                usage.rejected(info.name, text.as_bytes())
            }
            Some(info) => {
                usage.called(info.name, Duration::ZERO);
                usage.failed(info.name, text.as_bytes());
            }
        }
    }

    /// Executes one of the gateway's own commands, while nothing is in flight.
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
        if matches!(own.run, Run::Control(Control::Exec)) && !self.judge_queue() {
            return true;
        }
        let replied = self.output.tail().len();
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
            // Only the cluster knows this; an eventual read returns it without delay.
            Run::Plain(_) if own.name == "info" && commands::server::wants_keys(words) => {
                let size = Command::parse(&[Bytes::from_static(b"dbsize")])
                    .expect("a command without arguments");
                let mut asked = vec![size, Command::expiring()];
                asked.retain(|it| self.host.rights.check_level(it.since(), "").is_ok());
                self.submit_at(
                    Operation::Read(ReadLevel::Eventual),
                    &Compound::Pipeline(asked),
                    None,
                );
                self.flight = Some(Expected::Info(words.to_vec()));
            }
            Run::Plain(_)
                if own.name == "ionian" && words.len() == 2 && commands::is(&words[1], "CHECK") =>
            {
                self.submit_at(
                    Operation::Read(ReadLevel::Linearizable),
                    &Compound::Versions(Vec::new()),
                    None,
                );
                self.flight = Some(Expected::Check);
            }
            Run::Plain(run) if own.has_changes() => match commands::change(&context, words) {
                Ok(None) => run(&mut context, words),
                Err(text) => context.error(text),
                Ok(Some(compound)) => {
                    self.submit_at(Operation::Write, &compound, None);
                    self.flight = Some(Expected::Changed(words.to_vec()));
                }
            },
            Run::Plain(run) => self.turn += commands::run(run, words, &mut context),
            Run::Control(Control::Quit) => {
                context.ok();
                self.closing = true;
            }
            Run::Control(Control::Reset) => match self.host.log_out(&self.client) {
                Ok(()) => {
                    self.transaction.reset(&self.client);
                    self.client.reset();
                    context.simple("RESET");
                    self.look_up_user();
                }
                Err(why) => context.error(why),
            },
            Run::Control(control) => {
                if let Step::Submit(compound, expected) =
                    self.transaction.control(control, words, &mut context)
                {
                    if let Expected::Transaction(..) = expected {
                        let tracked = self.transaction.take_tracked();
                        self.flight_notes = vec![Note {
                            name: own.name,
                            family: Family::Transaction,
                            words: words.len(),
                            since: began,
                            tracked,
                            judgement: self.host.rights.judgement(&[]),
                        }];
                        self.client.caching.set(None);
                    }
                    let judged = match &expected {
                        Expected::Transaction(_, all) => all.iter().map(Judgement::epoch).min(),
                        _ => None,
                    };
                    self.submit(&compound, judged);
                    self.flight = Some(expected);
                }
            }
        }
        if self.flight_notes.is_empty() {
            let took = began.elapsed();
            self.host.usage.called(own.name, took);
            let outcome = match self.output.tail().get(replied) {
                Some(b'-') => Outcome::Error,
                _ => Outcome::Ok,
            };
            self.host.meter.answered(Family::Admin, outcome);
            self.host.meter.served(Family::Admin, micros(took));
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
}

/// A web page can make a browser send a request to this port, whose body would contain commands.
/// Like Redis, the gateway closes the connection at the first words of such a request.
fn is_http(words: &[Bytes]) -> bool {
    debug_assert!(!kv::knows(b"post") && !kv::knows(b"host:"));
    words[0].eq_ignore_ascii_case(b"post") || words[0].eq_ignore_ascii_case(b"host:")
}
