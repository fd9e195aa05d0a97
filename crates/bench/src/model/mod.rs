//! From what each node of a deployment spends on a command to what the deployment can do.
//!
//! | file | job |
//! |---|---|
//! | `measure` | what each node spends: the deployment runs in this process, without system calls |
//! | `profile` | what each message costs, as part of that |
//! | `kernel` | what the system calls cost that a node would make |
//! | `costs` | the same costs, message by message, for the simulator |
//! | `threads` | workers that have a processor of their own, on a machine that has fewer |
//! | `parallel` | what a deployment with workers can do |
//!
//! The demands themselves and the utilization law are in the crate `planner`.

pub(crate) mod costs;
pub(crate) mod kernel;
pub(crate) mod measure;
pub(crate) mod parallel;
mod profile;
mod threads;

use ionian_costs::Load;
use ionian_kernel::client::ReadLevel;

/// What clients ask of a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// The fraction of the commands that are reads.
    pub(crate) read_fraction: f64,
    /// The fraction of the commands that are about the first key; the others are spread evenly.
    pub(crate) skew: f64,
    /// How fresh reads must be.
    pub(crate) read_level: ReadLevel,
    /// Commands of a full batch; 1 where nothing is batched.
    pub(crate) batch: usize,
    /// Commands of a request.
    pub(crate) pipeline: usize,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
    /// Commands that arrive together when the deployment is measured, where that is not as many as
    /// keep every node busy.
    pub(crate) burst: Option<usize>,
}

impl Workload {
    /// Writes alone, of the 16 bytes that the papers write.
    pub(crate) fn writes(batch: usize) -> Self {
        Workload {
            read_fraction: 0.0,
            skew: 0.0,
            read_level: ReadLevel::Linearizable,
            batch,
            pipeline: 1,
            value_bytes: 16,
            burst: None,
        }
    }

    /// The load by which a deployment is measured: bursts that fill several batches of each
    /// batcher, and hold at most a few megabytes.
    pub(crate) fn load(&self, keys: usize, separate_clients: bool) -> Load {
        let bytes = self.pipeline * (self.value_bytes + 64);
        let burst = self.burst.unwrap_or((20 * self.batch).max(1000));
        Load {
            read_fraction: self.read_fraction,
            skew: self.skew,
            read_level: self.read_level,
            value_bytes: self.value_bytes,
            pipeline: self.pipeline,
            keys: keys.min((16 << 20) / bytes),
            burst: burst.min((4 << 20) / bytes),
            filled: true,
            separate_clients,
        }
    }
}
