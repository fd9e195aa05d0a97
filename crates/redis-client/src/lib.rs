//! A client of the Redis protocol, version 2, for the commands, tools and tests that ask gateways
//! and Redis servers: requests as bytes, replies from bytes, and a connection that blocks its
//! thread ([`Connection`]) or does not (`asynchronous`).
//!
//! The load generator encodes its two requests once and counts replies without keeping them
//! (`crates/bench/src/load`): with this crate it would spend more time than the servers that it
//! measures. It uses this crate to greet a server.
#![forbid(unsafe_code)]

#[cfg(feature = "tokio")]
pub mod asynchronous;

mod blocking;
mod reply;

pub use blocking::{Connection, Limits};
pub use reply::{Reply, take_reply};

use bytes::Bytes;
use rustls::InvalidMessage::InvalidContentType;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;
use thiserror::Error;

/// Why a request has no reply.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The server closed the connection.
    #[error("the connection was closed before the reply")]
    Closed,
    /// No bytes arrived within the time limit.
    #[error("no reply within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The server does not use the Redis protocol.
    #[error("not a reply of the Redis protocol: {0:?}")]
    NotRedis(String),
    /// The reply exceeds the limit, in bytes.
    #[error("a reply of more than {0} bytes, the limit")]
    TooLong(usize),
    /// A reply of another type than the request expects.
    #[error("an unexpected reply: {0:?}")]
    Unexpected(Reply),
}

/// An error of a connection with TLS: names what a server without TLS has sent.
fn readable(error: io::Error) -> io::Error {
    let source = error.get_ref().and_then(|source| source.downcast_ref());
    match source {
        Some(rustls::Error::InvalidMessage(InvalidContentType)) => {
            io::Error::new(ErrorKind::InvalidData, "the server does not speak TLS")
        }
        _ => error,
    }
}

/// Appends a request to `out`: an array of bulk strings.
pub fn push_request(words: &[&[u8]], out: &mut Vec<u8>) {
    let header = |kind: char, length: usize, out: &mut Vec<u8>| {
        // Writing to memory cannot fail.
        let _ = write!(out, "{kind}{length}\r\n");
    };
    header('*', words.len(), out);
    for word in words {
        header('$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The value of a reply to GET; none if the key does not exist.
///
/// # Errors
/// If the reply is of another type.
pub fn bulk(reply: Reply) -> Result<Option<Bytes>, Error> {
    match reply {
        Reply::BulkString(bytes) => Ok(Some(bytes)),
        Reply::Null => Ok(None),
        other => Err(Error::Unexpected(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    #[test]
    fn requests_are_arrays_of_bulk_strings() {
        let mut out = b"before".to_vec();
        push_request(&[b"SET", b"k", b"a\r\nb"], &mut out);
        assert_eq!(out, b"before*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn replies_are_taken_one_by_one_when_they_are_whole() {
        let all = b"+OK\r\n$-1\r\n$3\r\na\r\n\r\n*2\r\n:7\r\n-ERR no\r\n";
        let expected = [
            Reply::SimpleString("OK".into()),
            Reply::Null,
            Reply::BulkString("a\r\n".into()),
            Reply::Array(vec![Reply::Integer(7), Reply::Error("ERR no".into())]),
        ];
        for first in 0..=all.len() {
            let (mut input, mut taken) = (BytesMut::new(), Vec::new());
            for piece in [&all[..first], &all[first..]] {
                input.extend_from_slice(piece);
                while let Some(reply) = take_reply(&mut input).unwrap() {
                    taken.push(reply);
                }
            }
            assert_eq!(taken, expected, "cut at {first}");
            assert!(input.is_empty());
        }
    }

    #[test]
    fn a_bulk_string_may_be_null() {
        assert_eq!(bulk(Reply::BulkString("v".into())).unwrap().unwrap(), "v");
        assert_eq!(bulk(Reply::Null).unwrap(), None);
        assert!(bulk(Reply::Error("ERR".into())).is_err());
    }
}
