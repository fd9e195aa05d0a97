//! How a deployment would do whose nodes are far apart: links with a delay and a bandwidth, clients
//! at each site that wait for their answers or do not, links that change, nodes that die; and what
//! came of it, by site and over time.
//!
//! Nodes are those of [`performance`](super): the real roles, each node with a processor of its
//! own. What leaves one queues for its link and takes it for as long as its bytes need, as they are
//! on the wire: frames, and the headers of the packets that carry them. So a heartbeat waits behind
//! the bulk before it, as on a connection. Every link keeps its order and loses nothing; there are
//! no faults but the death of a node, from which nothing more comes and to which nothing more goes
//! until it returns. Where one returns, nodes have disks, which take no time.
//!
//! The same [`Experiment`] gives the same [`Observed`], bit for bit.
//!
//! | file | job |
//! |---|---|
//! | `network` | links, their queues and their delays |
//! | `sources` | clients |
//! | `observed` | what came of it |
//! | `drive` | the event heap between them |

mod drive;
mod network;
mod observed;
mod sources;

use super::Costs;
use crate::roles::AnyMessage;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Address, Layout, NodeId};

pub use drive::observe;
pub use observed::{Answer, Flow, Observed, Series};

/// What is tried.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The deployment.
    pub layout: Layout,
    /// The network between its nodes.
    pub network: Network,
    /// Who asks.
    pub sources: Vec<Source>,
    /// A client whose node has more than this many bytes waiting for one of its links waits as
    /// well, as on a connection whose far end reads no more; infinity where no client waits.
    pub room_bytes: f64,
    /// What changes, and when, microseconds from the start.
    pub changes: Vec<(u64, Change)>,
    /// What it costs a node to be woken when it has nothing to do, microseconds.
    pub wake_us: f64,
    /// A burst takes in nothing more when its price has reached this, microseconds.
    pub burst_us: f64,
    /// What is answered before does not count, microseconds from the start.
    pub begins_us: u64,
    /// When it ends, microseconds from the start.
    pub ends_us: u64,
}

/// One direction of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// From the last byte's leaving to its arrival, microseconds.
    pub delay_us: f64,
    /// The bandwidth; infinity where it does not matter.
    pub bytes_per_second: f64,
}

/// How the nodes are connected. A node is named by its place among the nodes of the layout.
#[derive(Clone, Debug)]
pub struct Network {
    /// The links.
    pub topology: Topology,
    /// What is added to each delay.
    pub variation: Variation,
}

/// Which links there are.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One from each node to each other: `links[from][to]`.
    Clique(Vec<Vec<Link>>),
    /// All of a node's traffic, with whomever, goes through its access line.
    Star(Vec<Access>),
}

/// The line between a node and the centre of a star.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Towards the centre.
    pub up: Link,
    /// From the centre.
    pub down: Link,
}

/// By how much delays vary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variation {
    /// Not at all.
    None,
    /// Each message takes up to so much longer, any time being as likely as any other.
    Uniform {
        /// Microseconds.
        longest_us: f64,
    },
    /// Each message takes longer by a time of a Pareto distribution (of shape 2): mostly little,
    /// now and then a lot. What is behind it on its link waits for it.
    Pareto {
        /// Half of the messages take longer by no more than 0.41 of this, microseconds.
        scale_us: f64,
        /// None takes longer by more, microseconds.
        longest_us: f64,
    },
}

/// Clients of one lane that do the same.
#[derive(Clone, Debug)]
pub struct Source {
    /// Who carries what they ask; the lane's node is their site.
    pub lane: ClientId,
    /// How many.
    pub clients: usize,
    /// When each asks next.
    pub pace: Pace,
    /// They ask nothing before this, microseconds from the start.
    pub from_us: u64,
    /// And nothing from here on.
    pub until_us: u64,
}

/// When a client asks next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When it is answered: a closed loop.
    Answered,
    /// After a time from `shortest_us` to `longest_us`, answered or not; the first time after at
    /// most `longest_us`.
    Waits {
        /// Microseconds.
        shortest_us: u64,
        /// Microseconds.
        longest_us: u64,
    },
}

/// What may change on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// The link from one node to another (of a clique) has another bandwidth.
    Bandwidth {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// From now on.
        bytes_per_second: f64,
    },
    /// A node stops, and the clients of its site with it.
    Death {
        /// Which.
        node: NodeId,
    },
    /// A node that died starts again, with all that it had stored; its clients do not.
    Return {
        /// Which.
        node: NodeId,
    },
    /// No message passes from one node to another; what is under way waits, as on a connection
    /// that loses packets. The other direction works.
    Cut {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// That cut ends, and what has waited arrives, unless one of the two has died since it was
    /// sent.
    Splice {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// A node does nothing for a while; what arrives waits.
    Stall {
        /// Which.
        node: NodeId,
        /// Microseconds.
        us: u64,
    },
}

/// A price that is the same for every protocol: so much for each message that a node takes off the
/// network or puts on it, or off or on the line to a client of its site. What roles do between is
/// free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerMessage {
    /// Microseconds.
    pub us: f64,
}

impl Costs for PerMessage {
    fn of(&self, _: Address, _: &dyn AnyMessage) -> f64 {
        0.0
    }

    fn carrying(&self, _: &dyn AnyMessage) -> f64 {
        self.us
    }

    fn serving(&self) -> f64 {
        self.us
    }
}

impl Network {
    /// A clique of this many nodes whose links are all alike.
    pub fn clique(nodes: usize, link: Link) -> Self {
        Network {
            topology: Topology::Clique(vec![vec![link; nodes]; nodes]),
            variation: Variation::None,
        }
    }

    /// A star of this many nodes whose links are all alike.
    pub fn star(nodes: usize, link: Link) -> Self {
        let access = Access {
            up: link,
            down: link,
        };
        Network {
            topology: Topology::Star(vec![access; nodes]),
            variation: Variation::None,
        }
    }
}
