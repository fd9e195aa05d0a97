//! The codec of messages between nodes and of records in the log: fields one after the other,
//! little-endian, no padding, variable parts behind their length. A batch of commands is one opaque
//! slice of the receive buffer, so a role that only forwards it reads a length and no more.

mod forms;

use crate::id::{Epoch, SessionId};
use crate::level::Level;
use crate::time::Timestamp;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};

/// The most bytes of a message that a driver carries. It is far above any batch.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The most bytes of one answer of a state machine: with what names it, it fits into a message. A
/// larger one reaches no client that another node serves.
pub const MAX_ANSWER_BYTES: usize = MAX_MESSAGE_BYTES - (64 << 10);

/// Something that can be sent and stored.
pub trait Wire: Sized {
    /// Appends the encoding to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads one value off the front.
    ///
    /// # Errors
    /// Says what is wrong with the bytes. Never panics and never allocates more than a small
    /// multiple of the bytes that are there.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError>;

    /// The latest epoch that it names, by a [`Round`](crate::id::Round) or as such; epoch 0 where
    /// it names none. By this a node [knows](crate::node::Node::run) what speaks of a configuration
    /// that it has not heard of.
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        Epoch(0)
    }

    /// The level from which on nodes understand it. Below that level of the cluster it is neither
    /// sent nor stored.
    #[inline]
    fn since(&self) -> Level {
        Level::FIRST
    }
}

/// The level from which on nodes understand all of them.
#[inline]
pub fn since_of<'a, T: Wire + 'a>(values: impl IntoIterator<Item = &'a T>) -> Level {
    values
        .into_iter()
        .map(Wire::since)
        .max()
        .unwrap_or_default()
}

/// The latest epoch that any of them names.
#[inline]
pub fn latest_of<'a, T: Wire + 'a>(values: impl IntoIterator<Item = &'a T>) -> Epoch {
    values
        .into_iter()
        .map(Wire::latest_epoch)
        .max()
        .unwrap_or_default()
}

/// What is wrong with bytes that do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end before the value does.
    Truncated,
    /// Bytes are left over behind the value.
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// A variant that this version does not know.
    UnknownTag {
        /// Of which enumeration.
        what: &'static str,
        /// The tag read.
        tag: u8,
    },
    /// A number outside its range.
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The value read.
        value: u64,
    },
    /// A record comes after others that are missing.
    Gap {
        /// What the records are of.
        what: &'static str,
        /// The number of the first record that is missing.
        missing: u64,
        /// The number of the record that was found.
        found: u64,
    },
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            WireError::Truncated => f.write_str("the bytes end before the message does"),
            WireError::TrailingBytes { count } => {
                write!(f, "{count} bytes are left over behind the message")
            }
            WireError::UnknownTag { what, tag } => write!(f, "{tag} is no known {what}"),
            WireError::OutOfRange { what, value } => {
                write!(f, "{value} is out of range for a {what}")
            }
            WireError::Gap {
                what,
                missing,
                found,
            } => write!(
                f,
                "it is of {what} {found}, and the records from {what} {missing} on are missing"
            ),
        }
    }
}

impl core::error::Error for WireError {}

/// Reads values off a buffer. Variable parts share the buffer's memory, or are copied out of it.
pub struct Reader<'a> {
    buffer: &'a [u8],
    keep: Keep<'a>,
    at: usize,
}

