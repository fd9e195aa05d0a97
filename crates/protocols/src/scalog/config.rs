//! Which layouts are deployments of Scalog, and what every role needs to know of its own.

use super::cut::{place_of, server_at};
use super::id::{AggregatorId, ServerId};
use super::kind;
use super::settings::{OPEN_SHARDS, SERVER_TIMEOUT_MS};
use crate::failures::failures;
use crate::multipaxos::config::Config as Ordering;
use crate::multipaxos::kind as ordering;
use crate::places::{at_least, seen_as_multipaxos};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};
use ionian_kernel::protocol::Transition;
use ionian_kernel::time::Duration;

/// A layout that was checked, with what follows from it.
#[derive(Clone, Debug)]
pub struct Config(Arc<Checked>);

/// See [`Config`].
#[derive(Debug)]
pub struct Checked {
    layout: Layout,
    /// The deployment as the roles see it that order cuts: what proposes is an aggregator.
    pub ordering: Arc<Ordering>,
    /// The deployment as client lanes see it: their commands go to servers.
    pub lanes: Arc<Ordering>,
    /// The servers of all shards.
    pub servers: Set<ServerId>,
    /// The aggregators.
    pub aggregators: Set<AggregatorId>,
}

impl Deref for Config {
    type Target = Checked;
    fn deref(&self) -> &Checked {
        &self.0
    }
}

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        check(&layout)?;
        let ordering = Ordering::new(view(&layout, kind::Aggregator))?;
        Ok(Config(Arc::new(Checked {
            ordering: Arc::new(ordering),
            lanes: Arc::new(Ordering::new(view(&layout, kind::Server))?),
            servers: layout.all(kind::Server),
            aggregators: layout.all(kind::Aggregator),
            layout,
        })))
    }

    /// Options change while a cluster runs, nothing else does.
    ///
    /// # Errors
    /// When either breaks a rule, or another change than that of options is wanted.
    pub fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        check(from)?;
        check(to)?;
        let same = from.instances == to.instances && from.quorums == to.quorums && from.f == to.f;
        match same {
            true => {
                Ordering::transition(&view(from, kind::Aggregator), &view(to, kind::Aggregator))
            }
            false => Err(LayoutError(
                "the members of a cluster of Scalog cannot be changed while it runs: save its \
                 state, and found another cluster with it"
                    .into(),
            )),
        }
    }
}

impl Checked {
    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }

    /// How many servers a shard has: f+1, so that one is left of any f that fail.
    pub fn size(&self) -> usize {
        self.layout.f + 1
    }

    /// The numbers of the shards.
    pub fn shards(&self) -> impl Iterator<Item = Index> + use<> {
        0..(self.servers.len() / self.size()) as Index
    }

    /// How many shards are to be open at a time; the others are spare.
    pub fn open_shards(&self) -> usize {
        match OPEN_SHARDS.value(self.options()) {
            0 => self.servers.len() / self.size(),
            some => some as usize,
        }
    }

    /// The servers of a shard, by their places.
    pub fn servers_of(&self, shard: Index) -> impl Iterator<Item = ServerId> + use<> {
        let size = self.size();
        (0..size).map(move |place| server_at(shard, place, size))
    }

    /// The shard of a server, and its place there.
    pub fn place_of(&self, server: ServerId) -> (Index, usize) {
        place_of(server, self.size())
    }

    /// The other servers of a server's shard.
    pub fn peers_of(&self, server: ServerId) -> Set<ServerId> {
        let (shard, _) = self.place_of(server);
        let all: Set<ServerId> = self.servers_of(shard).collect();
        all.without(Set::one(server))
    }

    /// All replicas.
    pub fn replicas(&self) -> Set<ReplicaId> {
        self.ordering.replicas()
    }

    /// A server that is silent for this long has its shard closed.
    pub fn server_timeout(&self) -> Duration {
        Duration::from_millis(SERVER_TIMEOUT_MS.value(self.options()))
    }
}

/// The layout as roles of MultiPaxos see it; `batchers` are the instances that they take for
/// batchers.
fn view(layout: &Layout, batchers: u8) -> Layout {
    let kinds = [
        (ordering::Client, kind::Client),
        (ordering::Batcher, batchers),
        (ordering::ReadBatcher, kind::ReadBatcher),
        (ordering::Leader, kind::Leader),
        (ordering::ProxyLeader, kind::ProxyLeader),
        (ordering::Acceptor, kind::Acceptor),
        (ordering::Replica, kind::Replica),
        (ordering::Unbatcher, kind::Unbatcher),
        (ordering::Relay, kind::Relay),
    ];
    seen_as_multipaxos(layout, &kinds)
}

