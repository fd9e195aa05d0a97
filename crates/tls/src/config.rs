//! Settings of `rustls`: TLS 1.3 between nodes and operators, 1.2 or later for clients.

use crate::error::in_words;
use crate::name::{Expected, Kind, name_of};
use crate::set::CertificateSet;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    RootCertStore, ServerConfig, SignatureScheme,
};
use std::io;
use std::sync::{Arc, LazyLock};

/// Whether clients of the gateway must have certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// None is asked for.
    None,
    /// One is asked for, and checked if the client has one.
    Optional,
    /// A client without a valid one is refused.
    Required,
}

/// The cryptography. There is no process-wide default: each configuration names it.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(ring::default_provider()));
    PROVIDER.clone()
}

/// Checks certificates of callers.
pub(crate) fn client_verifier(
    roots: Arc<RootCertStore>,
    is_optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let builder = match is_optional {
        true => builder.allow_unauthenticated(),
        false => builder,
    };
    builder
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

/// For the port of a node: every caller needs a certificate. Whether its owner may have what it
/// asks for is judged when it has asked, so that the answer says why not.
pub(crate) fn node_server(set: &CertificateSet) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(explained(set, None, false)?)
        .with_single_cert(set.chain.clone(), set.key.clone_key())?;
    refuse_resumption(&mut config);
    Ok(config)
}

/// To reach the port of a node.
pub(crate) fn node_client(set: &CertificateSet) -> Result<ClientConfig, Error> {
    let verifier = NodeVerifier {
        cluster: set.name().cluster.clone(),
        roots: set.roots.clone(),
        signatures: WebPkiServerVerifier::builder_with_provider(set.roots.clone(), provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?,
    };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(set.chain.clone(), set.key.clone_key())?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// Who may use a gateway with a certificate. A monitor may only look at nodes, and a node asks no
/// gateway.
const CLIENTS: [Kind; 2] = [Kind::Client, Kind::Operator];

/// For the port of a gateway.
pub(crate) fn gateway_server(
    set: &CertificateSet,
    auth: ClientAuth,
) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = match auth {
        ClientAuth::None => builder.with_no_client_auth(),
        asked => {
            let is_optional = asked == ClientAuth::Optional;
            let clients = Expected {
                cluster: Some(set.name().cluster.clone()),
                kinds: CLIENTS.to_vec(),
                name: None,
            };
            builder.with_client_cert_verifier(explained(set, Some(clients), is_optional)?)
        }
    };
    let mut config = builder.with_single_cert(set.chain.clone(), set.key.clone_key())?;
    if auth != ClientAuth::None {
        refuse_resumption(&mut config);
    }
    Ok(config)
}

/// To reach a gateway as a Redis client does: its certificate has its host name.
pub(crate) fn gateway_client(set: &CertificateSet) -> Result<ClientConfig, Error> {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_root_certificates(set.roots.clone())
        .with_client_auth_cert(set.chain.clone(), set.key.clone_key())
}

/// `rustls` does not check certificates again when a session is resumed: an authority that was
/// dropped would stay trusted.
fn refuse_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// Checks the certificate of a node that was dialled: all but the name.
pub(crate) fn verify_node(
    leaf: &ParsedCertificate<'_>,
    roots: &RootCertStore,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(leaf, roots, intermediates, now, algorithms)
}

/// Checks certificates of nodes: all but the name, which the caller compares after the handshake.
/// Nodes have names of their own, so that neither addresses nor DNS matter.
#[derive(Debug)]
struct NodeVerifier {
    cluster: String,
    roots: Arc<RootCertStore>,
    signatures: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        verify_node(&parsed, &self.roots, intermediates, now)
            .map_err(|error| explain(leaf, &self.cluster, error))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

/// Checks certificates of callers, and says whose certificate is refused.
#[derive(Debug)]
struct CallerVerifier {
    cluster: String,
    /// Who is expected, if that is judged in the handshake.
    expected: Option<Expected>,
    inner: Arc<dyn ClientCertVerifier>,
}

fn explained(
    set: &CertificateSet,
    expected: Option<Expected>,
    is_optional: bool,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    Ok(Arc::new(CallerVerifier {
        cluster: set.name().cluster.clone(),
        expected,
        inner: client_verifier(set.roots.clone(), is_optional)?,
    }))
}

/// The reason with the name in the certificate, which is not proven, and what is expected.
fn explain(leaf: &[u8], cluster: &str, error: Error) -> Error {
    let found = name_of(leaf).map_or_else(|error| error.to_string(), |name| name.to_string());
    let text = format!(
        "the certificate that says {found} is refused: {}; expected a certificate of \
         ionian://{cluster}/ that a trusted authority has signed and that is valid now",
        in_words(&error)
    );
    refuse(text)
}

fn refuse(text: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Refused(text)))))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// The error of a TLS handshake, with the reason of this crate in place of the form that `rustls`
/// gives it.
pub fn readable(error: io::Error) -> io::Error {
    let source = error.get_ref().and_then(|source| source.downcast_ref());
    match source {
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(reason)))) => {
            io::Error::new(error.kind(), reason.to_string())
        }
        _ => error,
    }
}

impl ClientCertVerifier for CallerVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(leaf, intermediates, now)
            .map_err(|error| explain(leaf, &self.cluster, error))?;
        if let Some(expected) = &self.expected {
            let named = name_of(leaf).and_then(|name| expected.check(&name));
            named.map_err(|error| refuse(error.to_string()))?;
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
