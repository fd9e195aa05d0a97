//! The protocols with known defects built in on purpose ("canaries"), to test the tests: each is a
//! mistake that a published implementation or an earlier version made, and a test must find it
//! (`docs/defects.md`).
//!
//! The rest of this crate is a copy of `crates/protocols`, changed by `build/main.rs` as
//! `patches/*/*.patch` say. In the copy each defect is behind a question, [`canary::is`], so that
//! all of them are compiled at once and a run has one of them or none.

pub mod canary;
pub mod simulated;

include!(concat!(env!("OUT_DIR"), "/protocols/lib.rs"));
