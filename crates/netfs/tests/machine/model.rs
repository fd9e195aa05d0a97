//! What a file system is, as simply as possible: objects with contents and entries, searched from
//! end to end. It knows nothing of blocks, reservations, parts or snapshots.

use ionian_netfs::{Change, Content, Errno, ROOT, Rename, SetAttr};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const FILE: u32 = 0o100_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const SYMLINK: u32 = 0o120_000;

/// The largest file of the tests.
pub(crate) const FILE_BYTES: u64 = 200_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
    pub(crate) entries: BTreeMap<Vec<u8>, u64>,
    pub(crate) held: BTreeSet<u64>,
}

impl Object {
    fn new(mode: u32) -> Object {
        Object {
            mode,
            ..Object::default()
        }
    }

    pub(crate) fn kind(&self) -> u32 {
        self.mode & 0o170_000
    }

    fn is_directory(&self) -> bool {
        self.kind() == DIRECTORY
    }
}

pub(crate) struct Model(pub(crate) BTreeMap<u64, Object>);

impl Model {
    pub(crate) fn new() -> Model {
        Model([(ROOT, Object::new(DIRECTORY | 0o1777))].into())
    }

    /// The number of names of an object, as `stat` counts them.
    pub(crate) fn links(&self, ino: u64) -> u32 {
        let names = self.0.values().flat_map(|object| object.entries.values());
        if !self.0[&ino].is_directory() {
            return names.filter(|it| **it == ino).count() as u32;
        }
        let below = self.0[&ino].entries.values();
        2 + below.filter(|it| self.0[it].is_directory()).count() as u32
    }

    fn directory(&self, ino: u64) -> Result<&Object, Errno> {
        let object = self.0.get(&ino).ok_or(Errno::ENOENT)?;
        if object.is_directory() {
            Ok(object)
        } else {
            Err(Errno::ENOTDIR)
        }
    }

    fn entry(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        self.directory(parent)?
            .entries
            .get(name)
            .copied()
            .ok_or(Errno::ENOENT)
    }

    fn free(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        match self.directory(parent)?.entries.contains_key(name) {
            true => Err(Errno::EEXIST),
            false => Ok(()),
        }
    }

    fn enter(&mut self, parent: u64, name: &[u8], ino: u64) {
        let parent = self.0.get_mut(&parent).expect("checked");
        parent.entries.insert(name.to_vec(), ino);
    }

    fn leave(&mut self, parent: u64, name: &[u8]) {
        self.0
            .get_mut(&parent)
            .expect("checked")
            .entries
            .remove(name);
    }

    /// Whether `ino` is `above`, or in it.
    fn is_in(&self, ino: u64, above: u64) -> bool {
        ino == above
            || self.0[&above]
                .entries
                .values()
                .any(|below| self.is_in(ino, *below))
    }

    /// Forgets objects that no name leads to and no mount holds.
    fn collect(&mut self) {
        loop {
            let named: BTreeSet<u64> = self
                .0
                .values()
                .flat_map(|object| object.entries.values().copied())
                .collect();
            let before = self.0.len();
            self.0
                .retain(|ino, it| *ino == ROOT || named.contains(ino) || !it.held.is_empty());
            if self.0.len() == before {
                return;
            }
        }
    }

    /// Executes a change; `new` is the inode that the machine has made, if it has.
    pub(crate) fn change(
        &mut self,
        mount: u64,
        change: &Change<'_>,
        new: Option<u64>,
    ) -> Result<(), Errno> {
        let done = self.execute(mount, change, new);
        self.collect();
        done
    }

