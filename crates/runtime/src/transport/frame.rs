//! Cuts a byte stream into messages: `u32` length of what follows, `u32` checksum, `u64` mask of
//! the instances that are meant, the message. Everything little-endian, as in
//! [`ionian_kernel::wire`].
//!
//! A large message comes in pieces, so that others need not wait behind it: the highest bit of the
//! length is set, and `u32` says, after the mask, how many bytes of the message are still to come
//! after this piece. Between two pieces there may be whole frames, but no piece of another message.
//!
//! The checksum is half of the XXH3 of the message (or piece), combined by exclusive or with a mix
//! of what stands before it, so that a message which goes to several nodes is summed once. TCP's
//! sum has 16 bits and is checked by network cards: a changed byte that gets past it would be taken
//! for a vote. It is no defence against one who forges messages. (Of long messages CRC-32C costs as
//! many instructions; of short ones, which most are, several times as many: `cargo xtask costs`.)

use bytes::{Buf, Bytes, BytesMut};
use ionian_kernel::wire::{Reader, Wire, WireError};
use xxhash_rust::xxh3::xxh3_64;

/// The largest frame, without its length. Far above any batch (see `Options::batch_bytes`), so that
/// only a broken or hostile peer announces more; what is really held is what has really arrived.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// How much is read at once. One read takes in hundreds of small messages, and the buffer stays in
/// the second-level cache.
pub(crate) const READ_CHUNK: usize = 64 << 10;

/// A frame of at least this size keeps the memory that it was read into; what is kept of a smaller
/// one is copied.
///
/// Roles keep slices of messages for long (a batch stays in an acceptor's log). A slice keeps the
/// whole allocation behind it, so a retained 60-byte batch would hold a 64 KiB read buffer, with
/// all the messages in it of which nothing is to be kept. Copied, it holds a chunk of such copies,
/// and a message without variable parts costs no memory. What copying costs is measured by
/// `examples/frame_cost.rs`. Above the limit a frame is at least half of the buffer it came in, or
/// the buffer has grown for it: sharing wastes little there.
const SHARE_FROM: usize = 32 << 10;

const LENGTH_BYTES: usize = 4;
const SUM_BYTES: usize = 4;
const MEMBERS_BYTES: usize = 8;

/// Where the mask stands in a frame.
const MEMBERS_AT: usize = LENGTH_BYTES + SUM_BYTES;

/// What stands before a message in a frame.
pub const HEADER_BYTES: usize = MEMBERS_AT + MEMBERS_BYTES;

/// What stands before a piece of a message.
pub(crate) const PIECE_HEADER_BYTES: usize = HEADER_BYTES + 4;

/// Set in the length of a piece.
const PIECE: u32 = 1 << 31;

/// Why a byte stream is not a stream of frames. Its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is beyond [`MAX_FRAME_BYTES`].
    #[error("a frame of {length} bytes is announced, the limit is {MAX_FRAME_BYTES}")]
    TooLarge {
        /// The announced length.
        length: usize,
    },
    /// The announced length leaves no room for a message.
    #[error("a frame of {length} bytes is announced, too few for any message")]
    TooShort {
        /// The announced length.
        length: usize,
    },
    /// The bytes are not those that were sent.
    #[error("the checksum of a frame of {length} bytes is wrong: bytes were changed on their way")]
    Damaged {
        /// The announced length.
        length: usize,
    },
    /// A piece that does not go on where the last one ended.
    #[error(
        "a piece of a message after which {rest} bytes are to come, where {expected} were announced"
    )]
    OutOfTurn {
        /// What is to come after it, with its own bytes.
        rest: usize,
        /// What was to come.
        expected: usize,
    },
}

/// One message as it came.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The instances that are meant.
    pub members: u64,
    /// The encoded message.
    pub message: Encoded<'a>,
}

/// An encoded message.
#[derive(Debug)]
pub enum Encoded<'a> {
    /// It lies in the read buffer.
    Small {
        /// The message.
        bytes: &'a [u8],
        /// Where what is kept of it is copied to.
        arena: &'a mut BytesMut,
    },
    /// It has memory of its own, which can be shared.
    Large(Bytes),
}

