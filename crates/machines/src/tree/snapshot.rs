//! The picture of the state: the same bytes for the same entries, whatever the number of parts and
//! the shape of their trees.
//!
//! ```text
//! format: u8 | number of entries: u64 | per entry, in the order of keys: key: u64 | value: u64
//! ```
//!
//! A picture shares the nodes of the trees and lets go of each when it has written it. To take one
//! costs the same for any number of keys; while it is written, the first change of a node that is
//! not written yet copies that node and those above it, a few kilobytes. So no command waits for a
//! snapshot.

use super::bplus::{Shared, Tree};
use super::trees::{Merge, Trees};
use ionian_kernel::machine::{Frozen, RestoreError};

const FORMAT: u8 = 1;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// How much is written at once: enough that the work of a piece outweighs that of asking for it,
/// and about a millisecond at most.
const PIECE: usize = 256 << 10;

/// The entries at one moment, written piece by piece.
pub(super) struct Picture {
    /// What comes before the entries, until it is written.
    head: Vec<u8>,
    entries: Merge<Shared>,
}

impl Picture {
    pub(super) fn new(trees: &Trees) -> Self {
        Picture {
            head: [&[FORMAT][..], &(trees.len() as u64).to_le_bytes()].concat(),
            entries: Merge::new(trees.all().map(Tree::share)),
        }
    }
}

impl Frozen for Picture {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.append(&mut self.head);
        for (key, value) in self.entries.by_ref().take(PIECE / ENTRY) {
            out.extend_from_slice(&key.to_le_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.len() > start
    }
}

/// The entries of a snapshot, in this number of parts.
///
/// # Errors
/// If the bytes are not a snapshot.
pub(super) fn read(snapshot: &[u8], parts: usize) -> Result<Trees, RestoreError> {
    let wrong = |what: String| Err(RestoreError(what));
    let Some(([FORMAT], rest)) = snapshot.split_first_chunk() else {
        let format = snapshot.first();
        return wrong(format!("its format is {format:?}, which must be {FORMAT}"));
    };
    let Some((count, entries)) = rest.split_first_chunk() else {
        return wrong("it ends too early".to_owned());
    };
    let (count, (entries, odd)) = (u64::from_le_bytes(*count), entries.as_chunks::<ENTRY>());
    if count != entries.len() as u64 || !odd.is_empty() {
        let (found, odd) = (entries.len(), odd.len());
        return wrong(format!(
            "it has {found} entries and {odd} bytes, and says that it has {count} entries"
        ));
    }
    let mut trees = Trees::new(parts);
    let mut last = None;
    for entry in entries {
        let [key, value] = halves(entry);
        if last >= Some(key) {
            return wrong(format!("its keys are not in order: {last:?}, then {key}"));
        }
        last = Some(key);
        trees.of_mut(key).insert(key, value);
    }
    Ok(trees)
}

fn halves(entry: &[u8; ENTRY]) -> [u64; 2] {
    let number = u128::from_le_bytes(*entry);
    [number as u64, (number >> 64) as u64]
}
