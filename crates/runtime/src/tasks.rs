//! The tasks of one node, which end with it.

use std::cell::RefCell;
use std::future::Future;
use tokio::task::{AbortHandle, JoinSet};

/// Tasks on the node's thread. The node stops those that are left, however it ends.
#[derive(Default)]
pub(crate) struct Tasks {
    running: RefCell<JoinSet<()>>,
}

impl Tasks {
    /// Must be called within a `LocalSet`.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let mut running = self.running.borrow_mut();
        // Finished tasks are removed here, so that the set does not grow with every connection.
        while let Some(ended) = running.try_join_next() {
            report(ended);
        }
        running.spawn_local(task)
    }

    /// Stops every task at its next wait; does not wait for that.
    pub(crate) fn stop(&self) {
        self.running.borrow_mut().abort_all();
    }

    /// Stops every task and waits until each has closed its socket.
    pub(crate) async fn finish(&self) {
        let mut running = core::mem::take(&mut *self.running.borrow_mut());
        running.abort_all();
        while let Some(ended) = running.join_next().await {
            report(ended);
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(
            id = "E0503",
            "a connection's task panicked, which is a bug of this program: {error}"
        );
    }
}
