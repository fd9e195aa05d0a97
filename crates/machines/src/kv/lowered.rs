//! Commands that need a higher level than the cluster has: its level was lowered.

use super::decoded::Decoded;
use super::reply;
use ionian_kernel::level::Level;

/// Gateways send no such commands below that level: this one came with the lowering of the level.
const LOWERED: &[u8] =
    b"ERR users and maxmemory need level 18 of the cluster, which was lowered, see docs/upgrade.md";

/// The same for OBJECT and MEMORY USAGE, and for commands that are sent with them.
const LOWERED_FACTS: &[u8] =
    b"TRYAGAIN OBJECT and MEMORY USAGE need level 18 of the cluster, which \
    was lowered, the command was not executed";

/// Why a compound is refused at this level; none if it is not.
pub(super) fn refusal(level: Level, compound: &Decoded) -> Option<&'static [u8]> {
    match compound {
        Decoded::SetUser { .. }
        | Decoded::DeleteUsers(_)
        | Decoded::SetLimit(_)
        | Decoded::Measure => Some(LOWERED),
        _ => {
            let mut commands = compound.commands().iter();
            commands
                .any(|op| op.since() > level)
                .then_some(LOWERED_FACTS)
        }
    }
}

/// Answers commands with one among them that needs a higher level. A program which supports only
/// the lower one cannot read them, and executes none: so none is executed.
pub(super) fn refuse_all(compound: &Decoded, error: &[u8], reply: &mut Vec<u8>) {
    let count = match compound {
        Decoded::Pipeline(commands) => commands.as_slice().len(),
        _ => 1,
    };
    (0..count).for_each(|_| reply::error(reply, error));
}