/// Checks what MultiPaxos does not ask; the rest its own configuration checks.
fn check(layout: &Layout) -> Result<(), LayoutError> {
    let (f, size, servers) = (layout.f, layout.f + 1, layout.count(kind::Server));
    if servers == 0 || servers % size > 0 {
        return Err(LayoutError(format!(
            "{servers} servers: a shard has f+1 = {size}, so their number must be a multiple of \
             that"
        )));
    }
    at_least("aggregators", layout.count(kind::Aggregator), f + 1)?;
    check_options(&layout.options, servers / size)?;
    let places: Vec<NodeId> = layout
        .places(kind::Server)
        .iter()
        .map(|(_, node)| node)
        .collect();
    for (shard, nodes) in places.chunks(size).enumerate() {
        let is_twice = |(at, node): (usize, &NodeId)| nodes[..at].contains(node);
        if nodes.iter().enumerate().any(is_twice) {
            return Err(LayoutError(format!(
                "two servers of shard {shard} are on one node: each must be on a node of its own, \
                 for one must be left of any f={f} that fail"
            )));
        }
    }
    let nodes: Vec<NodeId> = layout.nodes().into_iter().collect();
    for failed in failures(&nodes, f)? {
        let is_whole = |shard: &[NodeId]| shard.iter().all(|node| !failed.contains(node));
        if !places.chunks(size).any(is_whole) {
            let failed: Vec<String> = failed.iter().map(|node| layout.name(*node)).collect();
            let failed = failed.join(" and ");
            return Err(LayoutError(format!(
                "f={f} nodes may fail, but without node {failed} no shard has all its servers: \
                 f+1 = {size} shards that share no node are enough, which is {} servers, each on a \
                 node of its own",
                size * size
            )));
        }
    }
    Ok(())
}

/// Checks the settings that Scalog alone has, in a deployment with this number of shards.
fn check_options(options: &Options, shards: usize) -> Result<(), LayoutError> {
    let (open, timeout) = (OPEN_SHARDS.value(options), SERVER_TIMEOUT_MS.value(options));
    if open > shards as u64 {
        return Err(LayoutError(format!(
            "options.open_shards = {open}, but there are servers for {shards} shards: at most as \
             many can be open, and 0 means all"
        )));
    }
    let least = 3 * options.heartbeat.as_millis();
    if u128::from(timeout) < least {
        return Err(LayoutError(format!(
            "options.server_timeout_ms = {timeout}: must be at least three times \
             options.heartbeat_ms, which is {least}, for servers report once in that interval"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::layout::numbered;

    /// A layout of `counts` instances a kind, each on a node of its own.
    fn apart(counts: [usize; 9]) -> Layout {
        let mut next = 0..;
        let nodes = |count: &usize| next.by_ref().take(*count).map(NodeId).collect();
        Layout {
            f: 1,
            instances: numbered(counts.iter().map(nodes).collect()),
            ..Layout::default()
        }
    }

    const WHOLE: [usize; 9] = [1, 4, 2, 0, 2, 2, 3, 2, 0];

    fn refusal(layout: Layout) -> String {
        Config::new(layout).unwrap_err().0
    }

    #[test]
    fn servers_are_in_shards_in_the_order_of_their_numbers() {
        let config = Config::new(apart(WHOLE)).unwrap();
        assert_eq!(config.shards().collect::<Vec<_>>(), [0, 1]);
        let second: Vec<ServerId> = config.servers_of(1).collect();
        assert_eq!(second, [ServerId(2), ServerId(3)]);
        assert_eq!(config.place_of(ServerId(3)), (1, 1));
        assert_eq!(config.peers_of(ServerId(3)), Set::one(ServerId(2)));
    }

    #[test]
    fn each_rule_is_refused_in_its_own_words() {
        let with = |kind: u8, count| {
            let mut counts = WHOLE;
            counts[usize::from(kind)] = count;
            refusal(apart(counts))
        };
        let odd = "3 servers: a shard has f+1 = 2, so their number must be a multiple of that";
        assert_eq!(with(kind::Server, 3), odd);
        assert!(with(kind::Server, 0).starts_with("0 servers"));
        let lost = "without node 1 (counted from 0) no shard has all its servers";
        assert!(with(kind::Server, 2).contains(lost));
        assert!(with(kind::Server, 2).ends_with("4 servers, each on a node of its own"));
        assert!(with(kind::Aggregator, 1).starts_with("1 aggregators"));
        let mut shared = apart(WHOLE);
        let nodes = [90, 91, 92, 92].map(NodeId).to_vec();
        shared.instances[usize::from(kind::Server)] = nodes.into();
        assert!(refusal(shared).starts_with("two servers of shard 1 are on one node"));
    }

    #[test]
    fn options_change_while_it_runs_and_nothing_else() {
        let transition = |to| Config::transition(&apart(WHOLE), &to).map_err(|error| error.0);
        let mut tuned = apart(WHOLE);
        tuned.options.batch_commands = 7;
        assert_eq!(transition(tuned), Ok(Transition::AtOnce));
        let mut more = WHOLE;
        more[usize::from(kind::Server)] = 6;
        assert!(
            transition(apart(more))
                .unwrap_err()
                .contains("cannot be changed")
        );
    }
}
