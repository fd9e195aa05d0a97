//! CONFIG: parameters that programs query at their start. The settings themselves are in the
//! deployment file.

use super::matches;
use crate::host::Host;
use crate::reply::Context;
use crate::slowlog::ENTRIES;
use bytes::Bytes;

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...] -- Return parameters that match a pattern of * and ?.",
    "SET, REWRITE, RESETSTAT -- Not available: settings are in the deployment file.",
];

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
        ("maxmemory", "0".into()),
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
        ("timeout", "0".into()),
    ]
}
