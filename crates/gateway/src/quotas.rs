//! Quotas of users: how much of this gateway each may take.
//!
//! ```text
//! command -> its user has no quota ----------------------------------> executed
//!        \-> there is enough, or there will be within PATIENCE: taken -> at that time executed
//!         \-> there will not be -> after PATIENCE refused: -BUSY
//! ```
//!
//! Nothing is read from a connection whose command waits, so a client that sends too fast is held
//! up by its socket. One connection with a pipeline is only slowed down, if its user may send ten
//! commands a second or more; errors are for many connections that want more together. Without
//! them a command would wait behind all others of its user, for longer than clients wait. An error
//! waits too: a client that repeats what was refused gets ten errors a second.

use crate::audit::{OVER_QUOTA, audit};
use crate::host::{Client, Host, count};
use crate::rights::Rights;
use bytes::Bytes;
use ionian_machines::acl::{DEFAULT, Quota, Quotas, Users};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a command waits at most.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// What was not used for longer than a second is not kept.
const BURST_NS: i64 = 1_000_000_000;

/// How often the audit log gets a line about refused commands of a user.
const AUDITED_EVERY: Duration = Duration::from_secs(60);

/// The number of accounts below which those without use stay.
const KEPT_ACCOUNTS: usize = 1024;

/// A token bucket. Its tokens are times: at a rate of N a second a unit takes 1/N of a second. So a
/// new rate counts at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    /// When it was filled last; `None` if it is full.
    filled_at: Option<Instant>,
    /// Nanoseconds that were not used; negative if they were used in advance.
    unused: i64,
}

impl Bucket {
    fn filled(self, now: Instant) -> Bucket {
        let since = self.filled_at.map(|at| now.saturating_duration_since(at));
        let new = since.map_or(BURST_NS as u128, |since| since.as_nanos());
        let new = new.min(4 * BURST_NS as u128) as i64;
        Bucket {
            filled_at: Some(self.filled_at.map_or(now, |at| at.max(now))),
            unused: (self.unused + new).min(BURST_NS),
        }
    }

    fn is_full(self, now: Instant) -> bool {
        self.filled(now).unused == BURST_NS
    }

    /// How long it takes until there is a unit.
    fn wait(self, rate: u64, now: Instant) -> Duration {
        let lacking = cost(1, rate) - self.filled(now).unused;
        Duration::from_nanos(u64::try_from(lacking).unwrap_or(0))
    }

    /// Takes units, at most those of a second.
    fn take(self, units: u64, rate: u64, now: Instant) -> Bucket {
        let filled = self.filled(now);
        Bucket {
            unused: filled.unused - cost(units.min(rate), rate),
            ..filled
        }
    }
}

/// What units take at this rate a second, in nanoseconds.
fn cost(units: u64, rate: u64) -> i64 {
    (u128::from(units) * BURST_NS as u128 / u128::from(rate)) as i64
}

/// What becomes of the next command of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nothing was taken for it.
    #[default]
    Unpaid,
    /// What it needs was taken. It waits for nothing, or until then.
    Paid(Option<Instant>),
    /// It waits until then for commands that have no answer.
    Crowded(Instant),
    /// It is refused, then.
    Refused(Instant, Quota),
}

/// What a user has taken of this gateway.
#[derive(Debug)]
pub(crate) struct Account {
    name: Bytes,
    quotas: Cell<Quotas>,
    /// Whether there is a quota of commands.
    is_limited: Cell<bool>,
    /// Connections that have logged in.
    connections: Cell<usize>,
    /// Bytes of commands without an answer.
    unanswered: Cell<usize>,
    commands: Cell<Bucket>,
    bytes: Cell<Bucket>,
    /// When the audit log got a line about a refused command last.
    audited: Cell<Option<Instant>>,
}

impl Account {
    fn new(name: &[u8]) -> Account {
        Account {
            name: Bytes::copy_from_slice(name),
            quotas: Cell::default(),
            is_limited: Cell::default(),
            connections: Cell::default(),
            unanswered: Cell::default(),
            commands: Cell::default(),
            bytes: Cell::default(),
            audited: Cell::default(),
        }
    }

    fn set(&self, users: Option<&Users>) {
        let user = users.and_then(|users| users.get(&self.name));
        let quotas = user.map_or_else(Quotas::default, |user| user.quotas());
        let limits = [Quota::Commands, Quota::Bytes, Quota::Flight];
        let is_limited = limits.iter().any(|quota| quotas.get(*quota).is_some());
        self.quotas.set(quotas);
        self.is_limited.set(is_limited);
    }

