//! From what one instance of each role spends on a command to what a deployment can do.
//!
//! | file | job |
//! |---|---|
//! | `demand` | the measured service demands, and what lies between two measurements |
//! | `price` | what each role of one deployment spends under one workload |
//! | `share` | which part of the commands each instance takes part in, read off the layout |
//! | `projection` | the utilization law |
//! | `costs` | the same prices, message by message, for the simulator |

pub(crate) mod costs;
pub(crate) mod demand;
pub(crate) mod price;
pub(crate) mod projection;
pub(crate) mod share;

use ionian_kernel::client::ReadLevel;

/// What clients ask of a deployment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// The part of the commands that are reads.
    pub(crate) read_fraction: f64,
    /// How fresh reads must be.
    pub(crate) read_level: ReadLevel,
    /// Commands of a full batch; 1 where nothing is batched.
    pub(crate) batch: usize,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
}

impl Workload {
    /// Writes alone, of the 16 bytes that the papers write.
    pub(crate) fn writes(batch: usize) -> Self {
        Workload {
            read_fraction: 0.0,
            read_level: ReadLevel::Linearizable,
            batch,
            value_bytes: 16,
        }
    }
}