/// What becomes of variable parts.
enum Keep<'a> {
    /// They share the buffer.
    Share(&'a Bytes),
    /// They are copied to this memory, which they share with each other.
    Copy(&'a mut BytesMut),
}

/// How much memory is allocated for copies at once. A copy that is kept keeps its neighbours, which
/// arrived at the same time and are mostly dropped at the same time.
const ARENA_BYTES: usize = 64 << 10;

/// A part of this size has memory of its own.
const ALONE_BYTES: usize = ARENA_BYTES / 4;

impl<'a> Reader<'a> {
    /// Reads `buffer` from its beginning. What is kept of it keeps all of it.
    pub fn new(buffer: &'a Bytes) -> Self {
        Reader {
            buffer,
            keep: Keep::Share(buffer),
            at: 0,
        }
    }

    /// Reads `buffer` from its beginning. What is kept of it is copied to `arena`: for a message
    /// without variable parts nothing is allocated, for small ones little.
    pub fn copying(buffer: &'a [u8], arena: &'a mut BytesMut) -> Self {
        Reader {
            buffer,
            keep: Keep::Copy(arena),
            at: 0,
        }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// The next `count` bytes, borrowed.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when fewer are left.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        if count > self.remaining() {
            return Err(WireError::Truncated);
        }
        let taken = &self.buffer[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// The next `count` bytes, sharing the buffer or copied.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when fewer are left.
    pub fn slice(&mut self, count: usize) -> Result<Bytes, WireError> {
        if count > self.remaining() {
            return Err(WireError::Truncated);
        }
        let range = self.at..self.at + count;
        self.at += count;
        Ok(match &mut self.keep {
            // Nothing keeps no memory.
            _ if count == 0 => Bytes::new(),
            Keep::Share(buffer) => buffer.slice(range),
            Keep::Copy(_) if count >= ALONE_BYTES => Bytes::copy_from_slice(&self.buffer[range]),
            Keep::Copy(arena) => {
                if arena.capacity() < count {
                    **arena = BytesMut::with_capacity(ARENA_BYTES);
                }
                arena.extend_from_slice(&self.buffer[range]);
                arena.split().freeze()
            }
        })
    }

    /// The next variable part, which lies behind its length, borrowed.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when fewer bytes are left than it is said to have.
    pub fn borrow(&mut self) -> Result<&'a [u8], WireError> {
        let length = u32::decode(self)? as usize;
        self.take(length)
    }

    /// A number as [`encode_varint`] writes it.
    ///
    /// # Errors
    /// [`WireError::Truncated`], or [`WireError::OutOfRange`] when it is beyond 64 bits.
    pub fn varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.buffer.get(self.at).ok_or(WireError::Truncated)?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            // None has a longer encoding than it needs.
            if shift == 63 && byte > 1 || shift > 0 && byte == 0 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(WireError::OutOfRange {
            what: "number of variable length",
            value: number,
        })
    }

    /// Makes sure that nothing is left.
    ///
    /// # Errors
    /// [`WireError::TrailingBytes`] when something is.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(WireError::TrailingBytes { count }),
        }
    }
}

/// Decodes `bytes`, all of them, as one value.
///
/// # Errors
/// As [`Wire::decode`], and when bytes are left over.
pub fn decode_all<T: Wire>(bytes: &Bytes) -> Result<T, WireError> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Encodes `value` into a buffer of its own.
pub fn encode_all<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                let bytes = reader.take(size_of::<$type>())?;
                Ok(<$type>::from_le_bytes(bytes.try_into().expect("took exactly its size")))
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 }

macro_rules! newtypes {
    ($($type:ident)*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                u64::decode(reader).map($type)
            }
        }
    )*};
}

newtypes! { SessionId Timestamp }

impl Wire for Level {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        u16::decode(reader).map(Level)
    }
}

impl<T: Wire> Wire for VecDeque<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for value in self {
            value.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Vec::decode(reader).map(VecDeque::from)
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        latest_of(self)
    }
    #[inline]
    fn since(&self) -> Level {
        since_of(self)
    }
}

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match u8::decode(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(WireError::UnknownTag {
                what: "boolean",
                tag,
            }),
        }
    }
}

/// Appends a number in as many bytes as it needs, seven bits in each, the lowest first: for what
/// there are many of and is mostly small.
pub fn encode_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes [`encode_varint`] takes for a number.
pub fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// What else of a message has room behind a large part of it: were there none, the first byte of it
/// would have the whole message moved to memory twice as large.
const ROOM_BEHIND: usize = 1 << 10;

/// A part of this size is large.
const LARGE_PART: usize = 32 << 10;

/// Appends `bytes` behind their length, as [`Bytes`] are encoded.
pub fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u32).encode(out);
    if bytes.len() >= LARGE_PART {
        out.reserve(bytes.len() + ROOM_BEHIND);
    }
    out.extend_from_slice(bytes);
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_bytes(self, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = u32::decode(reader)? as usize;
        reader.slice(length)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(if bool::decode(reader)? {
            Some(T::decode(reader)?)
        } else {
            None
        })
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        latest_of(self)
    }
    #[inline]
    fn since(&self) -> Level {
        since_of(self)
    }
}

