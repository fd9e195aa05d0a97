//! PING, ECHO, SELECT, AUTH, HELLO.

use super::client::is_plain_name;
use super::{NOT_AN_INTEGER, SYNTAX, is, number};
use crate::host::REDIS_VERSION;
use crate::reply::Context;
use bytes::Bytes;
use ionian_machines::acl::DEFAULT;

pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

const HELLO_NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, \
    otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
    select the RESP protocol version at the same time";

pub(super) fn ping(context: &mut Context<'_>, words: &[Bytes]) {
    match words {
        [_] => context.simple("PONG"),
        [_, text] => context.bulk(text),
        _ => context.wrong_number("ping"),
    }
}

pub(super) fn echo(context: &mut Context<'_>, words: &[Bytes]) {
    context.bulk(&words[1]);
}

pub(super) fn select(context: &mut Context<'_>, words: &[Bytes]) {
    match number(&words[1]) {
        Some(0) => context.ok(),
        Some(_) => context.error("ERR DB index is out of range"),
        None => context.error(NOT_AN_INTEGER),
    }
}

/// The password alone is that of `default`. If that needs none it is refused, so that no client
/// believes it protects the data.
pub(super) fn auth(context: &mut Context<'_>, words: &[Bytes]) {
    let (name, password) = match words {
        [_, password] => {
            let users = context.host.rights.users();
            let default = users.as_ref().and_then(|users| users.get(DEFAULT));
            if default.is_some_and(|user| user.is_without_password()) {
                return context.error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                );
            }
            (DEFAULT, password)
        }
        [_, name, password] => (&name[..], password),
        _ => return context.error(SYNTAX),
    };
    match context.host.log_in(context.client, name, password) {
        Ok(()) => context.ok(),
        Err(text) => context.error(text),
    }
}

/// Whether HELLO logs in.
pub(super) fn hello_logs_in(words: &[Bytes]) -> bool {
    words.iter().skip(2).any(|word| is(word, "AUTH"))
}

pub(super) fn hello(context: &mut Context<'_>, words: &[Bytes]) {
    let resp3 = match words.get(1).map(|version| number(version)) {
        None => context.client.resp3.get(),
        Some(Some(2)) => false,
        Some(Some(3)) => true,
        Some(Some(_)) => return context.error("NOPROTO unsupported protocol version"),
        Some(None) => {
            return context.error("ERR Protocol version is not an integer or out of range");
        }
    };
    let (mut name, mut login) = (None, None);
    let mut options = words.get(2..).unwrap_or_default();
    while let [option, rest @ ..] = options {
        options = match rest {
            [user, password, rest @ ..] if is(option, "AUTH") => {
                login = Some((user, password));
                rest
            }
            [wanted, rest @ ..] if is(option, "SETNAME") => {
                if !is_plain_name(wanted) {
                    return context.error(BAD_NAME);
                }
                name = Some(wanted);
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return context.error(format_args!("ERR Syntax error in HELLO option '{option}'"));
            }
        };
    }
    if let Some((user, password)) = login
        && let Err(text) = context.host.log_in(context.client, user, password)
    {
        return context.error(text);
    }
    if !context.host.is_logged_in(context.client) {
        return context.error(HELLO_NO_AUTH);
    }
    if let Some(name) = name {
        context.client.name.replace(Bytes::copy_from_slice(name));
    }
    context.client.resp3.set(resp3);
    greet(context);
}

fn greet(context: &mut Context<'_>) {
    let text = [("server", "redis"), ("version", REDIS_VERSION)];
    context.map(7);
    for (key, value) in text {
        context.bulk(key);
        context.bulk(value);
    }
    context.bulk("proto");
    context.integer(if context.client.resp3.get() { 3 } else { 2 });
    context.bulk("id");
    context.integer(context.client.id as i64);
    // Every gateway accepts writes and reads, like a single master.
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        context.bulk(key);
        context.bulk(value);
    }
    context.bulk("modules");
    context.array(0);
}
