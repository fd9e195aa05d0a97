//! The event loop, as administration uses it.

use super::change::Response;
use super::traces::TraceRequest;
use crate::status::NodeStatus;
use crate::traces::NodeNotes;
use bytes::Bytes;
use ionian_kernel::client::Refusal;
use ionian_kernel::membership::Change;
use ionian_kernel::role::{Cover, Picture};
use std::pin::Pin;
use tokio::sync::oneshot;

/// An answer that other threads of the node contribute to.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What operators and tools can ask of a running node.
pub(crate) trait NodeControl {
    fn status(&self) -> Answer<'_, NodeStatus>;

    /// What it has noted for traces.
    fn notes(&self, request: TraceRequest) -> Answer<'_, NodeNotes>;

    /// Starts to drain the node (no new clients, another node is to lead), or ends it.
    fn drain(&self, drains: bool);

    /// The state with everything below the stamp `at`.
    fn freeze(&self, cover: Cover) -> Answer<'_, Picture>;

    /// The configuration as TOML; `None` where the membership cannot change.
    fn membership_document(&self) -> Option<String>;

    /// Submits a change of the membership; the channel brings what the log decides.
    fn submit(
        &self,
        change: &Change,
    ) -> Result<oneshot::Receiver<Result<Bytes, Refusal>>, Response>;
}
