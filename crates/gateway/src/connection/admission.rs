//! Whether a command may be executed, before it is.

use super::Connection;
use crate::commands::{self, Control, Named, Run};
use crate::host::count;
use crate::login::LoginWait;
use crate::parser::ProtocolError;
use crate::reply::{self, Context};
use crate::rights::{GONE, Verdict};
use crate::transaction::{self, Expected};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_machines::kv::Command;
use std::time::Instant;

/// What becomes of a command.
pub(super) enum Admission {
    Granted,
    /// It must wait for the commands before it, or for the users of the cluster.
    Waits,
    /// It was refused.
    Answered,
}

/// What a connection knows of the users.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// The users are those of now: they were fetched for the next command.
    is_fresh: bool,
    /// Why those of now could not be fetched for the next command.
    pub(super) refusal: Option<Refusal>,
}

impl Connection {
    /// Judges a command that was received.
    #[inline]
    pub(super) fn admit(&mut self, named: Named, words: &[Bytes]) -> Admission {
        match self.host.rights.are_checked() {
            true => self.admit_checked(named, words),
            false => Admission::Granted,
        }
    }

    fn admit_checked(&mut self, named: Named, words: &[Bytes]) -> Admission {
        let logs_in = || named.own().is_some_and(|own| own.logs_in(words));
        let may_wait = self.host.logins.has_failures() || self.client.over_quota.get();
        if may_wait && logs_in() && self.delays_login() {
            return Admission::Waits;
        }
        if self.client.looks_up_user.get() && !self.is_early_ping(named) {
            return self.wait_for_users();
        }
        if let Err(admission) = self.admit_by_quotas(words) {
            return admission;
        }
        let needs_users = !self.host.rights.are_known() && !self.is_early_ping(named)
            || !self.fetched.is_fresh && self.depends_on_users(named, words);
        if needs_users {
            return self.wait_for_users();
        }
        let verdict = self.host.judge(&self.client, named, words);
        if verdict != Verdict::Allowed && !self.is_idle() {
            return Admission::Waits;
        }
        let refusal = std::mem::take(&mut self.fetched).refusal;
        match verdict {
            Verdict::Allowed => match refusal.filter(|_| self.needs_quorum(named)) {
                None => return Admission::Granted,
                // It has waited for the cluster as long as a command may.
                Some(refusal) => {
                    reply::error(self.output.tail(), super::compound::refusal_text(refusal));
                }
            },
            Verdict::Refused(text) => self.refuse(words, &text),
            Verdict::Gone => self.close_gone(),
        }
        Admission::Answered
    }

    /// Whether the gateway must fetch the present users before it judges the command. It must for
    /// commands that it answers itself and that log in, show users or are privileged. The machine
    /// refuses other commands if they were judged by outdated users.
    fn depends_on_users(&self, named: Named, words: &[Bytes]) -> bool {
        let has_users = self.host.rights.epoch() > 0;
        match named.own() {
            None => false,
            Some(own) if matches!(own.run, Run::Control(Control::Exec)) => {
                has_users && self.transaction.own().any(is_privileged)
            }
            Some(_) if self.transaction.is_open() => false,
            Some(own) => {
                own.logs_in(words)
                    || own.name == "acl" && commands::acl::depends_on_users(words)
                    || has_users && is_privileged(words)
            }
        }
    }

    /// Whether the command is sent to the cluster, and no replica answers it alone.
    fn needs_quorum(&self, named: Named) -> bool {
        let is_read = named.is_read() && self.client.level.get() != ReadLevel::Linearizable;
        matches!(named, Named::Machine(_)) && !self.transaction.is_open() && !is_read
    }

    /// Asks for the users of now, once all commands before are answered. If they could not be
    /// learned for this command, that is its answer.
    fn wait_for_users(&mut self) -> Admission {
        if self.is_idle() {
            if let Some(refusal) = self.fetched.refusal.take() {
                reply::error(self.output.tail(), super::compound::refusal_text(refusal));
                return Admission::Answered;
            }
            self.fetch_users(ReadLevel::Linearizable);
        }
        Admission::Waits
    }

    /// Whether this is PING before the gateway knows any users. It says that the gateway runs, also
    /// where the cluster was never complete, so it does not wait for what only the cluster knows.
    fn is_early_ping(&self, named: Named) -> bool {
        let is_ping = named.own().is_some_and(|own| own.name == "ping");
        is_ping && self.host.rights.users().is_none()
    }

    /// Whether this attempt to log in waits, after many from its address with wrong passwords, or
    /// one that a quota has refused. It waits once.
    fn delays_login(&mut self) -> bool {
        let now = Instant::now();
        let delays = self.client.over_quota.get() || self.host.delays_login(&self.client, now);
        if self.login_wait == LoginWait::None && delays {
            count(&self.host.stats.logins_delayed, 1);
            self.login_wait = LoginWait::Until(now + self.host.limits.login_delay);
        }
        self.login_wait.is_on()
    }