    /// Whether commands of the user are counted.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited.get()
    }

    pub(crate) fn allowed(&self, quota: Quota) -> Option<u64> {
        self.quotas.get().get(quota)
    }

    /// Bytes of commands without an answer, of all its connections.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.get()
    }

    /// The bytes of one of its connections have changed.
    pub(crate) fn count_unanswered(&self, before: usize, after: usize) {
        self.unanswered.set(self.unanswered.get() + after - before);
    }

    /// Takes what a command needs, if it is there soon: all, or nothing.
    pub(crate) fn pay(&self, bytes: u64, now: Instant) -> Pace {
        let mut longest = (Duration::ZERO, Quota::Commands);
        let needs = [
            (Quota::Commands, &self.commands, 1),
            (Quota::Bytes, &self.bytes, bytes),
        ];
        let rates = needs.map(|(quota, _, _)| self.allowed(quota));
        for ((quota, bucket, _), rate) in needs.iter().zip(rates) {
            let wait = rate.map_or(Duration::ZERO, |rate| bucket.get().wait(rate, now));
            if wait > longest.0 {
                longest = (wait, *quota);
            }
        }
        let (wait, quota) = longest;
        if wait > PATIENCE {
            return Pace::Refused(now + PATIENCE, quota);
        }
        for ((_, bucket, units), rate) in needs.iter().zip(rates) {
            if let Some(rate) = rate {
                bucket.set(bucket.get().take(*units, rate, now));
            }
        }
        Pace::Paid((wait > Duration::ZERO).then(|| now + wait))
    }

    /// The error of a command or a connection that is over a quota.
    pub(crate) fn refusal(&self, quota: Quota) -> String {
        let what = match quota {
            Quota::Connections => "connections",
            Quota::Commands => "commands a second",
            Quota::Bytes => "bytes a second",
            Quota::Flight => "bytes of commands without an answer",
        };
        format!(
            "BUSY quota of user {} reached: {what} (allowed: {})",
            String::from_utf8_lossy(&self.name),
            self.allowed(quota).unwrap_or(0)
        )
    }

    /// A command of this client is over a quota, which the audit log gets once a minute.
    pub(crate) fn audit_refusal(&self, client: &Client, now: Instant) {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= AUDITED_EVERY;
        if self.audited.get().is_none_or(is_due) {
            self.audited.set(Some(now));
            audit(client, &self.name, "command", OVER_QUOTA);
        }
    }

    /// The error of a command that has more bytes than the user may send in a second.
    pub(crate) fn too_large(&self, most: u64) -> String {
        let user = String::from_utf8_lossy(&self.name);
        format!(
            "ERR the command is larger than the quota of user {user} for a second: {most} bytes"
        )
    }

    /// Whether nothing is lost with it.
    fn is_rested(&self, now: Instant) -> bool {
        self.commands.get().is_full(now) && self.bytes.get().is_full(now)
    }
}

/// The accounts of all users that have connections here, or had them lately: who connects anew does
/// not begin with a full bucket.
#[derive(Debug)]
pub(crate) struct Accounts {
    all: RefCell<BTreeMap<Bytes, Rc<Account>>>,
    /// Connections that have not logged in.
    anonymous: Cell<usize>,
    /// The number of accounts at which those without use are removed.
    tidy_at: Cell<usize>,
}

impl Default for Accounts {
    fn default() -> Self {
        Accounts {
            all: RefCell::default(),
            anonymous: Cell::default(),
            tidy_at: Cell::new(KEPT_ACCOUNTS),
        }
    }
}

impl Accounts {
    /// The users have changed.
    pub(crate) fn set(&self, users: &Users) {
        let all = self.all.borrow();
        all.values().for_each(|account| account.set(Some(users)));
    }

    fn of(&self, name: &[u8], users: Option<&Users>, now: Instant) -> Rc<Account> {
        let mut all = self.all.borrow_mut();
        if let Some(account) = all.get(name) {
            return account.clone();
        }
        if all.len() >= self.tidy_at.get() {
            all.retain(|_, account| Rc::strong_count(account) > 1 || !account.is_rested(now));
            self.tidy_at.set(KEPT_ACCOUNTS.max(2 * all.len()));
        }
        let account = Rc::new(Account::new(name));
        account.set(users);
        all.insert(account.name.clone(), account.clone());
        account
    }
}

impl Rights {
    fn account_of(&self, name: &[u8], now: Instant) -> Rc<Account> {
        let users = self.users();
        self.accounts.of(name, users.as_deref(), now)
    }
}

