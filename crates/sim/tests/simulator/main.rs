//! The simulator: what it promises, what it finds, and the protocols in chosen scenarios.

extern crate alloc;

mod alone;
mod backlog;
mod canaries;
mod checker;
mod coverage;
mod determinism;
mod epaxos_load;
mod every_protocol;
mod leaving;
mod oracles;
mod outages;
mod performance;
mod plays;
mod scripted;
mod steady;
mod stripes;
#[allow(unreachable_pub)]
mod toy;
mod traces;
mod wan;
