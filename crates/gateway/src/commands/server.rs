//! INFO, MEMORY without USAGE, MODULE, TIME, WAIT.

use super::{NOT_AN_INTEGER, number};
use crate::info::{InfoWriter, Keys};
use crate::memory;
use crate::process;
use crate::reply::Context;
use bytes::Bytes;
use std::time::{SystemTime, UNIX_EPOCH};

/// In a transaction: without what only a replica knows.
pub(super) fn info(context: &mut Context<'_>, words: &[Bytes]) {
    write_info(context, words, None);
}

/// The reply to INFO, with the number of keys if it is known.
pub(crate) fn write_info(context: &mut Context<'_>, words: &[Bytes], keys: Option<Keys>) {
    let mut info = InfoWriter::new(words[1..].iter().map(|section| &section[..]));
    context.host.write_info(&mut info, keys);
    context.verbatim(&info.finish());
}

/// Whether the reply to INFO names the number of keys.
pub(crate) fn wants_keys(words: &[Bytes]) -> bool {
    let mut info = InfoWriter::new(words[1..].iter().map(|section| &section[..]));
    !info.section("Keyspace").field("keys", 0).is_empty()
}

/// MODULE LIST: there are no modules.
pub(super) fn module(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[1].to_ascii_lowercase() {
        b"list" if words.len() == 2 => context.array(0),
        b"list" => context.wrong_number("module|list"),
        _ => context.unknown_subcommand("MODULE", &words[1]),
    }
}

const MEMORY_HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR -- Return whether commands are refused because keys and values take too much.",
    "STATS -- Return the memory of this node's process and of its clients, in bytes.",
    "USAGE <key> [SAMPLES <count>] -- Return how much the key counts against maxmemory, in bytes.",
];

/// MEMORY but USAGE, which is a command of the machine: what is known of the memory of the process
/// and of the clients.
pub(super) fn memory(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[1].to_ascii_lowercase() {
        b"stats" if words.len() == 2 => {
            let [now, peak] = process::resident();
            let clients = context.host.held() as u64;
            let known = [
                ("peak.allocated", peak),
                ("total.allocated", now),
                ("clients.normal", clients),
            ];
            context.map(known.len());
            for (name, bytes) in known {
                context.bulk(name);
                context.integer(bytes as i64);
            }
        }
        b"doctor" if words.len() == 2 => context.verbatim(&memory::diagnosis(context.host)),
        b"help" if words.len() == 2 => context.help(MEMORY_HELP),
        b"stats" => context.wrong_number("memory|stats"),
        b"doctor" => context.wrong_number("memory|doctor"),
        b"help" => context.wrong_number("memory|help"),
        _ => context.unknown_subcommand("MEMORY", &words[1]),
    }
}

/// The clock of the gateway's machine, not the time in the log.
pub(super) fn time(context: &mut Context<'_>, _: &[Bytes]) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    context.array(2);
    context.bulk(now.as_secs().to_string());
    context.bulk(now.subsec_micros().to_string());
}

/// Every acknowledged write is already replicated, so the answer needs no wait: the number of
/// further machines that have the write, which depends only on the deployment.
pub(super) fn wait(context: &mut Context<'_>, words: &[Bytes]) {
    match (number(&words[1]), number(&words[2])) {
        (Some(_), Some(timeout)) if timeout < 0 => context.error("ERR timeout is negative"),
        (Some(_), Some(_)) => context.integer(i64::from(context.host.limits.copies)),
        (None, _) => context.error(NOT_AN_INTEGER),
        (_, None) => context.error("ERR timeout is not an integer or out of range"),
    }
}
