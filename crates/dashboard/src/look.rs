//! What one look at the cluster finds.

use ionian_kernel::id::Index;
use ionian_runtime::NodeStatus;

/// What one look at the cluster finds, with its judgement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// The document of `ionian status --json`.
    pub document: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the protocol.
    pub protocol: String,
    /// How many nodes may fail by the deployment.
    pub f: usize,
    /// The epoch of the membership.
    pub epoch: u32,
    /// Whether the membership is changing.
    pub changing: bool,
    /// The verdict: `healthy`, `degraded` or `not_serving`.
    pub health: String,
    /// How many more nodes may fail; `None` if clients are not served.
    pub failure_tolerance: Option<usize>,
    /// The node that leads, if the log has one leader and a node leads.
    pub leader: Option<String>,
    /// What is wrong; what is not served comes first.
    pub troubles: Vec<Trouble>,
    /// The kinds of roles, in the order of the protocol.
    pub kinds: Vec<String>,
    /// The members, by number.
    pub nodes: Vec<Node>,
}

/// Something that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The kind, the same in all versions.
    pub id: String,
    /// What is wrong, in words.
    pub text: String,
    /// The alert that fires for the same reason: `docs/alerts.md` says what to do.
    pub alert: Option<&'static str>,
    /// Whether clients are not served because of it.
    pub stops: bool,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub gateway: Option<String>,
    /// Why there is no status.
    pub error: Option<String>,
    /// Its answer.
    pub status: Option<NodeStatus>,
    /// How many slots its slowest executor is behind; `None` if it executes none.
    pub lag: Option<u64>,
    /// Its role instances by the deployment.
    pub placed: Vec<Placed>,
}

/// A role instance by the deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The role's name.
    pub role: String,
    /// The number of the instance within its role.
    pub index: Index,
}