impl Encoded<'_> {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Encoded::Small { bytes, .. } => bytes,
            Encoded::Large(bytes) => bytes,
        }
    }

    /// Decodes all of it as one value.
    ///
    /// # Errors
    /// As [`decode_all`](ionian_kernel::wire::decode_all).
    pub fn decode<T: Wire>(self) -> Result<T, WireError> {
        match self {
            Encoded::Small { bytes, arena } => decode(Reader::copying(bytes, arena)),
            Encoded::Large(bytes) => decode(Reader::new(&bytes)),
        }
    }
}

fn decode<T: Wire>(mut reader: Reader<'_>) -> Result<T, WireError> {
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Appends the frame of `message` to `out`.
///
/// # Errors
/// [`FrameError::TooLarge`] when it is beyond the limit; `out` is then unchanged.
pub fn encode_frame(
    out: &mut Vec<u8>,
    members: u64,
    message: &impl Wire,
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; MEMBERS_AT]);
    members.encode(out);
    message.encode(out);
    let frame = &mut out[start..];
    let length = frame.len() - LENGTH_BYTES;
    if length > MAX_FRAME_BYTES {
        out.truncate(start);
        return Err(FrameError::TooLarge { length });
    }
    let sum = sum(members, 0, &frame[HEADER_BYTES..]);
    frame[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    frame[LENGTH_BYTES..MEMBERS_AT].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// The checksum of a frame or piece of a message.
fn sum(members: u64, rest: u32, message: &[u8]) -> u32 {
    mix(members, rest) ^ xxh3_64(message) as u32
}

/// What stands before a message, in a number of which every bit depends on it. Zero of nothing.
fn mix(members: u64, rest: u32) -> u32 {
    let product = (members ^ u64::from(rest) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 32)) as u32
}

/// What stands before a piece, after which `rest` bytes of the message are to come.
pub(crate) fn piece_header(members: u64, piece: &[u8], rest: usize) -> [u8; PIECE_HEADER_BYTES] {
    let mut header = [0; PIECE_HEADER_BYTES];
    let follows = (piece.len() + PIECE_HEADER_BYTES - LENGTH_BYTES) as u32;
    header[..LENGTH_BYTES].copy_from_slice(&(follows | PIECE).to_le_bytes());
    header[MEMBERS_AT..HEADER_BYTES].copy_from_slice(&members.to_le_bytes());
    header[HEADER_BYTES..].copy_from_slice(&(rest as u32).to_le_bytes());
    let sum = sum(members, rest as u32, piece);
    header[LENGTH_BYTES..MEMBERS_AT].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Addresses an encoded frame to other instances.
pub(crate) fn set_members(frame: &mut [u8], members: u64) {
    let mut before = &frame[LENGTH_BYTES..HEADER_BYTES];
    let (sum, was) = (before.get_u32_le(), before.get_u64_le());
    let sum = sum ^ mix(was, 0) ^ mix(members, 0);
    frame[LENGTH_BYTES..MEMBERS_AT].copy_from_slice(&sum.to_le_bytes());
    frame[MEMBERS_AT..HEADER_BYTES].copy_from_slice(&members.to_le_bytes());
}

/// How long the first frame of `bytes` is, its length field included. The bytes are our own.
pub(crate) fn frame_span(bytes: &[u8]) -> usize {
    let length = bytes[..LENGTH_BYTES].try_into().expect("a length field");
    LENGTH_BYTES + u32::from_le_bytes(length) as usize
}

/// Takes bytes in and gives frames out.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: BytesMut,
    /// So many bytes at the front are of the frame that was given out last.
    given: usize,
    /// What was kept of small messages lately.
    arena: BytesMut,
    /// The message that comes in pieces, as far as it is here, and how many bytes are to come.
    gathered: Vec<u8>,
    rest: usize,
}

impl FrameReader {
    /// A buffer to append at least some bytes to. It grows with what has arrived, never with what
    /// was announced: at most to twice the bytes held, or by one read.
    pub fn space(&mut self) -> &mut BytesMut {
        self.take_back();
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < READ_CHUNK / 4 {
            self.buffer
                .reserve(READ_CHUNK.max(self.buffer.len().min(self.missing())));
        }
        &mut self.buffer
    }

    /// Whoever had the last frame has it no more.
    fn take_back(&mut self) {
        self.buffer.advance(core::mem::take(&mut self.given));
    }

