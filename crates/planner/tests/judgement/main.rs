//! Whether the bottleneck that is named is the right one, and whether the gain that is promised
//! comes.
//!
//! | file | job |
//! |---|---|
//! | `slowed` | a protocol of which one role instance takes longer on purpose |
//! | `cluster` | a cluster in this process with such an instance, under load |
//! | `named` | what the judgement names there, window by window |
//! | `quiet` | what it names where no role is the limit: an idle cluster, one without processors |
//! | `simulated` | a deployment in simulated time, with the true costs of its roles |
//! | `gain` | the gain that advice promises, and that of the changed deployment |

mod cluster;
mod gain;
mod named;
mod quiet;
mod simulated;
mod slowed;

/// The presets that are judged.
const PRESETS: [&str; 3] = ["colocated", "compartmentalized", "batched"];
