//! What a node publishes of itself once a second, for readers on other threads: they need no answer
//! of the event loop, and see by the age of the last publication whether the loop still runs.

use super::event_loop::EventLoop;
use crate::admin::change::{self, Response};
use crate::admin::control::NodeControl;
use crate::status::NodeStatus;
use ionian_deployment::Configuration;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// How often a node publishes its status.
pub const PUBLISHED_EVERY: Duration = Duration::from_secs(1);

/// How many probes may wait. Further ones are refused.
const PROBES: usize = 4;

/// A status, and when it was published.
#[derive(Clone, Debug)]
pub struct Published {
    /// When.
    pub at: Instant,
    /// The status.
    pub status: NodeStatus,
    /// The membership that the node knows; `None` if that of its cluster cannot change.
    pub configuration: Option<Configuration>,
}

/// Asks whether a command passes the log; receives the reason if it does not.
type Probe = oneshot::Sender<Result<(), String>>;

/// The side of the node.
#[derive(Debug)]
pub struct StatusFeed {
    published: watch::Sender<Option<Arc<Published>>>,
    probes: mpsc::Receiver<Probe>,
}

/// The side of readers.
#[derive(Clone, Debug)]
pub struct StatusReader {
    published: watch::Receiver<Option<Arc<Published>>>,
    probes: mpsc::Sender<Probe>,
}

/// A feed and its reader.
pub fn status_feed() -> (StatusFeed, StatusReader) {
    let (publish, published) = watch::channel(None);
    let (ask, probes) = mpsc::channel(PROBES);
    let feed = StatusFeed {
        published: publish,
        probes,
    };
    let reader = StatusReader {
        published,
        probes: ask,
    };
    (feed, reader)
}

impl StatusReader {
    /// The last status; `None` until the node has recovered and listens.
    pub fn last(&self) -> Option<Arc<Published>> {
        self.published.borrow().clone()
    }

    /// Sends a command without effect through the log. It passes if the cluster can write.
    ///
    /// # Errors
    /// Why the command did not pass, or that the limit was reached.
    pub async fn probe(&self, limit: Duration) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let busy = |_| "other probes wait already, or the node does not run".to_owned();
        self.probes.try_send(answer).map_err(busy)?;
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the node has stopped".to_owned()),
            Err(_) => Err(format!("no command passed the log within {limit:?}")),
        }
    }
}

/// Publishes the status of the node, and answers probes, until the node ends.
pub(crate) async fn publish(event_loop: Rc<EventLoop>, mut feed: StatusFeed) {
    let mut ticks = tokio::time::interval(PUBLISHED_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let status = event_loop.status().await;
                let published = Published {
                    at: Instant::now(),
                    status,
                    configuration: event_loop.known_configuration(),
                };
                feed.published.send_replace(Some(Arc::new(published)));
            }
            Some(probe) = feed.probes.recv() => answer(&*event_loop, probe),
        }
    }
}

/// Submits the command of a probe; a task of its own waits for the reply, so that the status is
/// published meanwhile.
fn answer(node: &impl NodeControl, probe: Probe) {
    match node.submit(&change::probe()) {
        Err(Response::Refused(why) | Response::Undecided(why)) => drop(probe.send(Err(why))),
        Err(Response::Decided(_)) => drop(probe.send(Ok(()))),
        Ok(reply) => drop(tokio::task::spawn_local(async move {
            let passed = match reply.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(refusal)) => Err(format!("the client lane answers: {refusal:?}")),
                Err(_) => Err("the client lane has left this node".to_owned()),
            };
            // The reader may have given up.
            let _ = probe.send(passed);
        })),
    }
}
