//! From what one instance of each role spends on a command to what a deployment can do.
//!
//! | file | job |
//! |---|---|
//! | `demand` | the measured service demands, and what lies between two measurements |
//! | `price` | what each role of one deployment spends under one workload |
//! | `share` | which part of the commands each instance takes part in, read off the layout |
//! | `projection` | the utilization law |
//! | `costs` | the same prices, message by message, for the simulator |

pub mod costs;
pub mod demand;
pub mod price;
pub mod projection;
pub mod share;

use ionian_kernel::client::ReadLevel;

/// What clients ask of a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The part of the commands that are reads.
    pub read_fraction: f64,
    /// How fresh reads must be.
    pub read_level: ReadLevel,
    /// Commands of a full batch; 1 where nothing is batched.
    pub batch: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Workload {
    /// Writes alone, of the 16 bytes that the papers write.
    pub fn writes(batch: usize) -> Self {
        Workload { read_fraction: 0.0, read_level: ReadLevel::Linearizable, batch, value_bytes: 16 }
    }
}
