//! The commands that change state.

use super::command::{Condition, Expiry, MAX_VALUE_LEN, Only, Op, SetForm, When};
use super::entry::Entry;
use super::long_double::{self, LongDouble, Parsed};
use super::number;
use super::reply;
use super::shard::Key;
use super::store::Store;
use super::stream;

/// Executes a command that is a write. A read is never given to it.
pub(super) fn execute(store: &mut Store, now: u64, op: &Op<&[u8]>, out: &mut Vec<u8>) {
    let result = match op {
        Op::Set { .. } => set(store, now, op, out),
        Op::MSet(pairs) => {
            pairs
                .iter()
                .for_each(|(key, value)| store.set(Key::new(key), value, None, now));
            reply::ok(out);
            Ok(())
        }
        Op::MSetNx(pairs) => {
            let free = pairs
                .iter()
                .all(|(key, _)| !store.contains(Key::new(key), now));
            if free {
                pairs
                    .iter()
                    .for_each(|(key, value)| store.set(Key::new(key), value, None, now));
            }
            integer(out, i64::from(free))
        }
        Op::GetDel(key) => get_del(store, now, Key::new(key), out),
        Op::GetEx { key, expiry } => get_ex(store, now, Key::new(key), *expiry, out),
        Op::Del(keys) => {
            let mut remove = |key: &&&[u8]| store.remove(Key::new(key), now).is_some();
            let count = keys.iter().filter(|key| remove(key)).count();
            integer(out, count as i64)
        }
        Op::IncrBy { key, by } => incr_by(store, now, Key::new(key), *by, out),
        Op::IncrByFloat { key, by } => incr_by_float(store, now, Key::new(key), *by, out),
        Op::Append { key, value } => append(store, now, Key::new(key), value, out),
        Op::SetRange { key, offset, value } => {
            set_range(store, now, Key::new(key), *offset, value, out)
        }
        Op::Expire { key, when, only } => expire(store, now, Key::new(key), *when, *only, out),
        Op::Persist(key) => {
            let key = Key::new(key);
            let had_one = store
                .get(key, now)
                .is_some_and(|entry| entry.deadline().is_some());
            if had_one {
                store.set_deadline(key, None, now);
            }
            integer(out, i64::from(had_one))
        }
        Op::Rename { from, to, only_new } => rename(store, now, from, to, *only_new, out),
        Op::Copy { from, to, replace } => copy(store, now, from, to, *replace, out),
        Op::FlushAll => {
            store.clear();
            reply::ok(out);
            Ok(())
        }
        Op::StreamWrite(deed) => {
            stream::write::execute(store, now, deed, out);
            Ok(())
        }
        _ => {
            debug_assert!(false, "a read was given to be executed as a write");
            Ok(())
        }
    };
    if let Err(text) = result {
        reply::error(out, text.as_bytes());
    }
}

/// The text of an error reply, nothing else having been answered.
type Executed = Result<(), std::borrow::Cow<'static, str>>;

fn integer(out: &mut Vec<u8>, value: i64) -> Executed {
    reply::integer(out, value);
    Ok(())
}

/// The value of a key that must be a string, if it is there.
fn string<'a>(
    store: &'a Store,
    now: u64,
    key: Key,
) -> Result<Option<&'a [u8]>, std::borrow::Cow<'static, str>> {
    let entry = store.get(key, now);
    Ok(entry.map(Entry::string).transpose()?)
}

fn get_del(store: &mut Store, now: u64, key: Key, out: &mut Vec<u8>) -> Executed {
    reply::bulk_or_null(out, string(store, now, key)?);
    store.remove(key, now);
    Ok(())
}

/// The deadline that a client gave to SET or GETEX.
fn positive(when: When, now: u64, command: &str) -> Result<u64, String> {
    let deadline = when.deadline(now).filter(|_| when.is_possible());
    let deadline = deadline.and_then(|deadline| u64::try_from(deadline).ok());
    deadline.ok_or_else(|| reply::invalid_expire(command))
}

