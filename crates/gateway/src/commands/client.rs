//! CLIENT: who is connected, under which name.

use super::connection::BAD_NAME;
use super::{SYNTAX, is, number};
use crate::host::Client;
use crate::reply::Context;
use bytes::Bytes;
use std::fmt::Write;

/// Bytes of a name; a longer one would only serve to fill memory.
const MAX_NAME_LEN: usize = 1024;

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME -- Return the name of the current connection.",
    "GETREDIR -- Return -1: there is no tracking.",
    "ID -- Return the ID of the current connection.",
    "INFO -- Return information about the current client connection.",
    "LIST [TYPE NORMAL] [ID <id> ...] -- Return information about client connections.",
    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF) -- Accepted; nothing is evicted.",
    "REPLY ON -- Accepted; OFF and SKIP are not supported.",
    "SETINFO (LIB-NAME|LIB-VER) <value> -- Set the client library's name or version.",
    "SETNAME <name> -- Assign the name <name> to the current connection.",
    "TRACKING OFF -- Accepted; ON is not supported.",
];

type Sub = fn(&mut Context<'_>, &[Bytes]);

/// Name, fewest and most words after it.
const SUBCOMMANDS: &[(&str, usize, usize, Sub)] = &[
    ("getname", 0, 0, |context, _| name_or_null(context)),
    ("getredir", 0, 0, |context, _| context.integer(-1)),
    ("help", 0, 0, |context, _| context.help(HELP)),
    ("id", 0, 0, |context, _| context.integer(context.client.id as i64)),
    ("info", 0, 0, |context, _| context.verbatim(&line(context.client))),
    ("list", 0, usize::MAX, list),
    ("no-evict", 1, 1, on_or_off),
    ("no-touch", 1, 1, on_or_off),
    ("reply", 1, 1, reply),
    ("setinfo", 2, 2, set_info),
    ("setname", 1, 1, set_name),
    ("tracking", 1, usize::MAX, tracking),
];

pub(super) fn client(context: &mut Context<'_>, words: &[Bytes]) {
    let Some((name, fewest, most, run)) = SUBCOMMANDS.iter().find(|sub| is(&words[1], sub.0)) else {
        return context.unknown_subcommand("CLIENT", &words[1]);
    };
    let rest = &words[2..];
    if rest.len() < *fewest || rest.len() > *most {
        return context.wrong_number(format_args!("client|{name}"));
    }
    run(context, rest);
}

/// Whether a name can stand in a list whose fields are separated by spaces and newlines.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_LEN && name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn name_or_null(context: &mut Context<'_>) {
    let name = context.client.name.borrow();
    if name.is_empty() { context.null() } else { context.bulk(&*name) }
}

fn set_name(context: &mut Context<'_>, words: &[Bytes]) {
    if !is_plain_name(&words[0]) {
        return context.error(BAD_NAME);
    }
    context.client.name.replace(Bytes::copy_from_slice(&words[0]));
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
        return context.error(format_args!("ERR {name} cannot contain spaces, newlines or special characters."));
    }
    field.replace(Bytes::copy_from_slice(&words[1]));
    context.ok();
}

fn on_or_off(context: &mut Context<'_>, words: &[Bytes]) {
    if is(&words[0], "ON") || is(&words[0], "OFF") { context.ok() } else { context.error(SYNTAX) }
}

fn reply(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[0].to_ascii_lowercase() {
        b"on" => context.ok(),
        b"off" | b"skip" => context.error("ERR CLIENT REPLY OFF and SKIP are not supported"),
        _ => context.error(SYNTAX),
    }
}

fn tracking(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[0].to_ascii_lowercase() {
        b"off" => context.ok(),
        b"on" => context.error("ERR CLIENT TRACKING ON is not supported"),
        _ => context.error(SYNTAX),
    }
}

fn list(context: &mut Context<'_>, words: &[Bytes]) {
    let mut ids = None;
    let mut of_this_type = true;
    match words {
        [] => {}
        [option, kind] if is(option, "TYPE") => match &*kind.to_ascii_lowercase() {
            b"normal" => {}
            b"master" | b"replica" | b"slave" | b"pubsub" => of_this_type = false,
            _ => {
                let kind = String::from_utf8_lossy(kind);
                return context.error(format_args!("ERR Unknown client type '{kind}'"));
            }
        },
        [option, wanted @ ..] if is(option, "ID") && !wanted.is_empty() => {
            let Some(mut wanted) = wanted.iter().map(|id| number(id)).collect::<Option<Vec<_>>>() else {
                return context.error("ERR Invalid client ID");
            };
            wanted.sort_unstable();
            ids = Some(wanted);
        }
        _ => return context.error(SYNTAX),
    }
    let mut text = String::new();
    context.host.for_each_client(|client| {
        let named = ids.as_ref().is_none_or(|ids| ids.binary_search(&(client.id as i64)).is_ok());
        if of_this_type && named {
            text.push_str(&line(client));
        }
    });
    context.verbatim(&text);
}

/// One line of CLIENT LIST.
fn line(client: &Client) -> String {
    let text = |field: &std::cell::RefCell<Bytes>| String::from_utf8_lossy(&field.borrow()).into_owned();
    let mut line = String::new();
    writeln!(
        line,
        "id={} addr={} laddr={} name={} age={} flags={} db=0 sub=0 psub=0 ssub=0 multi={} watch={} tot-cmds={} \
         user=default redir=-1 resp={} lib-name={} lib-ver={} consistency={}",
        client.id,
        client.address,
        client.local_address,
        text(&client.name),
        client.since.elapsed().as_secs(),
        if client.queued.get().is_some() { 'x' } else { 'N' },
        client.queued.get().map_or(-1, |queued| queued as i64),
        client.watched.get(),
        client.commands.get(),
        if client.resp3.get() { 3 } else { 2 },
        text(&client.library),
        text(&client.library_version),
        super::ionian::level_name(client.level.get()),
    )
    .expect("a string takes any text");
    line
}
