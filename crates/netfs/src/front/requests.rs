//! Each request of the kernel as commands and queries.
//!
//! The kernel checks permissions by the attributes (`default_permissions`), resolves paths, and
//! applies the umask.

use super::volume::Volume;
use crate::attr::{Attr, Kind, ROOT, Time};
use crate::errno::Errno;
use crate::machine::{FIRST_COOKIE, MAX_NAME};
use crate::wire::{Change, Query, Rename, Reply, SetAttr, SetTime};
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a piece of a directory's list.
const LIST_BYTES: u32 = 16 << 10;

/// The unit in which room is counted.
const BLOCK: u64 = 4096;

/// An open file's flag: writes go to its end.
const APPEND: i32 = nix::libc::O_APPEND;

/// A mounted file system.
pub(super) struct Requests {
    pub(super) volume: Arc<Volume>,
    /// How long the kernel may use names and attributes without asking.
    pub(super) stale: Duration,
}

fn errno(errno: Errno) -> fuser::Errno {
    // What is not of POSIX is of the kind that a program cannot do anything about.
    match errno.0 {
        number @ 1..1000 => fuser::Errno::from_i32(i32::from(number)),
        _ => fuser::Errno::EIO,
    }
}

fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let seconds = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    let exact = seconds.and_then(|it| it.checked_add(Duration::from_nanos(time.nanos.into())));
    exact.unwrap_or(UNIX_EPOCH)
}

/// A time that the kernel has sent. Before 1970 fuser 0.18 (`time.rs`) subtracts the nanoseconds
/// from the seconds instead of adding them: what it subtracted is what the kernel has sent.
fn to_time(time: SystemTime) -> Time {
    let (sign, since) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (1, since),
        Err(before) => (-1, before.duration()),
    };
    Time {
        seconds: (since.as_secs() as i64).saturating_mul(sign),
        nanos: since.subsec_nanos(),
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Pipe => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Character => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    let kind = Kind::of_mode(attr.mode).expect("decoding has checked it");
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: system_time(attr.accessed),
        mtime: system_time(attr.modified),
        ctime: system_time(attr.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::SpecificTime(time) => SetTime::To(to_time(time)),
        TimeOrNow::Now => SetTime::Now,
    }
}

/// The name of an entry, if it is not too long to exist.
pub(super) fn name(name: &OsStr) -> Result<&[u8], Errno> {
    let bytes = name.as_bytes();
    if bytes.len() > MAX_NAME {
        return Err(Errno::ENAMETOOLONG);
    }
    Ok(bytes)
}

