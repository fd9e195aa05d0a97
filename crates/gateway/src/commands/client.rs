//! CLIENT: lists and names connections.

use super::connection::BAD_NAME;
use super::{SYNTAX, is, number};
use crate::host::{Client, Kill, Tracking};
use crate::reply::Context;
use crate::traces::Tracing;
use bytes::Bytes;
use ionian_kernel::trace::TraceParent;
use std::fmt::Write;

/// Longest name in bytes, so that names do not fill memory.
const MAX_NAME_LEN: usize = 1024;

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME -- Return the name of the current connection.",
    "CACHING (YES|NO) -- Whether the next command's keys are tracked, in the modes OPTIN and OPTOUT.",
    "GETREDIR -- Return -1, or 0 when tracking: nothing is redirected.",
    "ID -- Return the ID of the current connection.",
    "INFO -- Return information about the current client connection.",
    "KILL <ip:port> -- Close the connection of this client of this gateway.",
    "KILL [ID <id>] [TYPE <type>] [USER <name>] [ADDR <ip:port>] [LADDR <ip:port>] [SKIPME (YES|NO)] -- Close \
     those for which all is true, return their number.",
    "LIST [TYPE NORMAL] [ID <id> ...] -- Return information about client connections.",
    "NO-EVICT OFF, NO-TOUCH (ON|OFF) -- Accepted; the gateway may close any client when memory is short.",
    "REPLY ON -- Accepted; OFF and SKIP are not supported.",
    "SETINFO (LIB-NAME|LIB-VER) <value> -- Set the client library's name or version.",
    "SETNAME <name> -- Assign the name <name> to the current connection.",
    "TRACE (ON|OFF|<traceparent>) -- Keep the times of this connection's commands for `ionian trace`.",
    "TRACKING (ON|OFF) [OPTIN] [OPTOUT] [NOLOOP] -- Each tracked key is invalidated right after it was read.",
];

type Sub = fn(&mut Context<'_>, &[Bytes]);

/// Name, and the minimum and maximum number of words after it.
const SUBCOMMANDS: &[(&str, usize, usize, Sub)] = &[
    ("caching", 1, 1, caching),
    ("getname", 0, 0, |context, _| name_or_null(context)),
    ("getredir", 0, 0, |context, _| {
        context.integer(if context.client.tracking.get() == Tracking::Off {
            -1
        } else {
            0
        })
    }),
    ("help", 0, 0, |context, _| context.help(HELP)),
    ("id", 0, 0, |context, _| {
        context.integer(context.client.id as i64)
    }),
    ("info", 0, 0, |context, _| {
        context.verbatim(&line(context.client))
    }),
    ("kill", 1, usize::MAX, kill),
    ("list", 0, usize::MAX, list),
    ("no-evict", 1, 1, no_evict),
    ("no-touch", 1, 1, on_or_off),
    ("reply", 1, 1, reply),
    ("setinfo", 2, 2, set_info),
    ("setname", 1, 1, set_name),
    ("trace", 1, 1, trace),
    ("tracking", 1, usize::MAX, tracking),
];

pub(super) fn client(context: &mut Context<'_>, words: &[Bytes]) {
    let Some((name, fewest, most, run)) = SUBCOMMANDS.iter().find(|sub| is(&words[1], sub.0))
    else {
        return context.unknown_subcommand("CLIENT", &words[1]);
    };
    let rest = &words[2..];
    if rest.len() < *fewest || rest.len() > *most {
        return context.wrong_number(format_args!("client|{name}"));
    }
    run(context, rest);
}

/// Whether a name fits into a list whose fields are separated by spaces and newlines.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_LEN && name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn name_or_null(context: &mut Context<'_>) {
    let name = context.client.name.borrow();
    if name.is_empty() {
        context.null()
    } else {
        context.bulk(&*name)
    }
}

fn set_name(context: &mut Context<'_>, words: &[Bytes]) {
    if !is_plain_name(&words[0]) {
        return context.error(BAD_NAME);
    }
    context
        .client
        .name
        .replace(Bytes::copy_from_slice(&words[0]));
    context.ok();
}

fn set_info(context: &mut Context<'_>, words: &[Bytes]) {
    let (field, name) = if is(&words[0], "LIB-NAME") {
        (&context.client.library, "lib-name")
    } else if is(&words[0], "LIB-VER") {
        (&context.client.library_version, "lib-ver")
    } else {
        let option = String::from_utf8_lossy(&words[0]);
        return context.error(format_args!("ERR Unrecognized option '{option}'"));
    };
    if !is_plain_name(&words[1]) {
        return context.error(format_args!(
            "ERR {name} cannot contain spaces, newlines or special characters."
        ));
    }
    field.replace(Bytes::copy_from_slice(&words[1]));
    context.ok();
}

