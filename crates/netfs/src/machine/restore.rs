//! Reads a snapshot ([`picture`](super::picture) has its format), and refuses one that no sequence
//! of commands leads to: what it says twice must agree, and every rule that the machine relies on
//! must hold.

use super::directory::{self, Directory, Entry, FIRST_COOKIE};
use super::file::{BLOCK, File};
use super::inode::{Body, Inode};
use super::ledger::{Ledger, WINDOW};
use super::picture::FORMAT;
use super::store::{Store, segment_of};
use super::tables::{Limits, Mount, Tables};
use super::{MAX_TARGET, NetFs};
use crate::attr::{Kind, PERMISSIONS, ROOT, Time};
use crate::errno::Errno;
use crate::wire::{Cursor, Malformed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Malformed>;

/// Reads a snapshot of a file system with these limits.
pub(super) fn read(snapshot: &[u8], limits: Limits) -> Result<NetFs> {
    let mut cursor = Cursor::new(snapshot);
    if cursor.u8()? != FORMAT {
        return Err(Malformed("its format is unknown"));
    }
    let mut tables = tables(&mut cursor, limits)?;
    let mut store = Store::default();
    let mut last = None;
    while !cursor.is_empty() {
        let ino = cursor.u64()?;
        let place = (segment_of(ino), ino);
        if ino < ROOT || ino >= tables.next_ino || last >= Some(place) {
            return Err(Malformed("its inodes are out of range or not in order"));
        }
        last = Some(place);
        let inode = inode(ino, &mut cursor, &mut tables)?;
        store.insert(ino, inode);
    }
    if tables.holds() > limits.holds {
        return Err(Malformed("its mounts hold too many files"));
    }
    let restored = NetFs { store, tables };
    check_names(&restored)?;
    Ok(restored)
}

fn tables(cursor: &mut Cursor<'_>, limits: Limits) -> Result<Tables> {
    let mut tables = Tables {
        limits,
        next_ino: cursor.u64()?,
        next_mount: cursor.u64()?,
        used: 0,
        mounts: BTreeMap::new(),
    };
    let count = cursor.u32()?;
    if count as usize > limits.mounts {
        return Err(Malformed("it has too many mounts"));
    }
    for _ in 0..count {
        let id = cursor.u64()?;
        let last = tables.mounts.last_key_value().map(|(last, _)| *last);
        if last >= Some(id) || id >= tables.next_mount {
            return Err(Malformed("its mounts are out of range or not in order"));
        }
        let (nonce, seen) = (cursor.u128()?, cursor.u64()?);
        let ledger = ledger(cursor, |cursor| Ok(cursor.counted()?.to_vec()))?;
        let held = BTreeSet::new();
        tables.mounts.insert(
            id,
            Mount {
                nonce,
                seen,
                ledger,
                held,
            },
        );
    }
    Ok(tables)
}

fn ledger<'a, T>(
    cursor: &mut Cursor<'a>,
    answer: impl Fn(&mut Cursor<'a>) -> Result<T>,
) -> Result<Ledger<T>> {
    let mut ledger = Ledger::from_floor(cursor.u64()?);
    for _ in 0..cursor.u16()? {
        let number = cursor.u64()?;
        let last = ledger.answers.last_key_value().map(|(last, _)| *last);
        let is_in_window = number
            .checked_sub(ledger.floor)
            .is_some_and(|it| it < WINDOW);
        if last >= Some(number) || !is_in_window {
            return Err(Malformed("its answers are out of range or not in order"));
        }
        ledger.answers.insert(number, answer(cursor)?);
    }
    Ok(ledger)
}

fn inode(ino: u64, cursor: &mut Cursor<'_>, tables: &mut Tables) -> Result<Inode> {
    let mut inode = Inode {
        mode: cursor.u32()?,
        links: cursor.u32()?,
        uid: cursor.u32()?,
        gid: cursor.u32()?,
        rdev: cursor.u32()?,
        accessed: Time::decode(cursor)?,
        modified: Time::decode(cursor)?,
        changed: Time::decode(cursor)?,
        holds: holds(ino, cursor, tables)?,
        body: Body::Special(Kind::Pipe),
    };
    if inode.mode > PERMISSIONS {
        return Err(Malformed("a mode has other bits than permissions"));
    }
    let kind = Kind::of_mode(cursor.u32()?).map_err(|_| Malformed("an inode has no type"))?;
    if !inode.holds.is_empty() && kind != Kind::File {
        return Err(Malformed("something is held that is no file"));
    }
    let pieces = cursor.u32()?;
    inode.body = match kind {
        Kind::File => Body::File(file(pieces, cursor, tables.limits)?),
        Kind::Directory => Body::Directory(directory(pieces, cursor)?),
        _ if pieces > 0 => return Err(Malformed("an inode has pieces that cannot have any")),
        Kind::Symlink => match cursor.counted()? {
            target if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) => {
                return Err(Malformed("a link has no possible target"));
            }
            target => Body::Symlink(target.into()),
        },
        special => Body::Special(special),
    };
    let taken = tables.take(inode.cost());
    taken.map_err(|_| Malformed("it exceeds the limit of all bytes"))?;
    Ok(inode)
}