fn set(store: &mut Store, now: u64, op: &Op<&[u8]>, out: &mut Vec<u8>) -> Executed {
    let Op::Set {
        key,
        value,
        form,
        condition,
        expiry,
    } = op
    else {
        return Ok(());
    };
    let name = match form {
        SetForm::SetEx => "setex",
        SetForm::PSetEx => "psetex",
        SetForm::Set | SetForm::SetGet | SetForm::SetNx => "set",
    };
    let key = Key::new(key);
    let deadline = match expiry {
        Expiry::At(when) => Some(positive(*when, now, name)?),
        Expiry::Clear | Expiry::Keep | Expiry::NotANumber => None,
    };
    // A plain SET looks for its key only once, when it writes.
    let is_plain = !matches!(form, SetForm::SetGet)
        && matches!(condition, Condition::Always)
        && !matches!(expiry, Expiry::Keep);
    let old = if is_plain { None } else { store.get(key, now) };
    let deadline = match expiry {
        Expiry::Keep => old.and_then(Entry::deadline),
        Expiry::Clear | Expiry::At(_) | Expiry::NotANumber => deadline,
    };
    let allowed = match condition {
        Condition::Always => true,
        Condition::IfMissing => old.is_none(),
        Condition::IfPresent => old.is_some(),
    };
    match form {
        SetForm::SetGet => reply::bulk_or_null(out, old.map(Entry::string).transpose()?),
        SetForm::SetNx => reply::integer(out, i64::from(allowed)),
        _ if allowed => reply::ok(out),
        _ => reply::null(out),
    }
    if !allowed {
        return Ok(());
    }
    if deadline.is_some_and(|deadline| deadline <= now) {
        // EXAT in the past: the value would never be seen.
        if store.remove(key, now).is_none() {
            store.come_and_go(key);
        }
    } else {
        store.set(key, value, deadline, now);
    }
    Ok(())
}

fn get_ex(store: &mut Store, now: u64, key: Key, expiry: Expiry, out: &mut Vec<u8>) -> Executed {
    let Some(entry) = store.get(key, now) else {
        reply::null(out);
        return Ok(());
    };
    let value = entry.string()?;
    let deadline = match expiry {
        Expiry::At(when) => Some(positive(when, now, "getex")?),
        Expiry::NotANumber => return Err(reply::NOT_AN_INTEGER.into()),
        Expiry::Clear => None,
        Expiry::Keep => entry.deadline(),
    };
    reply::bulk(out, value);
    match expiry {
        Expiry::At(_) if deadline.is_some_and(|deadline| deadline <= now) => {
            store.remove(key, now);
        }
        Expiry::At(_) => store.set_deadline(key, deadline, now),
        Expiry::Clear if entry.deadline().is_some() => store.set_deadline(key, None, now),
        Expiry::Clear | Expiry::Keep | Expiry::NotANumber => {}
    }
    Ok(())
}

fn incr_by(store: &mut Store, now: u64, key: Key, by: i64, out: &mut Vec<u8>) -> Executed {
    let old = store.get(key, now);
    let deadline = old.and_then(Entry::deadline);
    let value = string(store, now, key)?.map_or(Some(0), number::integer);
    let value = value.ok_or(reply::NOT_AN_INTEGER)?;
    let sum = value.checked_add(by).ok_or(reply::OVERFLOW)?;
    store.set(key, sum.to_string().as_bytes(), deadline, now);
    integer(out, sum)
}

fn incr_by_float(
    store: &mut Store,
    now: u64,
    key: Key,
    by: Option<LongDouble>,
    out: &mut Vec<u8>,
) -> Executed {
    let old = store.get(key, now);
    let deadline = old.and_then(Entry::deadline);
    let text = string(store, now, key)?.unwrap_or(b"0");
    let value = match long_double::parse(text) {
        Parsed::Finite(value) => value,
        Parsed::Infinite => return Err(reply::NOT_FINITE.into()),
        Parsed::Invalid => return Err(reply::WRONG_FLOAT.into()),
    };
    let text = by
        .and_then(|by| value.add(by))
        .ok_or(reply::NOT_FINITE)?
        .text();
    store.set(key, text.as_bytes(), deadline, now);
    reply::bulk(out, text.as_bytes());
    Ok(())
}

