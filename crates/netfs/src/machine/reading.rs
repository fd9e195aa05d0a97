//! Queries.

use super::NetFs;
use crate::errno::Errno;
use crate::wire::{MAX_CONTENT, Query, Reply, reply};

impl NetFs {
    /// Appends the answer to a query.
    pub(super) fn answer(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        let answer = match *query {
            Query::Lookup { parent, name } => self.look_up(parent, name),
            Query::Attr { ino } => self.inode(ino).map(|inode| Reply::Attr(inode.attr(ino))),
            Query::Read {
                ino,
                offset,
                length,
            } => match self.content(ino, offset, length) {
                Ok(content) => return reply::push_data(&content, out),
                Err(errno) => Err(errno),
            },
            Query::List { ino, after, length } => match self.list(ino, after, length) {
                Ok(list) => return reply::push_entries(&list, out),
                Err(errno) => Err(errno),
            },
            Query::Readlink { ino } => match self.inode(ino).and_then(|inode| inode.target()) {
                Ok(target) => return reply::push_data(target, out),
                Err(errno) => Err(errno),
            },
            Query::Space => Ok(Reply::Space(self.tables.space(self.store.len()))),
        };
        reply::encode(&answer, out);
    }

    fn look_up(&self, parent: u64, name: &[u8]) -> Result<Reply, Errno> {
        let parent = self.store.get(parent).ok_or(Errno::ENOENT)?;
        let entry = parent.directory()?.get(name).ok_or(Errno::ENOENT)?;
        Ok(Reply::Attr(self.inode(entry.ino)?.attr(entry.ino)))
    }

    fn content(&self, ino: u64, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let mut content = Vec::new();
        let length = (length as usize).min(MAX_CONTENT);
        self.inode(ino)?.file()?.read(offset, length, &mut content);
        Ok(content)
    }

    fn list(&self, ino: u64, after: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let directory = self.store.get(ino).ok_or(Errno::ENOENT)?.directory()?;
        let limit = (length as usize).min(MAX_CONTENT);
        let mut list = Vec::new();
        for (name, entry) in directory.after(after) {
            let before = list.len();
            reply::push_entry(entry.cookie, entry.ino, entry.kind, name, &mut list);
            // The first one always: a list without entries would be the end.
            if list.len() > limit && before > 0 {
                list.truncate(before);
                break;
            }
        }
        Ok(list)
    }
}

impl super::inode::Inode {
    fn target(&self) -> Result<&[u8], Errno> {
        match &self.body {
            super::inode::Body::Symlink(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }
}
