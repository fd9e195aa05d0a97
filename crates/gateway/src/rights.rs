//! Who may do what: the gateway's copy of the users of the cluster, and its judgement of commands.
//!
//! The users are part of the state of the key-value machine. A gateway judges a command by its
//! copy, and sends it with the epoch of that copy. The machine refuses it if the users have changed
//! since; the gateway then asks for them and judges again (`connection/outdated.rs`). Below
//! [`SINCE`] a cluster has no users but `default`, which may do everything, and nothing is judged.

use crate::acl_log::{AclLog, Reason};
use crate::audit::{OVER_QUOTA, audit};
use crate::commands::{self, Named};
use crate::host::{Client, Host, count};
use crate::quotas::Accounts;
use bytes::Bytes;
use ionian_kernel::level::Level;
use ionian_machines::acl::{self, CommandId, Denied, User, Users};
use ionian_machines::kv::{self, Command};
use sha2::{Digest, Sha256};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

/// The level of the cluster since which it has users.
pub(crate) const SINCE: Level = Level(18);

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The error for a connection whose user was deleted or switched off.
pub(crate) const GONE: &str = "ERR closed: the user of this connection was deleted or switched off";

const NO_AUTH: &str = "NOAUTH Authentication required.";

/// The error in place of a command that was judged by users that have changed, and cannot be judged
/// again.
pub(crate) const CHANGED: &str =
    "TRYAGAIN the rules for users have changed, the command was not executed";

/// The rights of all clients of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    level: Cell<Level>,
    /// The protocol, if the level of its clusters cannot change.
    fixed: OnceCell<String>,
    /// The copy; `None` until it is known.
    users: RefCell<Option<Rc<Users>>>,
    /// Whether it has changed since [`take_changed`](Self::take_changed).
    changed: Cell<bool>,
    /// Whether a client of this gateway has changed the users since the copy was fetched.
    suspect: Cell<bool>,
    pub(crate) accounts: Accounts,
    pub(crate) log: RefCell<AclLog>,
    pub(crate) denied_auth: Cell<u64>,
    pub(crate) denied_commands: Cell<u64>,
    pub(crate) denied_keys: Cell<u64>,
}

/// What may become of a command.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Allowed,
    /// The error for the client.
    Refused(String),
    /// Its user was deleted or switched off, so the connection is closed.
    Gone,
}

/// By which users a command was judged, and its words, to judge it again.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    /// The epoch of these users.
    epoch: u64,
    /// None at epoch zero, at which everything is allowed.
    words: Vec<Bytes>,
}

impl Judgement {
    /// Judges the command again by the copy of the users, if they are others than those by which it
    /// was judged.
    ///
    /// # Errors
    /// The error for the client.
    #[inline]
    pub(crate) fn renew(&mut self, host: &Host, client: &Client) -> Result<(), String> {
        match self.epoch == host.rights.epoch() {
            true => Ok(()),
            false => self.judge_again(host, client),
        }
    }

    #[cold]
    fn judge_again(&mut self, host: &Host, client: &Client) -> Result<(), String> {
        self.epoch = host.rights.epoch();
        match self.words.is_empty() {
            true if host.may_do_all(client) => Ok(()),
            true => Err(CHANGED.to_owned()),
            false => host.judge_words(client, &self.words),
        }
    }

    /// The epoch of the users by which the command was judged.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// The user of a connection at an epoch, as far as it was looked up: none if it was gone.
pub(crate) type Cached = Option<(u64, Option<Arc<User>>)>;

/// Who uses a connection.
enum Who<'a> {
    User(&'a User),
    NotLoggedIn,
    Gone,
}

impl Rights {
    /// Sets the level of the cluster.
    pub(crate) fn set_level(&self, level: Level) {
        self.level.set(level);
    }

    /// Clusters of this protocol keep their level.
    pub(crate) fn set_fixed_level(&self, protocol: &str) {
        // Set once: a gateway has one cluster.
        let _ = self.fixed.set(protocol.to_owned());
    }

