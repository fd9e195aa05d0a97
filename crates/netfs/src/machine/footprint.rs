//! What commands and queries touch (P-SMR V-B, the table of dependencies of NetFS): writes, reads,
//! attributes and lists touch their file or directory; all else touches everything. The key of a
//! file is the number of its inode ([why](super)).

use crate::wire::{Change, Command, Query};
use ionian_kernel::machine::Footprint;

/// Adds what a command or query touches.
pub(super) fn add(bytes: &[u8], footprint: &mut Footprint) {
    match Command::decode(bytes) {
        // Its time is that of the file.
        Ok(Command::Change(
            _,
            Change::Write {
                ino, grow: false, ..
            },
        )) => {
            footprint.timed = true;
            return footprint.writes.push(ino);
        }
        Ok(_) => {
            footprint.timed = true;
            footprint.everything = true;
            return;
        }
        Err(_) => {}
    }
    match Query::decode(bytes) {
        Ok(
            Query::Attr { ino }
            | Query::Read { ino, .. }
            | Query::List { ino, .. }
            | Query::Readlink { ino },
        ) => footprint.reads.push(ino),
        // A name in one part stands for a file in any.
        Ok(Query::Lookup { .. } | Query::Space) => footprint.everything = true,
        // What is malformed is answered without a look at the state.
        Err(_) => {}
    }
}
