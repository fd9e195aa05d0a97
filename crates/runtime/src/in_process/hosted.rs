//! A node on its own thread, with handles on its client lanes for other threads.

use super::client::Calls;
use super::local_reads::Desk;
use super::serving::serve_calls;
use crate::error::NodeError;
use crate::node::application::{Application, LaneHandle};
use crate::node::roles::Runnable;
use crate::node::settings::NodeSettings;
use crate::node::start::run_node;
use ionian_kernel::machine::StateMachine;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// A node that runs on its own thread. Dropping it stops the node in order and waits for it.
pub struct Hosted {
    stop: Option<oneshot::Sender<Stop>>,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

/// How a node must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It writes out what waits first.
    InOrder,
    /// As after a crash: it writes nothing more.
    AtOnce,
}

impl Hosted {
    /// Starts a node, and returns when its roles are created and it listens; the calls reach its
    /// lanes.
    ///
    /// # Errors
    /// The reason why it does not run.
    pub fn start(
        protocol: Runnable,
        settings: NodeSettings,
        machine: impl Fn() -> Box<dyn StateMachine> + Send + 'static,
    ) -> Result<(Hosted, Calls), NodeError> {
        Self::start_at(protocol, Desk::new(), settings, machine)
    }

    /// As [`start`](Self::start), where the closures for its machines wait at this desk.
    pub(crate) fn start_at(
        protocol: Runnable,
        desk: Arc<Desk>,
        settings: NodeSettings,
        machine: impl Fn() -> Box<dyn StateMachine> + Send + 'static,
    ) -> Result<(Hosted, Calls), NodeError> {
        let (calls, queue) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = std::sync::mpsc::channel();
        let thread = format!("ionian-{}", settings.name);
        let body = move || {
            let at = desk.clone();
            let machine = move || at.serve(machine());
            let application = move |handle: LaneHandle| {
                let _ = started.send(());
                serve_calls(handle, desk, queue)
            };
            run_thread(protocol, settings, machine, application, stopped)
        };
        let thread = std::thread::Builder::new()
            .name(thread)
            .spawn(body)
            .map_err(NodeError::Start)?;
        let mut hosted = Hosted {
            stop: Some(stop),
            thread: Some(thread),
        };
        if starting.recv().is_err() {
            // The thread ended before that, and returns the reason.
            hosted.wait()?;
            return Err(NodeError::Settings("it stopped at once".into()));
        }
        Ok((hosted, Calls::new(calls)))
    }

    /// Asks the node to end. It may have ended already.
    pub fn ask_to_stop(&mut self, how: Stop) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(how);
        }
    }

    /// Waits until the node has ended: because it was asked to, its disk fails, or it is no longer
    /// a member.
    ///
    /// # Errors
    /// The reason, if it was not asked to.
    pub fn wait(&mut self) -> Result<(), NodeError> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// Whether the node has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.ask_to_stop(Stop::InOrder);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The body of a node's thread.
fn run_thread(
    protocol: Runnable,
    settings: NodeSettings,
    machine: impl Fn() -> Box<dyn StateMachine> + 'static,
    application: impl FnOnce(LaneHandle) -> Box<dyn Application>,
    stop: oneshot::Receiver<Stop>,
) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(NodeError::Start)?;
    let (in_order, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let at_once = async move {
        match stop.await {
            Ok(Stop::AtOnce) => {}
            // The cluster was dropped, or the node must end in order: it ends itself.
            Ok(Stop::InOrder) | Err(_) => {
                let _ = in_order.send(());
                std::future::pending::<()>().await;
            }
        }
    };
    LocalSet::new().block_on(&runtime, async move {
        tokio::select! {
            result = run_node(protocol, settings, machine, application, shutdown) => result,
            () = at_once => Ok(()),
        }
    })
}
