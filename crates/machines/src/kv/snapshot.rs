//! The picture of the whole state: the same bytes for the same state, whatever led to it.
//!
//! ```text
//! version of the format: u8 | modifications: u64 | per segment, in the order of positions:
//!     per bucket in which keys were created: 1 | its number among all: u16 | how many: u64
//!     per key, in the order of positions:
//!         0 | key length: u32 | key | value length: u32 | value
//!           | version: u64 | deadline: u64, zero for none
//!     or, if its value is a stream:
//!         2 | key length: u32 | key | version: u64 | deadline: u64 | greatest ID: 2 * u64
//!           | greatest ID that XDEL removed: 2 * u64 | how many were added: u64
//!           | how many there are: u64
//!           | per entry: ID: 2 * u64 | length: u32 | fields and values (`stream/entries.rs`)
//! ```
//! Format 2 had no streams; it is still read. Format 4 has the users after the modifications
//! (`acl/users.rs`); it is written if they were ever changed. Format 5 has the limit of memory and
//! what was measured after the users: `limit: u64 | used: u64`; it is written if there is a limit.
//!
//! What has expired is left out, so that the picture does not show how far its removal has come.

use super::entry::Entry;
use super::room::Room;
use super::segment::Segment;
use super::shard::{self, BUCKETS, Key};
use super::store::Store;
use super::stream::{self, Head, Id, Item, Stream};
use crate::acl::Users;
use ionian_kernel::machine::{Frozen, RestoreError};
use std::sync::Arc;
use std::vec;

const FORMAT: u8 = 3;
/// The same with users.
const WITH_USERS: u8 = 4;
/// The same with users and a limit of memory.
const WITH_ROOM: u8 = 5;
/// The format before, which has no streams and is otherwise the same.
const WITHOUT_STREAMS: u8 = 2;
/// What a part of the picture begins with.
const ENTRY: u8 = 0;
const ARRIVALS: u8 = 1;
const STREAM: u8 = 2;
/// How much is written at once: enough that the work of a piece outweighs that of asking for it,
/// and a fraction of a millisecond.
const PIECE: usize = 256 << 10;

/// The state at one moment, written in pieces of about `piece` bytes. It shares each segment with
/// the store until it has written it.
pub(super) struct Picture {
    now: u64,
    piece: usize,
    /// What comes before the segments, until it is written.
    head: Vec<u8>,
    /// The segments that are not completely written.
    segments: vec::IntoIter<Arc<Segment>>,
    /// Of the first of them, once it is begun: where the entries are that are not completely
    /// written.
    entries: Option<vec::IntoIter<usize>>,
    written: Written,
}

/// How much of the first key that is not completely written is.
#[derive(Clone, Copy, Debug)]
enum Written {
    Nothing,
    /// All before the value, and this much of the value.
    Value(usize),
    /// All before this entry of the stream, and this much of its fields and values; all before
    /// these is, too, if it is anything.
    Stream(Id, usize),
}

impl Picture {
    pub(super) fn new(store: &Store, (users, room): (&Users, Room), now: u64) -> Picture {
        let format = match (room.limit > 0, users.epoch() > 0) {
            (true, _) => WITH_ROOM,
            (false, true) => WITH_USERS,
            (false, false) => FORMAT,
        };
        let mut head = [&[format][..], &store.modifications().to_le_bytes()].concat();
        if format != FORMAT {
            users.encode(&mut head);
        }
        if format == WITH_ROOM {
            head.extend_from_slice(&room.encode());
        }
        Picture {
            now,
            piece: PIECE,
            head,
            segments: store.share().into_iter(),
            entries: None,
            written: Written::Nothing,
        }
    }
}

