//! State machines for Ionian to replicate: their commands, their replies, and which commands
//! conflict.

#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod acl;
pub mod kv;
pub mod nothing;
pub mod register;
pub mod registers;
pub mod tree;

use ionian_kernel::machine::StateMachine;

/// Makes the state machine that a deployment file calls by this name: `kv`, or `nothing`.
pub fn named(name: &str) -> Option<fn() -> Box<dyn StateMachine>> {
    match name {
        "kv" => Some(|| Box::new(kv::Kv::default())),
        "nothing" => Some(|| Box::new(nothing::Nothing)),
        _ => None,
    }
}
