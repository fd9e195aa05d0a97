//! Which keys a command touches: named by their buckets, as the version of a missing key depends on
//! what was created in its bucket.

use super::command::{Expiry, Op};
use super::decoded::Decoded;
use super::hash;
use super::shard;
use ionian_kernel::machine::Footprint;

pub(super) fn of_compound(compound: &Decoded, footprint: &mut Footprint) {
    match compound {
        Decoded::Pipeline(commands) => {
            commands
                .as_slice()
                .iter()
                .for_each(|op| of_command(op, footprint));
        }
        Decoded::Transaction { watched, commands } => {
            footprint
                .reads
                .extend(watched.iter().map(|(key, _)| bucket(key)));
            commands.iter().for_each(|op| of_command(op, footprint));
        }
        Decoded::Versions(keys) => reads(footprint, keys),
        // All commands depend on the users: they are refused if the users have changed. Those that
        // write depend on the room that was measured last, which depends on all keys.
        Decoded::SetUser { .. }
        | Decoded::DeleteUsers(_)
        | Decoded::Users { .. }
        | Decoded::SetLimit(_)
        | Decoded::Measure
        | Decoded::Room => {
            footprint.everything = true;
        }
    }
}

/// A key that is written is named as written only: this conflicts with whatever reading it does.
fn of_command(op: &Op<&[u8]>, footprint: &mut Footprint) {
    footprint.timed |= is_timed(op);
    match op {
        Op::Fail(_) => {}
        Op::Get(key)
        | Op::StrLen(key)
        | Op::GetRange { key, .. }
        | Op::Ttl { key, .. }
        | Op::Type(key)
        | Op::Object { key, .. } => footprint.reads.push(bucket(key)),
        Op::MGet(keys) | Op::Exists(keys) => reads(footprint, keys),
        Op::StreamRead(ask) => {
            footprint.reads.extend(ask.keys().map(|key| bucket(key)));
        }
        Op::StreamWrite(deed) => footprint.writes.push(bucket(deed.key())),
        Op::DbSize
        | Op::Expiring
        | Op::Keys(_)
        | Op::Scan { .. }
        | Op::RandomKey
        | Op::FlushAll => footprint.everything = true,
        Op::Set { key, .. }
        | Op::GetDel(key)
        | Op::GetEx { key, .. }
        | Op::IncrBy { key, .. }
        | Op::IncrByFloat { key, .. }
        | Op::Append { key, .. }
        | Op::SetRange { key, .. }
        | Op::Expire { key, .. }
        | Op::Persist(key) => footprint.writes.push(bucket(key)),
        Op::Del(keys) => footprint.writes.extend(keys.iter().map(|key| bucket(key))),
        Op::MSet(pairs) | Op::MSetNx(pairs) => {
            footprint
                .writes
                .extend(pairs.iter().map(|(key, _)| bucket(key)));
        }
        Op::Rename { from, to, .. } => footprint.writes.extend([bucket(from), bucket(to)]),
        Op::Copy { from, to, .. } => {
            footprint.reads.push(bucket(from));
            footprint.writes.push(bucket(to));
        }
    }
}

/// Whether it says how long a key lives, or asks; or gives an entry of a stream its time.
fn is_timed(op: &Op<&[u8]>) -> bool {
    match op {
        Op::Set { expiry, .. } => matches!(expiry, Expiry::At(_)),
        Op::GetEx { .. } | Op::Expire { .. } | Op::Ttl { .. } => true,
        Op::StreamWrite(deed) => deed.is_timed(),
        _ => false,
    }
}

fn bucket(key: &[u8]) -> u64 {
    shard::bucket(hash::position(key))
}

fn reads(footprint: &mut Footprint, keys: &[&[u8]]) {
    footprint.reads.extend(keys.iter().map(|key| bucket(key)));
}
