//! A stream as a shared log: entries at the positions 1, 2, 3, ..., which are the IDs `0-1`, `0-2`,
//! `0-3`, ... of the stream. An entry is one field with the name `e`.
//!
//! The functions here make commands and take apart the replies to them; who sends them is not their
//! concern.

use super::command::Op;
use super::stream::{Ask, Deed, Id, Keep, NewId, Trim};
use super::{Command, Compound, answered, reply};
use bytes::{Buf, Bytes};

/// The name of the field.
const FIELD: Bytes = Bytes::from_static(b"e");

/// Where an entry is in its log.
pub type Position = u64;

/// Why a reply is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unexpected {
    /// The reply would be too large: ask for fewer entries.
    TooLarge,
    /// The error text of the machine, such as that the key is not a stream.
    Error(String),
    /// The ID of an entry that another client appended, which is no position. Behind it no entry
    /// can be appended to the log.
    NoPosition(String),
    /// The reply is malformed.
    Malformed,
}

/// Appends entries, which get positions one after the other.
pub fn append(key: &Bytes, entries: impl IntoIterator<Item = Bytes>) -> Compound {
    let add = |entry| {
        Command(Op::StreamWrite(Deed::Add {
            key: key.clone(),
            create: true,
            id: NewId::Next(0),
            trim: None,
            words: vec![FIELD, entry],
        }))
    };
    // A transaction is not interrupted.
    Compound::Transaction {
        watched: Vec::new(),
        commands: entries.into_iter().map(add).collect(),
    }
}

/// The positions of the entries that were appended.
///
/// # Errors
/// When they were not appended, or have no positions.
pub fn appended(reply: Bytes) -> Result<Vec<Position>, Unexpected> {
    let mut reader = Reader(reply);
    let mut positions = Vec::new();
    for _ in 0..reader.array()? {
        positions.push(reader.position()?);
    }
    Ok(positions)
}

/// Reads at most `limit` entries at this position and behind it.
pub fn read(key: &Bytes, from: Position, limit: u64) -> Compound {
    // The machine gives null for a count of zero; an empty range has no entries.
    let from = if limit == 0 { u64::MAX } else { from };
    Compound::Pipeline(vec![Command(Op::StreamRead(Ask::Range {
        key: key.clone(),
        from: Id { ms: 0, seq: from },
        to: if limit == 0 { Id::MIN } else { Id::MAX },
        count: Some(limit.max(1)),
        reverse: false,
    }))])
}

/// The entries that were read, in their order; only those before an entry that has no position, if
/// there is one.
///
/// # Errors
/// When they could not be read, or the first one has no position.
pub fn entries(reply: &Bytes) -> Result<Vec<(Position, Bytes)>, Unexpected> {
    let mut reader = Reader(answered(reply).1);
    let mut entries = Vec::new();
    for _ in 0..reader.array()? {
        if reader.array()? != 2 {
            return Err(Unexpected::Malformed);
        }
        let position = match reader.position() {
            Err(Unexpected::NoPosition(_)) if !entries.is_empty() => return Ok(entries),
            position => position?,
        };
        let words = reader.array()?;
        let mut value = None;
        for at in 0..words {
            let word = reader.bulk()?;
            if at == 1 {
                // Of several fields, which only another client appends, the first one counts.
                value = Some(word);
            }
        }
        entries.push((position, value.ok_or(Unexpected::Malformed)?));
    }
    Ok(entries)
}

/// Removes the entries before this position.
pub fn trim(key: &Bytes, before: Position) -> Compound {
    Compound::Pipeline(vec![Command(Op::StreamWrite(Deed::Trim {
        key: key.clone(),
        trim: Trim {
            keep: Keep::From(Id { ms: 0, seq: before }),
            roughly: None,
        },
    }))])
}

/// How many entries were removed.
///
/// # Errors
/// When the key is not a stream.
pub fn trimmed(reply: Bytes) -> Result<u64, Unexpected> {
    Reader(answered(&reply).1).number(b':')
}

/// What is left of a reply.
struct Reader(Bytes);

impl Reader {
    /// The rest of a line that begins with this byte.
    fn line(&mut self, kind: u8) -> Result<Bytes, Unexpected> {
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let mut line = self.0.split_to(end.ok_or(Unexpected::Malformed)? + 1);
        let first = line.first().copied();
        if line.len() < 3 || !line.ends_with(b"\r\n") {
            return Err(Unexpected::Malformed);
        }
        line.truncate(line.len() - 2);
        line.advance(1);
        match first {
            Some(first) if first == kind => Ok(line),
            Some(b'-') if line == reply::TOO_LARGE => Err(Unexpected::TooLarge),
            Some(b'-') => Err(Unexpected::Error(
                String::from_utf8_lossy(&line).into_owned(),
            )),
            _ => Err(Unexpected::Malformed),
        }
    }

    fn number(&mut self, kind: u8) -> Result<u64, Unexpected> {
        let line = self.line(kind)?;
        let text = std::str::from_utf8(&line).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or(Unexpected::Malformed)
    }

    fn array(&mut self) -> Result<u64, Unexpected> {
        self.number(b'*')
    }

    fn bulk(&mut self) -> Result<Bytes, Unexpected> {
        let len = usize::try_from(self.number(b'$')?).map_err(|_| Unexpected::Malformed)?;
        if self.0.len().saturating_sub(2) < len {
            return Err(Unexpected::Malformed);
        }
        let bytes = self.0.split_to(len);
        match self.0.strip_prefix(b"\r\n") {
            Some(_) => self.0.advance(2),
            None => return Err(Unexpected::Malformed),
        }
        Ok(bytes)
    }

