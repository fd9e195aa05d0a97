//! IONIAN: commands that Redis does not have.

use super::is;
use crate::reply::Context;
use bytes::Bytes;
use ionian_kernel::client::ReadLevel;

const HELP: &[&str] = &[
    "IONIAN <subcommand> [<arg>]. Subcommands are:",
    "CHECK -- Return OK if a quorum answers a linearizable read, an error otherwise (PING asks no node).",
    "CONSISTENCY -- Return the consistency level of this connection's reads.",
    "CONSISTENCY LINEARIZABLE -- Reads see every write acknowledged before they began (the default).",
    "CONSISTENCY SEQUENTIAL -- Reads see every write and read completed through this node.",
    "CONSISTENCY EVENTUAL -- Reads see some earlier state, without delay.",
    "HELP -- Print this help.",
];

const LEVELS: [ReadLevel; 3] = [
    ReadLevel::Linearizable,
    ReadLevel::Sequential,
    ReadLevel::Eventual,
];

pub(super) fn ionian(context: &mut Context<'_>, words: &[Bytes]) {
    match &words[1..] {
        // In a transaction, so the cluster has just answered.
        [sub] if is(sub, "CHECK") => context.ok(),
        [sub] if is(sub, "HELP") => context.help(HELP),
        [sub] if is(sub, "CONSISTENCY") => context.bulk(level_name(context.client.level.get())),
        [sub, name] if is(sub, "CONSISTENCY") => {
            match LEVELS.iter().find(|level| is(name, level_name(**level))) {
                Some(level) => {
                    context.client.level.set(*level);
                    context.ok();
                }
                None => context.error(
                    "ERR the consistency level must be linearizable, sequential or eventual",
                ),
            }
        }
        [sub, ..] if is(sub, "CHECK") => context.wrong_number("ionian|check"),
        [sub, ..] if is(sub, "CONSISTENCY") => context.wrong_number("ionian|consistency"),
        [sub, ..] => context.unknown_subcommand("IONIAN", sub),
        [] => context.wrong_number("ionian"),
    }
}

pub(super) fn level_name(level: ReadLevel) -> &'static str {
    match level {
        ReadLevel::Linearizable => "linearizable",
        ReadLevel::Sequential => "sequential",
        ReadLevel::Eventual => "eventual",
    }
}
