//! The streams that the clients of one gateway wait for.

use bytes::Bytes;
use ionian_machines::kv;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A range of keys, and a key in it.
type Place = (u8, Bytes);

/// The clients whose XREAD with BLOCK is not answered, and its streams.
pub(crate) struct Awaited {
    /// See [`Limits::asks_by_ranges`](crate::Limits::asks_by_ranges).
    by_ranges: bool,
    clients: usize,
    /// The streams that they name, each as often as it is named.
    streams: usize,
    /// The same streams, each with how often it is named.
    keys: BTreeMap<Place, usize>,
}

impl Awaited {
    /// None yet. `by_ranges` says that the keys of a question are all of one range.
    pub(crate) fn new(by_ranges: bool) -> Self {
        Awaited {
            by_ranges,
            clients: 0,
            streams: 0,
            keys: BTreeMap::new(),
        }
    }

    fn place(&self, key: &Bytes) -> Place {
        let range = if self.by_ranges { kv::range_of(key) } else { 0 };
        (range, key.clone())
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// A client begins to wait for these streams.
    pub(crate) fn add(&mut self, keys: &[Bytes]) {
        self.clients += 1;
        self.streams += keys.len();
        for key in keys {
            let (range, key) = self.place(key);
            match self.keys.get_mut(&(range, key.clone())) {
                Some(count) => *count += 1,
                // Copied: it may outlive the client, whose command it would retain.
                None => {
                    let key = Bytes::copy_from_slice(&key);
                    self.keys.insert((range, key), 1);
                }
            }
        }
    }

    /// A client does not wait for them any more, which it did.
    pub(crate) fn remove(&mut self, keys: &[Bytes]) {
        self.clients -= 1;
        self.streams -= keys.len();
        for key in keys {
            let place = self.place(key);
            let count = self.keys.get_mut(&place).expect("it was added");
            *count -= 1;
            if *count == 0 {
                self.keys.remove(&place);
            }
        }
    }

    /// The keys behind `last`, or the first ones: at most `most`, together at most `bytes` with
    /// their lengths, and all of one range. The flag says that there are more behind them.
    pub(crate) fn behind(
        &self,
        last: Option<&Bytes>,
        most: usize,
        bytes: usize,
    ) -> (Vec<Bytes>, bool) {
        let last = last.map(|key| self.place(key));
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.keys.range::<Place, _>((from, Bound::Unbounded));
        let (mut keys, mut room, mut first) = (Vec::new(), bytes, None);
        for ((range, key), _) in rest {
            // A command whose key is larger than this is refused.
            let left = room.checked_sub(key.len() + 1);
            let same = *first.get_or_insert(*range) == *range;
            let Some(left) = left.filter(|_| keys.len() < most && same) else {
                return (keys, true);
            };
            room = left;
            keys.push(key.clone());
        }
        (keys, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|name| Bytes::from(*name)).collect()
    }

    #[test]
    fn a_stream_is_awaited_until_no_client_waits_for_it() {
        let mut awaited = Awaited::new(false);
        awaited.add(&keys(&["b", "a", "b"]));
        awaited.add(&keys(&["b"]));
        assert_eq!((awaited.clients(), awaited.streams()), (2, 4));
        assert_eq!(awaited.behind(None, 9, 99), (keys(&["a", "b"]), false));
        awaited.remove(&keys(&["b", "a", "b"]));
        assert_eq!(awaited.behind(None, 9, 99), (keys(&["b"]), false));
        awaited.remove(&keys(&["b"]));
        assert_eq!((awaited.clients(), awaited.streams()), (0, 0));
        assert_eq!(awaited.behind(None, 9, 99), (vec![], false));
    }

    #[test]
    fn a_stream_does_not_retain_the_command_of_a_client_that_has_left() {
        let mut awaited = Awaited::new(false);
        let mut command = Bytes::from(vec![b'k'; 60_000]);
        let first = [command.split_to(1), command];
        awaited.add(&first);
        awaited.add(&keys(&["k"]));
        awaited.remove(&first);
        let [key, rest] = first;
        assert_eq!(awaited.behind(None, 9, 99), (keys(&["k"]), false));
        drop(rest);
        assert!(key.is_unique());
    }

    #[test]
    fn streams_of_different_ranges_are_asked_for_apart() {
        let names: Vec<Bytes> = (0..200).map(|n| format!("stream {n}").into()).collect();
        let mut awaited = Awaited::new(true);
        awaited.add(&names);
        let (mut last, mut round, mut questions) = (None, Vec::new(), 0);
        loop {
            let (keys, more) = awaited.behind(last.as_ref(), 1024, 1 << 16);
            let ranges: BTreeSet<u8> = keys.iter().map(|key| kv::range_of(key)).collect();
            assert_eq!(ranges.len(), 1);
            last = keys.last().cloned();
            round.extend(keys);
            questions += 1;
            if !more {
                break;
            }
        }
        round.sort();
        let mut expected = names.clone();
        expected.sort();
        assert_eq!(round, expected);
        let ranges: BTreeSet<u8> = names.iter().map(|key| kv::range_of(key)).collect();
        assert_eq!(questions, ranges.len());
        awaited.remove(&names);
        assert_eq!(awaited.behind(None, 9, 99), (vec![], false));
    }

    #[test]
    fn a_round_names_each_stream_once() {
        let mut awaited = Awaited::new(false);
        awaited.add(&keys(&["a", "b", "cc", "d", "e"]));
        for (most, bytes) in [(2, 99), (9, 5)] {
            let (mut last, mut round) = (None, Vec::new());
            loop {
                let (keys, more) = awaited.behind(last.as_ref(), most, bytes);
                last = keys.last().cloned();
                round.push(keys);
                if !more {
                    break;
                }
            }
            assert_eq!(round, [keys(&["a", "b"]), keys(&["cc", "d"]), keys(&["e"])]);
        }
    }
}
