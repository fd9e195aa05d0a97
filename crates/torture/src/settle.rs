//! When the faults are over: everything that was acknowledged must be found, everywhere.

use crate::client::Load;
use crate::gateway::Gateway;
use crate::judge::{Expected, Violation};
use crate::keys::{Ended, Ticket, kind, name};
use crate::model::{Answer, read};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use ionian_redis_client::bulk;
use ionian_runtime::{Contact, query_snapshot, query_status};
use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How long a cluster whose nodes all run may take to serve, and its replicas to be level.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long one answer may take: longer than any gateway lets a client wait.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Reads that are sent at once.
const PIPELINE: usize = 256;

/// A key that no client uses.
const PROBE: &[u8] = b"probe";

/// Tries until it succeeds; the last error when it does not within [`PATIENCE`].
pub(crate) async fn eventually<T, F: Future<Output = Result<T>>>(
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match timeout(ANSWER_LIMIT, attempt()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error,
            Err(late) => late.into(),
        };
        if Instant::now() > deadline {
            return Err(error.context(format!("not within {} s: {what}", PATIENCE.as_secs())));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until every gateway takes writes; returns how long that took.
pub(crate) async fn serving(gateways: &[Gateway]) -> Result<Duration> {
    let begun = Instant::now();
    for gateway in gateways {
        let write = || async {
            let mut connection = gateway.open().await?;
            Ok(connection.call_ok(&[b"SET", PROBE, b"1"]).await?)
        };
        eventually(&format!("the gateway at {gateway} takes a write"), write).await?;
    }
    Ok(begun.elapsed())
}

/// Closes the histories of all keys that are still in use. Clients must have stopped.
pub(crate) async fn close_keys(load: &Load, gateways: &[Gateway]) -> Result<()> {
    let tickets: Vec<Ticket> = load.keys.borrow_mut().close_all();
    let ids: Vec<u64> = tickets.iter().map(|ticket| ticket.key).collect();
    let values = read_all(&gateways[0], Level::Linearizable, &ids).await?;
    for (ticket, value) in tickets.iter().zip(values) {
        let state = read(ticket.kind, value.as_deref());
        // What makes no sense is found by the judge, from the bytes.
        let answer = Answer::Holds(state.unwrap_or_default());
        load.complete(ticket, Ended::Answered(answer), value.as_deref());
    }
    Ok(())
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Linearizable,
    /// Of the gateway's own replica, where it has one.
    Eventual,
}

impl Level {
    fn word(self) -> &'static [u8] {
        match self {
            Level::Linearizable => b"linearizable",
            Level::Eventual => b"eventual",
        }
    }
}

/// What these keys hold.
async fn read_all(gateway: &Gateway, level: Level, ids: &[u64]) -> Result<Vec<Option<Bytes>>> {
    let mut values = Vec::with_capacity(ids.len());
    for some in ids.chunks(PIPELINE) {
        let what = format!("the gateway at {gateway} answers {} reads", some.len());
        values.extend(eventually(&what, || read_some(gateway, level, some)).await?);
    }
    Ok(values)
}

async fn read_some(gateway: &Gateway, level: Level, ids: &[u64]) -> Result<Vec<Option<Bytes>>> {
    let mut connection = gateway.open().await?;
    connection
        .call(&[b"IONIAN", b"CONSISTENCY", level.word()])
        .await?;
    ids.iter()
        .for_each(|id| connection.push(&[b"GET", name(*id).as_bytes()]));
    connection.flush().await?;
    let mut values = Vec::with_capacity(ids.len());
    for _ in ids {
        values.push(bulk(connection.reply().await?)?);
    }
    Ok(values)
}

/// Compares what every key holds with what it must, and what every replica holds with the others.
/// Returns what is wrong, and how many views of the store were compared.
pub(crate) async fn compare(
    mut expected: Vec<Expected>,
    moment: u64,
    gateways: &[Gateway],
    nodes: &[Contact],
) -> Result<(Vec<Violation>, usize)> {
    let mut violations = Vec::new();
    expected.sort_by_key(Expected::id);
    let ids: Vec<u64> = expected.iter().map(Expected::id).collect();
    let values = read_all(&gateways[0], Level::Linearizable, &ids).await?;
    for (expected, value) in expected.into_iter().zip(&values) {
        let kind = kind(expected.id());
        violations.extend(expected.compare(kind, value.as_deref(), moment).err());
    }
    let replicas = eventually("all replicas have executed the same", || {
        level_replicas(nodes)
    })
    .await?;
    for gateway in gateways {
        violations.extend(compare_view(gateway, &ids, &values).await?);
    }
    Ok((violations, replicas))
}

/// Takes a snapshot of every replica and makes sure that they are of the same slot and the same
/// bytes: machine, sessions and time. Returns how many there are.
async fn level_replicas(nodes: &[Contact]) -> Result<usize> {
    let mut slots = BTreeMap::new();
    let mut digests = BTreeMap::new();
    for node in nodes {
        let status = query_status(node.clone(), ANSWER_LIMIT)
            .await
            .with_context(|| node.address.to_string())?;
        if status.roles.iter().any(|role| role.executed.is_some()) {
            let (slot, digest) = snapshot_of(node).await?;
            slots.insert(status.name.clone(), slot);
            digests.insert(status.name, digest);
        }
    }
    let same = |figures: &BTreeMap<String, u64>| {
        figures
            .values()
            .all(|value| Some(value) == figures.values().next())
    };
    ensure!(
        same(&slots),
        "the replicas differ in how many slots they have executed: {slots:?}"
    );
    ensure!(
        same(&digests),
        "the replicas have executed the same and hold something else: {digests:x?}"
    );
    Ok(slots.len())
}

/// The slot before which a node's replica is, and a hash of its whole state.
async fn snapshot_of(node: &Contact) -> Result<(u64, u64)> {
    let mut snapshot = query_snapshot(node.clone(), Some(0))
        .await
        .with_context(|| node.address.to_string())?;
    let mut hasher = DefaultHasher::new();
    while let Some(piece) = snapshot.next().await? {
        hasher.write(&piece);
    }
    Ok((snapshot.stamp(), hasher.finish()))
}

/// Reads every key from the gateway's own replica. It may be behind for a moment: what differs is
/// looked at until it does not.
async fn compare_view(
    gateway: &Gateway,
    ids: &[u64],
    values: &[Option<Bytes>],
) -> Result<Vec<Violation>> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    let mut differing: Vec<(u64, &Option<Bytes>)> = ids.iter().copied().zip(values).collect();
    loop {
        let ids: Vec<u64> = differing.iter().map(|(id, _)| *id).collect();
        let found = read_all(gateway, Level::Eventual, &ids).await?;
        let mut found = found.into_iter();
        let mut wrong = Vec::new();
        differing.retain(|(id, value)| {
            let found = found.next().expect("one for each key");
            if found != **value {
                wrong.push((*id, found));
            }
            wrong.last().is_some_and(|(last, _)| last == id)
        });
        if wrong.is_empty() || Instant::now() > deadline {
            let told = wrong
                .into_iter()
                .zip(&differing)
                .map(|((id, found), (_, value))| Violation {
                    key: name(id),
                    what: format!(
                        "the replica behind {gateway} holds {found:?}, and the cluster {value:?}"
                    ),
                    history: String::new(),
                });
            return Ok(told.collect());
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until every client has ended.
pub(crate) async fn clients_end<T: 'static>(clients: tokio::task::JoinSet<T>) -> Result<Vec<T>> {
    timeout(PATIENCE, clients.join_all())
        .await
        .context("a client does not end")
}