impl Host {
    /// Sets what quotas take as the time, in place of the system's clock.
    pub fn set_clock(&self, clock: Box<dyn Fn() -> Instant>) {
        self.clock.replace(Some(clock));
    }

    /// The time for quotas.
    pub(crate) fn now(&self) -> Instant {
        match &*self.clock.borrow() {
            Some(clock) => clock(),
            None => Instant::now(),
        }
    }

    /// The account of a new client, which has not logged in.
    pub(crate) fn new_account(&self) -> Rc<Account> {
        let anonymous = &self.rights.accounts.anonymous;
        anonymous.set(anonymous.get() + 1);
        self.rights.account_of(DEFAULT, self.now())
    }

    /// A client is gone.
    pub(crate) fn leave_account(&self, client: &Client) {
        let account = client.account.borrow();
        let counter = match client.logged_in.get() {
            true => &account.connections,
            false => &self.rights.accounts.anonymous,
        };
        counter.set(counter.get() - 1);
    }

    /// From now on the client is who it was when it began: the user that its certificate names,
    /// which is to be looked up again, or `default` without having logged in.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn log_out(&self, client: &Client) -> Result<(), String> {
        let certified = client.certified.borrow();
        let is_certified = certified.as_ref() == Some(&client.user.borrow());
        if !client.logged_in.get() || is_certified {
            return Ok(());
        }
        if certified.is_none() && !self.default_must_log_in() {
            self.check_connections(Some(client), DEFAULT)?;
        }
        self.change_user(client, None);
        client.looks_up_user.set(certified.is_some());
        Ok(())
    }

    /// From now on the client is this user, as which it has logged in, or `default` without that.
    pub(crate) fn change_user(&self, client: &Client, user: Option<&[u8]>) {
        let unanswered = client.memory.get().unanswered();
        client.account.borrow().count_unanswered(unanswered, 0);
        self.leave_account(client);
        let name = user.unwrap_or(DEFAULT);
        let account = match user {
            None => self.new_account(),
            Some(name) => self.rights.account_of(name, self.now()),
        };
        if user.is_some() {
            account.connections.set(account.connections.get() + 1);
        }
        account.count_unanswered(0, unanswered);
        client.account.replace(account);
        client.user.replace(Bytes::copy_from_slice(name));
        let users = self.rights.users();
        let begun = users.and_then(|users| users.begun(name));
        client.user_begun.set(begun.unwrap_or(0));
        client.logged_in.set(user.is_some());
        client.rights.take();
    }

    /// Whether one more connection of the user is within its quota, given the client that it would
    /// be, if there is one.
    ///
    /// # Errors
    /// The error for that client.
    pub(crate) fn check_connections(
        &self,
        client: Option<&Client>,
        name: &[u8],
    ) -> Result<(), String> {
        let account = self.rights.account_of(name, self.now());
        let Some(allowed) = account.allowed(Quota::Connections) else {
            return Ok(());
        };
        let anonymous_too = name == DEFAULT && !self.default_must_log_in();
        let is_counted = |client: &Client| match client.logged_in.get() {
            true => client.user.borrow()[..] == *name,
            false => anonymous_too,
        };
        let anonymous = match anonymous_too {
            true => self.rights.accounts.anonymous.get(),
            false => 0,
        };
        let all = (account.connections.get() + anonymous) as u64;
        if all < allowed || client.is_some_and(is_counted) {
            return Ok(());
        }
        count(&self.stats.quota_connections, 1);
        Err(account.refusal(Quota::Connections))
    }

    /// Whether a new client is within the quota of `default`, which it is if that needs no login.
    ///
    /// # Errors
    /// The error for that client.
    pub(crate) fn check_new_connection(&self) -> Result<(), String> {
        match self.default_must_log_in() {
            true => Ok(()),
            false => self.check_connections(None, DEFAULT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::machine::StateMachine;
    use ionian_kernel::time::Timestamp;
    use ionian_machines::kv;

    const MS: Duration = Duration::from_millis(1);

    /// How many units there are at once.
    fn count_units(bucket: &mut Bucket, rate: u64, now: Instant) -> u64 {
        let mut units = 0;
        while bucket.wait(rate, now) == Duration::ZERO {
            *bucket = bucket.take(1, rate, now);
            units += 1;
        }
        units
    }

    #[test]
    fn a_bucket_holds_a_second_and_fills_at_its_rate() {
        for rate in [1, 3, 10, 7000] {
            let (mut bucket, now) = (Bucket::default(), Instant::now());
            assert!(bucket.is_full(now));
            assert_eq!(count_units(&mut bucket, rate, now), rate);
            assert!(!bucket.is_full(now));
            let one = bucket.wait(rate, now);
            assert!(one <= Duration::from_secs(1).div_f64(rate as f64));
            assert_eq!(
                count_units(&mut bucket, rate, now + one - MS / 1_000_000),
                0
            );
            assert_eq!(count_units(&mut bucket, rate, now + one), 1);
            // A second later there is as much as after an hour.
            let later = now + one + Duration::from_secs(1);
            assert_eq!(count_units(&mut bucket.clone(), rate, later), rate);
            assert_eq!(count_units(&mut bucket, rate, later + 3_600_000 * MS), rate);
        }
    }

    #[test]
    fn a_new_rate_counts_at_once() {
        let (mut bucket, now) = (Bucket::default(), Instant::now());
        (0..5).for_each(|_| bucket = bucket.take(1, 10, now));
        assert_eq!(count_units(&mut bucket.clone(), 1000, now), 500);
        assert_eq!(count_units(&mut bucket.clone(), 2, now), 1);
        // A clock that is behind gives nothing.
        let emptied = bucket.take(10, 10, now);
        assert_eq!(emptied.wait(10, now - MS), Duration::from_millis(600));
    }

    fn account(rules: [(usize, u64); 2]) -> Account {
        let account = Account::new(b"u");
        let names = ["commands", "bytes"];
        let rules = rules.map(|(name, value)| format!("quota:{}={value}", names[name]).into());
        let change = kv::Compound::SetUser {
            name: "u".into(),
            rules: rules.to_vec(),
        };
        let (mut machine, mut reply, now) = (kv::Kv::default(), Vec::new(), Timestamp(1));
        machine.apply(now, &change.encode(), &mut reply);
        reply.clear();
        let question = kv::Compound::Users { known: u64::MAX };
        machine.read(now, &question.encode(), &mut reply).unwrap();
        let users = kv::known_users(&reply.into()).unwrap();
        account.set(users.as_ref());
        assert!(account.is_limited());
        account
    }

    #[test]
    fn commands_wait_their_turn_and_what_would_wait_too_long_takes_nothing() {
        let (account, now) = (account([(0, 20), (1, 0)]), Instant::now());
        (0..20).for_each(|_| assert_eq!(account.pay(1, now), Pace::Paid(None)));
        assert_eq!(account.pay(1, now), Pace::Paid(Some(now + 50 * MS)));
        assert_eq!(account.pay(1, now), Pace::Paid(Some(now + 100 * MS)));
        let refused = Pace::Refused(now + PATIENCE, Quota::Commands);
        (0..100).for_each(|_| assert_eq!(account.pay(1, now), refused));
        let later = now + 70 * MS;
        assert_eq!(account.pay(1, later), Pace::Paid(Some(now + 150 * MS)));
    }

    #[test]
    fn a_large_command_makes_the_next_ones_wait() {
        let (account, now) = (account([(0, 100), (1, 20_000)]), Instant::now());
        assert_eq!(account.pay(19_999, now), Pace::Paid(None));
        assert_eq!(account.pay(20_000, now), Pace::Paid(None));
        let refused = |now| Pace::Refused(now + PATIENCE, Quota::Bytes);
        assert_eq!(account.pay(1, now), refused(now));
        let later = now + 800 * MS;
        assert_eq!(account.pay(1, later), refused(later));
        let later = now + 900 * MS;
        let at = now + 1000 * MS;
        assert_eq!(account.pay(100, later), Pace::Paid(Some(at)));
        assert_eq!(account.pay(1, at + 5 * MS), Pace::Paid(None));
    }

    #[test]
    fn the_number_of_accounts_is_limited_and_used_ones_stay() {
        let (accounts, now) = (Accounts::default(), Instant::now());
        let held = accounts.of(b"held", None, now);
        let busy = accounts.of(b"busy", None, now);
        busy.commands.set(busy.commands.get().take(1, 1, now));
        drop(busy);
        for number in 0..10 * KEPT_ACCOUNTS {
            accounts.of(number.to_string().as_bytes(), None, now);
            assert!(accounts.all.borrow().len() <= KEPT_ACCOUNTS);
        }
        let has = |name: &[u8]| accounts.all.borrow().contains_key(name);
        assert!(has(b"held") && has(b"busy"));
        assert!(Rc::ptr_eq(&held, &accounts.of(b"held", None, now)));
        let later = now + Duration::from_secs(1);
        for number in 0..KEPT_ACCOUNTS {
            accounts.of(number.to_string().as_bytes(), None, later);
        }
        assert!(has(b"held") && !has(b"busy"));
    }
}
