//! The metrics and the health of a node, over HTTP, and the server for further pages.
//!
//! The server runs on a thread of its own and reads what the node publishes once a second
//! ([`ionian_runtime::StatusReader`]): a request costs the event loop nothing, and a node whose
//! loop is stuck still answers, with the age of what it says. It only reads: GET and HEAD.
//!
//! | file | job |
//! |---|---|
//! | `view` | what a scrape sees |
//! | `definition` | what a metric is: name, kind, labels, meaning, and how to read it |
//! | `node`, `disk`, `peers`, `clients` | the metrics of driver, log, peers and gateway |
//! | `certificates`, `audit` | the metrics of certificates and of the audit log |
//! | `roles` | the metrics of roles, from what protocols declare |
//! | `registry` | all metrics |
//! | `text` | the two text formats |
//! | `process` | what the system says of the process |
//! | `health` | the checks of `/livez` and `/readyz` |
//! | `http` | the server |
//! | `impatient` | closes connections whose clients do not read |

#![forbid(unsafe_code)]

mod audit;
mod certificates;
mod clients;
mod definition;
mod disk;
mod health;
mod http;
mod impatient;
mod node;
mod peers;
mod process;
mod registry;
mod roles;
mod text;
mod view;

pub use definition::{Kind, Line};
pub use http::{Pages, Query, Response, Server, Settings};
pub use process::started;
pub use registry::{Registered, all, lines};
pub use view::{AuditReader, AuditState, Sources, Tolerance};
