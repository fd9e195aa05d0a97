//! One key of the store with what is known about it.

use super::reply;
use super::shard::Key;
use super::stream::Stream;
use super::work;
use std::sync::Arc;

/// The deadline of what never expires.
pub(super) const NEVER: u64 = u64::MAX;

/// An entry that becomes longer than this gets room to grow further.
const LONG: usize = 1024;

/// Key and value of up to this many bytes together lie in the entry itself.
const SHORT: usize = 39;

/// Bytes of an entry in its table, without key and value.
const ENTRY: u64 = 96;

/// Bytes for what does not lie in the entry.
const APART: u64 = 32;

/// One key with what is known about it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) position: u64,
    pub(super) version: u64,
    pub(super) deadline: u64,
    key_len: u32,
    value_len: u32,
    data: Data,
}

/// The key, then the value, then zeros for the value to grow into; or a stream.
///
/// What a command on one of many keys costs is mostly that it waits for memory: a short entry is
/// one place that has to be fetched (two cache lines beside each other), a long one two.
#[derive(Clone, Debug)]
enum Data {
    Short([u8; SHORT]),
    /// Copies of an entry share it, until one of them changes.
    Long(Arc<[u8]>),
    /// Shared likewise.
    Stream(Arc<Keyed>),
}

/// A stream and its key.
#[derive(Clone, Debug)]
struct Keyed {
    key: Box<[u8]>,
    stream: Stream,
}

impl Data {
    /// A key, a value and as many zeros as there is to be room, at least.
    fn new(key: &[u8], value: &[u8], room: usize) -> Data {
        let len = key.len() + value.len();
        work::copy(len + room);
        let fill = |bytes: &mut [u8]| {
            bytes[..key.len()].copy_from_slice(key);
            bytes[key.len()..len].copy_from_slice(value);
        };
        if len + room <= SHORT {
            let mut bytes = [0; SHORT];
            fill(&mut bytes);
            return Data::Short(bytes);
        }
        let mut data: Arc<[u8]> = std::iter::repeat_n(0, len + room).collect();
        fill(Arc::make_mut(&mut data));
        Data::Long(data)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Data::Short(bytes) => bytes,
            Data::Long(bytes) => bytes,
            Data::Stream(stream) => &stream.key,
        }
    }

    /// To be changed: copied first if it is shared.
    fn make_mut(&mut self) -> &mut [u8] {
        match self {
            Data::Short(bytes) => bytes,
            Data::Long(bytes) => {
                if Arc::strong_count(bytes) > 1 {
                    work::copy(bytes.len());
                }
                Arc::make_mut(bytes)
            }
            Data::Stream(_) => unreachable!("a stream is edited by its own commands"),
        }
    }
}

impl Entry {
    pub(super) fn new(key: Key, value: &[u8], version: u64, deadline: Option<u64>) -> Entry {
        Entry {
            position: key.position,
            version,
            deadline: deadline.unwrap_or(NEVER),
            key_len: key.bytes.len() as u32,
            value_len: value.len() as u32,
            data: Data::new(key.bytes, value, 0),
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.data.bytes()[..self.key_len as usize]
    }

    /// The value of a string.
    ///
    /// # Errors
    /// Redis's error text if it is a stream.
    pub(super) fn string(&self) -> Result<&[u8], &'static str> {
        match &self.data {
            Data::Stream(_) => Err(reply::WRONG_TYPE),
            Data::Short(_) | Data::Long(_) => Ok(self.value()),
        }
    }

