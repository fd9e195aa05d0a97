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
//! | `fleet` | all of them |
//! | `links` | the network |
//! | `drive` | the event heap between them |
//! | [`wan`] | nodes that are far apart |

mod clients;
mod drive;
mod fleet;
mod links;
mod server;
pub mod wan;

use bytes::Bytes;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;

pub use drive::measure;

/// What a message costs whom it is for.
pub trait Costs<P: Protocol> {
    /// Microseconds of processor time that the instance at `to` spends because of `message`,
    /// whatever it sends because of it included.
    fn of(&self, to: Address, message: &P::Message) -> f64;

    /// Microseconds that each of two nodes spends, beside, because `message` goes from one to the
    /// other.
    fn carrying(&self, message: &P::Message) -> f64 {
        let _ = message;
        0.0
    }

    /// Microseconds that a node spends, beside, on taking a request from a client, and again on
    /// giving the answer.
    fn serving(&self) -> f64 {
        0.0
    }
}

/// What the clients ask and what answers them.
pub trait Service {
    /// The write that client `client` sends as its request number `number`.
    fn write(&self, client: usize, number: u64) -> Bytes;
    /// As [`write`](Service::write), for a read.
    fn read(&self, client: usize, number: u64) -> Bytes;
    /// An empty state machine.
    fn machine(&self) -> Box<dyn StateMachine>;
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The deployment.
    pub layout: Layout,
    /// The places among [`KINDS`](Protocol::KINDS) of the roles that run on the machines of
    /// clients. A node that hosts no others takes no time, and each of its messages is a burst of
    /// its own.
    pub client_kinds: Vec<u8>,
    /// How many clients there are, each with one request under way.
    pub clients: usize,
    /// The part of the requests that are reads.
    pub read_fraction: f64,
    /// How fresh the reads must be.
    pub read_level: ReadLevel,
    /// From the end of a burst on one node to the arrival on another on average, microseconds.
    pub network_delay_us: f64,
    /// By which part of itself the delay is longer or shorter at most, below 1. Without any,
    /// clients march in step, as they would nowhere else.
    pub network_jitter: f64,
    /// What it costs a node to be woken when it has nothing to do, microseconds.
    pub wake_us: f64,
    /// A burst takes in nothing more when its price has reached this, microseconds.
    pub burst_us: f64,
    /// The requests that are answered before the measurement begins.
    pub warm_up_requests: u64,
    /// It ends when this many more are answered,
    pub requests: u64,
    /// or when it has lasted for so long, microseconds.
    pub longest_us: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Requests answered in the time measured.
    pub requests: u64,
    /// Per second.
    pub requests_per_second: f64,
    /// Latency of a request as its client sees it, microseconds.
    pub latency_us: Latency,
    /// The part of the time that each node was busy, by node.
    pub utilization: Vec<(NodeId, f64)>,
}

/// Of all requests measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Their mean.
    pub mean: f64,
    /// Half of them were no slower.
    pub p50: f64,
    /// 99 of 100 were no slower.
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
    /// The node that was busiest, and the part of the time that it was.
    pub fn busiest(&self) -> Option<(NodeId, f64)> {
        self.utilization
            .iter()
            .copied()
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}