    /// How many bytes the frame under way still misses.
    fn missing(&self) -> usize {
        self.announced().map_or(0, |(length, _)| {
            (LENGTH_BYTES + length).saturating_sub(self.buffer.len())
        })
    }

    /// How long the next frame is, and whether it is a piece.
    fn announced(&self) -> Option<(usize, bool)> {
        let length = self
            .buffer
            .get(..LENGTH_BYTES)?
            .try_into()
            .expect("four bytes");
        let length = u32::from_le_bytes(length);
        Some(((length & !PIECE) as usize, length & PIECE != 0))
    }

    /// The next frame, if it is here: its span, and whether it is a piece.
    fn whole(&self) -> Result<Option<(usize, bool)>, FrameError> {
        let Some((length, is_piece)) = self.announced() else {
            return Ok(None);
        };
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::TooLarge { length });
        }
        let header = if is_piece {
            PIECE_HEADER_BYTES
        } else {
            HEADER_BYTES
        };
        if length <= header - LENGTH_BYTES {
            return Err(FrameError::TooShort { length });
        }
        let span = LENGTH_BYTES + length;
        if self.buffer.len() < span {
            return Ok(None);
        }
        let mut before = &self.buffer[LENGTH_BYTES..header];
        let (said, members) = (before.get_u32_le(), before.get_u64_le());
        let rest = if is_piece { before.get_u32_le() } else { 0 };
        if said != sum(members, rest, &self.buffer[header..span]) {
            return Err(FrameError::Damaged { length });
        }
        Ok(Some((span, is_piece)))
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// When the bytes cannot be the beginning of a frame. Nothing more can be read then.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        self.take_back();
        let span = loop {
            match self.whole()? {
                None => return Ok(None),
                Some((span, false)) => break span,
                Some((span, true)) => {
                    if let Some((members, message)) = self.take_piece(span)? {
                        return Ok(Some(Frame {
                            members,
                            message: Encoded::Large(message),
                        }));
                    }
                }
            }
        };
        let members = (&self.buffer[MEMBERS_AT..]).get_u64_le();
        let message = if span < SHARE_FROM {
            self.given = span;
            Encoded::Small {
                bytes: &self.buffer[HEADER_BYTES..span],
                arena: &mut self.arena,
            }
        } else {
            let mut taken = self.take_allocation(span);
            taken.advance(HEADER_BYTES);
            Encoded::Large(taken)
        };
        Ok(Some(Frame { members, message }))
    }

    /// Takes a piece in; gives the message out if it was the last.
    fn take_piece(&mut self, span: usize) -> Result<Option<(u64, Bytes)>, FrameError> {
        let mut unit = &self.buffer[MEMBERS_AT..span];
        let (members, rest) = (unit.get_u64_le(), unit.get_u32_le() as usize);
        let to_come = unit.len() + rest;
        if self.gathered.is_empty() && to_come + MEMBERS_BYTES > MAX_FRAME_BYTES {
            return Err(FrameError::TooLarge {
                length: to_come + MEMBERS_BYTES,
            });
        }
        if !self.gathered.is_empty() && to_come != self.rest {
            return Err(FrameError::OutOfTurn {
                rest: to_come,
                expected: self.rest,
            });
        }
        // Grows with what has arrived, not with what was announced, and not beyond it: the message
        // is kept as it is.
        if self.gathered.capacity() - self.gathered.len() < unit.len() {
            self.gathered
                .reserve_exact(unit.len() + rest.min(self.gathered.len()));
        }
        self.gathered.extend_from_slice(unit);
        self.rest = rest;
        self.buffer.advance(span);
        Ok((rest == 0).then(|| (members, Bytes::from(core::mem::take(&mut self.gathered)))))
    }

    /// Takes out the first `span` bytes with the memory they lie in; what follows them moves.
    fn take_allocation(&mut self, span: usize) -> Bytes {
        let rest = &self.buffer[span..];
        let mut fresh = BytesMut::with_capacity(READ_CHUNK.max(2 * rest.len()));
        fresh.extend_from_slice(rest);
        let mut taken = core::mem::replace(&mut self.buffer, fresh);
        taken.truncate(span);
        taken.freeze()
    }

    /// How many bytes wait for the rest of their frame, or of their message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.given + self.gathered.len()
    }

    /// How large the buffer is that bytes arrive in.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}
