//! The bytes of typed commands and answers: a tag, then the value in the format of `postcard`.

use super::{Machine, TypedError};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte of a command.
const COMMAND: u8 = 0;
/// The first byte of a query.
const QUERY: u8 = 1;

/// The first byte of the answer to what the machine understood.
const ANSWER: u8 = 0;
/// All of the answer to bytes that are no command or query of the machine.
const NOT_UNDERSTOOD: u8 = 1;
/// All of the answer when the machine's own answer cannot be encoded.
const NOT_ENCODED: u8 = 2;

/// Appends the encoding of `value`. When it fails, `out` is as before.
pub(super) fn append(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), postcard::Error> {
    let before = out.len();
    let done = postcard::to_io(value, &mut *out).map(drop);
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// The value that all these bytes encode.
pub(super) fn decode<T: DeserializeOwned>(encoded: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(encoded) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// A command as it is sent.
pub(crate) fn command(command: &impl Serialize) -> Result<Bytes, TypedError> {
    request(COMMAND, command)
}

/// A query as it is sent.
pub(crate) fn query(query: &impl Serialize) -> Result<Bytes, TypedError> {
    request(QUERY, query)
}

fn request(tag: u8, value: &impl Serialize) -> Result<Bytes, TypedError> {
    let mut request = vec![tag];
    append(value, &mut request).map_err(|error| TypedError::NotEncoded(error.to_string()))?;
    Ok(request.into())
}

/// What a client sent.
pub(crate) enum Asked<M: Machine> {
    Command(M::Command),
    Query(M::Query),
}

/// The command or query that these bytes are, if the machine knows it.
pub(crate) fn asked<M: Machine>(sent: &[u8]) -> Option<Asked<M>> {
    match sent.split_first()? {
        (&COMMAND, encoded) => decode(encoded).map(Asked::Command),
        (&QUERY, encoded) => decode(encoded).map(Asked::Query),
        _ => None,
    }
}

/// Appends the answer of a machine.
pub(super) fn append_answer(answer: &impl Serialize, out: &mut Vec<u8>) {
    let before = out.len();
    out.push(ANSWER);
    if append(answer, out).is_err() {
        out.truncate(before);
        out.push(NOT_ENCODED);
    }
}

/// Appends the answer to what is no command or query of the machine.
pub(super) fn append_not_understood(out: &mut Vec<u8>) {
    out.push(NOT_UNDERSTOOD);
}

/// What a client makes of an answer.
pub(super) fn answered<T: DeserializeOwned>(answer: &[u8]) -> Result<T, TypedError> {
    match answer.split_first() {
        Some((&ANSWER, encoded)) => decode(encoded).ok_or(TypedError::OtherAnswer),
        Some((&NOT_UNDERSTOOD, [])) => Err(TypedError::NotUnderstood),
        Some((&NOT_ENCODED, [])) => Err(TypedError::AnswerNotEncoded),
        _ => Err(TypedError::OtherAnswer),
    }
}
