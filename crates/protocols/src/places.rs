//! Rules of where instances may be that several protocols have in common.

use alloc::format;
use alloc::string::String;
use ionian_kernel::layout::{Layout, LayoutError};

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