    fn position(&mut self) -> Result<Position, Unexpected> {
        let text = self.bulk()?;
        match Id::parse(&text, 0) {
            Some(Id { ms: 0, seq }) => Ok(seq),
            _ => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Err(Unexpected::NoPosition(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kv;
    use super::*;
    use ionian_kernel::machine::StateMachine;
    use ionian_kernel::time::Timestamp;

    fn run(kv: &mut Kv, compound: &Compound) -> Bytes {
        let mut reply = Vec::new();
        kv.apply(Timestamp(1), &compound.encode(), &mut reply);
        reply.into()
    }

    fn words(kv: &mut Kv, line: &str) {
        let words: Vec<Bytes> = line
            .split(' ')
            .map(|word| Bytes::from(word.to_owned()))
            .collect();
        let command = Command::parse(&words).expect("a command");
        run(kv, &Compound::Pipeline(vec![command]));
    }

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn what_is_appended_is_read_at_its_position() {
        let (mut kv, key) = (Kv::default(), bytes("log"));
        let all = ["a", "b", ""].map(bytes);
        assert_eq!(
            appended(run(&mut kv, &append(&key, all))),
            Ok(vec![1, 2, 3])
        );
        let one = append(&key, [bytes("\r\n-ERR")]);
        assert_eq!(appended(run(&mut kv, &one)), Ok(vec![4]));
        assert_eq!(appended(run(&mut kv, &append(&key, []))), Ok(vec![]));
        let found = entries(&run(&mut kv, &read(&key, 2, 2)));
        assert_eq!(found, Ok(vec![(2, bytes("b")), (3, bytes(""))]));
        assert_eq!(trimmed(run(&mut kv, &trim(&key, 4))), Ok(3));
        let found = entries(&run(&mut kv, &read(&key, 0, 10)));
        assert_eq!(found, Ok(vec![(4, bytes("\r\n-ERR"))]));
        assert_eq!(
            entries(&run(&mut kv, &read(&bytes("none"), 1, 1))),
            Ok(vec![])
        );
        assert_eq!(trimmed(run(&mut kv, &trim(&bytes("none"), 4))), Ok(0));
    }

    #[test]
    fn what_is_no_log_is_reported() {
        let (mut kv, key) = (Kv::default(), bytes("log"));
        words(&mut kv, "set log v");
        let wrong = || Unexpected::Error(reply::WRONG_TYPE.to_owned());
        assert_eq!(
            appended(run(&mut kv, &append(&key, [key.clone()]))),
            Err(wrong())
        );
        assert_eq!(entries(&run(&mut kv, &read(&key, 1, 1))), Err(wrong()));
        assert_eq!(trimmed(run(&mut kv, &trim(&key, 1))), Err(wrong()));
        words(&mut kv, "del log");
        words(&mut kv, "xadd log 5-1 e v");
        let found = entries(&run(&mut kv, &read(&key, 1, 1)));
        assert_eq!(found, Err(Unexpected::NoPosition("5-1".into())));
        let large = format!("-{}\r\n", reply::TOO_LARGE);
        assert_eq!(entries(&Bytes::from(large)), Err(Unexpected::TooLarge));
    }

    #[test]
    fn entries_before_one_that_is_no_position_are_read() {
        let (mut kv, key) = (Kv::default(), bytes("log"));
        run(&mut kv, &append(&key, ["a", "b"].map(bytes)));
        words(&mut kv, "xadd log 5-1 e v");
        let found = entries(&run(&mut kv, &read(&key, 1, 9)));
        assert_eq!(found, Ok(vec![(1, bytes("a")), (2, bytes("b"))]));
        let found = entries(&run(&mut kv, &read(&key, 3, 9)));
        assert_eq!(found, Err(Unexpected::NoPosition("5-1".into())));
        // Nothing can be appended behind it.
        let append = run(&mut kv, &append(&key, [bytes("c")]));
        assert!(matches!(appended(append), Err(Unexpected::Error(_))));
    }

    #[test]
    fn no_entries_are_read_with_a_limit_of_none() {
        let (mut kv, key) = (Kv::default(), bytes("log"));
        run(&mut kv, &append(&key, [bytes("a")]));
        for from in [0, 1, u64::MAX] {
            assert_eq!(entries(&run(&mut kv, &read(&key, from, 0))), Ok(vec![]));
        }
    }

    #[test]
    fn a_malformed_reply_is_refused() {
        let good = b"*1\r\n*2\r\n$3\r\n0-1\r\n*2\r\n$1\r\ne\r\n$1\r\nv\r\n";
        assert_eq!(
            entries(&Bytes::from_static(good)),
            Ok(vec![(1, bytes("v"))])
        );
        for len in 0..good.len() {
            let cut = entries(&Bytes::from_static(&good[..len]));
            assert_eq!(cut, Err(Unexpected::Malformed), "{len} bytes");
        }
        for wrong in [
            "*1\r\n*1\r\n$3\r\n0-1\r\n",
            "*1\r\n$3\r\n0-1\r\n",
            "*-1\r\n",
            ":1\r\n",
        ] {
            assert_eq!(
                entries(&bytes(wrong)),
                Err(Unexpected::Malformed),
                "{wrong}"
            );
        }
    }
}
