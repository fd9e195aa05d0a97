//! How fast a deployment would be whose every node has a processor of its own: the real roles, with
//! a price on every message.
//!
//! Each node is one server with its own clock of processor time. What arrives while it works waits;
//! when it is free it takes in a burst, whose price is the sum of the prices of its messages
//! ([`Costs`]), hops between roles of the node included, and a wake-up if it was asleep. What the
//! burst sends leaves when the burst is over and arrives a delay later that varies a little, in the
//! order of sending on each link. There are no faults and no disks, so this says nothing about
//! correctness: the rest of this crate does. Clients work in a closed loop: each sends its next
//! request when the last is answered. Their machines take no time and put nothing of two clients
//! together: a few nodes stand for as many as are needed.
//!
//! The same [`Setting`] gives the same [`Measured`], bit for bit.
//!
//! | file | job |
//! |---|---|
//! | `clients` | the closed loop and its latencies |
//! | `server` | a node that takes its time |
//! | `disk` | what it finds again |
//! | `fleet` | all of them |
//! | `links` | the network |
//! | `drive` | the event heap between them |
//! | [`wan`] | nodes that are far apart |

mod clients;
mod disk;
mod drive;
mod fleet;
mod links;
mod server;
pub mod wan;

use crate::roles::AnyMessage;
use bytes::Bytes;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;

pub use drive::measure;

/// The cost of messages.
pub trait Costs {
    /// Processor time in microseconds of the instance at `to` for `message`, including everything
    /// that it sends because of it.
    fn of(&self, to: Address, message: &dyn AnyMessage) -> f64;

    /// Additional processor time in microseconds of the instance at `to`, which has now handled the
    /// message of the last call of [`of`](Costs::of): for what it has executed because of it.
    fn executing(&self, to: Address) -> f64 {
        let _ = to;
        0.0
    }

    /// Additional processor time in microseconds at each of the two nodes, because `message` goes
    /// from one to the other.
    fn carrying(&self, message: &dyn AnyMessage) -> f64 {
        let _ = message;
        0.0
    }

    /// Additional processor time of a node in microseconds for receiving a request from a client,
    /// and again for sending the answer.
    fn serving(&self) -> f64 {
        0.0
    }
}

/// What the clients send, and the state machine that answers.
pub trait Service {
    /// The write that client `client` sends as its request `number`.
    fn write(&self, client: usize, number: u64) -> Bytes;
    /// Like [`write`](Service::write), for a read.
    fn read(&self, client: usize, number: u64) -> Bytes;
    /// An empty state machine.
    fn machine(&self) -> Box<dyn StateMachine>;
}

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The deployment.
    pub layout: Layout,
    /// The indices of the roles on the clients' machines in the protocol's
    /// [`kinds`](ionian_kernel::protocol::Description::kinds). A node without other roles takes no
    /// time, and each of its messages is a separate burst.
    pub client_kinds: Vec<u8>,
    /// The number of clients, each with one request in flight.
    pub clients: usize,
    /// The fraction of reads.
    pub read_fraction: f64,
    /// The consistency level of the reads.
    pub read_level: ReadLevel,
    /// Mean delay from the end of a burst to the arrival at another node, in microseconds.
    pub network_delay_us: f64,
    /// Maximum relative deviation of the delay, below 1. With 0, clients would move in lockstep.
    pub network_jitter: f64,
    /// Cost of waking an idle node, in microseconds.
    pub wake_us: f64,
    /// A burst accepts no further message when its cost has reached this, in microseconds.
    pub burst_us: f64,
    /// The number of requests before the measurement starts.
    pub warm_up_requests: u64,
    /// The measurement ends after this many further requests,
    pub requests: u64,
    /// or after this many microseconds.
    pub longest_us: u64,
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Requests answered during the measurement.
    pub requests: u64,
    /// Per second.
    pub requests_per_second: f64,
    /// Latency of a request as its client measures it, in microseconds.
    pub latency_us: Latency,
    /// The fraction of time that each node was busy.
    pub utilization: Vec<(NodeId, f64)>,
}

/// Of all requests measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Latency {
    /// Of sorted latencies, with this many units to a microsecond.
    fn of_sorted(latencies: &[u64], per_us: f64) -> Self {
        let count = latencies.len();
        if count == 0 {
            return Latency::default();
        }
        let at = |part: f64| {
            latencies[((count as f64 * part).ceil() as usize).clamp(1, count) - 1] as f64 / per_us
        };
        let mean = latencies.iter().sum::<u64>() as f64 / per_us / count as f64;
        Latency {
            mean,
            p50: at(0.5),
            p99: at(0.99),
        }
    }
}

impl Measured {
    /// The busiest node, and the fraction of time that it was busy.
    pub fn busiest(&self) -> Option<(NodeId, f64)> {
        self.utilization
            .iter()
            .copied()
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}
