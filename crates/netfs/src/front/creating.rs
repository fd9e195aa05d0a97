//! Opening with O_CREAT, while other mounts do the same.

use super::requests::{Requests, name};
use crate::attr::{Attr, Kind};
use crate::errno::Errno;
use crate::wire::{Change, Query, SetAttr};
use fuser::{INodeNo, Request};
use std::ffi::OsStr;

/// How often a file is made and unlinked by others before its opening is left to the kernel.
const MAX_RACES: usize = 16;

/// At this error of an opening the kernel looks again for what the path leads to, once.
const LOOK_AGAIN: Errno = Errno::ESTALE;

/// Whether a request may open a file, by its owner and the first group of its process.
fn may_open(req: &Request, attr: &Attr, flags: i32) -> bool {
    let access = match flags & nix::libc::O_ACCMODE {
        nix::libc::O_RDONLY => 4,
        nix::libc::O_WRONLY => 2,
        _ => 6,
    };
    let access = access
        | if flags & nix::libc::O_TRUNC == 0 {
            0
        } else {
            2
        };
    let bits = match () {
        () if req.uid() == attr.uid => attr.mode >> 6,
        () if req.gid() == attr.gid => attr.mode >> 3,
        () => attr.mode,
    };
    bits & access == access
}

impl Requests {
    /// Makes a file and opens it, or opens the one that another mount has made since the kernel
    /// has looked: unless it is asked to (`O_EXCL`), open does not fail because a file exists.
    pub(super) fn create_or_open(
        &self,
        req: &Request,
        at: (INodeNo, &OsStr),
        mode: u32,
        flags: i32,
    ) -> Result<Attr, Errno> {
        let mode = (mode & 0o7777) | Kind::File.bits();
        for _ in 0..MAX_RACES {
            match self.make(req, at, mode, 0, true) {
                Err(Errno::EEXIST) if flags & nix::libc::O_EXCL == 0 => {}
                made => return made.inspect(|attr| self.volume.holds.created(attr)),
            }
            match self.open_made(req, at, flags) {
                // It was unlinked meanwhile.
                Err(Errno::ENOENT | Errno::ESTALE) => {}
                opened => return opened?.ok_or(LOOK_AGAIN),
            }
        }
        Err(LOOK_AGAIN)
    }

    /// Opens the file that is there. The kernel checks nothing more, as it believes that the file
    /// is new: where this request may not open it for certain, or it is no file, the kernel has to
    /// look itself (`None`).
    fn open_made(
        &self,
        req: &Request,
        (parent, entry): (INodeNo, &OsStr),
        flags: i32,
    ) -> Result<Option<Attr>, Errno> {
        let (parent, name) = (parent.0, name(entry)?);
        let attr = self.asked(Query::Lookup { parent, name })?;
        if Kind::of_mode(attr.mode) != Ok(Kind::File) || !may_open(req, &attr, flags) {
            return Ok(None);
        }
        self.volume.open(attr.ino)?;
        if flags & nix::libc::O_TRUNC == 0 {
            return Ok(Some(attr));
        }
        let set = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        let ino = attr.ino;
        let emptied = self.changed(Change::Set { ino, set });
        emptied.map(Some).inspect_err(|_| self.volume.close(ino))
    }
}
