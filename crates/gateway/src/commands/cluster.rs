//! ROLE and CLUSTER: how clients find the other gateways. All gateways are equal, so each reports
//! itself as the master of the only shard and the others as its replicas. A client that loses this
//! gateway connects to another.

use super::is;
use crate::peers::Peer;
use crate::reply::Context;
use bytes::Bytes;

/// The number of slots of Redis Cluster.
const SLOTS: u16 = 16_384;

const HELP: &[&str] = &[
    "CLUSTER <subcommand> [<arg>]. Subcommands are:",
    "INFO -- Return that all slots are served.",
    "KEYSLOT <key> -- Return the hash slot of a key. It has no effect here.",
    "MYID -- Return the id of this gateway.",
    "NODES, SHARDS, SLOTS -- Return the gateways: one shard, this gateway its master, the others replicas.",
];

pub(super) fn role(context: &mut Context<'_>, _: &[Bytes]) {
    context.array(3);
    context.bulk("master");
    context.integer(0);
    context.array(0);
}

/// READONLY, READWRITE, ASKING: every gateway reads and writes all keys.
pub(super) fn any_node(context: &mut Context<'_>, _: &[Bytes]) {
    context.ok();
}

pub(super) fn cluster(context: &mut Context<'_>, words: &[Bytes]) {
    match &words[1..] {
        [sub] if is(sub, "HELP") => context.help(HELP),
        [sub] if is(sub, "INFO") => {
            let size = gateways(context).len();
            context.verbatim(&format!(
                "cluster_enabled:0\r\ncluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\n\
                 cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{size}\r\ncluster_size:1\r\n"
            ));
        }
        [sub] if is(sub, "MYID") => {
            let id = gateways(context)[0].id();
            context.bulk(id);
        }
        [sub] if is(sub, "NODES") => nodes(context),
        [sub] if is(sub, "SHARDS") => shards(context),
        [sub] if is(sub, "SLOTS") => slots(context),
        [sub, key] if is(sub, "KEYSLOT") => context.integer(i64::from(slot(key))),
        [sub, ..]
            if ["INFO", "MYID", "NODES", "SHARDS", "SLOTS", "KEYSLOT"]
                .iter()
                .any(|known| is(sub, known)) =>
        {
            let sub = String::from_utf8_lossy(sub).to_lowercase();
            context.wrong_number(format_args!("cluster|{sub}"));
        }
        [sub, ..] => context.unknown_subcommand("CLUSTER", sub),
        [] => context.wrong_number("cluster"),
    }
}

/// All gateways with their addresses, this one first.
fn gateways(context: &Context<'_>) -> Vec<Peer> {
    let reached = Peer::new("gateway", &context.client.local_address);
    let reached = reached.unwrap_or(Peer {
        name: "gateway".into(),
        host: String::new(),
        port: 0,
    });
    let mut all = context.host.gateways.borrow().clone();
    if all.is_empty() {
        all.push(reached.clone());
    }
    for peer in all.iter_mut().filter(|peer| peer.host.is_empty()) {
        peer.host.clone_from(&reached.host);
    }
    all
}

fn slots(context: &mut Context<'_>) {
    let gateways = gateways(context);
    context.array(1);
    context.array(2 + gateways.len());
    context.integer(0);
    context.integer(i64::from(SLOTS) - 1);
    for peer in &gateways {
        context.array(4);
        context.bulk(&peer.host);
        context.integer(i64::from(peer.port));
        context.bulk(peer.id());
        context.array(0);
    }
}

fn shards(context: &mut Context<'_>) {
    let gateways = gateways(context);
    context.array(1);
    context.map(2);
    context.bulk("slots");
    context.array(2);
    context.integer(0);
    context.integer(i64::from(SLOTS) - 1);
    context.bulk("nodes");
    context.array(gateways.len());
    for (i, peer) in gateways.iter().enumerate() {
        context.map(7);
        context.bulk("id");
        context.bulk(peer.id());
        context.bulk("port");
        context.integer(i64::from(peer.port));
        for (key, value) in [
            ("ip", &*peer.host),
            ("endpoint", &peer.host),
            ("role", role_of(i)),
            ("health", "online"),
        ] {
            context.bulk(key);
            context.bulk(value);
        }
        context.bulk("replication-offset");
        context.integer(0);
    }
}

fn nodes(context: &mut Context<'_>) {
    let gateways = gateways(context);
    let first = gateways[0].id();
    let mut text = String::new();
    for (i, peer) in gateways.iter().enumerate() {
        let (flags, master, slots) = match i {
            0 => ("myself,master", "-", format!(" 0-{}", SLOTS - 1)),
            _ => ("slave", &*first, String::new()),
        };
        let Peer { host, port, .. } = peer;
        text += &format!(
            "{} {host}:{port}@0 {flags} {master} 0 0 1 connected{slots}\n",
            peer.id()
        );
    }
    context.verbatim(&text);
}

fn role_of(place: usize) -> &'static str {
    if place == 0 { "master" } else { "replica" }
}

/// The slot of a key as Redis Cluster computes it: from the text in its first braces, if there is
/// any.
fn slot(key: &[u8]) -> u16 {
    let open = key.iter().position(|&byte| byte == b'{');
    let inside = open.and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter()
            .position(|&byte| byte == b'}')
            .map(|close| &rest[..close])
    });
    let hashed = inside.filter(|inside| !inside.is_empty()).unwrap_or(key);
    let crc = hashed.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc >> 15 == 1 {
                crc << 1 ^ 0x1021
            } else {
                crc << 1
            }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        for (key, expected) in [
            ("foo", 12182),
            ("123456789", 12739),
            ("{foo}bar", 12182),
            ("", 0),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(slot(b"x{user}y"), slot(b"user"));
        assert_ne!(slot(b"a{}b"), slot(b""));
    }
}
