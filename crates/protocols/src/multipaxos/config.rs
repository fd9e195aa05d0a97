//! Which layouts are deployments of MultiPaxos, and what every role needs to know of its own.

use super::canary::Canary;
use super::kind;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Options};
use ionian_kernel::quorum::QuorumSystem;

/// A layout that was checked, with what follows from it.
#[derive(Clone, Debug)]
pub struct Config {
    layout: Layout,
    /// The acceptors' quorum system.
    pub quorums: QuorumSystem,
    /// The defect built in on purpose, in tests of the tests.
    pub canary: Option<Canary>,
}

impl Config {
    /// Checks a layout.
    ///
    /// # Errors
    /// Says which rule of the protocol it breaks.
    pub fn new(layout: Layout) -> Result<Self, LayoutError> {
        let f = layout.f;
        let count = |kind| layout.count(kind);
        if count(kind::Client) == 0 {
            return Err(LayoutError(
                "there is no client: give at least one node a gateway or the role \"client\"".into(),
            ));
        }
        for (kind, name) in
            [(kind::Leader, "leaders"), (kind::ProxyLeader, "proxy leaders"), (kind::Replica, "replicas")]
        {
            at_least(name, count(kind), f + 1)?;
        }
        for (kind, name) in
            [(kind::Batcher, "batchers"), (kind::ReadBatcher, "read batchers"), (kind::Unbatcher, "unbatchers")]
        {
            if count(kind) > 0 {
                at_least(name, count(kind), f + 1)?;
            }
        }
        let quorums = QuorumSystem::new(layout.quorums, count(kind::Acceptor), f).map_err(LayoutError)?;
        let canary = layout.canary.map(Canary::named).transpose().map_err(LayoutError)?;
        let config = Config { layout, quorums, canary };
        config.check_failures()?;
        Ok(config)
    }

    /// Any f nodes may fail: what is left must hold quorums and one of each role. Counting instances
    /// is not enough where a node has several.
    fn check_failures(&self) -> Result<(), LayoutError> {
        let mut nodes: Vec<NodeId> = self.layout.instances.iter().flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        // The worst sets of f nodes take the most acceptors away: it is enough to try the nodes that
        // have some, and for the other roles the nodes that have all of a kind.
        for failed in combinations(&nodes, self.layout.f) {
            if let Some(lost) = self.lost_with(&failed) {
                let failed: Vec<_> = failed.iter().map(|node| self.layout.name(*node)).collect();
                return Err(LayoutError(format!(
                    "f={} nodes may fail, but without node {} no {lost} is left",
                    self.layout.f,
                    failed.join(" and "),
                )));
            }
        }
        Ok(())
    }

    fn lost_with(&self, failed: &[NodeId]) -> Option<&'static str> {
        let alive = |kind| {
            let nodes = &self.layout.instances[kind as usize];
            (0..).zip(nodes).filter(|(_, node)| !failed.contains(node)).map(|(index, _)| AcceptorId(index)).collect()
        };
        let acceptors: AcceptorSet = alive(kind::Acceptor);
        if !self.quorums.is_read_quorum(acceptors) {
            return Some("read quorum of acceptors");
        }
        if !self.quorums.is_write_quorum(acceptors) {
            return Some("write quorum of acceptors");
        }
        let kinds = [
            (kind::Leader, "leader"),
            (kind::ProxyLeader, "proxy leader"),
            (kind::Replica, "replica"),
            (kind::Batcher, "batcher"),
            (kind::ReadBatcher, "read batcher"),
            (kind::Unbatcher, "unbatcher"),
        ];
        kinds
            .into_iter()
            .find(|(kind, _)| self.layout.count(*kind) > 0 && alive(*kind).is_empty())
            .map(|(_, name)| name)
    }

    /// The layout as it was checked.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Tunables.
    pub fn options(&self) -> &Options {
        &self.layout.options
    }

    /// How many nodes may fail.
    pub fn f(&self) -> usize {
        self.layout.f
    }

    /// All instances of a kind.
    pub fn all<I: Id>(&self, kind: u8) -> Set<I> {
        self.layout.all(kind)
    }

    /// The instances of a kind that live on `node`.
    pub fn near<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        self.layout.near(kind, node)
    }

    /// The instances of a kind to prefer on `node`: its own if it has some, else all.
    pub fn preferred<I: Id>(&self, kind: u8, node: NodeId) -> Set<I> {
        self.layout.preferred(kind, node)
    }

    /// All leaders.
    pub fn leaders(&self) -> Set<LeaderId> {
        self.all(kind::Leader)
    }

    /// All replicas.
    pub fn replicas(&self) -> Set<ReplicaId> {
        self.all(kind::Replica)
    }

    /// Whether this defect is built in.
    pub fn has(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }
}

