//! The ID of a stream's entry: a time in milliseconds and a sequence number.

use std::fmt;

/// An ID. Those of a stream ascend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Id {
    pub(in super::super) ms: u64,
    pub(in super::super) seq: u64,
}

impl Id {
    pub(in super::super) const MIN: Id = Id { ms: 0, seq: 0 };
    pub(in super::super) const MAX: Id = Id {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// The ID after this one, if it is not the last.
    pub(in super::super) fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id {
                ms: self.ms.checked_add(1)?,
                seq: 0,
            }),
        }
    }

    /// The ID before this one, if it is not the first.
    pub(super) fn previous(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id {
                ms: self.ms.checked_sub(1)?,
                seq: u64::MAX,
            }),
        }
    }

    /// The ID that `ms-seq`, or `ms` alone, spells; `seq` is the sequence number of the latter.
    pub(in super::super) fn parse(text: &[u8], seq: u64) -> Option<Id> {
        let (ms, seq) = match text.iter().position(|byte| *byte == b'-') {
            Some(at) => (&text[..at], number(&text[at + 1..])?),
            None => (text, seq),
        };
        Some(Id {
            ms: number(ms)?,
            seq,
        })
    }
}

/// Redis reads these numbers with `strtoull`, which accepts leading zeros.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> Id {
        Id { ms, seq }
    }

    #[test]
    fn an_id_is_a_pair_of_numbers() {
        for (text, expected) in [
            ("5", Some(id(5, 7))),
            ("5-3", Some(id(5, 3))),
            ("05-03", Some(id(5, 3))),
            ("18446744073709551615-18446744073709551615", Some(Id::MAX)),
            ("18446744073709551616-0", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("5-", None),
            ("-5", None),
            ("5-*", None),
            ("1-2-3", None),
            ("+5-1", None),
            (" 5", None),
        ] {
            assert_eq!(Id::parse(text.as_bytes(), 7), expected, "{text}");
        }
        assert_eq!(id(5, 3).to_string(), "5-3");
    }

    #[test]
    fn ids_follow_one_another() {
        for (before, after) in [
            (id(0, 0), id(0, 1)),
            (id(4, u64::MAX), id(5, 0)),
            (id(u64::MAX, u64::MAX - 1), Id::MAX),
        ] {
            assert_eq!(before.next(), Some(after));
            assert_eq!(after.previous(), Some(before));
        }
        assert_eq!((Id::MAX.next(), Id::MIN.previous()), (None, None));
    }
}
