//! Exchanges certificates while the node runs.

use crate::status::{CertificateStatus, TlsStatus};
use crate::transport::peers::Peers;
use crate::transport::security::NodeTls;
use ionian_tls::{Reload, describe, fingerprint};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often the files are read.
const READ_EVERY: Duration = Duration::from_secs(10);

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
    }
}

fn certificate(der: &[u8]) -> CertificateStatus {
    let described = describe(der);
    CertificateStatus {
        subject: described.subject,
        issuer: described.issuer,
        not_after: described.not_after,
        fingerprint: fingerprint(der),
    }
}

/// Reads the certificates again and again, and puts new ones in force. If the trusted authorities
/// have changed, it then closes the connections to peers that the earlier ones admitted; both sides
/// make them again.
pub(crate) async fn keep_current(tls: NodeTls, peers: Rc<Peers>) {
    loop {
        // Either the time has passed or an operator wants it now.
        let _ = timeout(READ_EVERY, tls.reload.notified()).await;
        match tls.live.reload() {
            Reload::Unchanged => {}
            Reload::Exchanged => {
                let loaded = tls.live.loaded();
                let (name, generation) = (loaded.set.name(), loaded.generation);
                tracing::info!("the certificate of {name} was exchanged, trust is {generation}");
            }
            Reload::Refused(error) => {
                tracing::error!(
                    id = "E0901",
                    "new certificates are refused, the old ones stay: {error}"
                );
            }
        }
        while peers.close_older_than(tls.live.loaded().generation) {
            sleep(CLOSE_EVERY).await;
        }
    }
}