    /// Checks that the cluster has the level which something needs: `what` says so.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn check_level(&self, since: Level, what: &str) -> Result<(), String> {
        let level = self.level.get();
        if level >= since {
            return Ok(());
        }
        if let Some(protocol) = self.fixed.get() {
            return Err(format!(
                "ERR {what} a protocol that can change the level of its clusters, which {protocol} \
                 cannot"
            ));
        }
        Err(format!(
            "ERR {what} level {since} of the cluster, which has level {level}: raise it with \
             'ionian upgrade finalize'"
        ))
    }

    /// The command, if the replicas of the cluster know it.
    ///
    /// # Errors
    /// The error for the client: replicas of the former release cannot read the command.
    #[inline]
    pub(crate) fn check_known(&self, command: Command, words: &[Bytes]) -> Result<Command, String> {
        let since = command.since();
        if since > self.level.get() {
            let info = kv::command_info(words);
            let name = info.map_or(String::new(), |info| info.name.to_uppercase());
            self.check_level(since, &format!("{} needs", name.replace('|', " ")))?;
        }
        Ok(command)
    }

    /// Whether commands are judged.
    #[inline]
    pub(crate) fn are_checked(&self) -> bool {
        self.level.get() >= SINCE
    }

    /// The copy of the users, if it is known.
    pub(crate) fn users(&self) -> Option<Rc<Users>> {
        match self.are_checked() {
            true => self.users.borrow().clone(),
            false => Some(Rc::default()),
        }
    }

    pub(crate) fn are_known(&self) -> bool {
        !self.are_checked() || !self.suspect.get() && self.users.borrow().is_some()
    }

    /// A client of this gateway has changed the users: the next command waits for them.
    pub(crate) fn suspect(&self) {
        self.suspect.set(true);
    }

    /// The epoch of the copy; zero without one.
    pub(crate) fn epoch(&self) -> u64 {
        self.users
            .borrow()
            .as_ref()
            .map_or(0, |users| users.epoch())
    }

    /// The question for the users, if they are others than these.
    pub(crate) fn question(&self) -> kv::Compound {
        let known = self.users.borrow().as_ref().map(|users| users.epoch());
        kv::Compound::Users {
            known: known.unwrap_or(u64::MAX),
        }
    }

    /// The encoding of a compound. `judged` is the epoch of the users by which it was judged; none
    /// if it was judged by the copy.
    pub(crate) fn encoded(&self, compound: &kv::Compound, judged: Option<u64>) -> Bytes {
        let epoch = match self.are_checked() {
            true => judged.unwrap_or_else(|| self.epoch()),
            false => 0,
        };
        compound.encode_at(epoch).into()
    }

    /// The judgement of a command with these words that the copy allows.
    pub(crate) fn judgement(&self, words: &[Bytes]) -> Judgement {
        let epoch = self.epoch();
        let words = if epoch == 0 { &[] } else { words };
        Judgement {
            epoch,
            words: words.to_vec(),
        }
    }

