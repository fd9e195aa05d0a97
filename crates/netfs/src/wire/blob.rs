//! Content on its way: what is written, what was read, and long lists. P-SMR VI-C compresses each
//! request and each reply with lz4. Here only content is compressed, if that makes it shorter: all
//! else is shorter than the smallest saving, and the head of a command must be readable without
//! effort, because the scheduler of a replica asks each command for its footprint.
//!
//! ```text
//! form: u8 (0 as it is, 1 lz4) | length of the content: u32 | bytes, to the end
//! ```

use super::cursor::{Cursor, Malformed};

/// The most bytes of content in one command or reply. The kernel's requests are as large at most.
pub const MAX_CONTENT: usize = 128 << 10;

/// Shorter content is not worth an attempt.
const MIN_COMPRESSED: usize = 64;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// Content as it has arrived: still compressed, of a length that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blob<'a> {
    is_compressed: bool,
    length: usize,
    bytes: &'a [u8],
}

impl<'a> Blob<'a> {
    /// Reads the rest of the bytes.
    pub(crate) fn decode(cursor: &mut Cursor<'a>) -> Result<Blob<'a>, Malformed> {
        let form = cursor.u8()?;
        let length = cursor.u32()? as usize;
        let bytes = cursor.rest();
        if length > MAX_CONTENT {
            return Err(Malformed("content is longer than allowed"));
        }
        match form {
            PLAIN if bytes.len() == length => {}
            PLAIN => return Err(Malformed("content has another length than stated")),
            LZ4 => {}
            _ => return Err(Malformed("content has an unknown form")),
        }
        Ok(Blob {
            is_compressed: form == LZ4,
            length,
            bytes,
        })
    }

    /// The number of bytes of the content.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Appends the content to `out`, which is unchanged if there is an error.
    pub(crate) fn unpack(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if !self.is_compressed {
            out.extend_from_slice(self.bytes);
            return Ok(());
        }
        let start = out.len();
        out.resize(start + self.length, 0);
        match lz4_flex::block::decompress_into(self.bytes, &mut out[start..]) {
            Ok(length) if length == self.length => Ok(()),
            _ => {
                out.truncate(start);
                Err(Malformed("content is not what lz4 makes"))
            }
        }
    }
}

/// Appends `content`, compressed if that is shorter. It must not exceed [`MAX_CONTENT`].
pub(crate) fn push(content: &[u8], out: &mut Vec<u8>) {
    assert!(content.len() <= MAX_CONTENT, "content is cut before");
    let length = (content.len() as u32).to_le_bytes();
    if content.len() >= MIN_COMPRESSED {
        let start = out.len();
        out.push(LZ4);
        out.extend_from_slice(&length);
        let from = out.len();
        let room = lz4_flex::block::get_maximum_output_size(content.len());
        out.resize(from + room, 0);
        let packed = lz4_flex::block::compress_into(content, &mut out[from..]);
        if let Ok(packed) = packed.map(|packed| from + packed)
            && packed - from < content.len()
        {
            return out.truncate(packed);
        }
        out.truncate(start);
    }
    out.push(PLAIN);
    out.extend_from_slice(&length);
    out.extend_from_slice(content);
}