fn no_evict(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[0].to_ascii_lowercase() {
        b"off" => context.ok(),
        b"on" => context.error(
            "ERR CLIENT NO-EVICT ON is not supported: the gateway must be able to close any client",
        ),
        _ => context.error(SYNTAX),
    }
}

fn on_or_off(context: &mut Context<'_>, words: &[Bytes]) {
    if is(&words[0], "ON") || is(&words[0], "OFF") {
        context.ok()
    } else {
        context.error(SYNTAX)
    }
}

fn reply(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[0].to_ascii_lowercase() {
        b"on" => context.ok(),
        b"off" | b"skip" => context.error("ERR CLIENT REPLY OFF and SKIP are not supported"),
        _ => context.error(SYNTAX),
    }
}

fn trace(context: &mut Context<'_>, words: &[Bytes]) {
    let tracing = match &words[0] {
        word if is(word, "ON") => Tracing::On,
        word if is(word, "OFF") => Tracing::Off,
        word => match TraceParent::parse(word) {
            Some(parent) => Tracing::Within(parent),
            None => {
                return context.error(
                    "ERR CLIENT TRACE takes ON, OFF or a traceparent of W3C Trace Context, 00-<32 hex digits>-<16>-<2>",
                );
            }
        },
    };
    context.client.tracing.set(tracing);
    context.ok();
}

fn tracking(context: &mut Context<'_>, words: &[Bytes]) {
    let on = is(&words[0], "ON");
    if !on && !is(&words[0], "OFF") {
        return context.error(SYNTAX);
    }
    let mut mode = Tracking::On;
    for option in &words[1..] {
        mode = match &*option.to_ascii_lowercase() {
            b"optin" if mode != Tracking::OptOut => Tracking::OptIn,
            b"optout" if mode != Tracking::OptIn => Tracking::OptOut,
            b"optin" | b"optout" => {
                return context.error("ERR You can't use both OPTIN and OPTOUT");
            }
            b"noloop" => mode,
            b"bcast" | b"prefix" | b"redirect" => {
                return context
                    .error("ERR CLIENT TRACKING with BCAST, PREFIX or REDIRECT is not supported");
            }
            _ => return context.error(SYNTAX),
        };
    }
    if on && !context.client.resp3.get() {
        return context
            .error("ERR CLIENT TRACKING ON is supported for RESP3 only, begin with HELLO 3");
    }
    context.client.caching.set(None);
    context
        .client
        .tracking
        .set(if on { mode } else { Tracking::Off });
    context.ok();
}

fn caching(context: &mut Context<'_>, words: &[Bytes]) {
    let yes = match &*words[0].to_ascii_lowercase() {
        b"yes" => true,
        b"no" => false,
        _ => return context.error(SYNTAX),
    };
    match (context.client.tracking.get(), yes) {
        (Tracking::OptIn, true) | (Tracking::OptOut, false) => {
            context.client.caching.set(Some(yes));
            context.ok();
        }
        (Tracking::Off | Tracking::On, _) => context.error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ),
        (_, true) => context.error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        (_, false) => context.error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
    }
}

fn list(context: &mut Context<'_>, words: &[Bytes]) {
    let mut ids = None;
    let mut of_this_type = true;
    match words {
        [] => {}
        [option, kind] if is(option, "TYPE") => match is_normal(kind) {
            Ok(normal) => of_this_type = normal,
            Err(text) => return context.error(text),
        },
        [option, wanted @ ..] if is(option, "ID") && !wanted.is_empty() => {
            let Some(mut wanted) = wanted
                .iter()
                .map(|id| number(id))
                .collect::<Option<Vec<_>>>()
            else {
                return context.error("ERR Invalid client ID");
            };
            wanted.sort_unstable();
            ids = Some(wanted);
        }
        _ => return context.error(SYNTAX),
    }
    let mut text = String::new();
    context.host.for_each_client(|client| {
        let named = ids
            .as_ref()
            .is_none_or(|ids| ids.binary_search(&(client.id as i64)).is_ok());
        if of_this_type && named {
            text.push_str(&line(client));
        }
    });
    context.verbatim(&text);
}

/// Whether clients of this type are all clients, or none.
fn is_normal(kind: &[u8]) -> Result<bool, String> {
    match &*kind.to_ascii_lowercase() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(kind)
        )),
    }
}

fn is_user(context: &Context<'_>, name: &[u8]) -> bool {
    let users = context.host.rights.users();
    users.is_some_and(|users| users.get(name).is_some())
}

