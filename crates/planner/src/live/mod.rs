//! What the nodes of a running cluster report, and what limits it: for the dashboard and for
//! `ionian advise`.

pub mod advice;
pub mod bottleneck;
mod grain;
pub mod machine;
pub mod rates;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
