//! The model of what deployments can do: what each node spends on a command, and the utilization
//! law. `ionian bench` measures the costs of messages and projects with it; `ionian plan` finds
//! deployments with it.
//!
//! | file | job |
//! |---|---|
//! | `line` | costs that grow with a number of bytes or commands |
//! | `demand` | what each node spends on a command, message by message |
//! | `handled`, `executed` | which messages each node handles, counted |
//! | `counted` | which messages those of a whole deployment are |
//! | `prices` | what messages cost, as a file |
//! | `projection` | the utilization law |
//! | `workload` | what clients will ask |
//! | `family` | deployments that grow from one preset |
//! | `model` | how busy each node of a deployment is |
//! | `search` | the deployment with the fewest nodes that carries the workload |
//! | `live` | what limits a running cluster |
//! | `plan`, `page` | what `ionian plan` shows of it |

#![forbid(unsafe_code)]

pub mod counted;
pub mod demand;
pub mod executed;
pub mod family;
pub mod handled;
pub mod line;
pub mod live;
pub mod model;
mod page;
pub mod plan;
pub mod prices;
pub mod projection;
pub mod search;
pub mod workload;
