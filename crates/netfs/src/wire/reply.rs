//! The answers to commands and queries.
//!
//! ```text
//! errno: u16, not 0
//! 0: u16 | tag: u8 | fields
//! ```

use super::blob::{self, Blob};
use super::cursor::{Cursor, Malformed, push_bytes};
use crate::attr::{Attr, Kind};
use crate::errno::Errno;

/// An answer without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// The mount, which has begun.
    Begun(u64),
    /// The attributes of the file.
    Attr(Attr),
    /// Content, or the target of a link.
    Data(Vec<u8>),
    /// Entries of a directory; none at its end.
    Entries(Vec<Entry>),
    /// How much room there is.
    Space(Space),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place: later entries of the directory have larger ones.
    pub cookie: u64,
    /// The file.
    pub ino: u64,
    /// Its type.
    pub kind: Kind,
    /// The name.
    pub name: Vec<u8>,
}

/// How much room there is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The limit.
    pub total: u64,
    /// How much of it is used or reserved.
    pub used: u64,
    /// The number of files, directories and all else.
    pub files: u64,
}

const DONE: u8 = 0;
const BEGUN: u8 = 1;
const ATTR: u8 = 2;
const DATA: u8 = 3;
const ENTRIES: u8 = 4;
const SPACE: u8 = 5;

/// Appends what an answer begins with.
fn head(tag: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, tag]);
}

/// Appends content as an answer.
pub(crate) fn push_data(content: &[u8], out: &mut Vec<u8>) {
    head(DATA, out);
    blob::push(content, out);
}

/// Appends one entry to a list.
pub(crate) fn push_entry(cookie: u64, ino: u64, kind: Kind, name: &[u8], list: &mut Vec<u8>) {
    list.extend_from_slice(&cookie.to_le_bytes());
    list.extend_from_slice(&ino.to_le_bytes());
    list.extend_from_slice(&kind.bits().to_le_bytes());
    push_bytes(name, list);
}

/// Appends a list of entries as an answer.
pub(crate) fn push_entries(list: &[u8], out: &mut Vec<u8>) {
    head(ENTRIES, out);
    blob::push(list, out);
}

/// Appends an answer to `out`.
pub(crate) fn encode(answer: &Result<Reply, Errno>, out: &mut Vec<u8>) {
    match answer {
        Err(errno) => out.extend_from_slice(&errno.0.to_le_bytes()),
        Ok(Reply::Done) => head(DONE, out),
        Ok(Reply::Begun(mount)) => {
            head(BEGUN, out);
            out.extend_from_slice(&mount.to_le_bytes());
        }
        Ok(Reply::Attr(attr)) => {
            head(ATTR, out);
            attr.encode(out);
        }
        Ok(Reply::Data(content)) => push_data(content, out),
        Ok(Reply::Entries(entries)) => {
            let mut list = Vec::new();
            for entry in entries {
                push_entry(entry.cookie, entry.ino, entry.kind, &entry.name, &mut list);
            }
            push_entries(&list, out);
        }
        Ok(Reply::Space(space)) => {
            head(SPACE, out);
            for number in [space.total, space.used, space.files] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
}

/// Reads an answer.
///
/// # Errors
/// Says what is wrong with the bytes.
pub fn decode_answer(bytes: &[u8]) -> Result<Result<Reply, Errno>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let errno = Errno(cursor.u16()?);
    if errno.0 != 0 {
        cursor.finish()?;
        return Ok(Err(errno));
    }
    let reply = match cursor.u8()? {
        DONE => Reply::Done,
        BEGUN => Reply::Begun(cursor.u64()?),
        ATTR => Reply::Attr(Attr::decode(&mut cursor)?),
        DATA => Reply::Data(content(&mut cursor)?),
        ENTRIES => Reply::Entries(entries(&content(&mut cursor)?)?),
        SPACE => Reply::Space(Space {
            total: cursor.u64()?,
            used: cursor.u64()?,
            files: cursor.u64()?,
        }),
        _ => return Err(Malformed("it is no answer")),
    };
    cursor.finish()?;
    Ok(Ok(reply))
}

fn content(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, Malformed> {
    let blob = Blob::decode(cursor)?;
    let mut content = Vec::with_capacity(blob.len());
    blob.unpack(&mut content)?;
    Ok(content)
}

fn entries(list: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let mut cursor = Cursor::new(list);
    let mut entries = Vec::new();
    while !cursor.is_empty() {
        entries.push(Entry {
            cookie: cursor.u64()?,
            ino: cursor.u64()?,
            kind: Kind::of_mode(cursor.u32()?).map_err(|_| Malformed("an entry has no type"))?,
            name: cursor.counted()?.to_vec(),
        });
    }
    Ok(entries)
}