impl Frozen for Picture {
    fn write_some(&mut self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.append(&mut self.head);
        while out.len() - start < self.piece
            && let Some(segment) = self.segments.as_slice().first()
        {
            let entries = self.entries.get_or_insert_with(|| {
                arrivals(shard::SEGMENTS - self.segments.len(), segment, out);
                segment.order(self.now).into_iter()
            });
            let Some(entry) = entries
                .as_slice()
                .first()
                .and_then(|index| segment.entries.get_bucket(*index))
            else {
                // From now on the store need not copy the segment any more.
                self.segments.next();
                self.entries = None;
                continue;
            };
            let room = self.piece.saturating_sub(out.len() - start).max(1);
            self.written = match entry.stream() {
                Ok(stream) => write_stream(entry, stream, self.written, room, out),
                Err(_) => write_string(entry, self.written, room, out),
            };
            if let Written::Nothing = self.written {
                entries.next();
            }
        }
        out.len() > start
    }
}

fn begin(kind: u8, entry: &Entry, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&(entry.key().len() as u32).to_le_bytes());
    out.extend_from_slice(entry.key());
}

fn version_and_deadline(entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.version().to_le_bytes());
    out.extend_from_slice(&entry.deadline().unwrap_or(0).to_le_bytes());
}

/// Writes about `room` bytes of a key whose value is a string, and says how far it came; nothing is
/// written of what comes next if it came to the end. A long value is parted.
fn write_string(entry: &Entry, written: Written, room: usize, out: &mut Vec<u8>) -> Written {
    let value = entry.string().unwrap_or(&[]);
    let from = match written {
        Written::Value(from) => from,
        _ => {
            begin(ENTRY, entry, out);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            0
        }
    };
    let end = value.len().min(from + room);
    out.extend_from_slice(&value[from..end]);
    if end < value.len() {
        return Written::Value(end);
    }
    version_and_deadline(entry, out);
    Written::Nothing
}

fn put_id(id: Id, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.ms.to_le_bytes());
    out.extend_from_slice(&id.seq.to_le_bytes());
}

/// The same for a stream, which is parted between its entries and in long ones.
fn write_stream(
    entry: &Entry,
    stream: &Stream,
    written: Written,
    room: usize,
    out: &mut Vec<u8>,
) -> Written {
    let start = out.len();
    let (next, mut from) = match written {
        Written::Stream(id, from) => (id, from),
        _ => {
            begin(STREAM, entry, out);
            version_and_deadline(entry, out);
            let head = stream.head();
            put_id(head.last, out);
            put_id(head.max_deleted, out);
            out.extend_from_slice(&head.added.to_le_bytes());
            out.extend_from_slice(&(stream.len() as u64).to_le_bytes());
            (Id::default(), 0)
        }
    };
    for item in stream.from(next) {
        let left = room.saturating_sub(out.len() - start);
        if left == 0 {
            return Written::Stream(item.id, 0);
        }
        let body = item.body();
        if from == 0 {
            put_id(item.id, out);
            out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        }
        let end = body.len().min(from + left);
        out.extend_from_slice(&body[from..end]);
        if end < body.len() {
            return Written::Stream(item.id, end);
        }
        from = 0;
    }
    Written::Nothing
}

