//! The content of a file: blocks, each of which has its own memory, so that a picture of the state
//! shares those that do not change.

use std::sync::Arc;

/// Bytes of a block.
pub(super) const BLOCK: usize = 16 << 10;

/// Room is reserved in multiples of this.
const GRAIN: u64 = 4096;

/// The most that is reserved beyond what a write needs.
const MOST_AHEAD: u64 = 1 << 20;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) size: u64,
    /// What is reserved for it: never less than the size. A hole takes room as if it were written.
    pub(super) reserved: u64,
    /// A block that is not there, or is shorter than it could be, reads as zeros.
    pub(super) blocks: Vec<Option<Arc<Vec<u8>>>>,
}

/// The room that a size takes.
pub(super) fn room_for(size: u64) -> u64 {
    size.next_multiple_of(GRAIN)
}

/// The room to reserve for a file that grows to `size`: a quarter more, so that few of its next
/// writes have to ask for more.
pub(super) fn generous_room_for(size: u64) -> u64 {
    let ahead = (size / 4).clamp(GRAIN, MOST_AHEAD);
    room_for(size + ahead)
}

impl File {
    /// Appends up to `length` bytes from `offset` on to `out`.
    pub(super) fn read(&self, offset: u64, length: usize, out: &mut Vec<u8>) {
        let end = offset.saturating_add(length as u64).min(self.size);
        let mut at = offset;
        while at < end {
            let (block, from) = ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize);
            let count = (BLOCK - from).min((end - at) as usize);
            let there = self.blocks.get(block).and_then(Option::as_ref);
            let bytes = there.map_or(&[][..], |block| &block[from.min(block.len())..]);
            let copied = bytes.len().min(count);
            out.extend_from_slice(&bytes[..copied]);
            out.resize(out.len() + count - copied, 0);
            at += count as u64;
        }
    }

    /// Writes within what is reserved.
    pub(super) fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(end <= self.reserved, "a write has room");
        self.size = self.size.max(end);
        let mut at = offset;
        while !bytes.is_empty() {
            let (block, from) = ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize);
            let count = (BLOCK - from).min(bytes.len());
            if self.blocks.len() <= block {
                self.blocks.resize(block + 1, None);
            }
            let block = Arc::make_mut(self.blocks[block].get_or_insert_default());
            if block.len() < from + count {
                block.resize(from + count, 0);
            }
            block[from..from + count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            at += count as u64;
        }
    }

    /// Changes the size. What is reserved is for the caller to change.
    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            let (block, rest) = (
                (size / BLOCK as u64) as usize,
                (size % BLOCK as u64) as usize,
            );
            self.blocks.truncate(block + usize::from(rest > 0));
            if let Some(Some(last)) = self.blocks.get_mut(block)
                && last.len() > rest
            {
                Arc::make_mut(last).truncate(rest);
            }
        }
        self.size = size;
    }

    /// The blocks that are there, with their numbers.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, &Arc<Vec<u8>>)> {
        let all = self.blocks.iter().enumerate();
        all.filter_map(|(number, block)| Some((number, block.as_ref()?)))
    }
}
