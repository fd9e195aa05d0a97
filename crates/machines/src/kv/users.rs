//! The users in the state of the machine: changes of them, and what gateways learn of them.

use super::codec::{FORMAT, JUDGED};
use super::decoded::Decoded;
use super::reply;
use crate::acl::Users;
use bytes::Bytes;

/// The first byte of the reply to a compound that was judged by an earlier epoch of the users and
/// was not executed. No reply of Redis begins so.
const OUTDATED: u8 = 1;

pub(super) fn outdated(out: &mut Vec<u8>) {
    out.push(OUTDATED);
}

/// Whether the reply says that the users have changed since the compound was judged. Nothing was
/// executed then.
pub fn is_outdated(reply: &[u8]) -> bool {
    reply.first() == Some(&OUTDATED)
}

/// The encoding of the same compound, which was judged by this epoch of the users. Epochs other
/// than zero are for level 18 and later.
///
/// # Panics
/// If it is no encoding of a compound.
pub fn judged_at(epoch: u64, encoded: &[u8]) -> Bytes {
    let plain = match encoded {
        [FORMAT, JUDGED, rest @ ..] => rest.get(8..),
        [FORMAT, rest @ ..] => Some(rest),
        _ => None,
    };
    let plain = plain.expect("the encoding of a compound");
    let mut out = Vec::with_capacity(encoded.len() + 9);
    out.push(FORMAT);
    if epoch > 0 {
        out.push(JUDGED);
        out.extend_from_slice(&epoch.to_le_bytes());
    }
    out.extend_from_slice(plain);
    out.into()
}

/// What the reply to [`Compound::Users`](super::Compound::Users) says: the users, if they are not
/// those that were known.
///
/// # Errors
/// The reply, if it is malformed.
pub fn known_users(reply: &Bytes) -> Result<Option<Users>, &Bytes> {
    let mut rest = &reply[..];
    if rest.is_empty() {
        return Ok(None);
    }
    match Users::decode(&mut rest) {
        Some(users) if rest.is_empty() => Ok(Some(users)),
        _ => Err(reply),
    }
}

/// Answers nothing if the epoch is known.
pub(super) fn answer(users: &Users, known: u64, out: &mut Vec<u8>) {
    if known != users.epoch() {
        users.encode(out);
    }
}

/// Carries out a change of the users.
pub(super) fn change(users: &mut Users, compound: &Decoded, out: &mut Vec<u8>) {
    let refuse =
        |text: String, out: &mut Vec<u8>| reply::error(out, format!("ERR {text}").as_bytes());
    match compound {
        Decoded::SetUser { name, rules } => match users.set(name, rules) {
            Ok(()) => reply::ok(out),
            Err(text) => refuse(text, out),
        },
        Decoded::DeleteUsers(names) => match users.delete(names) {
            Ok(count) => reply::integer(out, count as i64),
            Err(text) => refuse(text, out),
        },
        _ => unreachable!("it changes no users"),
    }
}
