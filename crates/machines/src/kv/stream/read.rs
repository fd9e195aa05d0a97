//! The commands on streams that leave the state as it is.

use super::super::MAX_REPLY_BYTES;
use super::super::reply;
use super::super::shard::Key;
use super::super::store::Store;
use super::super::work;
use super::{After, Ask, Id, Item, STREAM_IN_REPLY, Stream};

/// The text of an error reply, nothing else having been answered.
type Answered = Result<(), &'static str>;

/// Answers a command that is a read.
pub(in super::super) fn answer(store: &Store, now: u64, ask: &Ask<&[u8]>, out: &mut Vec<u8>) {
    let result = match ask {
        Ask::Len(key) => find(store, now, key).map(|stream| {
            reply::integer(out, stream.map_or(0, Stream::len) as i64);
        }),
        Ask::Range {
            key,
            from,
            to,
            count,
            reverse,
        } => range(store, now, key, (*from, *to), *count, *reverse, out),
        Ask::Read {
            streams,
            count,
            block,
            maps,
        } => read(store, now, streams, *count, (*block, *maps), out),
        Ask::Info { key, maps } => info(store, now, key, *maps, out),
        Ask::Tails(keys) => {
            reply::array(out, keys.len());
            for key in keys {
                // What is no stream has no entries to wait for.
                let stream = find(store, now, key).ok().flatten();
                id(out, stream.map_or(Id::MIN, last));
            }
            Ok(())
        }
    };
    if let Err(text) = result {
        reply::error(out, text.as_bytes());
    }
}

fn find<'a>(store: &'a Store, now: u64, key: &[u8]) -> Result<Option<&'a Stream>, &'static str> {
    let entry = store.get(Key::new(key), now);
    entry.map(|entry| entry.stream()).transpose()
}

/// The ID of the last entry that is there.
fn last(stream: &Stream) -> Id {
    stream.entries.last().map_or(Id::MIN, |item| item.id)
}

fn id(out: &mut Vec<u8>, id: Id) {
    reply::bulk(out, id.to_string().as_bytes());
}

fn entry(out: &mut Vec<u8>, item: &Item) {
    reply::array(out, 2);
    id(out, item.id);
    reply::array(out, item.count());
    item.words().for_each(|word| reply::bulk(out, word));
}

/// Takes entries as long as their replies have room; an error if one has not.
fn take<'a>(
    items: impl Iterator<Item = &'a Item>,
    room: &mut usize,
) -> Result<Vec<&'a Item>, &'static str> {
    let mut taken = Vec::new();
    for item in items {
        work::count(1);
        let left = room.checked_sub(item.bytes_in_reply());
        *room = left.ok_or(reply::TOO_LARGE)?;
        taken.push(item);
    }
    Ok(taken)
}

/// Takes the first entries, those whose replies have room.
fn take_some<'a>(items: impl Iterator<Item = &'a Item>, room: &mut usize) -> Vec<&'a Item> {
    let has_room = |item: &&Item| {
        work::count(1);
        let left = room.checked_sub(item.bytes_in_reply());
        *room = left.unwrap_or(*room);
        left.is_some()
    };
    items.take_while(has_room).collect()
}

fn range(
    store: &Store,
    now: u64,
    key: &[u8],
    (from, to): (Id, Id),
    count: Option<u64>,
    reverse: bool,
    out: &mut Vec<u8>,
) -> Answered {
    let Some(stream) = find(store, now, key)? else {
        reply::array(out, 0);
        return Ok(());
    };
    if count == Some(0) {
        reply::null_array(out);
        return Ok(());
    }
    let (mut room, limit) = (MAX_REPLY_BYTES, limit(count.unwrap_or(0)));
    let items = if from > to {
        Vec::new()
    } else if reverse {
        let items = stream.entries.back_from(to);
        take(items.take_while(|it| it.id >= from).take(limit), &mut room)?
    } else {
        let items = stream.entries.from(from);
        take(items.take_while(|it| it.id <= to).take(limit), &mut room)?
    };
    reply::array(out, items.len());
    items.iter().for_each(|item| entry(out, item));
    Ok(())
}

/// How many entries a count allows; zero means all.
fn limit(count: u64) -> usize {
    match count {
        0 => usize::MAX,
        count => usize::try_from(count).unwrap_or(usize::MAX),
    }
}

