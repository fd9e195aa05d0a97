//! Cuts a byte stream into messages. A frame is: `u32` length of the rest, `u32` checksum, the
//! mask of the addressed instances (`u64`), the message. Little-endian, as in
//! [`ionian_kernel::wire`].
//!
//! A large message comes in pieces, so that other messages need not wait behind it: the highest bit
//! of the length is set, and a `u32` after the mask is the number of bytes of the message that
//! follow this piece. Between two pieces there may be whole frames, but no piece of another
//! message.
//!
//! The checksum is half of the XXH3 of the message (or piece), combined by exclusive or with a hash
//! of the header, so that a message to several nodes is hashed once. TCP's checksum has 16 bits and
//! network cards check it: without our own, a changed byte that it misses could become a vote. The
//! checksum does not protect against forged messages. (For long messages CRC-32C costs as many
//! instructions; for short ones, which most are, several times as many: `cargo xtask costs`.)

use bytes::{Buf, Bytes, BytesMut};
use ionian_kernel::id::Members;
use ionian_kernel::wire::{MAX_MESSAGE_BYTES, Reader, Wire, WireError};
use xxhash_rust::xxh3::xxh3_64;

/// The largest frame, without its length field. Far above any batch (see `Options::batch_bytes`),
/// so that only a broken or hostile peer announces more. Memory grows with the bytes that have
/// arrived.
pub const MAX_FRAME_BYTES: usize = MAX_MESSAGE_BYTES;

/// The size of one read. It takes in hundreds of small messages, and the buffer stays in the
/// second-level cache.
pub(crate) const READ_CHUNK: usize = 64 << 10;

/// A frame of at least this size keeps the memory that it was read into; what roles keep of a
/// smaller frame is copied.
///
/// Roles keep slices of messages for long (a batch stays in an acceptor's log). A slice keeps the
/// whole allocation behind it, so a retained 60-byte batch would keep a 64 KiB read buffer with all
/// its other messages. A copy keeps only a chunk of such copies, and a message without variable
/// parts costs no memory. `examples/frame_cost.rs` measures the cost of copying. Above the limit a
/// frame is at least half of its read buffer, or the buffer has grown for it: sharing wastes little
/// there.
const SHARE_FROM: usize = 32 << 10;

const LENGTH_BYTES: usize = 4;
const SUM_BYTES: usize = 4;
const MEMBERS_BYTES: usize = Members::BYTES;

/// The offset of the mask in a frame.
const MEMBERS_AT: usize = LENGTH_BYTES + SUM_BYTES;

/// The size of the header of a frame.
pub const HEADER_BYTES: usize = MEMBERS_AT + MEMBERS_BYTES;

/// The size of the header of a piece of a message.
pub(crate) const PIECE_HEADER_BYTES: usize = HEADER_BYTES + 4;

/// Set in the length of a piece.
const PIECE: u32 = 1 << 31;

/// Why a byte stream is not a stream of frames. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is above [`MAX_FRAME_BYTES`].
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
    /// The bytes changed on their way.
    #[error("the checksum of a frame of {length} bytes is wrong: bytes were changed on their way")]
    Damaged {
        /// The announced length.
        length: usize,
    },
    /// A piece that does not continue where the last one ended.
    #[error(
        "a piece of a message after which {rest} bytes are to come, where {expected} were announced"
    )]
    OutOfTurn {
        /// How many bytes of the message the piece and the following ones have.
        rest: usize,
        /// How many bytes were expected.
        expected: usize,
    },
}

/// One message as it arrived.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The addressed instances.
    pub members: Members,
    /// The encoded message.
    pub message: Encoded<'a>,
}

/// An encoded message.
#[derive(Debug)]
pub enum Encoded<'a> {
    /// In the read buffer.
    Small {
        /// The message.
        bytes: &'a [u8],
        /// Where retained parts are copied to.
        arena: &'a mut BytesMut,
    },
    /// In its own memory, which can be shared.
    Large(Bytes),
}

impl Encoded<'_> {
    /// The bytes.
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
/// [`FrameError::TooLarge`] if it is above the limit; `out` is then unchanged.
pub fn encode_frame(
    out: &mut Vec<u8>,
    members: Members,
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
fn sum(members: Members, rest: u32, message: &[u8]) -> u32 {
    mix(members, rest) ^ xxh3_64(message) as u32
}

/// A hash of the header in which every bit depends on it. Zero if both are zero.
fn mix(members: Members, rest: u32) -> u32 {
    let product = (members.digest() ^ u64::from(rest) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 32)) as u32
}

