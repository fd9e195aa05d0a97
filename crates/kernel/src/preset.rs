//! Deployments that come with a protocol: the protocol says which nodes there are and which roles
//! live on each; addresses are given to them where they are used.

use crate::quorum_spec::QuorumSpec;

/// A deployment without addresses.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name, unique among the presets of all protocols.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// How many nodes may fail.
    pub f: usize,
    /// How its acceptors are arranged.
    pub quorums: QuorumSpec,
    /// The options whose values differ from their defaults, by key.
    pub options: &'static [(&'static str, u64)],
    /// The one-way delay between two nodes in milliseconds, if each node is at a site of its own.
    pub delay_ms: Option<u64>,
    /// Its nodes, in groups of nodes that are alike.
    pub nodes: &'static [Nodes],
}

/// Nodes with the same roles, one instance of each.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    /// How many nodes.
    pub count: usize,
    /// Their names are this and a number from 0 on.
    pub prefix: &'static str,
    /// The [names](crate::protocol::Protocol::KINDS) of their roles.
    pub roles: &'static [&'static str],
}

impl Preset {
    /// No node, one failure, majorities, the defaults of all options, one site: what the presets
    /// of most protocols begin with.
    pub const EMPTY: Preset = Preset {
        name: "",
        about: "",
        f: 1,
        quorums: QuorumSpec::Majority,
        options: &[],
        delay_ms: None,
        nodes: &[],
    };
}

/// `count` nodes that are alike.
pub const fn nodes(count: usize, prefix: &'static str, roles: &'static [&'static str]) -> Nodes {
    Nodes {
        count,
        prefix,
        roles,
    }
}
