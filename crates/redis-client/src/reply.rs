//! Replies from bytes: version 2 of the protocol, whose five types are all that a server sends to a
//! client that did not ask for version 3.
//!
//! Own code, because it is in the server (`ionian exec`): the crate `redis-protocol`, which the
//! tests here compare it with, brings seven others and took a twentieth of the server's build.

use crate::Error;
use bytes::{Buf, Bytes, BytesMut};

/// The longest line, in bytes: all but bulk strings are lines.
const LINE_BYTES: usize = 64 << 10;

/// The deepest that arrays are nested.
const DEPTH: usize = 32;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A line such as OK.
    SimpleString(Bytes),
    /// An error: a word in capitals, and a text.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    BulkString(Bytes),
    /// Nothing: neither a bulk string nor an array.
    Null,
    /// Replies.
    Array(Vec<Reply>),
}

/// These bytes are not the beginning of a reply.
struct Malformed;

/// A reply and the bytes behind it; none when a part of it has not come yet.
type Parsed<'a> = Result<Option<(Reply, &'a [u8])>, Malformed>;

/// Takes the first reply out of `input`. None when a part of it has not come yet.
///
/// # Errors
/// When these bytes are not the beginning of a reply.
pub fn take_reply(input: &mut BytesMut) -> Result<Option<Reply>, Error> {
    match parse(input, DEPTH) {
        Ok(None) => Ok(None),
        Ok(Some((reply, rest))) => {
            let length = input.len() - rest.len();
            input.advance(length);
            Ok(Some(reply))
        }
        Err(Malformed) => Err(Error::NotRedis(beginning(input))),
    }
}

fn parse(bytes: &[u8], depth: usize) -> Parsed<'_> {
    let Some(Line { kind, text, rest }) = line(bytes)? else {
        return Ok(None);
    };
    let reply = match kind {
        b'+' => Reply::SimpleString(Bytes::copy_from_slice(text)),
        b'-' => Reply::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Reply::Integer(integer(text)?),
        b'$' => return bulk_string(integer(text)?, rest),
        b'*' => return array(integer(text)?, rest, depth),
        _ => return Err(Malformed),
    };
    Ok(Some((reply, rest)))
}

fn bulk_string(length: i64, bytes: &[u8]) -> Parsed<'_> {
    if length == -1 {
        return Ok(Some((Reply::Null, bytes)));
    }
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    let Some((string, rest)) = bytes.split_at_checked(length) else {
        return Ok(None);
    };
    match rest {
        [b'\r', b'\n', rest @ ..] => {
            let string = Reply::BulkString(Bytes::copy_from_slice(string));
            Ok(Some((string, rest)))
        }
        [] | [b'\r'] => Ok(None),
        _ => Err(Malformed),
    }
}

fn array(count: i64, mut bytes: &[u8], depth: usize) -> Parsed<'_> {
    if count == -1 {
        return Ok(Some((Reply::Null, bytes)));
    }
    let count = usize::try_from(count).map_err(|_| Malformed)?;
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    // It grows with what comes, whatever the count says.
    let mut replies = Vec::new();
    for _ in 0..count {
        let Some((reply, rest)) = parse(bytes, depth)? else {
            return Ok(None);
        };
        replies.push(reply);
        bytes = rest;
    }
    Ok(Some((Reply::Array(replies), bytes)))
}

/// The type of a reply and the text of its first line, and the bytes behind that line.
struct Line<'a> {
    kind: u8,
    text: &'a [u8],
    rest: &'a [u8],
}

fn line(bytes: &[u8]) -> Result<Option<Line<'_>>, Malformed> {
    let Some((kind, behind)) = bytes.split_first() else {
        return Ok(None);
    };
    if !b"+-:$*".contains(kind) {
        return Err(Malformed);
    }
    match behind.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some(Line {
            kind: *kind,
            text: behind[..end].strip_suffix(b"\r").ok_or(Malformed)?,
            rest: &behind[end + 1..],
        })),
        None if behind.len() > LINE_BYTES => Err(Malformed),
        None => Ok(None),
    }
}