fn read(
    store: &Store,
    now: u64,
    streams: &[(&[u8], After)],
    count: u64,
    (block, maps): (Option<u64>, bool),
    out: &mut Vec<u8>,
) -> Answered {
    // The type of each key matters, also where there is nothing to read.
    let mut found = Vec::with_capacity(streams.len());
    for (key, after) in streams {
        let stream = find(store, now, key)?;
        let after = match after {
            After::Id(after) => *after,
            After::Last => stream.map_or(Id::MIN, |stream| stream.last),
        };
        found.push((*key, stream, after));
    }
    let results = first_entries(&found, count)?;
    match (results.len(), block) {
        (0, None) => reply::null_array(out),
        (0, Some(_)) => {
            let ids = found.iter().map(|(_, _, after)| after.to_string());
            reply::simple(out, &ids.collect::<Vec<_>>().join(" "));
        }
        (len, _) if maps => reply::map(out, len),
        (len, _) => reply::array(out, len),
    }
    for (key, items) in results {
        if !maps {
            reply::array(out, 2);
        }
        reply::bulk(out, key);
        reply::array(out, items.len());
        items.iter().for_each(|item| entry(out, item));
    }
    Ok(())
}

/// A stream that is read, its key, and the ID after which it is read.
type Found<'a, 'k> = (&'k [u8], Option<&'a Stream>, Id);

/// The key of a stream, and its entries that are in the reply.
type Taken<'a, 'k> = (&'k [u8], Vec<&'a Item>);

/// What XREAD answers: of each stream that has entries these, as far as there is room. Beyond it a
/// client reads on with the last ID that it has got.
fn first_entries<'a, 'k>(
    found: &[Found<'a, 'k>],
    count: u64,
) -> Result<Vec<Taken<'a, 'k>>, &'static str> {
    let (mut room, mut results, mut has_entries) = (MAX_REPLY_BYTES, Vec::new(), false);
    for (key, stream, after) in found {
        let (Some(stream), Some(from)) = (stream, after.next()) else {
            continue;
        };
        let mut items = stream.entries.from(from).take(limit(count)).peekable();
        has_entries |= items.peek().is_some();
        let Some(mut left) = room.checked_sub(key.len() + STREAM_IN_REPLY) else {
            continue;
        };
        let taken = take_some(items, &mut left);
        if !taken.is_empty() {
            room = left;
            results.push((*key, taken));
        }
    }
    // XADD accepts only entries that have room, but RENAME may have made the key longer.
    match results.is_empty() && has_entries {
        true => Err(reply::TOO_LARGE),
        false => Ok(results),
    }
}

/// XINFO STREAM. The nodes of Redis's radix tree are what it would have for small entries.
fn info(store: &Store, now: u64, key: &[u8], maps: bool, out: &mut Vec<u8>) -> Answered {
    let stream = find(store, now, key)?.ok_or(reply::NO_SUCH_KEY)?;
    let (first, newest) = (stream.entries.first(), stream.entries.last());
    // Both are in the reply.
    take(first.into_iter().chain(newest), &mut { MAX_REPLY_BYTES })?;
    let nodes = (stream.len() as u64).div_ceil(super::NODE) as i64;
    match maps {
        true => reply::map(out, 10),
        false => reply::array(out, 20),
    }
    let name = |out: &mut Vec<u8>, name: &str| reply::bulk(out, name.as_bytes());
    let number = |out: &mut Vec<u8>, field: &str, value: i64| {
        name(out, field);
        reply::integer(out, value);
    };
    number(out, "length", stream.len() as i64);
    number(out, "radix-tree-keys", nodes);
    number(out, "radix-tree-nodes", nodes + 1);
    name(out, "last-generated-id");
    id(out, stream.last);
    name(out, "max-deleted-entry-id");
    id(out, stream.max_deleted);
    number(out, "entries-added", stream.added as i64);
    name(out, "recorded-first-entry-id");
    id(out, first.map_or(Id::MIN, |item| item.id));
    number(out, "groups", 0);
    for (field, item) in [("first-entry", first), ("last-entry", newest)] {
        name(out, field);
        match item {
            Some(item) => entry(out, item),
            None => reply::null(out),
        }
    }
    Ok(())
}
