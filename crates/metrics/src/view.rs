//! What a scrape sees: the last published status, and what the server itself reads.

use crate::process::Process;
use ionian_gateway::Measured;
use ionian_runtime::{Published, StatusReader};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::watch;

/// The states of a node, as labels.
pub(crate) const STATES: [&str; 4] = ["joining", "recovering", "serving", "stopping"];

/// Computes how many more nodes may fail, as far as this node can tell; `None` if clients are not
/// served already.
pub type Tolerance = Box<dyn Fn(&Published) -> Option<u64> + Send + Sync>;

/// What is known of the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditState {
    /// How many of its lines were lost.
    pub lost: u64,
    /// Whether its file takes no lines now.
    pub fails: bool,
}

/// Reads what is known of the audit log. It must not block.
pub type AuditReader = Box<dyn Fn() -> AuditState + Send + Sync>;

/// Where the server gets what it reports.
pub struct Sources {
    /// The node's status.
    pub status: StatusReader,
    /// What the gateway has measured; `None` without a gateway for Redis clients.
    pub gateway: watch::Receiver<Option<Measured>>,
    /// How many more nodes may fail.
    pub tolerance: Tolerance,
    /// The name of the cluster, which every sample has as a label. It is not known while the node
    /// waits to become a member.
    pub cluster: Arc<OnceLock<String>>,
    /// The name of the node, which every sample has as a label.
    pub node: String,
    /// The program's version.
    pub version: &'static str,
    /// A directory on the disk whose free space counts.
    pub data: PathBuf,
    /// The audit log, if the node writes one to a file.
    pub audit: Option<AuditReader>,
}

/// Answers by their code: what the server counts of itself.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    counts: [AtomicU64; CODES.len()],
    /// Connections that were closed at once, because there were too many.
    pub(crate) refused: AtomicU64,
}

/// The codes that the server answers.
pub(crate) const CODES: [u16; 6] = [200, 400, 403, 404, 405, 503];

impl Answers {
    pub(crate) fn count(&self, code: u16) {
        if let Some(place) = CODES.iter().position(|known| *known == code) {
            self.counts[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, code: usize) -> u64 {
        self.counts[code].load(Ordering::Relaxed)
    }
}

/// What one scrape sees.
pub(crate) struct View<'a> {
    /// The last published status.
    pub(crate) published: Option<Arc<Published>>,
    pub(crate) gateway: Option<Measured>,
    pub(crate) answers: &'a Answers,
    pub(crate) version: &'static str,
    pub(crate) now: Instant,
    sources: &'a Sources,
    /// Read when a metric needs it: a disk that does not answer must not hold up health checks.
    process: OnceCell<Process>,
    /// Whether the node waits to become a member.
    joins: bool,
}

impl<'a> View<'a> {
    pub(crate) fn of(sources: &'a Sources, answers: &'a Answers) -> Self {
        let published = sources.status.last();
        View {
            published,
            gateway: sources.gateway.borrow().clone(),
            answers,
            version: sources.version,
            now: Instant::now(),
            sources,
            process: OnceCell::new(),
            joins: sources.cluster.get().is_none(),
        }
    }

    /// What the system says of the process.
    pub(crate) fn process(&self) -> &Process {
        self.process
            .get_or_init(|| Process::read(&self.sources.data))
    }

    /// How many more nodes may fail.
    pub(crate) fn tolerance(&self) -> Option<u64> {
        (self.sources.tolerance)(self.published.as_ref()?)
    }

    /// What is known of the audit log, if there is a file.
    pub(crate) fn audit(&self) -> Option<AuditState> {
        self.sources.audit.as_ref().map(|read| read())
    }

    /// The state of the node: one of [`STATES`].
    pub(crate) fn state(&self) -> &'static str {
        match (&self.published, self.joins) {
            (None, true) => "joining",
            (None, false) => "recovering",
            (Some(published), _) if !published.status.takes_part => "joining",
            (Some(published), _) if published.status.drains.is_some() => "stopping",
            (Some(_), _) => "serving",
        }
    }

    /// How old the status is, in seconds.
    pub(crate) fn age(&self) -> Option<f64> {
        let published = self.published.as_ref()?;
        let age = self.now.saturating_duration_since(published.at);
        Some(age.as_secs_f64())
    }
}
