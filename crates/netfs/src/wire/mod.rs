//! The bytes of commands, queries and replies. Numbers are little-endian; what has no fixed length
//! comes behind its length. Decoding is strict: a byte too few, a byte too many, or a number out of
//! range is an error, and nothing is allocated that is larger than what has arrived, but for
//! content, whose length is checked first ([`blob`]).
//!
//! | file | job |
//! |---|---|
//! | `command` | what changes the state: goes through the log |
//! | `query` | what reads it: answered by one replica |
//! | `reply` | the answers to both |
//! | `blob` | content, compressed if that pays |
//! | `frame` | what a connection carries |
//! | `cursor` | reads bytes |

pub(crate) mod blob;
pub(crate) mod command;
mod cursor;
pub(crate) mod frame;
pub(crate) mod query;
pub(crate) mod reply;

pub use blob::MAX_CONTENT;
pub use command::{Change, Command, Content, Rename, SetAttr, SetTime, Stamp};
pub(crate) use cursor::push_bytes;
pub use cursor::{Cursor, Malformed};
pub use query::Query;
pub use reply::{Entry, Reply, Space, decode_answer};
