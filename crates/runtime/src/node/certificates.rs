//! Exchanges certificates while the node runs.

use super::audit_lines::AUDIT;
use crate::status::{AdmittedStatus, CertificateStatus, IssuerStatus, TlsStatus};
use crate::transport::peers::Peers;
use crate::transport::security::NodeTls;
use ionian_tls::{Kind, Name, Reload, describe, fingerprint, is_near_end, now};
use std::rc::Rc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// How often the files are read.
const READ_EVERY: Duration = Duration::from_secs(10);

/// How often a certificate that ends soon is logged.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the files may take until the log says that they do not come.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// Reads the files on a thread, because their storage may not answer, and then says so once.
/// `is_asked` if an operator waits for the end; one waits for [`PATIENCE`] only.
async fn read(tls: &NodeTls, is_asked: bool) -> Reload {
    let (done, mut reading) = oneshot::channel();
    let live = tls.live.clone();
    let read = move || {
        // Fails if the node stops.
        let _ = done.send(live.reload());
    };
    if let Err(error) = thread::Builder::new().name("tls".into()).spawn(read) {
        tracing::warn!(id = "E0911", "no thread can read the certificates: {error}");
        return Reload::Unchanged;
    }
    if let Ok(read) = timeout(PATIENCE, &mut reading).await {
        return read.unwrap_or(Reload::Unchanged);
    }
    let why = tls.live.is_late(PATIENCE);
    tracing::error!(id = "E0910", "the certificates in force stay: {why}");
    if is_asked {
        tls.was_read.notify_waiters();
    }
    loop {
        tokio::select! {
            read = &mut reading => return read.unwrap_or(Reload::Unchanged),
            () = tls.reload.notified() => tls.was_read.notify_waiters(),
        }
    }
}

/// Reads the certificates again and again, and puts new ones in force. If the trusted authorities
/// have changed, it then closes the connections to peers that the earlier ones admitted; both sides
/// make them again.
pub(crate) async fn keep_current(tls: NodeTls, peers: Rc<Peers>) {
    let mut warned = None;
    loop {
        let now = Instant::now();
        if warned.is_none_or(|at| now.duration_since(at) >= WARN_EVERY) && warn_of_end(&tls) {
            warned = Some(now);
        }
        // Either the time has passed or an operator wants it now.
        let is_asked = timeout(READ_EVERY, tls.reload.notified()).await.is_ok();
        match read(&tls, is_asked).await {
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