    fn execute(&mut self, mount: u64, change: &Change<'_>, new: Option<u64>) -> Result<(), Errno> {
        match change {
            Change::Create {
                parent,
                name,
                mode,
                hold,
                ..
            } => {
                self.free(*parent, name)?;
                let mut object = Object::new(*mode);
                if *hold {
                    object.held.insert(mount);
                }
                self.add(*parent, name, object, new)
            }
            Change::Symlink {
                parent,
                name,
                target,
                ..
            } => {
                self.free(*parent, name)?;
                let mut object = Object::new(SYMLINK | 0o777);
                object.content = target.to_vec();
                self.add(*parent, name, object, new)
            }
            Change::Link { ino, parent, name } => {
                let object = self.0.get(ino).ok_or(Errno::ENOENT)?;
                if object.is_directory() {
                    return Err(Errno::EPERM);
                }
                if self.links(*ino) == 0 {
                    return Err(Errno::ENOENT);
                }
                self.free(*parent, name)?;
                self.enter(*parent, name, *ino);
                Ok(())
            }
            Change::Unlink { parent, name } => {
                let ino = self.entry(*parent, name)?;
                if self.0[&ino].is_directory() {
                    return Err(Errno::EISDIR);
                }
                self.leave(*parent, name);
                Ok(())
            }
            Change::Rmdir { parent, name } => {
                let ino = self.entry(*parent, name)?;
                if !self.0[&ino].is_directory() {
                    return Err(Errno::ENOTDIR);
                }
                if !self.0[&ino].entries.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.leave(*parent, name);
                Ok(())
            }
            Change::Rename { from, to, how } => self.rename(*from, *to, *how),
            Change::Set { ino, set } => self.set(*ino, set),
            Change::Open { ino } => {
                self.file(*ino)?.held.insert(mount);
                Ok(())
            }
            Change::Release { inos } => {
                for ino in inos {
                    if let Some(object) = self.0.get_mut(ino) {
                        object.held.remove(&mount);
                    }
                }
                Ok(())
            }
            Change::Write {
                ino,
                offset,
                append,
                data,
                ..
            } => self.write(mount, *ino, (!append).then_some(*offset), data),
        }
    }

    fn add(
        &mut self,
        parent: u64,
        name: &[u8],
        object: Object,
        new: Option<u64>,
    ) -> Result<(), Errno> {
        let new = new.expect("the machine makes it");
        assert!(self.0.insert(new, object).is_none(), "{new} is used twice");
        self.enter(parent, name, new);
        Ok(())
    }

    fn file(&mut self, ino: u64) -> Result<&mut Object, Errno> {
        let object = self.0.get_mut(&ino).ok_or(Errno::ESTALE)?;
        match object.kind() {
            FILE => Ok(object),
            DIRECTORY => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn set(&mut self, ino: u64, set: &SetAttr) -> Result<(), Errno> {
        if let Some(size) = set.size {
            self.file(ino)?;
            if size > FILE_BYTES {
                return Err(Errno::EFBIG);
            }
            self.file(ino)?.content.resize(size as usize, 0);
        }
        let object = self.0.get_mut(&ino).ok_or(Errno::ESTALE)?;
        if let Some(mode) = set.mode {
            object.mode = object.kind() | (mode & 0o7777);
        }
        Ok(())
    }

    fn write(
        &mut self,
        mount: u64,
        ino: u64,
        offset: Option<u64>,
        data: &Content<'_>,
    ) -> Result<(), Errno> {
        let object = self.0.get_mut(&ino).ok_or(Errno::ESTALE)?;
        if !object.held.contains(&mount) {
            return Err(Errno::UNKNOWN_MOUNT);
        }
        let Content::Plain(bytes) = data else {
            panic!("the tests write plain content")
        };
        let offset = offset.map_or(object.content.len(), |offset| offset as usize);
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return Ok(());
        }
        if end as u64 > FILE_BYTES {
            return Err(Errno::EFBIG);
        }
        if object.content.len() < end {
            object.content.resize(end, 0);
        }
        object.content[offset..end].copy_from_slice(bytes);
        Ok(())
    }

    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), how: Rename) -> Result<(), Errno> {
        let moved = self.entry(from.0, from.1)?;
        self.directory(to.0)?;
        let there = self.entry(to.0, to.1).ok();
        let is_directory = |ino: u64| self.0[&ino].is_directory();
        if is_directory(moved) && self.is_in(to.0, moved) {
            return Err(Errno::EINVAL);
        }
        match (how, there) {
            (Rename::Exchange, None) => return Err(Errno::ENOENT),
            (Rename::Keep, Some(_)) => return Err(Errno::EEXIST),
            (_, Some(there)) if there == moved => return Ok(()),
            (Rename::Exchange, Some(there)) => {
                if is_directory(there) && self.is_in(from.0, there) {
                    return Err(Errno::EINVAL);
                }
                self.enter(from.0, from.1, there);
                self.enter(to.0, to.1, moved);
                return Ok(());
            }
            (Rename::Replace, Some(there)) => match (is_directory(moved), is_directory(there)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if !self.0[&there].entries.is_empty() => {
                    return Err(Errno::ENOTEMPTY);
                }
                _ => {}
            },
            _ => {}
        }
        self.leave(from.0, from.1);
        self.enter(to.0, to.1, moved);
        Ok(())
    }
}
