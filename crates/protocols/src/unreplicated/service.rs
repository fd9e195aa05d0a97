//! What an unreplicated server needs to serve its clients.

use super::kind;
use crate::multipaxos::service::{FOR_BATCHER, FOR_CLIENT, FOR_UNBATCHER};
use alloc::vec::Vec;
use ionian_kernel::layout::Layout;
use ionian_kernel::service::{Service, one_of_each};

/// One of each.
pub(super) fn service(layout: &Layout) -> Service {
    Service {
        hub: kind::Server,
        parts: Vec::new(),
        voters: None,
        needs: one_of_each(layout, KINDS).collect(),
        memories: Vec::new(),
    }
}

const KINDS: &[(u8, &str)] = &[
    (kind::Client, FOR_CLIENT),
    (kind::Batcher, FOR_BATCHER),
    (kind::Server, "anything, for want of the server"),
    (kind::Unbatcher, FOR_UNBATCHER),
];