    /// Whether the client had the time to log in, has to, and has not.
    pub(super) fn is_late_to_log_in(&self, now: Instant) -> bool {
        let Some(since) = self.client.unauthenticated.get() else {
            return false;
        };
        let must = self.host.must_log_in(&self.client);
        if !must && self.host.is_logged_in(&self.client) {
            self.host.no_longer_unauthenticated(&self.client);
        }
        must && now.saturating_duration_since(since) > self.host.limits.login
    }

    /// Parses the next command, under stricter limits if the client has to log in.
    pub(super) fn parse(&mut self) -> Result<bool, ProtocolError> {
        let before = self.input.len();
        let parsed = match self.host.must_log_in(&self.client) {
            false => self.parser.next(&mut self.input, &self.host.limits),
            true => {
                let limits = self.host.limits.before_login();
                let parsed = self.parser.next(&mut self.input, &limits);
                parsed.map_err(ProtocolError::before_login)
            }
        };
        self.command_bytes += before - self.input.len();
        parsed
    }

    /// Answers a command that is not allowed.
    pub(super) fn refuse(&mut self, words: &[Bytes], text: &str) {
        let is_exec =
            commands::find(words).is_some_and(|own| matches!(own.run, Run::Control(Control::Exec)));
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        if is_exec {
            self.transaction.reset(&self.client);
            context.error(format_args!(
                "EXECABORT Transaction discarded because of: {text}"
            ));
        } else {
            self.transaction.fail();
            context.error(text);
        }
    }

    /// Closes the connection if its user was deleted or switched off. Only the output remains.
    pub(crate) fn leave_if_gone(&mut self) {
        if !self.closing && self.host.is_gone(&self.client) {
            self.close_gone();
        }
    }

    fn close_gone(&mut self) {
        self.close_for(format_args!("{GONE}"));
    }

    /// Asks for the users of the cluster, for the next command or for a compound that was judged by
    /// other ones.
    pub(super) fn fetch_users(&mut self, level: ReadLevel) {
        let question = self.host.rights.question();
        self.submit_at(Operation::Read(level), &question, None);
        self.flight = Some(Expected::Users(level));
    }

    /// Takes the reply to that.
    pub(super) fn on_users(&mut self, level: ReadLevel, outcome: Result<Bytes, Refusal>) {
        let learned = outcome.and_then(|reply| match self.host.rights.learn(&reply) {
            true => Ok(()),
            // A replica of an earlier program does not know the question.
            false => Err(Refusal::Unavailable),
        });
        if self.client.looks_up_user.get() {
            return self.on_user_looked_up(learned);
        }
        // Reads that may be stale are served without a quorum, by what the gateway can learn then.
        // A replica that has executed nothing yet knows no passwords, so that does not do for AUTH.
        if let Err(refusal) = learned
            && !self.host.rights.are_known()
            && level == ReadLevel::Linearizable
        {
            self.fetched.refusal = Some(refusal);
            return self.fetch_users(ReadLevel::Eventual);
        }
        match (self.outdated.take(), learned) {
            (Some(outdated), Ok(())) => self.submit_again(outdated),
            (Some(outdated), Err(refusal)) => self.give_up_outdated(outdated, refusal),
            (None, Ok(())) => self.fetched.is_fresh = level == ReadLevel::Linearizable,
            (None, Err(refusal)) => self.fetched.refusal = Some(refusal),
        }
    }

    /// Judges the first `most` commands that wait again, those that were judged by other users.
    pub(super) fn judge_waiting(&mut self, most: usize) {
        let waiting = self.waiting.iter_mut().zip(&mut self.notes);
        for (command, note) in waiting.take(most) {
            if let Err(text) = note.judgement.renew(&self.host, &self.client) {
                self.waiting_bytes -= super::compound::footprint(command);
                *command = Command::refused(text);
                self.waiting_bytes += super::compound::footprint(command);
            }
        }
    }

    /// Judges the queued commands again before EXEC, if the users have changed. Answers EXEC and
    /// returns false if one is not allowed any more.
    pub(super) fn judge_queue(&mut self) -> bool {
        let judged = self.transaction.judgements();
        let Err(text) = transaction::renew_all(judged, &self.host, &self.client) else {
            return true;
        };
        self.transaction.reset(&self.client);
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        context.error(text);
        false
    }
}

/// Whether this is one of the gateway's own commands that are privileged, except changes of users
/// and of the limit of memory: the machine refuses those if they were judged by outdated rules.
fn is_privileged(words: &[Bytes]) -> bool {
    let own = commands::find(words);
    let command = own.map(|own| own.id.with_subcommand(words));
    let changes = ["acl|setuser", "acl|deluser", "config|set"];
    command.is_some_and(|it| it.is_privileged() && !changes.contains(&it.name()))
}
