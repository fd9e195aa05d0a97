//! Exchanges certificates while the node runs.

use super::audit_lines::AUDIT;
use crate::status::{AdmittedStatus, CertificateStatus, IssuerStatus, TlsStatus};
use crate::transport::peers::Peers;
use crate::transport::security::NodeTls;
use ionian_tls::{
    Contents, Identity, Kind, Live, Name, Reload, TlsError, describe, fingerprint, is_near_end, now,
};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

/// How often the files are read.
const READ_EVERY: Duration = Duration::from_secs(10);

/// How often a certificate that ends soon is logged.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the files may take until the log says that they do not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most threads that wait for files that were replaced by others meanwhile. While there are so
/// many no further one begins.
const MOST_HANGING: usize = 8;

/// The most threads to which the storage does not even say which files there are.
const MOST_SILENT: usize = 2;

/// The pause between two connections that are closed: the cluster loses one at a time.
const CLOSE_EVERY: Duration = Duration::from_secs(1);

/// The certificates in force.
pub(crate) fn status(tls: &NodeTls) -> TlsStatus {
    let loaded = tls.live.loaded();
    TlsStatus {
        mode: tls.mode.word().to_owned(),
        certificate: certificate(loaded.set.certificate()),
        trusted: loaded.set.bundle().map(certificate).collect(),
        refused_sets: tls.live.failures(),
        refusal: tls.live.refusal().map(|why| why.to_string()),
        reads: Some(tls.live.reads()),
        refused_callers: tls.refused(),
        signed_by: loaded.set.own_signers(),
        admitted: Some(admitted(tls)),
    }
}

/// Nodes tell themselves what certificates they have.
fn admitted(tls: &NodeTls) -> AdmittedStatus {
    let (since, issuers) = tls.live.admitted();
    let callers = issuers.into_iter().filter(|it| it.kind != Kind::Node);
    let callers = callers.map(|it| IssuerStatus {
        issuer: it.issuer,
        kind: it.kind.word().to_owned(),
        last: it.last,
    });
    AdmittedStatus {
        since,
        issuers: callers.collect(),
    }
}

fn certificate(der: &[u8]) -> CertificateStatus {
    let described = describe(der);
    CertificateStatus {
        subject: described.subject,
        issuer: described.issuer,
        not_before: described.not_before,
        not_after: described.not_after,
        fingerprint: fingerprint(der),
    }
}

impl CertificateStatus {
    /// Whether it must be renewed now, or replaced if it is of an authority; `now` is in seconds
    /// since 1970.
    pub fn is_near_end(&self, is_authority: bool, now: i64) -> bool {
        is_near_end((self.not_before, self.not_after), is_authority, now)
    }
}

impl TlsStatus {
    /// The certificates that end soon, with what they are; `now` is in seconds since 1970.
    pub fn near_end(&self, now: i64) -> impl Iterator<Item = (&'static str, &CertificateStatus)> {
        let own = [("certificate", &self.certificate)].into_iter();
        let own = own.filter(move |(_, own)| own.is_near_end(false, now));
        let trusted = self.trusted.iter().map(|trusted| ("authority", trusted));
        own.chain(trusted.filter(move |(_, trusted)| trusted.is_near_end(true, now)))
    }
}

/// Logs each certificate that ends soon. Returns whether there is one.
fn warn_of_end(tls: &NodeTls) -> bool {
    let (status, now) = (status(tls), now());
    let mut found = false;
    for (what, it) in status.near_end(now) {
        found = true;
        let hours = (it.not_after - now) / 3600;
        let ends = match hours {
            _ if it.not_after <= now => "has ended".to_owned(),
            ..48 => format!("ends in {hours} hours"),
            _ => format!("ends in {} days", hours / 24),
        };
        tracing::warn!(id = "E0909", "the {what} {} {ends}: renew it", it.subject);
    }
    found
}

/// New certificates for a node were found, which is a line of the audit log.
fn audit(object: &Name, outcome: &str) {
    let object = object.to_string();
    tracing::info!(target: AUDIT, request = "certificates", object, outcome);
}

/// What an attempt to read the files has come to; nothing if they are those at which an earlier
/// attempt hangs.
type Read = Option<Result<Contents, TlsError>>;

/// Reads the files, each time on a thread of its own, because their storage may not answer.
struct Reader {
    live: Arc<Live>,
    /// Those that have not ended, the oldest first.
    attempts: Vec<Attempt>,
    results: UnboundedReceiver<(u64, Read)>,
    done: UnboundedSender<(u64, Read)>,
    begun: u64,
    /// The number of the latest attempt that has read files.
    used: u64,
    /// What it has read, until that is used.
    latest: Read,
}

