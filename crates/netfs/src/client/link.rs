//! Which connection is used: the last one while it works, then one to the next node.

use super::ConnectError;
use super::connection::Connection;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The pause after every node has refused a connection.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Link {
    state: Mutex<State>,
    /// Signals that the state has changed.
    changed: Condvar,
}

struct State {
    nodes: Vec<String>,
    connection: Option<Arc<Connection>>,
    /// The place of the node to try next.
    next: usize,
    /// A thread connects; the others wait for it.
    connects: bool,
}

impl Link {
    pub(super) fn new(nodes: Vec<String>) -> Link {
        Link {
            state: Mutex::new(State {
                nodes,
                connection: None,
                next: 0,
                connects: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Tries each node once; returns how many bytes a payload may have.
    pub(super) fn open_any(&self) -> Result<usize, ConnectError> {
        let mut failures = Vec::new();
        let nodes = self.lock().nodes.clone();
        for (place, node) in nodes.iter().enumerate() {
            match Connection::open(node) {
                Ok((connection, payload_bytes)) => {
                    let mut state = self.lock();
                    state.connection = Some(connection);
                    state.next = place + 1;
                    return Ok(payload_bytes);
                }
                Err(ConnectError::Unreachable(why)) => failures.push(why),
                Err(error) => return Err(error),
            }
        }
        Err(ConnectError::Unreachable(failures.join("; ")))
    }

    /// Connects to these nodes from now on. A connection that works is kept.
    pub(super) fn set_nodes(&self, nodes: Vec<String>) {
        if !nodes.is_empty() {
            self.lock().nodes = nodes;
        }
    }

    /// A connection that is not known to be broken; none if there is none before the deadline.
    pub(super) fn connection(&self, deadline: Instant) -> Option<Arc<Connection>> {
        let mut state = self.lock();
        let mut failures = 0;
        loop {
            if let Some(connection) = state.connection.as_ref().filter(|it| it.works()) {
                return Some(connection.clone());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            if state.connects {
                let waited = self.changed.wait_timeout(state, left);
                state = waited.expect("no holder of this lock panics").0;
                continue;
            }
            state.connects = true;
            let nodes = state.nodes.len();
            let node = state.nodes[state.next % nodes].clone();
            state.next += 1;
            drop(state);
            let opened = Connection::open(&node);
            state = self.lock();
            state.connects = false;
            self.changed.notify_all();
            match opened {
                Ok((connection, _)) => state.connection = Some(connection),
                Err(_) => failures += 1,
            }
            if failures >= nodes {
                failures = 0;
                let waited = self.changed.wait_timeout(state, left.min(PAUSE));
                state = waited.expect("no holder of this lock panics").0;
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(connection) = &self.lock().connection {
            connection.close();
        }
    }
}
