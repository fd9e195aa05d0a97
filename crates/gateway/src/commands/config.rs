//! CONFIG: parameters that programs query at their start. The settings themselves are in the
//! deployment file, but for `maxmemory`, which is a part of the replicated state.

use super::{is, matches};
use crate::host::Host;
use crate::memory;
use crate::reply::Context;
use crate::slowlog::ENTRIES;
use bytes::Bytes;
use ionian_machines::kv::Compound;

/// The only parameter that CONFIG SET takes.
const MAXMEMORY: &str = "maxmemory";

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...] -- Return parameters that match a pattern of * and ?.",
    "SET maxmemory <bytes> -- Limit the memory of keys and values, for the whole cluster.",
    "REWRITE, RESETSTAT -- Not available: settings are in the deployment file.",
];

/// Whether the command is to set the limit of memory.
pub(super) fn has_change(words: &[Bytes]) -> bool {
    let mut names = words[2..].iter().step_by(2);
    is(&words[1], "SET") && names.any(|name| is(name, MAXMEMORY))
}

/// The compound of `CONFIG SET maxmemory`.
///
/// # Errors
/// The error reply, if it is not the only parameter or has no value.
pub(super) fn change(context: &Context<'_>, words: &[Bytes]) -> Result<Option<Compound>, String> {
    if !has_change(words) {
        return Ok(None);
    }
    match words {
        [_, _, _, value] => memory::limit(context.host, value).map(Some),
        _ => Err("ERR CONFIG SET takes maxmemory alone, with one value".to_owned()),
    }
}

/// The limit was set.
pub(super) fn on_changed(host: &Host, words: &[Bytes]) {
    if let Some(limit) = memory::bytes_of(&words[3]) {
        host.memory.limit_was_set(limit);
    }
}

/// The limit that a change is to set.
pub(super) fn object(words: &[Bytes]) -> String {
    format!("{MAXMEMORY} {}", String::from_utf8_lossy(&words[3]))
}

pub(super) fn config(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[1].to_ascii_lowercase() {
        b"get" if words.len() > 2 => get(context, &words[2..]),
        b"set" if words.len() > 3 => refuse(context, "SET"),
        b"get" => context.wrong_number("config|get"),
        b"set" => context.wrong_number("config|set"),
        b"rewrite" => refuse(context, "REWRITE"),
        b"resetstat" => refuse(context, "RESETSTAT"),
        b"help" => context.help(HELP),
        _ => context.unknown_subcommand("CONFIG", &words[1]),
    }
}

fn refuse(context: &mut Context<'_>, what: &str) {
    context.error(format_args!(
        "ERR CONFIG {what} is not available: Ionian is configured by its deployment file and flags"
    ));
}

fn get(context: &mut Context<'_>, patterns: &[Bytes]) {
    let parameters = parameters(context.host);
    let wanted = |name: &str| patterns.iter().any(|pattern| matches(pattern, name));
    let found: Vec<_> = parameters.iter().filter(|(name, _)| wanted(name)).collect();
    context.map(found.len());
    for (name, value) in found {
        context.bulk(name);
        context.bulk(value);
    }
}

/// Redis's names of the settings in force.
fn parameters(host: &Host) -> Vec<(&'static str, String)> {
    let limits = &host.limits;
    let listening = host.listening.borrow();
    let (address, port) = listening.rsplit_once(':').unwrap_or(("", "0"));
    vec![
        // The deployment decides about durability; these two say nothing about it.
        ("appendonly", "no".into()),
        ("bind", address.trim_matches(['[', ']']).into()),
        (
            "client-output-buffer-limit",
            format!("normal {} 0 0", limits.client_bytes),
        ),
        ("cluster-enabled", "no".into()),
        ("databases", "1".into()),
        ("maxclients", limits.connections.to_string()),
        (MAXMEMORY, host.memory.known().limit.to_string()),
        ("maxmemory-clients", limits.memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", port.into()),
        ("proto-max-bulk-len", limits.bulk_bytes.to_string()),
        ("requirepass", String::new()),
        ("save", String::new()),
        (
            "slowlog-log-slower-than",
            limits.slower_than.as_micros().to_string(),
        ),
        ("slowlog-max-len", ENTRIES.to_string()),
        ("timeout", limits.idle.as_secs().to_string()),
    ]
}