/// Writes how many keys were created in the buckets of a segment.
fn arrivals(number: usize, segment: &Segment, out: &mut Vec<u8>) {
    for (bucket, count) in segment.arrived() {
        out.push(ARRIVALS);
        out.extend_from_slice(&((number * BUCKETS + bucket) as u16).to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
}

/// The state in a snapshot.
pub(super) fn read(snapshot: &[u8]) -> Result<(Store, Users, Room), RestoreError> {
    parse(snapshot).map_err(|what| RestoreError(what.to_owned()))
}

const CUT: &str = "it ends too early";

fn parse(mut input: &[u8]) -> Result<(Store, Users, Room), &'static str> {
    let [format] = take::<1>(&mut input)?;
    if ![WITHOUT_STREAMS, FORMAT, WITH_USERS, WITH_ROOM].contains(&format) {
        return Err("its format is unknown");
    }
    let mut store = Store::default();
    store.set_modifications(u64::from_le_bytes(take(&mut input)?));
    let users = match format {
        WITH_USERS | WITH_ROOM => Users::decode(&mut input)
            .filter(|users| users.epoch() > 0 || format == WITH_ROOM)
            .ok_or("its users are malformed")?,
        _ => Users::default(),
    };
    let room = match format {
        WITH_ROOM => Some(Room::decode(take(&mut input)?))
            .filter(|room| room.limit > 0)
            .ok_or("its limit of memory is zero")?,
        _ => Room::default(),
    };
    let mut last: Option<(u64, Vec<u8>)> = None;
    let mut last_bucket: Option<usize> = None;
    while !input.is_empty() {
        let is_stream = match take::<1>(&mut input)? {
            [ENTRY] => false,
            [STREAM] if format != WITHOUT_STREAMS => true,
            [ARRIVALS] => {
                let bucket = usize::from(u16::from_le_bytes(take(&mut input)?));
                let count = u64::from_le_bytes(take(&mut input)?);
                if count == 0 || count > i64::MAX as u64 {
                    return Err("a count of arrivals is out of range");
                }
                let last_entry = last.as_ref().map(|(position, _)| shard::segment(*position));
                if last_bucket >= Some(bucket) || last_entry >= Some(bucket / BUCKETS) {
                    return Err("its counts of arrivals are not in order");
                }
                last_bucket = Some(bucket);
                store.set_arrivals(bucket / BUCKETS, bucket % BUCKETS, count);
                continue;
            }
            _ => return Err("it has an unknown part"),
        };
        let entry = take_entry(is_stream, &mut input)?;
        // In this order no key comes twice, which `insert` relies on.
        let (position, key) = entry.order();
        if last
            .as_ref()
            .is_some_and(|(at, last)| (*at, &last[..]) >= (position, key))
        {
            return Err("its keys are not in order");
        }
        if !store.has_arrived(position)
            || last_bucket.map(|bucket| bucket / BUCKETS) > Some(shard::segment(position))
        {
            return Err("a key is not among those that were created");
        }
        last = Some((position, key.to_vec()));
        store.insert(entry);
    }
    Ok((store, users, room))
}

fn take_entry(is_stream: bool, input: &mut &[u8]) -> Result<Entry, &'static str> {
    let key = Key::new(take_bytes(input)?);
    let value = match is_stream {
        true => None,
        false => Some(take_bytes(input)?),
    };
    let version = u64::from_le_bytes(take(input)?);
    let deadline = u64::from_le_bytes(take(input)?);
    if version == 0 || version > i64::MAX as u64 || deadline > i64::MAX as u64 {
        return Err("a version or a deadline is out of range");
    }
    let deadline = (deadline > 0).then_some(deadline);
    Ok(match value {
        Some(value) => Entry::new(key, value, version, deadline),
        None => Entry::of_stream(key, take_stream(input)?, version, deadline),
    })
}

fn take_id(input: &mut &[u8]) -> Result<Id, &'static str> {
    Ok(Id {
        ms: u64::from_le_bytes(take(input)?),
        seq: u64::from_le_bytes(take(input)?),
    })
}

