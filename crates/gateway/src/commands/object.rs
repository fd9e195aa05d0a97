//! OBJECT but the subcommands about a key, which are commands of the machine.

use crate::reply::Context;
use bytes::Bytes;

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key> -- Return the encoding that Redis has for such a value.",
    "FREQ <key> -- Return an error: how often keys are read is not recorded.",
    "IDLETIME <key> -- Return an error: when keys are read is not recorded.",
    "REFCOUNT <key> -- Return 1.",
];

pub(super) fn object(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[1].to_ascii_lowercase() {
        b"help" if words.len() == 2 => context.help(HELP),
        b"help" => context.wrong_number("object|help"),
        _ => context.unknown_subcommand("OBJECT", &words[1]),
    }
}