    /// Takes the answer to [`question`](Self::question). Returns whether it is one.
    pub(crate) fn learn(&self, reply: &Bytes) -> bool {
        let users = kv::known_users(reply);
        if users.is_ok() {
            self.suspect.set(false);
        }
        match users {
            Ok(None) => self.users.borrow().is_some(),
            Ok(Some(users)) => {
                // Answers may overtake each other.
                if self.users.borrow().is_none() || users.epoch() > self.epoch() {
                    self.accounts.set(&users);
                    self.users.replace(Some(Rc::new(users)));
                    self.changed.set(true);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Whether the copy has changed since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.take()
    }
}

impl Host {
    /// Judges the command with these words by the copy of the users, which must be known.
    pub(crate) fn judge(&self, client: &Client, named: Named, words: &[Bytes]) -> Verdict {
        let users = self.rights.users.borrow();
        let users = users.as_ref().filter(|users| users.epoch() > 0);
        let users = users.filter(|_| self.rights.are_checked());
        // What is no command is answered so, as in Redis.
        let (Some(users), Some(asked)) = (users, Asked::of(named, words)) else {
            return Verdict::Allowed;
        };
        let mut cached = client.rights.borrow_mut();
        let user = match who(client, users, &mut cached) {
            Who::User(user) => user,
            Who::Gone => return Verdict::Gone,
            Who::NotLoggedIn if asked.command.is_free() => return Verdict::Allowed,
            Who::NotLoggedIn => return Verdict::Refused(NO_AUTH.to_owned()),
        };
        match user.check(asked.command, words, || asked.keys(words)) {
            Ok(()) => Verdict::Allowed,
            Err(denied) => self.refused(client, denied, asked.command, words),
        }
    }

    /// Judges the command with these words as [`judge`](Self::judge) does.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn judge_words(&self, client: &Client, words: &[Bytes]) -> Result<(), String> {
        match self.judge(client, Named::of(words), words) {
            Verdict::Allowed => Ok(()),
            Verdict::Refused(text) => Err(text),
            Verdict::Gone => Err(GONE.to_owned()),
        }
    }

    /// The verdict for a command that the user may not use so. It is counted and logged.
    #[cold]
    fn refused(
        &self,
        client: &Client,
        denied: Denied,
        command: CommandId,
        words: &[Bytes],
    ) -> Verdict {
        let (reason, object, counter) = match denied {
            Denied::Command => (
                Reason::Command,
                command.name().as_bytes(),
                &self.rights.denied_commands,
            ),
            Denied::Key(place) => (Reason::Key, &words[place][..], &self.rights.denied_keys),
        };
        count(counter, 1);
        self.log_denied(client, reason, object, &client.user.borrow());
        Verdict::Refused(format!(
            "NOPERM this user has no permissions to {}",
            match denied {
                Denied::Command => format!("run the '{}' command", command.name()),
                Denied::Key(_) => "access one of the keys used as arguments".to_owned(),
            }
        ))
    }

    /// Whether the user of the connection may execute every command.
    fn may_do_all(&self, client: &Client) -> bool {
        let cached = &mut client.rights.borrow_mut();
        let users = self.rights.users();
        users.is_some_and(
            |users| matches!(who(client, &users, cached), Who::User(user) if user.may_do_all()),
        )
    }

    /// Whether the user of the connection was deleted or switched off.
    pub(crate) fn is_gone(&self, client: &Client) -> bool {
        let users = self.rights.users().filter(|users| users.epoch() > 0);
        let cached = &mut client.rights.borrow_mut();
        users.is_some_and(|users| matches!(who(client, &users, cached), Who::Gone))
    }

    /// Whether the client needs no AUTH, or has done it.
    pub(crate) fn is_logged_in(&self, client: &Client) -> bool {
        let cached = &mut client.rights.borrow_mut();
        let users = self.rights.users();
        users.is_some_and(|users| matches!(who(client, &users, cached), Who::User(_)))
    }

    /// Whether the client may do nothing but log in, as far as the gateway knows.
    #[inline]
    pub(crate) fn must_log_in(&self, client: &Client) -> bool {
        let may_be_none = client.logged_in.get() || client.looks_up_user.get();
        let checks = self.rights.are_checked() && !may_be_none;
        checks && self.rights.are_known() && !self.is_logged_in(client)
    }

    /// Whether a new client may do nothing but log in, as far as the gateway knows.
    pub(crate) fn default_must_log_in(&self) -> bool {
        let users = self.rights.users().filter(|users| users.epoch() > 0);
        users.is_some_and(|users| default_user(&users).is_none())
    }

    /// Logs a client in, if the password is right and the user may have one more connection.
    ///
    /// # Errors
    /// The error for the client, which remains who it was.
    pub(crate) fn log_in(
        &self,
        client: &Client,
        name: &[u8],
        password: &[u8],
    ) -> Result<(), String> {
        let users = self.rights.users();
        let user = users.as_ref().and_then(|users| users.get(name));
        let is_right = user.is_some_and(|user| {
            let is_known = user.is_without_password() || has_password(user, password);
            user.is_on() && is_known
        });
        let admitted = match is_right {
            true => self.check_connections(Some(client), name),
            false => Err(WRONG_PASS.to_owned()),
        };
        if admitted.is_ok() {
            self.change_user(client, Some(name));
            self.no_longer_unauthenticated(client);
            client.over_quota.set(false);
            client.looks_up_user.set(false);
            return Ok(());
        }
        match is_right {
            true => client.over_quota.set(true),
            false => {
                count(&self.rights.denied_auth, 1);
                self.note_wrong_password(client);
                self.log_denied(client, Reason::Auth, name, name);
            }
        }
        let outcome = if is_right { OVER_QUOTA } else { "refused" };
        audit(client, name, "AUTH", outcome);
        admitted
    }

    fn log_denied(&self, client: &Client, reason: Reason, object: &[u8], user: &[u8]) {
        let line = commands::client::line(client);
        let in_multi = client.queued.get().is_some();
        self.rights
            .log
            .borrow_mut()
            .add((reason, in_multi), object, user, line);
    }
}

/// The user of clients that do not log in, if they need not.
fn default_user(users: &Users) -> Option<&Arc<User>> {
    let default = users.get(acl::DEFAULT);
    default.filter(|user| user.is_on() && user.is_without_password())
}

fn who<'a>(client: &Client, users: &'a Users, cached: &'a mut Cached) -> Who<'a> {
    if !client.logged_in.get() {
        // As in Redis, a client is `default` without a login as long as that has no password.
        return default_user(users).map_or(Who::NotLoggedIn, |user| Who::User(user));
    }
    let is_present = |cached: &Cached| matches!(cached, Some(it) if it.0 == users.epoch());
    if !is_present(cached) {
        let name = client.user.borrow();
        let is_same = users.begun(&name) == Some(client.user_begun.get());
        let user = users.get(&name).filter(|_| is_same).cloned();
        *cached = Some((users.epoch(), user));
    }
    match cached {
        Some((_, Some(user))) if user.is_on() => Who::User(user),
        _ => Who::Gone,
    }
}

/// The hash of a password, in hexadecimal digits.
pub(crate) fn hash(password: &[u8]) -> String {
    let hash = Sha256::digest(password);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares with all hashes, in a time that does not depend on which one it is.
fn has_password(user: &User, password: &[u8]) -> bool {
    let hash = hash(password);
    let equal = user
        .hashes()
        .iter()
        .map(|known| known.ct_eq(hash.as_bytes()));
    equal.fold(Choice::from(0), |any, one| any | one).into()
}

/// The command that a client has asked for.
pub(crate) struct Asked {
    pub(crate) command: CommandId,
    info: Option<&'static kv::CommandInfo>,
}

impl Asked {
    /// The command; `None` if there is none with this name and this number of words.
    pub(crate) fn of(named: Named, words: &[Bytes]) -> Option<Asked> {
        match named {
            Named::Own(own) => own.takes(words.len()).then(|| Asked {
                command: own.id.with_subcommand(words),
                info: None,
            }),
            Named::Machine(info) => {
                let command = info.id.with_subcommand(words);
                let is_whole = info.id.takes(words.len()) && !command.is_container();
                is_whole.then_some(Asked {
                    command,
                    info: Some(info),
                })
            }
            Named::Unknown => None,
        }
    }

    /// The places of its keys, and what it does with each.
    pub(crate) fn keys(&self, words: &[Bytes]) -> Vec<(usize, acl::Access)> {
        match self.info {
            Some(info) => info.keys(words),
            // WATCH alone of the gateway's own commands has keys.
            None if self.command == CommandId::of("watch") => (1..words.len())
                .map(|place| (place, acl::Access::NONE))
                .collect(),
            None => Vec::new(),
        }
    }
}
