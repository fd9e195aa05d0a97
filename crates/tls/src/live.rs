//! The set in force, and its exchange while the process runs.

use crate::config::{ClientAuth, gateway_client, gateway_server, node_client, node_server};
use crate::error::TlsError;
use crate::files::{Contents, Files};
use crate::name::{Expected, now};
use crate::seen::{Seen, SeenIssuer};
use crate::set::CertificateSet;
use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A set, and the settings made from it.
#[derive(Debug)]
pub struct Loaded {
    /// The set.
    pub set: CertificateSet,
    /// For the port of a node.
    pub node_server: Arc<ServerConfig>,
    /// To reach a node.
    pub node_client: Arc<ClientConfig>,
    /// For the port of a gateway.
    pub gateway_server: Arc<ServerConfig>,
    /// To reach a gateway.
    pub gateway_client: Arc<ClientConfig>,
    /// How often the trusted authorities have changed. A connection that an earlier generation has
    /// admitted may come from an authority that is not trusted any more.
    pub generation: u64,
}

impl Loaded {
    fn new(set: CertificateSet, auth: ClientAuth, generation: u64) -> Result<Self, rustls::Error> {
        Ok(Loaded {
            node_server: node_server(&set)?.into(),
            node_client: node_client(&set)?.into(),
            gateway_server: gateway_server(&set, auth)?.into(),
            gateway_client: gateway_client(&set)?.into(),
            set,
            generation,
        })
    }
}

/// The set in force. Threads share it.
#[derive(Debug)]
pub struct Live {
    files: Files,
    expected: Expected,
    auth: ClientAuth,
    loaded: ArcSwap<Loaded>,
    /// What the last files that were refused held: the same contents are reported once.
    refused: AtomicU64,
    failures: AtomicU64,
    reads: AtomicU64,
    /// Why the files as they were read last are not in force, if so.
    refusal: ArcSwapOption<String>,
    seen: Seen,
}

/// The result of looking at the files again.
#[derive(Debug)]
pub enum Reload {
    /// They hold what they held before.
    Unchanged,
    /// The new set is in force.
    Exchanged,
    /// The new set does not pass, and the old one stays in force.
    Refused(TlsError),
}

impl Live {
    /// Loads the first set.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(files: Files, expected: Expected, auth: ClientAuth) -> Result<Self, TlsError> {
        Self::open_by((files, expected), auth, &|_| ())
    }

    /// As [`open`](Self::open). `begin` is called with each file before it is read.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_by(
        (files, expected): (Files, Expected),
        auth: ClientAuth,
        begin: &dyn Fn(&Path),
    ) -> Result<Self, TlsError> {
        let set = CertificateSet::load(&files, &expected, begin)?;
        Ok(Live {
            loaded: ArcSwap::from_pointee(load(&files, set, auth, 0)?),
            files,
            expected,
            auth,
            refused: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            reads: AtomicU64::new(1),
            refusal: ArcSwapOption::empty(),
            seen: Seen::new(),
        })
    }

    /// Where the set is.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The set in force.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// How many new sets were refused since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// How often the files were read since the start.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Why the files as they were read last are not in force, if so.
    pub fn refusal(&self) -> Option<Arc<String>> {
        self.refusal.load_full()
    }

    /// Notes that the owner of this chain of certificates, its own first, was admitted.
    pub fn has_admitted(&self, chain: &[CertificateDer<'_>]) {
        let signers = self.loaded().set.signers(chain);
        let set = &self.loaded().set;
        let is_trusted = |name: &str| set.trusts(name);
        self.seen.add(chain, signers, is_trusted, now());
    }

    /// The authorities of the set in force to which the owners that were admitted lead, and since
    /// when they are noted, in seconds since 1970.
    pub fn admitted(&self) -> (i64, Vec<SeenIssuer>) {
        let set = &self.loaded().set;
        (self.seen.since(), self.seen.all(|name| set.trusts(name)))
    }

    /// Notes that the files were not read within this time, and returns that in words. The note
    /// lasts until they are.
    pub fn is_late(&self, limit: Duration) -> Arc<String> {
        let files = self.files.certificate.display();
        let why = format!("{files} and the files beside it were not read within {limit:?}");
        let why = Arc::new(why);
        self.refusal.store(Some(why.clone()));
        why
    }

    /// Reads the files, and [puts them in force](Self::put_in_force).
    pub fn reload(&self) -> Reload {
        self.put_in_force(self.read())
    }

    /// Reads the files. Blocks for as long as the storage takes; several threads may.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn read(&self) -> Result<Contents, TlsError> {
        self.files.read(&|_| ())
    }

    /// Puts a new set in force if what was read passes every check. Only one thread of a process
    /// calls this.
    pub fn put_in_force(&self, read: Result<Contents, TlsError>) -> Reload {
        let done = self.exchange(read);
        self.reads.fetch_add(1, Ordering::Relaxed);
        done
    }

    fn exchange(&self, read: Result<Contents, TlsError>) -> Reload {
        let before = self.loaded();
        let contents = match read {
            Ok(contents) => contents,
            Err(error) => return self.refuse(u64::MAX, error),
        };
        let digest = contents.digest();
        if digest == before.set.digest() {
            self.accept();
            return Reload::Unchanged;
        }
        // Another cluster's files would pass by themselves, and cut this process off from its own.
        let expected = Expected {
            cluster: Some(before.set.name().cluster.clone()),
            ..self.expected.clone()
        };
        let new = CertificateSet::check(&self.files, &contents, &expected).and_then(|set| {
            let changed = u64::from(!set.trusts_as(&before.set));
            load(&self.files, set, self.auth, before.generation + changed)
        });
        match new {
            Err(error) => self.refuse(digest, error),
            Ok(new) => {
                self.accept();
                self.loaded.store(Arc::new(new));
                Reload::Exchanged
            }
        }
    }

    fn accept(&self) {
        self.refused.store(0, Ordering::Relaxed);
        self.refusal.store(None);
    }

    fn refuse(&self, digest: u64, error: TlsError) -> Reload {
        self.refusal.store(Some(Arc::new(error.to_string())));
        if self.refused.swap(digest, Ordering::Relaxed) == digest {
            return Reload::Unchanged;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        Reload::Refused(error)
    }
}

fn load(
    files: &Files,
    set: CertificateSet,
    auth: ClientAuth,
    generation: u64,
) -> Result<Loaded, TlsError> {
    let found = set.name().to_string();
    Loaded::new(set, auth, generation).map_err(|source| TlsError::Invalid {
        path: files.certificate.clone(),
        found,
        source,
    })
}
