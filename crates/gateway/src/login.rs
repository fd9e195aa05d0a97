//! Clients that have to log in and have not: how many there may be, for how long, and what becomes
//! of one that tries passwords. Clients whose certificates log them in.
//!
//! Anyone who reaches the port may connect. So such clients get at most a quarter of the
//! connections, are closed after a while, and wait with each further attempt after several wrong
//! ones from their address.

use crate::audit::{OVER_QUOTA, audit};
use crate::host::{Client, Host};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Wrong passwords from one address within [`WINDOW`] after which further attempts wait.
const ATTEMPTS: u32 = 8;

/// The time after which they are counted anew.
const WINDOW: Duration = Duration::from_secs(60);

/// The number of addresses whose wrong passwords are counted; the one that began first makes room.
const ADDRESSES: usize = 1024;

/// What a gateway knows of clients that have to log in.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    /// How many clients are not logged in that have to.
    unauthenticated: Cell<usize>,
    failures: RefCell<Failures>,
}

impl Logins {
    /// Whether a client has given a wrong password, ever.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.borrow().0.is_empty()
    }
}

/// Wrong passwords by address: since when they are counted, and how many there were.
#[derive(Debug, Default)]
struct Failures(BTreeMap<String, (Instant, u32)>);

impl Failures {
    fn add(&mut self, address: &str, now: Instant) {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= WINDOW;
        if let Some((since, count)) = self.0.get_mut(address) {
            match is_over(*since) {
                true => (*since, *count) = (now, 1),
                false => *count = count.saturating_add(1),
            }
            return;
        }
        if self.0.len() == ADDRESSES {
            self.0.retain(|_, (since, _)| !is_over(*since));
        }
        if self.0.len() == ADDRESSES {
            let oldest = self.0.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(oldest) = oldest.map(|(address, _)| address.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(address.to_owned(), (now, 1));
    }

    fn are_many(&self, address: &str, now: Instant) -> bool {
        self.0.get(address).is_some_and(|(since, count)| {
            *count >= ATTEMPTS && now.saturating_duration_since(*since) < WINDOW
        })
    }
}

/// The address of a client without its port.
fn machine(client: &Client) -> &str {
    let parts = client.address.rsplit_once(':');
    parts.map_or(&client.address, |(machine, _)| machine)
}

impl Host {
    /// Whether one more client that has to log in is to be refused.
    pub(crate) fn has_many_unauthenticated(&self) -> bool {
        self.default_must_log_in()
            && self.logins.unauthenticated.get() >= self.limits.unauthenticated()
    }

    /// Counts a client that begins, if it has to log in.
    pub(crate) fn count_unauthenticated(&self, client: &Client) {
        if self.must_log_in(client) {
            client.unauthenticated.set(Some(Instant::now()));
            let logins = &self.logins.unauthenticated;
            logins.set(logins.get() + 1);
        }
    }

    /// It has logged in, need not, or is gone.
    pub(crate) fn no_longer_unauthenticated(&self, client: &Client) {
        if client.unauthenticated.take().is_some() {
            let logins = &self.logins.unauthenticated;
            logins.set(logins.get() - 1);
        }
    }

    /// The certificate of a new client names this user. Until it is looked up, the client need not
    /// log in.
    pub(crate) fn certify(&self, client: &Client, user: &str) {
        let name = Bytes::copy_from_slice(user.as_bytes());
        client.certified.replace(Some(name));
        client.looks_up_user.set(true);
        self.no_longer_unauthenticated(client);
    }

    /// Logs a client in as the user that its certificate names, by the users of now, if there is
    /// that user and it is on. Otherwise the client is what one without a certificate is.
    ///
    /// # Errors
    /// The error for the client: the user may not have one more connection.
    pub(crate) fn log_in_by_certificate(&self, client: &Client) -> Result<(), String> {
        client.looks_up_user.set(false);
        let name = client.certified.borrow().clone().unwrap_or_default();
        let users = self.rights.users();
        let user = users.as_ref().and_then(|users| users.get(&name));
        if !user.is_some_and(|user| user.is_on()) {
            self.count_unauthenticated(client);
            return Ok(());
        }
        let admitted = self.check_connections(Some(client), &name);
        match admitted {
            Ok(()) => self.change_user(client, Some(&name)),
            Err(_) => audit(client, &name, "login by certificate", OVER_QUOTA),
        }
        admitted
    }

    /// A client gave a wrong password.
    pub(crate) fn note_wrong_password(&self, client: &Client) {
        let mut failures = self.logins.failures.borrow_mut();
        failures.add(machine(client), Instant::now());
    }

    /// Whether an attempt of this client is to wait.
    pub(crate) fn delays_login(&self, client: &Client, now: Instant) -> bool {
        let failures = self.logins.failures.borrow();
        failures.are_many(machine(client), now)
    }
}

/// Whether the login that a connection has received waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoginWait {
    /// It has received none, or none that has to.
    #[default]
    None,
    /// Until then.
    Until(Instant),
    /// It has waited.
    Over,
}

impl LoginWait {
    /// Whether the connection does nothing now.
    pub(crate) fn is_on(self) -> bool {
        matches!(self, LoginWait::Until(_))
    }

    /// It is this time.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if matches!(*self, LoginWait::Until(at) if now >= at) {
            *self = LoginWait::Over;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_passwords_are_counted_by_address_and_forgotten() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        (1..ATTEMPTS).for_each(|_| failures.add("a", now));
        assert!(!failures.are_many("a", now));
        failures.add("a", now);
        assert!(failures.are_many("a", now));
        assert!(!failures.are_many("b", now));
        let later = now + WINDOW;
        assert!(!failures.are_many("a", later));
        failures.add("a", later);
        assert!(!failures.are_many("a", later));
    }

    #[test]
    fn the_number_of_addresses_is_limited() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        for number in 0..=ADDRESSES as u64 {
            failures.add(&number.to_string(), now + Duration::from_millis(number));
        }
        assert_eq!(failures.0.len(), ADDRESSES);
        assert!(!failures.0.contains_key("0"), "the first makes room");
        // What is over makes room first.
        failures.add("new", now + WINDOW + Duration::from_millis(10));
        assert_eq!(failures.0.len(), ADDRESSES - 9);
    }
}