/// The header of a piece, after which `rest` bytes of the message follow.
pub(crate) fn piece_header(
    members: Members,
    piece: &[u8],
    rest: usize,
) -> [u8; PIECE_HEADER_BYTES] {
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
pub(crate) fn set_members(frame: &mut [u8], members: Members) {
    let mut before = &frame[LENGTH_BYTES..HEADER_BYTES];
    let (sum, was) = (before.get_u32_le(), get_members(&mut before));
    let sum = sum ^ mix(was, 0) ^ mix(members, 0);
    frame[LENGTH_BYTES..MEMBERS_AT].copy_from_slice(&sum.to_le_bytes());
    frame[MEMBERS_AT..HEADER_BYTES].copy_from_slice(&members.to_le_bytes());
}

/// Takes the mask of the addressed instances off the front of `bytes`, which has it.
fn get_members(bytes: &mut impl Buf) -> Members {
    let mut members = [0; MEMBERS_BYTES];
    bytes.copy_to_slice(&mut members);
    Members::from_le_bytes(members)
}

/// The length of the first frame of `bytes`, including its length field. The bytes are our own.
pub fn frame_span(bytes: &[u8]) -> usize {
    let length = bytes[..LENGTH_BYTES].try_into().expect("a length field");
    LENGTH_BYTES + u32::from_le_bytes(length) as usize
}

/// Takes in bytes and returns frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: BytesMut,
    /// The size of the frame that was returned last, at the front of the buffer.
    given: usize,
    /// Retained parts of small messages.
    arena: BytesMut,
    /// The received part of a message in pieces, and how many bytes of it follow.
    gathered: Vec<u8>,
    rest: usize,
}

impl FrameReader {
    /// A buffer with room for at least some bytes. It grows with the bytes that have arrived, not
    /// with the announced length: at most to twice their number, or by one read.
    pub fn space(&mut self) -> &mut BytesMut {
        self.take_back();
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < READ_CHUNK / 4 {
            self.buffer
                .reserve(READ_CHUNK.max(self.buffer.len().min(self.missing())));
        }
        &mut self.buffer
    }

    /// Removes the frame that was returned last.
    fn take_back(&mut self) {
        self.buffer.advance(core::mem::take(&mut self.given));
    }

    /// How many bytes of the next frame are missing.
    fn missing(&self) -> usize {
        self.announced().map_or(0, |(length, _)| {
            (LENGTH_BYTES + length).saturating_sub(self.buffer.len())
        })
    }

    /// The length of the next frame, and whether it is a piece.
    fn announced(&self) -> Option<(usize, bool)> {
        let length = self
            .buffer
            .get(..LENGTH_BYTES)?
            .try_into()
            .expect("four bytes");
        let length = u32::from_le_bytes(length);
        Some(((length & !PIECE) as usize, length & PIECE != 0))
    }

    /// The span of the next frame, if all of it has arrived, and whether it is a piece.
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
        let (sent, members) = (before.get_u32_le(), get_members(&mut before));
        let rest = if is_piece { before.get_u32_le() } else { 0 };
        if sent != sum(members, rest, &self.buffer[header..span]) {
            return Err(FrameError::Damaged { length });
        }
        Ok(Some((span, is_piece)))
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// If the bytes cannot be the beginning of a frame. Nothing more can be read then.
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
        let members = get_members(&mut &self.buffer[MEMBERS_AT..]);
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

    /// Takes in a piece; returns the message if it was the last.
    fn take_piece(&mut self, span: usize) -> Result<Option<(Members, Bytes)>, FrameError> {
        let mut unit = &self.buffer[MEMBERS_AT..span];
        let (members, rest) = (get_members(&mut unit), unit.get_u32_le() as usize);
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
        // Memory grows with the bytes that have arrived, not with the announced length, and fits
        // them exactly: roles may keep the message.
        if self.gathered.capacity() - self.gathered.len() < unit.len() {
            self.gathered
                .reserve_exact(unit.len() + rest.min(self.gathered.len()));
        }
        self.gathered.extend_from_slice(unit);
        self.rest = rest;
        self.buffer.advance(span);
        Ok((rest == 0).then(|| (members, Bytes::from(core::mem::take(&mut self.gathered)))))
    }

    /// Takes out the first `span` bytes with their memory; the bytes after them move.
    fn take_allocation(&mut self, span: usize) -> Bytes {
        let rest = &self.buffer[span..];
        let mut fresh = BytesMut::with_capacity(READ_CHUNK.max(2 * rest.len()));
        fresh.extend_from_slice(rest);
        let mut taken = core::mem::replace(&mut self.buffer, fresh);
        taken.truncate(span);
        taken.freeze()
    }

    /// How many bytes wait for the rest of their frame or message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.given + self.gathered.len()
    }

    /// The capacity of the read buffer.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}