fn take_stream(input: &mut &[u8]) -> Result<Stream, &'static str> {
    let mut stream = Stream::new(Head {
        last: take_id(input)?,
        max_deleted: take_id(input)?,
        added: u64::from_le_bytes(take(input)?),
    });
    for _ in 0..u64::from_le_bytes(take(input)?) {
        let (id, body) = (take_id(input)?, take_bytes(input)?);
        if !stream::is_body(body) {
            return Err("an entry of a stream is malformed");
        }
        if !stream.restore(Item::new(id, body)) {
            return Err("the entries of a stream are not in order");
        }
    }
    Ok(stream)
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (head, rest) = input.split_first_chunk().ok_or(CUT)?;
    *input = rest;
    Ok(*head)
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let len = u32::from_le_bytes(take(input)?);
    let (head, rest) = input.split_at_checked(len as usize).ok_or(CUT)?;
    *input = rest;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Compound, Kv};
    use super::*;
    use bytes::Bytes;
    use ionian_kernel::machine::StateMachine;
    use ionian_kernel::time::Timestamp;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// Some keys, of which many share a segment.
    static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let first = |key: &String| Key::new(key.as_bytes()).position >> 54;
        (0..)
            .map(|i| format!("k{i}"))
            .filter(|key| [0, 1, 1023].contains(&first(key)))
            .take(12)
            .collect()
    });

    /// K is a key, V a value, N a number and L a longer one.
    const FORMS: &[&str] = &[
        "set K V",
        "set K V px N",
        "set K V keepttl",
        "mset K V K V K V",
        "append K V",
        "setrange K L V",
        "setrange K L V",
        "pexpire K N",
        "persist K",
        "del K K",
        "rename K K",
        "copy K K replace",
        "incr K",
        "dbsize",
        "get K",
        "flushall",
        "xadd K 0-* V V",
        "xadd K 0-* V V",
        "xadd K * V V V V",
        "xadd K maxlen 3 0-* V V",
        "xtrim K maxlen N",
        "xdel K 0-N",
        "xrange K - +",
    ];

    fn line() -> impl Strategy<Value = Vec<String>> {
        let numbers = (0..100u32, 0..4000u32);
        (
            0..FORMS.len(),
            vec(0..KEYS.len(), 3),
            vec("[a-z]{0,6}|[0-9]", 3),
            numbers,
        )
            .prop_map(|(form, keys, values, (number, long))| {
                let (mut keys, mut values) = (keys.into_iter(), values.into_iter());
                let word = |word: &str| match word {
                    "K" => keys.next().map_or_else(String::new, |i| KEYS[i].clone()),
                    "V" => values.next().unwrap_or_default(),
                    "N" => (number + 1).to_string(),
                    "0-N" => format!("0-{}", number % 4 + 1),
                    "L" => long.to_string(),
                    _ => word.to_owned(),
                };
                FORMS[form].split(' ').map(word).collect()
            })
    }

    #[derive(Clone, Debug)]
    enum Action {
        Execute(u64, Vec<String>),
        /// Takes a picture that is written in pieces of this many bytes.
        Freeze(usize),
        /// Writes a piece of one of the pictures.
        Write(prop::sample::Index),
        Drop(prop::sample::Index),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            10 => (0..20u64, line()).prop_map(|(passed, line)| Action::Execute(passed, line)),
            2 => prop_oneof![1..100usize, 100..3000usize].prop_map(Action::Freeze),
            8 => any::<prop::sample::Index>().prop_map(Action::Write),
            1 => any::<prop::sample::Index>().prop_map(Action::Drop),
        ]
    }

    fn reply(kv: &mut Kv, now: u64, line: &[String]) -> String {
        let words: Vec<_> = line.iter().map(|word| Bytes::from(word.clone())).collect();
        let command =
            Command::parse_queued(&words).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let mut reply = Vec::new();
        kv.apply(
            Timestamp(now),
            &Compound::Pipeline(vec![command]).encode(),
            &mut reply,
        );
        String::from_utf8_lossy(&reply).into_owned()
    }

    fn whole(kv: &Kv) -> Vec<u8> {
        let mut out = Vec::new();
        kv.snapshot(&mut out);
        out
    }

    /// A picture, what is written of it, and what it must be in the end.
    struct Taken(Picture, Vec<u8>, Vec<u8>);

    impl Taken {
        fn new(kv: &Kv, piece: usize, expected: Vec<u8>) -> Taken {
            Taken(
                Picture {
                    piece,
                    ..Picture::new(&kv.store, (&kv.users, kv.room), kv.now)
                },
                Vec::new(),
                expected,
            )
        }

        /// Whether there was another piece.
        fn write_some(&mut self) -> bool {
            let (before, piece) = (self.1.len(), self.0.piece);
            let some = self.0.write_some(&mut self.1);
            let len = self.1.len() - before;
            assert_eq!(some, len > 0);
            assert_eq!(self.1, self.2[..self.1.len()]);
            // A key, two lengths, the version and the deadline may come on top, and the arrivals of
            // a segment; of a stream, also what it has besides its entries.
            assert!(
                len < piece + 100 + 11 * BUCKETS
                    && (len >= piece || self.1.len() == self.2.len() || !some)
            );
            some
        }
    }

    proptest! {
        /// Whatever happens after a picture is taken, it shows what was before; and whatever
        /// pictures are taken, the machine goes on as one of which there are none. The latter has
        /// removed what has expired, the former perhaps not yet: that does not show.
        #[test]
        fn pictures_and_the_machine_are_independent(actions in vec(action(), 0..150)) {
            let (mut kv, mut alone, mut now) = (Kv::default(), Kv::default(), 1000);
            let mut pictures: Vec<Taken> = Vec::new();
            for action in &actions {
                match action {
                    Action::Execute(passed, line) => {
                        now += passed;
                        prop_assert_eq!(reply(&mut kv, now, line), reply(&mut alone, now, line), "{:?}", line);
                        let bytes: u64 = kv.store.in_order(now).map(Entry::bytes).sum();
                        prop_assert_eq!(kv.store.live_bytes(now), bytes, "{:?}", line);
                    }
                    Action::Freeze(piece) => pictures.push(Taken::new(&kv, *piece, whole(&alone))),
                    Action::Write(_) | Action::Drop(_) if pictures.is_empty() => {}
                    Action::Write(at) => {
                        let at = at.index(pictures.len());
                        if !pictures[at].write_some() {
                            let Taken(_, written, expected) = pictures.swap_remove(at);
                            prop_assert_eq!(written, expected);
                        }
                    }
                    Action::Drop(at) => drop(pictures.swap_remove(at.index(pictures.len()))),
                }
            }
            prop_assert_eq!(whole(&kv), whole(&alone));
            for mut picture in pictures {
                while picture.write_some() {}
                prop_assert_eq!(picture.1, picture.2);
            }
            prop_assert_eq!(kv.store.shared(), (0, 0));
            prop_assert_eq!(whole(&kv), whole(&alone));
        }
    }

    fn filled() -> Kv {
        let mut kv = Kv::default();
        for i in 0..5000 {
            // Longer than what an entry holds itself.
            kv.store
                .set(Key::new(format!("k{i}").as_bytes()), &[b'b'; 64], None, 0);
        }
        kv
    }

    #[test]
    fn a_picture_shares_only_what_it_has_not_written() {
        let mut kv = filled();
        assert_eq!(kv.store.shared(), (0, 0));
        let mut picture = Taken::new(&kv, 100, whole(&kv));
        let (segments, _) = kv.store.shared();
        assert!(segments > 900);
        // This copies one segment; all it held is shared now, but for what was written.
        reply(&mut kv, 0, &["set", "k1", "after"].map(str::to_owned));
        let (left, entries) = kv.store.shared();
        assert!(left == segments - 1 && (1..30).contains(&entries));
        let mut last = kv.store.shared();
        while picture.write_some() {
            let now = kv.store.shared();
            assert!(
                now <= last && last.0 - now.0 < 10,
                "a few segments with every piece"
            );
            last = now;
        }
        // It is complete, though not dropped.
        assert_eq!((kv.store.shared(), picture.1 == picture.2), ((0, 0), true));
    }

    #[test]
    fn a_picture_may_be_dropped_half_written() {
        let mut kv = filled();
        let mut picture = Taken::new(&kv, 100_000, whole(&kv));
        assert!(picture.write_some());
        for i in 0..5000 {
            reply(
                &mut kv,
                0,
                &["set".to_owned(), format!("k{i}"), "after".to_owned()],
            );
        }
        assert!(kv.store.shared() == (0, 0), "all is replaced");
        let other = Taken::new(&kv, 100_000, whole(&kv));
        drop(picture);
        assert!(kv.store.shared().0 > 900);
        drop(other);
        assert_eq!(kv.store.shared(), (0, 0));
    }
}