impl Requests {
    fn entry(&self, answer: Result<Attr, Errno>, reply: ReplyEntry) {
        match answer {
            // Inodes are not used twice, so there is one generation of each.
            Ok(attr) => reply.entry(&self.stale, &file_attr(&attr), Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn attr(&self, answer: Result<Attr, Errno>, reply: ReplyAttr) {
        match answer {
            Ok(attr) => reply.attr(&self.stale, &file_attr(&attr)),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn asked(&self, query: Query<'_>) -> Result<Attr, Errno> {
        self.volume
            .query(query)
            .and_then(|reply| self.volume.attr(reply))
    }

    pub(super) fn changed(&self, change: Change<'_>) -> Result<Attr, Errno> {
        self.volume
            .change(&change)
            .and_then(|reply| self.volume.attr(reply))
    }

    fn done(&self, change: Result<Change<'_>, Errno>, reply: ReplyEmpty) {
        match change.and_then(|change| self.volume.change(&change)) {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn make(
        &self,
        req: &Request,
        (parent, entry): (INodeNo, &OsStr),
        mode: u32,
        rdev: u32,
        hold: bool,
    ) -> Result<Attr, Errno> {
        self.changed(Change::Create {
            parent: parent.0,
            name: name(entry)?,
            mode,
            uid: req.uid(),
            gid: req.gid(),
            rdev,
            hold,
        })
    }

    fn content(&self, ino: u64, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut content = Vec::new();
        while content.len() < length {
            let left = (length - content.len()).min(crate::MAX_CONTENT);
            let offset = offset + content.len() as u64;
            let length = left as u32;
            match self.volume.query(Query::Read {
                ino,
                offset,
                length,
            })? {
                Reply::Data(piece) if piece.is_empty() => break,
                Reply::Data(piece) => content.extend(piece),
                _ => return Err(Errno::EIO),
            }
        }
        Ok(content)
    }

    /// Writes in pieces that the cluster carries.
    fn write_all(&self, ino: u64, offset: Option<u64>, bytes: &[u8]) -> Result<(), Errno> {
        let mut at = offset;
        for piece in bytes.chunks(self.volume.content_bytes()) {
            self.volume.write(ino, at, piece)?;
            at = at.map(|at| at + piece.len() as u64);
        }
        Ok(())
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let most = self.volume.content_bytes() as u32 & !(BLOCK as u32 - 1);
        // Refused only if it is zero or more than 16 MiB.
        let _ = config.set_max_write(most);
        if config
            .add_capabilities(InitFlags::FUSE_AUTO_INVAL_DATA)
            .is_err()
        {
            return Err(io::Error::other(
                "this kernel does not check cached pages (FUSE_AUTO_INVAL_DATA, Linux 3.6)",
            ));
        }
        // Without it lookups in one directory wait for each other, which is only slower.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn destroy(&mut self) {
        self.volume.end();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        let parent = parent.0;
        let found = name(entry).and_then(|name| self.asked(Query::Lookup { parent, name }));
        self.entry(found, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(self.asked(Query::Attr { ino: ino.0 }), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            accessed: atime.map(set_time),
            modified: mtime.map(set_time),
        };
        let ino = ino.0;
        let answer = match set.is_empty() {
            true => self.asked(Query::Attr { ino }),
            false => self.changed(Change::Set { ino, set }),
        };
        self.attr(answer, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.volume.query(Query::Readlink { ino: ino.0 }) {
            Ok(Reply::Data(target)) => reply.data(&target),
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.entry(self.make(req, (parent, name), mode, rdev, false), reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = (mode & 0o7777) | Kind::Directory.bits();
        self.entry(self.make(req, (parent, name), mode, 0, false), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let parent = parent.0;
        self.done(
            name(entry).map(|name| Change::Unlink { parent, name }),
            reply,
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let parent = parent.0;
        self.done(
            name(entry).map(|name| Change::Rmdir { parent, name }),
            reply,
        );
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        entry: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let made = name(entry).and_then(|name| {
            self.changed(Change::Symlink {
                parent: parent.0,
                name,
                // The kernel has checked that it is no longer than a path.
                target,
                uid: req.uid(),
                gid: req.gid(),
            })
        });
        self.entry(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        entry: &OsStr,
        newparent: INodeNo,
        newentry: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => Rename::Keep,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            flags if flags.is_empty() => Rename::Replace,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let change = name(entry).and_then(|from| {
            Ok(Change::Rename {
                from: (parent.0, from),
                to: (newparent.0, name(newentry)?),
                how,
            })
        });
        self.done(change, reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (ino, parent) = (ino.0, newparent.0);
        let made = name(newname).and_then(|name| self.changed(Change::Link { ino, parent, name }));
        self.entry(made, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.volume.open(ino.0) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_or_open(req, (parent, name), mode, flags) {
            Ok(attr) => {
                let (attr, generation) = (file_attr(&attr), Generation(0));
                let (handle, flags) = (FileHandle(0), FopenFlags::empty());
                reply.created(&self.stale, &attr, generation, handle, flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.content(ino.0, offset, size as usize) {
            Ok(content) => reply.data(&content),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let offset = (flags.0 & APPEND == 0).then_some(offset);
        match self.write_all(ino.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    // Every write is replicated when it is answered.

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.volume.close(ino.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (cookie, entry) in [(1, "."), (2, "..")] {
            // The kernel knows the parent by itself.
            let above = if ino.0 == ROOT { ino } else { INodeNo(ROOT) };
            let its = if cookie == 1 { ino } else { above };
            if cookie > offset && reply.add(its, cookie, FileType::Directory, entry) {
                return reply.ok();
            }
        }
        let (after, length) = (offset.max(FIRST_COOKIE - 1), LIST_BYTES);
        match self.volume.query(Query::List {
            ino: ino.0,
            after,
            length,
        }) {
            Ok(Reply::Entries(entries)) => {
                for entry in entries {
                    let (kind, name) = (file_type(entry.kind), OsStr::from_bytes(&entry.name));
                    if reply.add(INodeNo(entry.ino), entry.cookie, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.volume.query(Query::Space) {
            Ok(Reply::Space(space)) => {
                let free = space.total.saturating_sub(space.used);
                let (blocks, free_blocks) = (space.total / BLOCK, free / BLOCK);
                // An inode and its name take about this many bytes.
                let free_files = free / 700;
                let files = space.files + free_files;
                let (size, longest) = (BLOCK as u32, MAX_NAME as u32);
                reply.statfs(
                    blocks,
                    free_blocks,
                    free_blocks,
                    files,
                    free_files,
                    size,
                    longest,
                    size,
                );
            }
            Ok(_) => reply.error(fuser::Errno::EIO),
            Err(error) => reply.error(errno(error)),
        }
    }
}
