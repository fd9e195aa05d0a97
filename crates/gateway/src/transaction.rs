//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! ```text
//! WATCH a b      -> Versions(a, b), a linearizable read; its reply says which versions EXEC has to find
//! MULTI, ...     -> nothing leaves the gateway
//! EXEC           -> Transaction { watched, commands }: checked and executed as one
//! ```
//!
//! Own commands such as PING may stand between MULTI and EXEC too. They are executed when the state
//! machine's reply has come, and their replies are put in their places.

use crate::commands::{self, Control, Run};
use crate::host::{Client, Host};
use crate::parser::compact;
use crate::reply::Context;
use crate::resp3;
use crate::rights::Judgement;
use crate::tracking;
use bytes::Bytes;
use ionian_kernel::client::ReadLevel;
use ionian_machines::kv::{Command, Compound};

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// The transaction state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Between MULTI and EXEC.
    queue: Option<Queue>,
    /// Keys with the versions at which they were watched.
    watched: Vec<(Bytes, u64)>,
    /// Their memory.
    watched_bytes: usize,
    /// For the transaction in execution: tracked keys of its reads.
    tracked: Vec<Bytes>,
    /// Whether a WATCH was not answered, so that a transaction that relies on it must not execute.
    watch_failed: bool,
}

/// The commands that MULTI has queued.
#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Command>,
    own: Vec<OwnInQueue>,
    bytes: usize,
    /// Tracked keys of reads.
    tracked: Vec<Bytes>,
    /// By which users the commands were judged.
    judged: Vec<Judgement>,
    /// Whether a command could not be queued, so that EXEC must fail.
    failed: bool,
}

/// The work, in bytes of replies, that the gateway's own commands of one transaction may be: all
/// clients of the node wait for it.
const OWN_WORK: usize = 4 << 20;

const TOO_MUCH_WORK: &str =
    "ERR too much work for the gateway in one MULTI, the command was not executed";

/// One of the gateway's own commands in a transaction.
#[derive(Debug)]
pub(crate) struct OwnInQueue {
    /// The number of commands before it.
    place: usize,
    words: Vec<Bytes>,
}

/// The effect of a control command.
pub(crate) enum Step {
    /// The reply is written.
    Answered,
    /// The state machine sends the reply.
    Submit(Compound, Expected),
}

/// How to interpret the reply to a compound.
#[derive(Debug)]
pub(crate) enum Expected {
    /// The replies of these commands, or of the first of them.
    Pipeline(Vec<Command>),
    /// The reply of one command, which is not stored because it may be large.
    One,
    /// The reply to XREAD with BLOCK, or what it waits for.
    Blocking,
    /// The number of keys, for INFO with these words.
    Info(Vec<Bytes>),
    /// Whether a quorum answers, for IONIAN CHECK.
    Check,
    /// The replies of all commands in an array, or null; replies of own commands are inserted.
    Transaction(Vec<OwnInQueue>, Vec<Judgement>),
    /// The reply to a change by the command with these words: of users, or of the limit of memory.
    Changed(Vec<Bytes>),
    /// The users of the cluster.
    Users(ReadLevel),
    /// The versions of these keys.
    Versions(Vec<Bytes>),
}

impl Queue {
    fn len(&self) -> usize {
        self.commands.len() + self.own.len()
    }

    /// It will not execute, so its memory can be freed.
    fn fail(&mut self) {
        *self = Queue {
            failed: true,
            ..Queue::default()
        };
    }
}