    /// The stream.
    ///
    /// # Errors
    /// Redis's error text if it is a string.
    pub(super) fn stream(&self) -> Result<&Stream, &'static str> {
        match &self.data {
            Data::Stream(keyed) => Ok(&keyed.stream),
            Data::Short(_) | Data::Long(_) => Err(reply::WRONG_TYPE),
        }
    }

    /// The stream, to be changed: its lists are copied first if it is shared.
    pub(super) fn stream_mut(&mut self) -> Option<&mut Stream> {
        match &mut self.data {
            Data::Stream(keyed) => Some(&mut Arc::make_mut(keyed).stream),
            Data::Short(_) | Data::Long(_) => None,
        }
    }

    /// The value of a string; of a stream nothing.
    fn value(&self) -> &[u8] {
        &self.data.bytes()[self.key_len as usize..][..self.value_len as usize]
    }

    /// An entry whose value is a stream.
    pub(super) fn of_stream(
        key: Key,
        stream: Stream,
        version: u64,
        deadline: Option<u64>,
    ) -> Entry {
        Entry {
            data: Data::Stream(Arc::new(Keyed {
                key: key.bytes.into(),
                stream,
            })),
            ..Entry::new(key, b"", version, deadline)
        }
    }

    /// Replaces the value by a stream.
    pub(super) fn set_stream(&mut self, stream: Stream) {
        let key = self.key().into();
        self.data = Data::Stream(Arc::new(Keyed { key, stream }));
        self.value_len = 0;
    }

    /// What the entry's position in the order of all entries is.
    pub(super) fn order(&self) -> (u64, &[u8]) {
        (self.position, self.key())
    }

    /// How many bytes it takes in memory, roughly and on all machines alike: it follows from what
    /// clients see.
    pub(super) fn bytes(&self) -> u64 {
        let len = u64::from(self.key_len) + u64::from(self.value_len);
        let apart = match &self.data {
            Data::Stream(keyed) => keyed.stream.bytes() + APART,
            _ if len > SHORT as u64 => APART,
            _ => 0,
        };
        ENTRY + len + apart
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        (self.deadline != NEVER).then_some(self.deadline)
    }

    pub(super) fn is_live(&self, now: u64) -> bool {
        now < self.deadline
    }

    pub(super) fn set_value(&mut self, value: &[u8]) {
        let key_len = self.key_len as usize;
        match &mut self.data {
            Data::Short(bytes) if key_len + value.len() <= SHORT => {
                let (new, rest) = bytes[key_len..].split_at_mut(value.len());
                new.copy_from_slice(value);
                rest.fill(0);
            }
            // What is shared is not copied to be overwritten.
            Data::Long(bytes)
                if bytes.len() == key_len + value.len() && Arc::strong_count(bytes) == 1 =>
            {
                Arc::make_mut(bytes)[key_len..].copy_from_slice(value);
            }
            _ => self.data = Data::new(self.key(), value, 0),
        }
        self.value_len = value.len() as u32;
    }

    /// Writes `bytes` at `offset` of the value, which grows with zeros as far as needed.
    pub(super) fn edit(&mut self, offset: usize, bytes: &[u8]) {
        let start = self.key_len as usize + offset;
        let end = start + bytes.len();
        if end > self.data.bytes().len() {
            // A long value that grows by one APPEND after another is not copied by each of them.
            let spare = if end > LONG { end / 4 } else { 0 };
            let used = self.key_len as usize + self.value().len();
            self.data = Data::new(self.key(), self.value(), end + spare - used);
        }
        self.data.make_mut()[start..end].copy_from_slice(bytes);
        self.value_len = self.value_len.max((offset + bytes.len()) as u32);
    }

    /// Whether another entry has the same memory.
    #[cfg(test)]
    pub(super) fn is_shared(&self) -> bool {
        match &self.data {
            Data::Short(_) => false,
            Data::Long(bytes) => Arc::strong_count(bytes) > 1,
            Data::Stream(keyed) => Arc::strong_count(keyed) > 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_grows_and_shrinks_across_the_border_of_short_and_long() {
        let mut entry = Entry::new(Key::new(b"key"), b"", 1, None);
        for len in [36, 37, 36, 0, 100, 36, 1, 37] {
            let value = vec![len as u8; len];
            entry.set_value(&value);
            assert_eq!((entry.key(), entry.value()), (&b"key"[..], &value[..]));
            assert_eq!(
                matches!(entry.data, Data::Short(_)),
                entry.data.bytes().len() == SHORT && len <= 36
            );
        }
        // What a longer value has left behind does not come back as zeros that it grows by.
        entry.set_value(b"long value");
        entry.set_value(b"v");
        entry.edit(4, b"x");
        assert_eq!(entry.value(), b"v\0\0\0x");
    }
}
