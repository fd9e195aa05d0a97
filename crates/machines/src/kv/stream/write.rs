//! The commands that change streams.

use super::super::MAX_REPLY_BYTES;
use super::super::reply;
use super::super::shard::Key;
use super::super::store::Store;
use super::{Deed, Id, Item, NewId, STREAM_IN_REPLY, Stream, Trim, entries};

/// The text of an error reply, nothing else having been answered.
type Executed = Result<(), &'static str>;

const NOT_GREATER: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";
const EXHAUSTED: &str =
    "ERR The stream has exhausted the last possible ID, unable to add more items";
const TOO_LARGE: &str = "ERR Elements are too large to be stored";

/// Executes a command that is a write.
pub(in super::super) fn execute(
    store: &mut Store,
    now: u64,
    deed: &Deed<&[u8]>,
    out: &mut Vec<u8>,
) {
    let key = Key::new(deed.key());
    let result = match deed {
        Deed::Add {
            create,
            id,
            trim,
            words,
            ..
        } => match *create || store.contains(key, now) {
            true => add(store, now, key, (*id, *trim), words, out),
            false => {
                reply::null(out);
                Ok(())
            }
        },
        Deed::Trim { trim, .. } => {
            let excess = find(store, now, key).map(|it| it.map_or(0, |it| it.excess(*trim)));
            excess.map(|excess| {
                if excess > 0 {
                    store.edit_stream(key, now, |it| it.entries.remove_first(excess as usize));
                }
                reply::integer(out, excess as i64);
            })
        }
        Deed::Delete { ids, .. } => delete(store, now, key, ids, out),
        Deed::SetId {
            id,
            added,
            max_deleted,
            ..
        } => set_id(store, now, key, (*id, *added, *max_deleted), out),
    };
    if let Err(text) = result {
        reply::error(out, text.as_bytes());
    }
}

fn find<'a>(store: &'a Store, now: u64, key: Key) -> Result<Option<&'a Stream>, &'static str> {
    let entry = store.get(key, now);
    entry.map(|entry| entry.stream()).transpose()
}

fn add(
    store: &mut Store,
    now: u64,
    key: Key,
    (id, trim): (NewId, Option<Trim>),
    words: &[&[u8]],
    out: &mut Vec<u8>,
) -> Executed {
    let empty = Stream::default();
    let stream = find(store, now, key)?.unwrap_or(&empty);
    if stream.last == Id::MAX {
        return Err(EXHAUSTED);
    }
    let id = stream.next_id(id, now).ok_or(NOT_GREATER)?;
    let item = Item::new(id, &entries::body(words));
    // Otherwise no client could ever read it.
    if item.bytes_in_reply() + key.bytes.len() + STREAM_IN_REPLY > MAX_REPLY_BYTES {
        return Err(TOO_LARGE);
    }
    store.edit_stream(key, now, |stream| {
        stream.entries.push(item);
        stream.last = id;
        stream.added = stream.added.saturating_add(1);
        if let Some(trim) = trim {
            stream.entries.remove_first(stream.excess(trim) as usize);
        }
    });
    reply::bulk(out, id.to_string().as_bytes());
    Ok(())
}

fn delete(store: &mut Store, now: u64, key: Key, ids: &[Id], out: &mut Vec<u8>) -> Executed {
    let stream = find(store, now, key)?;
    let is_there = |id: &&Id| {
        let first = stream.and_then(|stream| stream.from(**id).next());
        first.is_some_and(|item| item.id == **id)
    };
    let some: Vec<Id> = ids.iter().filter(is_there).copied().collect();
    let mut count = 0;
    if !some.is_empty() {
        store.edit_stream(key, now, |stream| {
            // An ID may be named twice.
            for id in some {
                count += i64::from(stream.entries.remove(id));
                stream.max_deleted = stream.max_deleted.max(id);
            }
        });
    }
    reply::integer(out, count);
    Ok(())
}

fn set_id(
    store: &mut Store,
    now: u64,
    key: Key,
    (id, added, max_deleted): (Id, Option<u64>, Option<Id>),
    out: &mut Vec<u8>,
) -> Executed {
    let stream = find(store, now, key)?.ok_or(reply::NO_SUCH_KEY)?;
    if let Some(last) = stream.entries.last() {
        if id < last.id {
            return Err(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            );
        }
        if added.is_some_and(|added| added < stream.len() as u64) {
            return Err(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            );
        }
    }
    store.edit_stream(key, now, |stream| {
        stream.last = id;
        stream.added = added.unwrap_or(stream.added);
        if let Some(max_deleted) = max_deleted.filter(|id| *id != Id::MIN) {
            stream.max_deleted = max_deleted;
        }
    });
    reply::ok(out);
    Ok(())
}