impl Transaction {
    /// Whether a transaction is open.
    pub(crate) fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// Memory of the transaction.
    pub(crate) fn held(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| {
            queue.bytes + queue.commands.capacity() * size_of::<Command>()
        }) + self.watched_bytes
    }

    /// The bytes of the queued commands.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes)
    }

    /// Queues a command, or returns why it cannot be queued. The transaction must be open.
    pub(crate) fn queue(&mut self, words: &[Bytes], context: &mut Context<'_>) {
        let queue = self
            .queue
            .as_mut()
            .expect("commands are queued between MULTI and EXEC");
        let maps = context.client.resp3.get();
        if let Err(text) = queue.push(words, maps, context.host) {
            queue.fail();
            context.error(text);
        } else {
            queue.tracked.extend(tracking::keys(context.client, words));
            context.simple("QUEUED");
        }
        context.client.queued.set(Some(queue.len()));
    }

    /// A command was refused before it was queued, so that EXEC must fail.
    pub(crate) fn fail(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.fail();
        }
    }

    /// By which users the queued commands were judged; none if EXEC fails in any case.
    pub(crate) fn judgements(&mut self) -> &mut [Judgement] {
        let queue = self.queue.as_mut();
        queue.map_or(&mut [], |queue| &mut queue.judged)
    }

    /// The words of the gateway's own commands in the queue.
    pub(crate) fn own(&self) -> impl Iterator<Item = &[Bytes]> {
        let own = self.queue.iter().flat_map(|queue| &queue.own);
        own.map(|own| &own.words[..])
    }

    /// Executes a control command that concerns transactions.
    pub(crate) fn control(
        &mut self,
        control: Control,
        words: &[Bytes],
        context: &mut Context<'_>,
    ) -> Step {
        match control {
            Control::Multi if self.is_open() => context.error("ERR MULTI calls can not be nested"),
            Control::Multi => {
                self.queue = Some(Queue::default());
                context.client.queued.set(Some(0));
                context.ok();
            }
            Control::Discard if !self.is_open() => context.error("ERR DISCARD without MULTI"),
            Control::Discard => {
                self.reset(context.client);
                context.ok();
            }
            Control::Exec => return self.exec(context),
            Control::Watch if self.is_open() => {
                context.error("ERR WATCH inside MULTI is not allowed")
            }
            Control::Watch => return self.watch(&words[1..], context),
            Control::Unwatch => {
                self.unwatch(context.client);
                context.ok();
            }
            Control::Quit | Control::Reset => {
                unreachable!("the connection executes QUIT and RESET")
            }
        }
        Step::Answered
    }

    /// Resets the transaction.
    pub(crate) fn reset(&mut self, client: &Client) {
        *self = Transaction::default();
        client.queued.set(None);
        client.watched.set(0);
    }

    fn unwatch(&mut self, client: &Client) {
        self.watched = Vec::new();
        self.watched_bytes = 0;
        self.watch_failed = false;
        client.watched.set(0);
    }

    fn watch(&mut self, keys: &[Bytes], context: &mut Context<'_>) -> Step {
        let limits = &context.host.limits;
        let bytes: usize = self
            .watched
            .iter()
            .map(|(key, _)| key)
            .chain(keys)
            .map(Bytes::len)
            .sum();
        if self.watched.len() + keys.len() > limits.watched_keys || bytes > limits.transaction_bytes
        {
            // The client may not notice, so a transaction without this watch must not execute.
            self.watch_failed = true;
            context.error("ERR too many watched keys");
            return Step::Answered;
        }
        let keys = compact(keys);
        Step::Submit(Compound::Versions(keys.clone()), Expected::Versions(keys))
    }

    fn exec(&mut self, context: &mut Context<'_>) -> Step {
        let Some(queue) = self.queue.take() else {
            context.error("ERR EXEC without MULTI");
            return Step::Answered;
        };
        let watched = std::mem::take(&mut self.watched);
        let failed = queue.failed || self.watch_failed;
        self.reset(context.client);
        if failed {
            context.error(ABORTED);
        } else if watched.is_empty() && queue.commands.is_empty() {
            let own = queue.own;
            write_executed(b"*0\r\n", &own, context);
        } else {
            self.tracked = queue.tracked;
            let compound = Compound::Transaction {
                watched,
                commands: queue.commands,
            };
            return Step::Submit(compound, Expected::Transaction(queue.own, queue.judged));
        }
        Step::Answered
    }

    /// Tracked keys of the transaction's reads.
    pub(crate) fn take_tracked(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.tracked)
    }

    /// The state machine has answered a WATCH.
    pub(crate) fn on_versions(
        &mut self,
        keys: Vec<Bytes>,
        reply: &[u8],
        context: &mut Context<'_>,
    ) {
        match resp3::integers(reply) {
            Some(versions) if versions.len() == keys.len() => {
                self.watched_bytes += keys
                    .iter()
                    .map(|key| key.len() + size_of::<(Bytes, u64)>())
                    .sum::<usize>();
                self.watched.extend(
                    keys.into_iter()
                        .zip(versions.into_iter().map(|version| version as u64)),
                );
                context.client.watched.set(self.watched.len());
                context.ok();
            }
            _ => {
                self.watch_failed = true;
                context.error("ERR the versions of the watched keys cannot be read");
            }
        }
    }

    /// A WATCH was not answered.
    pub(crate) fn on_versions_refused(&mut self) {
        self.watch_failed = true;
    }
}

