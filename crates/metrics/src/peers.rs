//! The metrics of the connections to other nodes.

use crate::definition::Kind::{Counter, Gauge};
use crate::definition::{Definition, Samples, metric};
use crate::view::View;
use ionian_runtime::status::{PeerState, PeerStatus};
use std::borrow::Cow;

/// Adds a sample for each peer.
fn each(view: &View<'_>, out: &mut Samples, read: impl Fn(&PeerStatus) -> u64) {
    for (name, peer) in peers(view) {
        out.with([name], read(peer));
    }
}

/// The peers with their names. One that was never connected is known by its number.
fn peers<'a>(view: &'a View<'_>) -> impl Iterator<Item = (Cow<'static, str>, &'a PeerStatus)> {
    let published = view.published.iter();
    published.flat_map(|published| {
        let nodes = published
            .configuration
            .as_ref()
            .map(|known| known.nodes())
            .unwrap_or_default();
        published.status.peers.iter().map(move |peer| {
            let member = nodes.get(&ionian_kernel::layout::NodeId(peer.node));
            let name = member.map(|member| member.name.clone());
            let name = name.or_else(|| peer.name.clone());
            (name.unwrap_or_else(|| peer.node.to_string()).into(), peer)
        })
    })
}

pub(crate) const PEERS: &[Definition] = &[
    metric(
        Gauge,
        "ionian_peer_connected",
        &["peer"],
        "1 while the other node is connected",
        |view, out| each(view, out, |it| u64::from(it.state == PeerState::Connected)),
    ),
    metric(
        Gauge,
        "ionian_peer_refused",
        &["peer"],
        "1 while the other node refuses this one",
        |view, out| each(view, out, |it| u64::from(it.state == PeerState::Refused)),
    ),
    metric(
        Counter,
        "ionian_peer_connections",
        &["peer"],
        "how often the other node was connected",
        |view, out| each(view, out, |it| it.connections),
    ),
    metric(
        Counter,
        "ionian_peer_bytes",
        &["peer", "direction"],
        "bytes received from and sent to the other node",
        |view, out| {
            for (name, peer) in peers(view) {
                out.with([name.clone(), "in".into()], peer.bytes_in);
                out.with([name, "out".into()], peer.bytes_out);
            }
        },
    ),
    metric(
        Counter,
        "ionian_peer_writes",
        &["peer"],
        "write calls; frames divided by this: how well messages are coalesced",
        |view, out| each(view, out, |it| it.writes),
    ),
    metric(
        Counter,
        "ionian_peer_frames",
        &["peer"],
        "messages queued for the other node",
        |view, out| each(view, out, |it| it.frames_out),
    ),
    metric(
        Counter,
        "ionian_peer_dropped",
        &["peer"],
        "messages dropped because the other node was not connected or too many bytes waited",
        |view, out| each(view, out, |it| it.dropped),
    ),
    metric(
        Counter,
        "ionian_peer_malformed",
        &["peer"],
        "connections that were closed because the other node has sent what is no message",
        |view, out| each(view, out, |it| it.malformed),
    ),
    metric(
        Gauge,
        "ionian_peer_backlog_bytes",
        &["peer"],
        "bytes that wait to be sent",
        |view, out| each(view, out, |it| it.backlog_bytes),
    ),
];
