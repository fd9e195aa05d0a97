//! A set of certificate, key and bundle, checked whole.

use crate::config::{client_verifier, provider, verify_node};
use crate::error::TlsError;
use crate::files::{Contents, Files};
use crate::name::{Expected, Kind, Name, describe, name_of};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// How long it may take to replace the second file of a set after the first.
const REPLACED_WITHIN: Duration = Duration::from_millis(100);

/// A certificate authority of the bundle.
#[derive(Debug)]
struct Trusted {
    certificate: CertificateDer<'static>,
    name: String,
    /// Accepts what leads to this authority, and to no other.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Trusted {
    fn new(certificate: CertificateDer<'static>) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone())?;
        Ok(Trusted {
            name: describe(&certificate).subject,
            certificate,
            verifier: client_verifier(roots.into(), false)?,
        })
    }
}

/// A set that passed every check.
#[derive(Debug)]
pub struct CertificateSet {
    name: Name,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) roots: Arc<RootCertStore>,
    bundle: Vec<Trusted>,
    digest: u64,
}

impl CertificateSet {
    /// Loads a set and checks it: the key fits the certificate, the certificate is valid now under
    /// the set's own bundle, and the name in it is the expected one. Files that are being replaced
    /// do not fit together, so a set that does not pass is read once more. `begin` is called with
    /// each file before it is read.
    ///
    /// # Errors
    /// What is wrong, with the file.
    pub fn load(
        files: &Files,
        expected: &Expected,
        begin: &dyn Fn(&Path),
    ) -> Result<Self, TlsError> {
        let first = files.read(begin)?;
        let error = match Self::check(files, &first, expected) {
            Ok(set) => return Ok(set),
            Err(error) => error,
        };
        sleep(REPLACED_WITHIN);
        let second = files.read(begin)?;
        match second.digest() == first.digest() {
            true => Err(error),
            false => Self::check(files, &second, expected),
        }
    }

    pub(crate) fn check(
        files: &Files,
        contents: &Contents,
        expected: &Expected,
    ) -> Result<Self, TlsError> {
        let path = || files.certificate.clone();
        let chain = Files::certificates(&files.certificate, &contents.certificate)?;
        let authorities = Files::certificates(&files.bundle, &contents.bundle)?;
        let key = files.private_key(&contents.key)?;
        let in_file = |error: TlsError| TlsError::Contents {
            path: path(),
            what: error.to_string(),
        };
        let name = name_of(&chain[0]).map_err(in_file)?;
        expected.check(&name).map_err(in_file)?;
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()).map_err(|error| {
            TlsError::Contents {
                path: files.key.clone(),
                what: format!(
                    "the key does not fit the certificate in {}: {error}",
                    files.certificate.display()
                ),
            }
        })?;
        let no_authority = |error: rustls::Error| TlsError::Contents {
            path: files.bundle.clone(),
            what: format!("not a certificate authority: {error}"),
        };
        let (mut roots, mut bundle) = (RootCertStore::empty(), Vec::new());
        for root in authorities {
            roots.add(root.clone()).map_err(no_authority)?;
            bundle.push(Trusted::new(root).map_err(no_authority)?);
        }
        let roots = Arc::new(roots);
        verify(&chain, &roots, name.kind).map_err(|source| TlsError::Invalid {
            path: path(),
            found: name.to_string(),
            source,
        })?;
        Ok(CertificateSet {
            name,
            chain,
            key,
            roots,
            bundle,
            digest: contents.digest(),
        })
    }

    /// The name in the certificate.
    pub fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The certificate of this process, DER.
    pub fn certificate(&self) -> &[u8] {
        &self.chain[0]
    }

    /// The certificate authorities of the bundle, DER.
    pub fn bundle(&self) -> impl Iterator<Item = &[u8]> {
        self.bundle.iter().map(|root| &root.certificate[..])
    }

    /// Whether both sets trust the same authorities.
    pub(crate) fn trusts_as(&self, other: &CertificateSet) -> bool {
        let contains = |of: &CertificateSet, root: &[u8]| of.bundle().any(|it| it == root);
        self.bundle().all(|root| contains(other, root))
            && other.bundle().all(|root| contains(self, root))
    }

    /// Whether an authority of the bundle has this name.
    pub(crate) fn trusts(&self, name: &str) -> bool {
        self.bundle.iter().any(|root| root.name == name)
    }

    /// The names of the authorities of the bundle to each of which alone this chain leads, its
    /// owner's certificate first. Others may be in the chain: they count for nothing.
    pub(crate) fn signers(&self, chain: &[CertificateDer<'_>]) -> Vec<String> {
        let Some((leaf, rest)) = chain.split_first() else {
            return Vec::new();
        };
        let now = UnixTime::now();
        let leads_to = |root: &&Trusted| {
            let verified = root.verifier.verify_client_cert(leaf, rest, now);
            verified.is_ok()
        };
        let signers = self.bundle.iter().filter(leads_to);
        signers.map(|root| root.name.clone()).collect()
    }

    /// The names of the authorities of the bundle to which the certificate of this process leads.
    pub fn own_signers(&self) -> Vec<String> {
        self.signers(&self.chain)
    }
}

/// Other processes check a certificate in the same way.
fn verify(
    chain: &[CertificateDer<'static>],
    roots: &Arc<RootCertStore>,
    kind: Kind,
) -> Result<(), rustls::Error> {
    let (leaf, rest) = chain.split_first().expect("a chain has a certificate");
    let now = UnixTime::now();
    client_verifier(roots.clone(), false)?.verify_client_cert(leaf, rest, now)?;
    if kind == Kind::Node {
        verify_node(&ParsedCertificate::try_from(leaf)?, roots, rest, now)?;
    }
    Ok(())
}

/// The SHA-256 of a certificate (DER), in hexadecimal digits, as `openssl x509 -fingerprint
/// -sha256` shows it without colons.
pub fn fingerprint(certificate: &[u8]) -> String {
    let provider = provider();
    let suite = provider.cipher_suites.iter().find_map(|suite| {
        let suite = suite.tls13()?;
        (suite.common.hash_provider.output_len() == 32).then_some(suite)
    });
    let hash = suite
        .expect("ring has a suite with SHA-256")
        .common
        .hash_provider;
    let digest = hash.hash(certificate);
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
