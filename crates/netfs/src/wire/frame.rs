//! What a connection carries between a mount and a node.
//!
//! ```text
//! both begin with the greeting; the node adds its limit: bytes of a payload: u32
//! request: length of the rest: u32 | id: u64 | 0 a command, 1 a query: u8 | payload
//! answer:  length of the rest: u32 | id: u64 | outcome: u8 | payload
//! ```
//!
//! Answers come in any order.

use super::blob::MAX_CONTENT;
use super::cursor::{Cursor, Malformed};
use ionian_kernel::client::Refusal;

/// What both sides begin with. Its last byte is the version.
pub(crate) const GREETING: &[u8; 16] = b"ionian-netfs   \x01";

/// The most bytes of a payload: content, and what a command has besides.
pub(crate) const MAX_PAYLOAD: usize = MAX_CONTENT + (8 << 10);

/// Bytes of a frame before its payload, without the length.
const HEAD: usize = 9;

/// The most bytes of a frame, without the length.
pub(crate) const MAX_FRAME: usize = HEAD + MAX_PAYLOAD;

/// Whether a request changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Command,
    Query,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The payload is the answer of the state machine.
    Answered,
    /// It was not executed, and will not be: it can be sent again.
    NotExecuted,
    /// It may be executed: a copy of it can be sent, for the state machine knows copies.
    Unknown,
    /// It will fail however often it is sent.
    Refused,
}

impl Outcome {
    pub(crate) fn of(refusal: Refusal) -> Outcome {
        match refusal {
            Refusal::Busy | Refusal::Unavailable => Outcome::NotExecuted,
            Refusal::Unknown => Outcome::Unknown,
            Refusal::NotARead | Refusal::TooLarge | Refusal::Failed => Outcome::Refused,
        }
    }
}

/// Checks the length of a frame that comes.
pub(crate) fn check_length(length: u32) -> Result<usize, Malformed> {
    let length = length as usize;
    if (HEAD..=MAX_FRAME).contains(&length) {
        return Ok(length);
    }
    Err(Malformed("a frame has a length that is not possible"))
}

fn push(id: u64, tag: u8, payload: &[u8], out: &mut Vec<u8>) {
    let length = (HEAD + payload.len()) as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out.push(tag);
    out.extend_from_slice(payload);
}

pub(crate) fn push_request(id: u64, sort: Sort, payload: &[u8], out: &mut Vec<u8>) {
    push(id, u8::from(sort == Sort::Query), payload, out);
}

pub(crate) fn push_answer(id: u64, outcome: Outcome, payload: &[u8], out: &mut Vec<u8>) {
    push(id, outcome as u8, payload, out);
}

/// Reads a request, without its length.
pub(crate) fn request(frame: &[u8]) -> Result<(u64, Sort, &[u8]), Malformed> {
    let mut cursor = Cursor::new(frame);
    let id = cursor.u64()?;
    let sort = match cursor.flag()? {
        false => Sort::Command,
        true => Sort::Query,
    };
    Ok((id, sort, cursor.rest()))
}

/// Reads an answer, without its length.
pub(crate) fn answer(frame: &[u8]) -> Result<(u64, Outcome, &[u8]), Malformed> {
    let mut cursor = Cursor::new(frame);
    let id = cursor.u64()?;
    let outcome = match cursor.u8()? {
        0 => Outcome::Answered,
        1 => Outcome::NotExecuted,
        2 => Outcome::Unknown,
        3 => Outcome::Refused,
        _ => return Err(Malformed("an answer has no known outcome")),
    };
    Ok((id, outcome, cursor.rest()))
}
