//! The RESP2 encodings of replies, appended to the buffer that the client is handed.

use std::fmt::Write;

pub(super) const WRONG_FLOAT: &str = "ERR value is not a valid float";
pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(super) const NO_SUCH_KEY: &str = "ERR no such key";
pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub(super) const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";

/// The error in place of a reply that would be too large.
pub(super) const TOO_LARGE: &str = "ERR the reply would be larger than 64 MB, ask for less at once";

pub(super) fn invalid_expire(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

pub(super) fn ok(out: &mut Vec<u8>) {
    simple(out, "OK");
}

pub(super) fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A line break inside of an error would end the reply early, so it becomes a space, as in Redis.
pub(super) fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    out.extend(text.iter().map(|&byte| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            byte
        }
    }));
    out.extend_from_slice(b"\r\n");
}

pub(super) fn integer(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    line(out, value);
}

pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    line(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn bulk_or_null(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => bulk(out, bytes),
        None => null(out),
    }
}

pub(super) fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

pub(super) fn null_array(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*-1\r\n");
}

/// The head of an array; its elements follow as replies of their own.
pub(super) fn array(out: &mut Vec<u8>, len: usize) {
    out.push(b'*');
    line(out, len as i64);
}

/// The head of a map of RESP3; its keys and values follow in turn.
pub(super) fn map(out: &mut Vec<u8>, len: usize) {
    out.push(b'%');
    line(out, len as i64);
}

fn line(out: &mut Vec<u8>, value: i64) {
    let mut text = Text(out);
    write!(text, "{value}\r\n").expect("a vector takes any bytes");
}

/// Lets numbers be formatted into the buffer without a string in between.
struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
