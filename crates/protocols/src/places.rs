//! Rules of where instances may be that several protocols have in common, and how the roles of
//! MultiPaxos see the instances of another protocol.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ionian_kernel::layout::{Layout, LayoutError};

/// The layout as roles of MultiPaxos see it: `kinds` are pairs of a kind of theirs and of the kind
/// here whose instances they take for it. Of the rest there are none.
pub(crate) fn seen_as_multipaxos(layout: &Layout, kinds: &[(u8, u8)]) -> Layout {
    let mut instances = Vec::new();
    instances.resize_with(crate::multipaxos::KINDS.len(), Default::default);
    for (theirs, ours) in kinds {
        let places = layout.instances.get(usize::from(*ours));
        instances[usize::from(*theirs)] = places.cloned().unwrap_or_default();
    }
    let next = layout.next.as_deref();
    Layout {
        instances,
        next: next.map(|next| Box::new(seen_as_multipaxos(next, kinds))),
        ..layout.clone()
    }
}

pub(crate) fn at_least(name: &str, count: usize, needed: usize) -> Result<(), LayoutError> {
    if count >= needed {
        return Ok(());
    }
    let message: String = format!(
        "{count} {name}: to tolerate f={} there must be at least f+1 = {needed}",
        needed - 1
    );
    Err(LayoutError(message))
}

/// Others forget what f + 1 replicas keep: f of these may fail, one by one, and two of a node would
/// fail together.
pub(crate) fn check_replicas(layout: &Layout, kind: u8) -> Result<(), LayoutError> {
    match layout.shared(kind).filter(|_| layout.f > 0) {
        None => Ok(()),
        Some(node) => Err(LayoutError(format!(
            "two replicas are on node {}: each must be on a node of its own, for what f+1 = {} \
             replicas keep the others forget",
            layout.name(node),
            layout.f + 1
        ))),
    }
}
