//! CLIENT TRACKING: what a client that caches receives.
//!
//! A gateway does not see what clients of other gateways write, so it cannot tell a client later
//! that a key has changed. It may tell it at any time, though: Redis forgets keys when its table is
//! full, and says so. Here each key is forgotten as soon as the reply that has its value was sent.
//! A client that caches is then always right, and has no gain from it.

use crate::host::Client;
use crate::reply::Context;
use bytes::Bytes;
use ionian_machines::kv;

/// The keys that a command reads, if its client tracks them.
pub(crate) fn keys(client: &Client, words: &[Bytes]) -> Vec<Bytes> {
    let info =
        kv::command_info(words).filter(|info| client.tracks() && info.flags.contains(&"readonly"));
    if info.is_some_and(|info| info.flags.contains(&"movablekeys")) {
        let keys = kv::Command::parse(words).map_or_else(|_| Vec::new(), |it| it.read_keys());
        return keys.iter().map(|key| Bytes::copy_from_slice(key)).collect();
    }
    let Some(info) = info.filter(|info| info.first_key > 0) else {
        return Vec::new();
    };
    let last = if info.last_key < 0 {
        words.len() as i64 + i64::from(info.last_key)
    } else {
        i64::from(info.last_key)
    };
    let places =
        (info.first_key as usize..=last.max(0) as usize).step_by(info.step.max(1) as usize);
    // Copied, because they outlive the input.
    places
        .filter_map(|place| words.get(place))
        .map(|key| Bytes::copy_from_slice(key))
        .collect()
}

/// Sends the client an invalidation of the keys.
pub(crate) fn invalidate(keys: &[Bytes], context: &mut Context<'_>) {
    if keys.is_empty() || !context.client.resp3.get() {
        return;
    }
    context.push(2);
    context.bulk("invalidate");
    context.array(keys.len());
    keys.iter().for_each(|key| context.bulk(key));
}
