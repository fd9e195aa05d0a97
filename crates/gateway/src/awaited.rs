//! The streams that the clients of one gateway wait for.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The clients whose XREAD with BLOCK is not answered, and its streams.
#[derive(Default)]
pub(crate) struct Awaited {
    clients: usize,
    /// The streams that they name, each as often as it is named.
    streams: usize,
    /// The same streams, each with how often it is named.
    keys: BTreeMap<Bytes, usize>,
}

impl Awaited {
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
            match self.keys.get_mut(key) {
                Some(count) => *count += 1,
                // Copied: it may outlive the client, whose command it would retain.
                None => {
                    self.keys.insert(Bytes::copy_from_slice(key), 1);
                }
            }
        }
    }

    /// A client does not wait for them any more, which it did.
    pub(crate) fn remove(&mut self, keys: &[Bytes]) {
        self.clients -= 1;
        self.streams -= keys.len();
        for key in keys {
            let count = self.keys.get_mut(key).expect("it was added");
            *count -= 1;
            if *count == 0 {
                self.keys.remove(key);
            }
        }
    }

    /// The keys behind `last`, or the first ones: at most `most`, together at most `bytes` with
    /// their lengths. The flag says that there are more behind them.
    pub(crate) fn behind(
        &self,
        last: Option<&Bytes>,
        most: usize,
        bytes: usize,
    ) -> (Vec<Bytes>, bool) {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.keys.range::<Bytes, _>((from, Bound::Unbounded));
        let (mut keys, mut room) = (Vec::new(), bytes);
        for (key, _) in &mut rest {
            // A command whose key is larger than this is refused.
            let left = room.checked_sub(key.len() + 1);
            let Some(left) = left.filter(|_| keys.len() < most) else {
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

    fn keys(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|name| Bytes::from(*name)).collect()
    }

    #[test]
    fn a_stream_is_awaited_until_no_client_waits_for_it() {
        let mut awaited = Awaited::default();
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
        let mut awaited = Awaited::default();
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
    fn a_round_names_each_stream_once() {
        let mut awaited = Awaited::default();
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