fn at_least(name: &str, count: usize, needed: usize) -> Result<(), LayoutError> {
    if count >= needed {
        return Ok(());
    }
    let message: String = format!("{count} {name}: to tolerate f={} there must be at least f+1 = {needed}", needed - 1);
    Err(LayoutError(message))
}

/// Every choice of `count` of `items`.
fn combinations<T: Copy>(items: &[T], count: usize) -> Vec<Vec<T>> {
    if count == 0 {
        return Vec::from([Vec::new()]);
    }
    let mut all = Vec::new();
    for (i, first) in items.iter().enumerate() {
        for mut rest in combinations(&items[i + 1..], count - 1) {
            rest.push(*first);
            all.push(rest);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::quorum::QuorumSpec;

    /// A layout of `counts` instances a kind, each on a node of its own.
    fn apart(f: usize, counts: [usize; 8], quorums: QuorumSpec) -> Layout {
        let mut next = 0..;
        let instances = counts.iter().map(|count| next.by_ref().take(*count).map(NodeId).collect()).collect();
        Layout { f, quorums, instances, ..Layout::default() }
    }

    fn refusal(layout: Layout) -> String {
        Config::new(layout).unwrap_err().0
    }

    #[test]
    fn the_papers_deployments_are_accepted() {
        Config::new(apart(1, [2, 0, 0, 2, 10, 4, 4, 0], QuorumSpec::Grid { rows: 2, columns: 2 })).unwrap();
        Config::new(apart(1, [2, 2, 2, 2, 3, 3, 2, 3], QuorumSpec::Majority)).unwrap();
        Config::new(apart(0, [1, 0, 0, 1, 1, 1, 1, 0], QuorumSpec::Majority)).unwrap();
    }

    #[test]
    fn each_rule_is_refused_in_its_own_words() {
        let majority = QuorumSpec::Majority;
        assert!(refusal(apart(1, [0, 0, 0, 2, 2, 3, 2, 0], majority)).starts_with("there is no client"));
        let one_leader = refusal(apart(1, [1, 0, 0, 1, 2, 3, 2, 0], majority));
        assert_eq!(one_leader, "1 leaders: to tolerate f=1 there must be at least f+1 = 2");
        assert!(refusal(apart(1, [1, 1, 0, 2, 2, 3, 2, 0], majority)).starts_with("1 batchers"));
        assert!(refusal(apart(1, [1, 0, 0, 2, 2, 2, 2, 0], majority)).contains("at least 2f+1 = 3"));
    }

    #[test]
    fn several_instances_on_one_node_fail_together() {
        let mut layout = apart(1, [1, 0, 0, 2, 2, 3, 2, 0], QuorumSpec::Majority);
        let shared = layout.instances[kind::Acceptor as usize][0];
        layout.instances[kind::Acceptor as usize][1] = shared;
        let message = refusal(layout.clone());
        assert_eq!(
            message,
            format!(
                "f=1 nodes may fail, but without node {} (counted from 0) no read quorum of acceptors is left",
                shared.0
            )
        );
        layout.instances[kind::Acceptor as usize][1] = NodeId(99);
        layout.instances[kind::Replica as usize] = Vec::from([shared, shared]);
        assert!(refusal(layout).ends_with("no replica is left"));
    }
}
