//! How far the start of a node is, for a program that reports it to a service manager.

use std::fmt;
use std::sync::Arc;

/// A step of a node's start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Startup {
    /// The node opens its log, or is about to read a snapshot. This may take minutes, and no other
    /// step is reported until it ends.
    Opening,
    /// The node has given a role one more record of its log.
    Recovering,
    /// The roles are recovered, and the node accepts connections. `takes_part` is false if the data
    /// directory is new, and the other nodes have to accept it first.
    Listening {
        /// Whether the roles may start at once.
        takes_part: bool,
    },
    /// A majority of the other nodes has accepted the new data directory.
    TakesPart,
}

/// Receives the steps of a node's start, on the thread of its event loop. It must not block.
#[derive(Clone, Default)]
pub struct StartupWatch(Option<Arc<dyn Fn(Startup) + Send + Sync>>);

impl StartupWatch {
    /// Calls this function at each step.
    pub fn new(watch: impl Fn(Startup) + Send + Sync + 'static) -> Self {
        StartupWatch(Some(Arc::new(watch)))
    }

    pub(crate) fn report(&self, step: Startup) {
        if let Some(watch) = &self.0 {
            watch(step);
        }
    }
}

impl fmt::Debug for StartupWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StartupWatch")
            .field(&self.0.is_some())
            .finish()
    }
}