/// A thread that reads the files.
struct Attempt {
    thread: JoinHandle<()>,
    /// Which ones; not set while the storage does not say that.
    identity: Arc<OnceLock<Identity>>,
}

impl Reader {
    fn new(live: Arc<Live>) -> Self {
        let (done, results) = unbounded_channel();
        Reader {
            live,
            attempts: Vec::new(),
            results,
            done,
            begun: 0,
            used: 0,
            latest: None,
        }
    }

    /// Begins an attempt. Returns whether it has: not while too many hang.
    fn begin(&mut self) -> bool {
        self.attempts.retain(|it| !it.thread.is_finished());
        let hanging = self.attempts.iter().map(|it| it.identity.get().cloned());
        let hanging: Vec<Option<Identity>> = hanging.collect();
        let silent = hanging.iter().filter(|it| it.is_none()).count();
        if hanging.len() >= MOST_HANGING || silent >= MOST_SILENT {
            tracing::warn!(
                id = "E0912",
                "the certificates are not read again: {} threads still wait for files",
                hanging.len()
            );
            return false;
        }
        self.begun += 1;
        let (number, live, done) = (self.begun, self.live.clone(), self.done.clone());
        let identity = Arc::<OnceLock<Identity>>::default();
        let found = identity.clone();
        let read = move || {
            let read = match live.files().identity() {
                Ok(files) if hanging.contains(&Some(files.clone())) => None,
                Ok(files) => {
                    let _ = found.set(files);
                    Some(live.read())
                }
                Err(error) => Some(Err(error)),
            };
            // Fails if the node stops.
            let _ = done.send((number, read));
        };
        match thread::Builder::new().name("tls".into()).spawn(read) {
            Ok(thread) => self.attempts.push(Attempt { thread, identity }),
            Err(error) => {
                tracing::warn!(id = "E0911", "no thread can read the certificates: {error}");
                return false;
            }
        }
        true
    }

    /// Takes in what attempts come to, until this one has ended, or one if none is named. What a
    /// later attempt has overtaken is dropped.
    async fn receive(&mut self, last: Option<u64>) {
        while let Some((number, read)) = self.results.recv().await {
            if read.is_some() && number > self.used {
                (self.used, self.latest) = (number, read);
            }
            if last.is_none_or(|last| number == last) {
                return;
            }
        }
    }

    /// Begins an attempt and waits for it, or says after [`PATIENCE`] that it does not come. It may
    /// [come](Self::receive) later.
    async fn read(&mut self) {
        if !self.begin() {
            return;
        }
        let own = self.begun;
        let is_late = timeout(PATIENCE, self.receive(Some(own))).await.is_err();
        if is_late && self.latest.is_none() {
            let why = self.live.is_late(PATIENCE);
            tracing::error!(id = "E0910", "the certificates in force stay: {why}");
        }
    }
}

/// Reads the certificates again and again, and puts new ones in force. If the trusted authorities
/// have changed, it then closes the connections to peers that the earlier ones admitted; both sides
/// make them again.
pub(crate) async fn keep_current(tls: NodeTls, peers: Rc<Peers>) {
    let mut warned = None;
    let mut reader = Reader::new(tls.live.clone());
    loop {
        let now = Instant::now();
        if warned.is_none_or(|at| now.duration_since(at) >= WARN_EVERY) && warn_of_end(&tls) {
            warned = Some(now);
        }
        let is_asked = tokio::select! {
            // Either the time has passed or an operator wants it now.
            asked = timeout(READ_EVERY, tls.reload.notified()) => {
                reader.read().await;
                asked.is_ok()
            }
            () = reader.receive(None) => false,
        };
        let read = reader.latest.take();
        let done = read.map_or(Reload::Unchanged, |read| tls.live.put_in_force(read));
        match done {
            Reload::Unchanged => {}
            Reload::Exchanged => {
                let loaded = tls.live.loaded();
                let (name, generation) = (loaded.set.name(), loaded.generation);
                audit(name, "exchanged");
                tracing::info!(
                    "the certificate of {name} was exchanged; the trusted authorities have changed {generation} times"
                );
                warned = None;
            }
            Reload::Refused(error) => {
                audit(tls.live.loaded().set.name(), "refused");
                tracing::error!(
                    id = "E0901",
                    "new certificates are refused, the old ones stay: {error}"
                );
            }
        }
        if is_asked {
            tls.was_read.notify_waiters();
        }
        while peers.close_older_than(tls.live.loaded().generation) {
            sleep(CLOSE_EVERY).await;
        }
    }
}
