//! The thread that looks at the cluster, often while a page is open, and keeps the figures of this
//! node.

use crate::look::Look;
use crate::memory::Memory;
use bytes::Bytes;
use ionian_runtime::{PUBLISHED_EVERY, StatusReader};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// How often the nodes are asked while a page is open.
pub const LOOKS_EVERY: Duration = Duration::from_secs(2);

/// How often they are asked while no page is open: for the history and the events.
pub const RARELY: Duration = Duration::from_secs(30);

/// Looks at the cluster; `None` while its members are not known. Each question needs a time limit
/// of its own.
pub type Looking = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Look>>>> + Send>;

/// What a look has led to.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The event for the streams of pages.
    pub(crate) frame: Bytes,
    /// The document of `ionian status --json`; `None` while the members are not known.
    pub(crate) document: Option<Arc<str>>,
}

/// The dashboard of a node.
#[derive(Debug)]
pub struct Dashboard {
    pub(crate) memory: Mutex<Memory>,
    /// What the last look has led to; `None` if no page is open.
    pub(crate) seen: watch::Sender<Option<Seen>>,
    /// How many wait for looks.
    viewers: watch::Sender<usize>,
    /// Room for streams.
    pub(crate) streams: Arc<Semaphore>,
}

/// Makes the thread look often while it exists.
#[derive(Debug)]
pub(crate) struct Viewer(Arc<Dashboard>);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|count| *count -= 1);
    }
}

impl Dashboard {
    pub(crate) fn new(streams: usize) -> Arc<Self> {
        Arc::new(Dashboard {
            memory: Mutex::new(Memory::new(LOOKS_EVERY, RARELY)),
            seen: watch::Sender::new(None),
            viewers: watch::Sender::new(0),
            streams: Arc::new(Semaphore::new(streams)),
        })
    }

    /// Starts the thread. It runs until the process ends.
    ///
    /// # Errors
    /// If the thread cannot be set up.
    pub fn start(reader: StatusReader, looking: Looking) -> std::io::Result<Arc<Self>> {
        let dashboard = Dashboard::new(crate::STREAMS);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let own = dashboard.clone();
        std::thread::Builder::new()
            .name("dashboard".into())
            .spawn(move || {
                runtime.block_on(async { tokio::join!(own.keep(&reader), own.look(&looking)) })
            })?;
        Ok(dashboard)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on the thread looks often.
    pub(crate) fn view(self: &Arc<Self>) -> Viewer {
        self.viewers.send_modify(|count| *count += 1);
        Viewer(self.clone())
    }

    #[cfg(test)]
    pub(crate) fn viewers(&self) -> watch::Receiver<usize> {
        self.viewers.subscribe()
    }

    /// Keeps the figures of this node.
    async fn keep(&self, reader: &StatusReader) {
        let mut ticks = tokio::time::interval(PUBLISHED_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(published) = reader.last() {
                self.memory().take_own(published);
            }
        }
    }

    /// Looks: often while there are viewers, otherwise rarely.
    pub(crate) async fn look(&self, looking: &Looking) {
        let mut viewers = self.viewers.subscribe();
        let is_viewed = |count: &usize| *count > 0;
        loop {
            if !is_viewed(&viewers.borrow()) {
                // What is known grows old: a page must not begin with it.
                self.seen.send_replace(None);
                // The sender is in `self`. If no page comes, it is time.
                let _ = tokio::time::timeout(RARELY, viewers.wait_for(is_viewed)).await;
            }
            let begun = Instant::now();
            let look = looking().await;
            let seen = self.taken(begun, look);
            if is_viewed(&viewers.borrow()) {
                self.seen.send_replace(Some(seen));
            }
            // Also if the page is gone: those who come and go must not make it look more often.
            tokio::time::sleep(LOOKS_EVERY.saturating_sub(begun.elapsed())).await;
        }
    }

    fn taken(&self, begun: Instant, look: Option<Look>) -> Seen {
        let Some(look) = look else {
            return Seen {
                frame: Bytes::from_static(b"event: waits\ndata: {}\n\n"),
                document: None,
            };
        };
        let document = look.document.as_str().into();
        let picture = self.memory().take(begun, look);
        Seen {
            frame: format!("event: look\ndata: {picture}\n\n").into(),
            document: Some(document),
        }
    }
}