fn holds(
    ino: u64,
    cursor: &mut Cursor<'_>,
    tables: &mut Tables,
) -> Result<BTreeMap<u64, Ledger<Errno>>> {
    let mut holds = BTreeMap::new();
    for _ in 0..cursor.u16()? {
        let id = cursor.u64()?;
        let last = holds.last_key_value().map(|(last, _)| *last);
        let mount = tables.mounts.get_mut(&id);
        let mount = mount.ok_or(Malformed("a file is held by a mount that is not there"))?;
        if last >= Some(id) {
            return Err(Malformed("the mounts that hold a file are not in order"));
        }
        mount.held.insert(ino);
        holds.insert(id, ledger(cursor, |cursor| cursor.u16().map(Errno))?);
    }
    Ok(holds)
}

fn file(pieces: u32, cursor: &mut Cursor<'_>, limits: Limits) -> Result<File> {
    let mut file = File {
        size: cursor.u64()?,
        reserved: cursor.u64()?,
        blocks: Vec::new(),
    };
    let is_rounded = file.reserved.is_multiple_of(4096);
    if file.size > limits.file_bytes || file.size > file.reserved || !is_rounded {
        return Err(Malformed("the size of a file is out of range"));
    }
    for _ in 0..pieces {
        let (number, length) = (cursor.u32()? as usize, cursor.u32()? as usize);
        let is_next = number >= file.blocks.len();
        let end = (number * BLOCK + length) as u64;
        if !is_next || length == 0 || length > BLOCK || end > file.size {
            return Err(Malformed(
                "the blocks of a file are out of range or not in order",
            ));
        }
        let block = cursor.bytes(length)?.to_vec();
        file.blocks.resize(number, None);
        file.blocks.push(Some(Arc::new(block)));
    }
    Ok(file)
}

fn directory(pieces: u32, cursor: &mut Cursor<'_>) -> Result<Directory> {
    let mut directory = Directory::new(cursor.u64()?);
    let next_cookie = cursor.u64()?;
    for _ in 0..pieces {
        let (cookie, ino) = (cursor.u64()?, cursor.u64()?);
        let kind = Kind::of_mode(cursor.u32()?).map_err(|_| Malformed("an entry has no type"))?;
        let name = cursor.counted()?;
        let is_good = directory::check_name(name).is_ok() && directory.get(name).is_none();
        if !is_good || cookie < directory.next_cookie || cookie >= next_cookie {
            return Err(Malformed("the entries of a directory are not possible"));
        }
        directory.restore(name, Entry { ino, kind, cookie });
    }
    if next_cookie < FIRST_COOKIE {
        return Err(Malformed("the next cookie of a directory is out of range"));
    }
    directory.next_cookie = next_cookie;
    Ok(directory)
}

/// Checks that names lead to all inodes, that directories are a tree, and the numbers of names.
fn check_names(restored: &NetFs) -> Result<()> {
    const WRONG: Malformed = Malformed("names and inodes do not fit together");
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    let mut open = vec![ROOT];
    let mut directories = 0usize;
    while let Some(ino) = open.pop() {
        directories += 1;
        let inode = restored.store.get(ino).ok_or(WRONG)?;
        let directory = inode.directory().map_err(|_| WRONG)?;
        let mut links = 2;
        for (_, entry) in directory.after(0) {
            let there = restored.store.get(entry.ino).ok_or(WRONG)?;
            let seen = names.entry(entry.ino).or_default();
            *seen += 1;
            if there.body.kind() != entry.kind {
                return Err(WRONG);
            }
            if let Body::Directory(below) = &there.body {
                if *seen > 1 || below.parent != ino || entry.ino == ROOT {
                    return Err(WRONG);
                }
                links += 1;
                open.push(entry.ino);
            }
        }
        if inode.links != links {
            return Err(WRONG);
        }
    }
    let root = restored.store.get(ROOT).ok_or(WRONG)?;
    if root.directory().map_err(|_| WRONG)?.parent != ROOT {
        return Err(WRONG);
    }
    for (ino, inode) in restored.store.iter() {
        if let Body::Directory(_) = inode.body {
            directories = directories.checked_sub(1).ok_or(WRONG)?;
        } else if names.get(&ino).copied().unwrap_or(0) != inode.links
            || (inode.links == 0 && inode.holds.is_empty())
        {
            return Err(WRONG);
        }
    }
    if directories > 0 { Err(WRONG) } else { Ok(()) }
}