/// Which clients CLIENT KILL closes.
struct Doomed<'a> {
    id: Option<i64>,
    of_this_type: bool,
    user: Option<&'a Bytes>,
    address: Option<&'a Bytes>,
    local_address: Option<&'a Bytes>,
    skips_me: bool,
}

impl<'a> Doomed<'a> {
    fn parse(context: &Context<'_>, words: &'a [Bytes]) -> Result<Self, String> {
        let mut doomed = Doomed {
            id: None,
            of_this_type: true,
            user: None,
            address: None,
            local_address: None,
            skips_me: true,
        };
        let (pairs, []) = words.as_chunks::<2>() else {
            return Err(SYNTAX.into());
        };
        for [option, value] in pairs {
            match &*option.to_ascii_lowercase() {
                b"id" => {
                    let id = number(value).filter(|id| *id > 0);
                    doomed.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                b"type" => doomed.of_this_type &= is_normal(value)?,
                b"user" if !is_user(context, value) => {
                    let name = String::from_utf8_lossy(value);
                    return Err(format!("ERR No such user '{name}'"));
                }
                b"user" => doomed.user = Some(value),
                b"addr" => doomed.address = Some(value),
                b"laddr" => doomed.local_address = Some(value),
                b"skipme" if is(value, "YES") => doomed.skips_me = true,
                b"skipme" if is(value, "NO") => doomed.skips_me = false,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(doomed)
    }

    fn names(&self, client: &Client, me: &Client) -> bool {
        let at = |wanted: Option<&Bytes>, is: &str| wanted.is_none_or(|it| *it == is);
        self.of_this_type
            && self.id.is_none_or(|id| id == client.id as i64)
            && self.user.is_none_or(|user| *user == *client.user.borrow())
            && at(self.address, &client.address)
            && at(self.local_address, &client.local_address)
            && !(self.skips_me && client.id == me.id)
    }
}

fn kill(context: &mut Context<'_>, words: &[Bytes]) {
    let (doomed, counts) = match words {
        [address] => {
            let doomed = Doomed::parse(context, &[]).map(|all| Doomed {
                address: Some(address),
                skips_me: false,
                ..all
            });
            (doomed, false)
        }
        _ => (Doomed::parse(context, words), true),
    };
    let doomed = match doomed {
        Ok(doomed) => doomed,
        Err(text) => return context.error(text),
    };
    let (host, me, mut killed) = (context.host, context.client, 0);
    host.for_each_client(|client| {
        if doomed.names(client, me) {
            killed += 1;
            let is_me = client.id == me.id;
            host.kill(client, if is_me { Kill::Answered } else { Kill::Now });
        }
    });
    match (counts, killed) {
        (true, _) => context.integer(killed),
        (false, 0) => context.error("ERR No such client"),
        (false, _) => context.ok(),
    }
}

/// In Redis's order; `N` if there are none.
fn flags(client: &Client) -> String {
    let flags = [
        (client.queued.get().is_some(), 'x'),
        (client.blocked.get(), 'b'),
        (client.tracking.get() != Tracking::Off, 't'),
    ];
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    let text: String = set.map(|(_, flag)| flag).collect();
    if text.is_empty() { "N".into() } else { text }
}

/// One line of CLIENT LIST.
pub(crate) fn line(client: &Client) -> String {
    let text =
        |field: &std::cell::RefCell<Bytes>| String::from_utf8_lossy(&field.borrow()).into_owned();
    let memory = client.memory.get();
    let mut line = String::new();
    writeln!(
        line,
        "id={} addr={} laddr={} name={} age={} idle={} flags={} db=0 sub=0 psub=0 ssub=0 multi={} watch={} qbuf={} \
         multi-mem={} obl={} oll=0 omem={} tot-mem={} cmd={} tot-cmds={} user={} redir={} resp={} lib-name={} \
         lib-ver={} consistency={}",
        client.id,
        client.address,
        client.local_address,
        text(&client.name),
        client.since.elapsed().as_secs(),
        client.last_active.get().elapsed().as_secs(),
        flags(client),
        client.queued.get().map_or(-1, |queued| queued as i64),
        client.watched.get(),
        memory.input,
        memory.transaction,
        memory.replies,
        memory.output,
        memory.total(),
        client.last_command.get(),
        client.commands.get(),
        text(&client.user),
        if client.tracking.get() == Tracking::Off { -1 } else { 0 },
        if client.resp3.get() { 3 } else { 2 },
        text(&client.library),
        text(&client.library_version),
        super::ionian::level_name(client.level.get()),
    )
    .expect("a string takes any text");
    line
}