impl Queue {
    /// Queues a command, whose reply has maps of RESP3 if `maps` is set.
    fn push(&mut self, words: &[Bytes], maps: bool, host: &Host) -> Result<(), String> {
        let limits = &host.limits;
        let own = commands::find(words);
        if let Some(own) = own
            && !own.takes(words.len())
        {
            return Err(format!(
                "ERR wrong number of arguments for '{}' command",
                own.name
            ));
        }
        own.map_or(Ok(()), |own| own.check_queued(words))?;
        if self.failed {
            // It does not execute here; it only produces Redis's error.
            return if own.is_some() {
                Ok(())
            } else {
                Command::parse_queued(words).map(drop)
            };
        }
        // Queued words may remain for long, so they are copied to release the input.
        let words = compact(words);
        if host.rights.are_checked() {
            self.bytes += size_of::<Judgement>() + words.len() * size_of::<Bytes>();
            self.judged.push(host.rights.judgement(&words));
        }
        if own.is_some() {
            self.bytes += words.iter().map(Bytes::len).sum::<usize>();
            self.own.push(OwnInQueue {
                place: self.len(),
                words,
            });
        } else {
            let command = Command::parse_queued(&words)?;
            let command = host.rights.check_known(command, &words)?;
            let command = if maps { command.with_maps() } else { command };
            self.bytes += command.encoded_len();
            self.commands.push(command);
        }
        if self.len() > limits.transaction_commands || self.bytes > limits.transaction_bytes {
            return Err("ERR the transaction is too large".into());
        }
        Ok(())
    }
}

/// Judges the commands of a transaction again: all of them are executed, or none.
///
/// # Errors
/// The error in place of the reply of EXEC.
pub(crate) fn renew_all(
    judged: &mut [Judgement],
    host: &Host,
    client: &Client,
) -> Result<(), String> {
    judged
        .iter_mut()
        .try_for_each(|judgement| judgement.renew(host, client))
        .map_err(|text| format!("EXECABORT Transaction discarded because of: {text}"))
}

/// Writes the reply of EXEC: the state machine's, with the replies of own commands inserted.
pub(crate) fn write_executed(reply: &[u8], own: &[OwnInQueue], context: &mut Context<'_>) {
    let len = reply
        .strip_prefix(b"*")
        .and_then(|rest| Some(rest.split_at(rest.iter().position(|&b| b == b'\r')?)));
    let len = len.and_then(|(digits, rest)| {
        Some((
            std::str::from_utf8(digits).ok()?.parse::<usize>().ok()?,
            rest,
        ))
    });
    let Some((len, mut rest)) = len.filter(|_| !own.is_empty()) else {
        // Nothing to insert, or null because a watched key has changed.
        return write_replies(reply, context);
    };
    rest = &rest[2..];
    context.array(len + own.len());
    let (mut own, mut work) = (own.iter().peekable(), 0);
    for place in 0..len + own.len() {
        if context.out.len() > context.host.limits.client_bytes {
            // The connection will be closed because of it.
            return;
        }
        if let Some(own) = own.next_if(|own| own.place == place) {
            match work < OWN_WORK {
                true => work += run(&own.words, context),
                false => context.error(TOO_MUCH_WORK),
            }
        } else if let Some((first, after)) = resp3::split_reply(rest) {
            write_replies(first, context);
            rest = after;
        }
    }
}

/// Writes replies of the state machine in the client's protocol.
pub(crate) fn write_replies(replies: &[u8], context: &mut Context<'_>) {
    if context.client.resp3.get() {
        resp3::convert(replies, context.out);
    } else {
        context.out.extend_from_slice(replies);
    }
}

/// Executes an own command of a transaction; returns how much work it was.
fn run(words: &[Bytes], context: &mut Context<'_>) -> usize {
    match commands::find(words).map(|own| own.run) {
        Some(Run::Plain(run)) => commands::run(run, words, context),
        // UNWATCH is the only control command that can be queued, and EXEC has just unwatched all
        // keys.
        _ => {
            context.ok();
            0
        }
    }
}
