//! Snapshots: the same bytes for the same state, written piece by piece while commands go on.
//!
//! ```text
//! format: u8 | next inode: u64 | next mount: u64
//! number of mounts: u32 | per mount, by id:
//!     id: u64 | nonce: u128 | seen: u64 | floor: u64
//!     number of answers: u16 | per answer: number: u64 | length: u16 | bytes
//! per inode, by segment and number:
//!     number: u64 | mode, links, uid, gid, rdev: u32 | accessed, modified, changed: i64, u32
//!     number of holds: u16 | per hold, by mount:
//!         mount: u64 | floor: u64 | number of answers: u16 | per answer: number: u64 | errno: u16
//!     type: u32 | number of pieces: u32 | body
//! ```
//!
//! A body is, by type: of a file, its size and reservation (u64 each), and a piece for each block
//! that is there: its number and length (u32 each), and its bytes; of a directory, its parent and
//! its next cookie (u64 each), and a piece for each entry, by cookie: cookie and inode (u64 each),
//! type (u32), and the name behind its length (u16); of a link, its target behind its length (u16).
//!
//! How much room is used is not written: it follows from the rest.

use super::inode::{Body, Inode};
use super::store::{Segment, Store};
use super::tables::Tables;
use crate::wire::push_bytes;
use ionian_kernel::machine::Frozen;
use std::sync::Arc;
use std::vec;

pub(super) const FORMAT: u8 = 1;

/// How much is written at once.
const PIECE: usize = 256 << 10;

/// The state at one moment. It shares each segment with the store until it has written it.
pub(super) struct Picture {
    /// What comes before the inodes, until it is written.
    head: Vec<u8>,
    segments: vec::IntoIter<Arc<Segment>>,
    /// Of the first of them, the inodes that are not begun.
    inodes: vec::IntoIter<(u64, Arc<Inode>)>,
    /// The inode that is begun.
    begun: Option<Begun>,
}

/// An inode whose head is written.
struct Begun {
    inode: Arc<Inode>,
    /// Pieces with this number or cookie, and larger ones, are not written.
    next: u64,
}

impl Picture {
    pub(super) fn new(store: &Store, tables: &Tables) -> Picture {
        Picture {
            head: head(tables),
            segments: store.share().into_iter(),
            inodes: Vec::new().into_iter(),
            begun: None,
        }
    }
}

impl Frozen for Picture {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.append(&mut self.head);
        while out.len() - start < PIECE {
            if let Some(begun) = &mut self.begun {
                if !begun.write_piece(out) {
                    self.begun = None;
                }
            } else if let Some((ino, inode)) = self.inodes.next() {
                begin(ino, &inode, out);
                self.begun = Some(Begun { inode, next: 0 });
            } else if let Some(segment) = self.segments.next() {
                let inodes: Vec<_> = segment.iter().map(|(ino, it)| (*ino, it.clone())).collect();
                self.inodes = inodes.into_iter();
            } else {
                break;
            }
        }
        out.len() > start
    }
}

impl Begun {
    /// Writes a block or an entry, if there is another.
    fn write_piece(&mut self, out: &mut Vec<u8>) -> bool {
        match &self.inode.body {
            Body::File(file) => {
                let from = self.next as usize;
                let rest = file.blocks.iter().enumerate().skip(from);
                let mut there = rest.filter_map(|(at, block)| Some((at, block.as_ref()?)));
                let Some((number, block)) = there.next() else {
                    return false;
                };
                out.extend_from_slice(&(number as u32).to_le_bytes());
                out.extend_from_slice(&(block.len() as u32).to_le_bytes());
                out.extend_from_slice(block);
                self.next = number as u64 + 1;
            }
            Body::Directory(directory) => {
                let Some((name, entry)) = directory.after(self.next).next() else {
                    return false;
                };
                out.extend_from_slice(&entry.cookie.to_le_bytes());
                out.extend_from_slice(&entry.ino.to_le_bytes());
                out.extend_from_slice(&entry.kind.bits().to_le_bytes());
                push_bytes(name, out);
                self.next = entry.cookie;
            }
            Body::Symlink(_) | Body::Special(_) => return false,
        }
        true
    }
}

fn head(tables: &Tables) -> Vec<u8> {
    let mut out = vec![FORMAT];
    out.extend_from_slice(&tables.next_ino.to_le_bytes());
    out.extend_from_slice(&tables.next_mount.to_le_bytes());
    out.extend_from_slice(&(tables.mounts.len() as u32).to_le_bytes());
    for (id, mount) in &tables.mounts {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&mount.nonce.to_le_bytes());
        out.extend_from_slice(&mount.seen.to_le_bytes());
        out.extend_from_slice(&mount.ledger.floor.to_le_bytes());
        out.extend_from_slice(&(mount.ledger.answers.len() as u16).to_le_bytes());
        for (number, answer) in &mount.ledger.answers {
            out.extend_from_slice(&number.to_le_bytes());
            push_bytes(answer, &mut out);
        }
    }
    out
}

/// Writes what an inode has before its pieces.
fn begin(ino: u64, inode: &Inode, out: &mut Vec<u8>) {
    out.extend_from_slice(&ino.to_le_bytes());
    for number in [inode.mode, inode.links, inode.uid, inode.gid, inode.rdev] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [inode.accessed, inode.modified, inode.changed] {
        time.encode(out);
    }
    out.extend_from_slice(&(inode.holds.len() as u16).to_le_bytes());
    for (mount, ledger) in &inode.holds {
        out.extend_from_slice(&mount.to_le_bytes());
        out.extend_from_slice(&ledger.floor.to_le_bytes());
        out.extend_from_slice(&(ledger.answers.len() as u16).to_le_bytes());
        for (number, errno) in &ledger.answers {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&errno.0.to_le_bytes());
        }
    }
    let pieces = match &inode.body {
        Body::File(file) => file.blocks().count(),
        Body::Directory(directory) => directory.len(),
        Body::Symlink(_) | Body::Special(_) => 0,
    };
    out.extend_from_slice(&inode.body.kind().bits().to_le_bytes());
    out.extend_from_slice(&(pieces as u32).to_le_bytes());
    match &inode.body {
        Body::File(file) => {
            out.extend_from_slice(&file.size.to_le_bytes());
            out.extend_from_slice(&file.reserved.to_le_bytes());
        }
        Body::Directory(directory) => {
            out.extend_from_slice(&directory.parent.to_le_bytes());
            out.extend_from_slice(&directory.next_cookie.to_le_bytes());
        }
        Body::Symlink(target) => push_bytes(target, out),
        Body::Special(_) => {}
    }
}