fn encode_slice<T: Wire>(values: &[T], out: &mut Vec<u8>) {
    (values.len() as u32).encode(out);
    for value in values {
        value.encode(out);
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_slice(self, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let count = u32::decode(reader)? as usize;
        // The count is unchecked input: reserve no more than the bytes behind it could hold.
        let mut values = Vec::with_capacity(count.min(reader.remaining() / size_of::<T>().max(1)));
        for _ in 0..count {
            values.push(T::decode(reader)?);
        }
        Ok(values)
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        latest_of(self)
    }
    #[inline]
    fn since(&self) -> Level {
        since_of(self)
    }
}

impl<T: Wire> Wire for Box<[T]> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_slice(self, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Vec::decode(reader).map(Vec::into_boxed_slice)
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        latest_of(self)
    }
    #[inline]
    fn since(&self) -> Level {
        since_of(self)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        T::decode(reader).map(Box::new)
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        (**self).latest_epoch()
    }
    #[inline]
    fn since(&self) -> Level {
        (**self).since()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok((A::decode(reader)?, B::decode(reader)?))
    }
    #[inline]
    fn latest_epoch(&self) -> Epoch {
        self.0.latest_epoch().max(self.1.latest_epoch())
    }
    #[inline]
    fn since(&self) -> Level {
        self.0.since().max(self.1.since())
    }
}

/// Never sent, never stored: the record of a role that keeps nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {}

impl Wire for Never {
    fn encode(&self, _: &mut Vec<u8>) {
        match *self {}
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Err(WireError::UnknownTag {
            what: "record of a role without records",
            tag: u8::decode(reader)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<(u64, usize), WireError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut reader = Reader::new(&bytes);
        reader.varint().map(|number| (number, reader.remaining()))
    }

    #[test]
    fn what_follows_a_large_part_does_not_move_it() {
        let large = Bytes::from(alloc::vec![7; 8 << 20]);
        let mut out = Vec::new();
        7_u64.encode(&mut out);
        large.encode(&mut out);
        let (place, capacity) = (out.as_ptr(), out.capacity());
        (0..100_u64).for_each(|number| number.encode(&mut out));
        assert_eq!((out.as_ptr(), out.capacity()), (place, capacity));
        assert!(capacity < large.len() + (64 << 10), "{capacity}");
    }

    #[test]
    fn numbers_of_variable_length_come_back_and_take_what_they_need() {
        for (number, length) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (16_383, 2),
            (16_384, 3),
            (u64::MAX / 2, 9),
            (u64::MAX, 10),
        ] {
            let mut out = Vec::new();
            encode_varint(number, &mut out);
            assert_eq!(
                (out.len(), varint_len(number)),
                (length, length),
                "{number}"
            );
            assert_eq!(varint(&out), Ok((number, 0)));
            assert_eq!(varint(&out[..length - 1]), Err(WireError::Truncated));
        }
    }

    #[test]
    fn no_number_is_beyond_64_bits() {
        let mut bytes = [0xFF; 11];
        assert!(matches!(varint(&bytes), Err(WireError::OutOfRange { .. })));
        (bytes[9], bytes[10]) = (2, 0);
        assert!(matches!(varint(&bytes), Err(WireError::OutOfRange { .. })));
        bytes[9] = 1;
        assert_eq!(varint(&bytes), Ok((u64::MAX, 1)));
    }

    #[test]
    fn a_number_has_one_encoding() {
        for longer in [&[0x80, 0][..], &[0xB9, 0], &[0xB9, 0x80, 0]] {
            assert!(matches!(varint(longer), Err(WireError::OutOfRange { .. })));
        }
    }

    #[test]
    fn copies_share_memory_with_each_other_and_not_with_the_buffer() {
        let (mut arena, buffer) = (BytesMut::new(), [7; 100]);
        let mut reader = Reader::copying(&buffer, &mut arena);
        let (one, two) = (reader.slice(40).unwrap(), reader.slice(60).unwrap());
        assert_eq!((&one[..], &two[..]), (&buffer[..40], &buffer[40..]));
        assert_eq!(one.as_ptr().wrapping_add(40), two.as_ptr());
        assert!(!buffer.as_ptr_range().contains(&one.as_ptr()));
        let large = [1; ALONE_BYTES];
        let large = Reader::copying(&large, &mut arena)
            .slice(ALONE_BYTES)
            .unwrap();
        assert!(large.is_unique() && !one.is_unique());
    }
}