fn append(store: &mut Store, now: u64, key: Key, value: &[u8], out: &mut Vec<u8>) -> Executed {
    let len = string(store, now, key)?.map_or(0, <[u8]>::len);
    if len + value.len() > MAX_VALUE_LEN {
        return Err(reply::TOO_LONG.into());
    }
    store.edit(key, len, value, now);
    integer(out, (len + value.len()) as i64)
}

fn set_range(
    store: &mut Store,
    now: u64,
    key: Key,
    offset: u64,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Executed {
    let len = string(store, now, key)?.map_or(0, <[u8]>::len);
    if value.is_empty() {
        return integer(out, len as i64);
    }
    if offset.saturating_add(value.len() as u64) > MAX_VALUE_LEN as u64 {
        return Err(reply::TOO_LONG.into());
    }
    let offset = offset as usize;
    store.edit(key, offset, value, now);
    integer(out, len.max(offset + value.len()) as i64)
}

fn expire(
    store: &mut Store,
    now: u64,
    key: Key,
    when: When,
    only: Only,
    out: &mut Vec<u8>,
) -> Executed {
    let name = match (when.seconds, when.relative) {
        (true, true) => "expire",
        (false, true) => "pexpire",
        (true, false) => "expireat",
        (false, false) => "pexpireat",
    };
    let deadline = when
        .deadline(now)
        .ok_or_else(|| reply::invalid_expire(name))?;
    let Some(entry) = store.get(key, now) else {
        return integer(out, 0);
    };
    let old = entry.deadline().map(|old| old as i64);
    // A key without a deadline lives longer than any other.
    let refused = only.missing && old.is_some()
        || only.present && old.is_none()
        || only.greater && old.is_none_or(|old| deadline <= old)
        || only.less && old.is_some_and(|old| deadline >= old);
    if refused {
        return integer(out, 0);
    }
    match u64::try_from(deadline) {
        Ok(deadline) if deadline > now => store.set_deadline(key, Some(deadline), now),
        _ => drop(store.remove(key, now)),
    }
    integer(out, 1)
}

fn rename(
    store: &mut Store,
    now: u64,
    from: &[u8],
    to: &[u8],
    only_new: bool,
    out: &mut Vec<u8>,
) -> Executed {
    let (source, target) = (Key::new(from), Key::new(to));
    if !store.contains(source, now) {
        return Err(reply::NO_SUCH_KEY.into());
    }
    let moves = from != to && !(only_new && store.contains(target, now));
    if moves && let Some(entry) = store.remove(source, now) {
        put(store, now, target, &entry);
    }
    match only_new {
        true => reply::integer(out, i64::from(moves)),
        false => reply::ok(out),
    }
    Ok(())
}

fn copy(
    store: &mut Store,
    now: u64,
    from: &[u8],
    to: &[u8],
    replace: bool,
    out: &mut Vec<u8>,
) -> Executed {
    let target = Key::new(to);
    let Some(entry) = store.get(Key::new(from), now) else {
        return integer(out, 0);
    };
    if !replace && store.contains(target, now) {
        return integer(out, 0);
    }
    // The copy shares the entries, but in a snapshot, and in what is restored from it, it has its
    // own.
    if entry
        .stream()
        .is_ok_and(|it| it.bytes() > MAX_VALUE_LEN as u64)
    {
        return Err("ERR the stream is larger than 64 MiB, the most that COPY copies".into());
    }
    let entry = entry.clone();
    put(store, now, target, &entry);
    integer(out, 1)
}

/// Gives a key the value and the deadline of another one.
fn put(store: &mut Store, now: u64, target: Key, entry: &Entry) {
    match (entry.stream(), entry.string()) {
        // The entries of the stream are shared, not copied.
        (Ok(stream), _) => store.set_stream(target, stream.clone(), entry.deadline(), now),
        (_, Ok(value)) => store.set(target, value, entry.deadline(), now),
        (Err(_), Err(_)) => unreachable!("an entry is a string or a stream"),
    }
}