fn integer(text: &[u8]) -> Result<i64, Malformed> {
    let text = str::from_utf8(text).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// The first line of these bytes, or its beginning, for an error.
fn beginning(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(240)]);
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(60)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redis_protocol::resp2::decode::decode_bytes;
    use redis_protocol::resp2::types::BytesFrame;

    fn encode(reply: &Reply, out: &mut Vec<u8>) {
        match reply {
            Reply::SimpleString(bytes) => out.extend([b"+", &bytes[..], b"\r\n"].concat()),
            Reply::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Reply::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
            Reply::BulkString(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend([&bytes[..], b"\r\n"].concat());
            }
            Reply::Null => out.extend(b"$-1\r\n"),
            Reply::Array(replies) => {
                out.extend(format!("*{}\r\n", replies.len()).bytes());
                replies.iter().for_each(|reply| encode(reply, out));
            }
        }
    }

    fn theirs(frame: BytesFrame) -> Reply {
        match frame {
            BytesFrame::SimpleString(bytes) => Reply::SimpleString(bytes),
            BytesFrame::Error(text) => Reply::Error(text.to_string()),
            BytesFrame::Integer(number) => Reply::Integer(number),
            BytesFrame::BulkString(bytes) => Reply::BulkString(bytes),
            BytesFrame::Null => Reply::Null,
            BytesFrame::Array(frames) => Reply::Array(frames.into_iter().map(theirs).collect()),
        }
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let one = prop_oneof![
            "[ -~]{0,20}".prop_map(|text| Reply::SimpleString(text.into())),
            "[A-Z]{1,8} [ -~]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            proptest::collection::vec(any::<u8>(), 0..40)
                .prop_map(|bytes| Reply::BulkString(bytes.into())),
            Just(Reply::Null),
        ];
        one.prop_recursive(4, 32, 5, |inner| {
            proptest::collection::vec(inner, 0..5).prop_map(Reply::Array)
        })
    }

    proptest! {
        #[test]
        fn replies_are_those_that_redis_protocol_reads(reply in replies(), cut in 0.0..1.0) {
            let mut all = Vec::new();
            encode(&reply, &mut all);
            let (frame, length) = decode_bytes(&all.clone().into()).unwrap().unwrap();
            prop_assert_eq!((theirs(frame), length), (reply.clone(), all.len()));
            let cut = (cut * all.len() as f64) as usize;
            let mut input = BytesMut::from(&all[..cut]);
            prop_assert_eq!(take_reply(&mut input).unwrap(), None);
            input.extend_from_slice(&all[cut..]);
            input.extend_from_slice(b"+next");
            prop_assert_eq!(take_reply(&mut input).unwrap(), Some(reply));
            prop_assert_eq!(&input[..], b"+next");
        }

        #[test]
        fn any_bytes_are_read_refused_or_waited_for(bytes in "[+:$*0-3\r\n-]{0,40}") {
            let mut input = BytesMut::from(bytes.as_str());
            while let Ok(Some(_)) = take_reply(&mut input) {}
        }
    }

    #[test]
    fn bytes_that_are_not_a_reply_are_named_in_the_error() {
        let refused = |bytes: &[u8]| take_reply(&mut BytesMut::from(bytes)).unwrap_err();
        assert_eq!(
            refused(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n").to_string(),
            "not a reply of the Redis protocol: \"HTTP/1.1 400 Bad Request\""
        );
        for bytes in [
            &b"SSH-2.0"[..],
            b"+OK\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$\r\n",
            b"*99999999999999999999\r\n",
            b"$1\r\nabc",
            b":1.5\r\n",
        ] {
            refused(bytes);
        }
        refused(&b"*1\r\n".repeat(DEPTH + 1));
        refused(&vec![b'+'; LINE_BYTES + 2]);
    }
}
