//! Queries: what reads the state. One replica answers them.

use super::cursor::{Cursor, Malformed, push_bytes};

/// What one replica answers from its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query<'a> {
    /// The attributes of what has a name.
    Lookup {
        /// The directory.
        parent: u64,
        /// The name in it.
        name: &'a [u8],
    },
    /// The attributes of a file: lstat, and access.
    Attr {
        /// The file.
        ino: u64,
    },
    /// Content of a file.
    Read {
        /// The file.
        ino: u64,
        /// Where.
        offset: u64,
        /// How many bytes at most.
        length: u32,
    },
    /// Entries of a directory, in the order in which they were made: readdir.
    List {
        /// The directory.
        ino: u64,
        /// Entries with larger cookies follow; 0 for all.
        after: u64,
        /// How many bytes of them at most, as they are encoded.
        length: u32,
    },
    /// The target of a symbolic link.
    Readlink {
        /// The link.
        ino: u64,
    },
    /// How much room there is.
    Space,
}

const LOOKUP: u8 = 0x40;
const ATTR: u8 = 0x41;
const READ: u8 = 0x42;
const LIST: u8 = 0x43;
const READLINK: u8 = 0x44;
const SPACE: u8 = 0x45;

impl<'a> Query<'a> {
    /// Appends the encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ranged = |out: &mut Vec<u8>, tag, ino: u64, from: u64, length: u32| {
            out.push(tag);
            out.extend_from_slice(&ino.to_le_bytes());
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
        };
        match self {
            Query::Lookup { parent, name } => {
                out.push(LOOKUP);
                out.extend_from_slice(&parent.to_le_bytes());
                push_bytes(name, out);
            }
            Query::Attr { ino } => {
                out.push(ATTR);
                out.extend_from_slice(&ino.to_le_bytes());
            }
            Query::Read {
                ino,
                offset,
                length,
            } => ranged(out, READ, *ino, *offset, *length),
            Query::List { ino, after, length } => ranged(out, LIST, *ino, *after, *length),
            Query::Readlink { ino } => {
                out.push(READLINK);
                out.extend_from_slice(&ino.to_le_bytes());
            }
            Query::Space => out.push(SPACE),
        }
    }

    /// Reads a query.
    ///
    /// # Errors
    /// Says what is wrong with the bytes, or that they are no query.
    pub fn decode(bytes: &'a [u8]) -> Result<Query<'a>, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let query = match cursor.u8()? {
            LOOKUP => Query::Lookup {
                parent: cursor.u64()?,
                name: cursor.counted()?,
            },
            ATTR => Query::Attr { ino: cursor.u64()? },
            READ => Query::Read {
                ino: cursor.u64()?,
                offset: cursor.u64()?,
                length: cursor.u32()?,
            },
            LIST => Query::List {
                ino: cursor.u64()?,
                after: cursor.u64()?,
                length: cursor.u32()?,
            },
            READLINK => Query::Readlink { ino: cursor.u64()? },
            SPACE => Query::Space,
            _ => return Err(Malformed("it is no query")),
        };
        cursor.finish()?;
        Ok(query)
    }
}
