//! The collector: where it is, how it is trusted, and how it is given what it takes.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a collector may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The most bytes that are read of its answer, which is short.
const MOST_ANSWERED: usize = 64 << 10;

/// The path of traces, behind the address of a collector (OTLP/HTTP).
const PATH: &str = "/v1/traces";

/// With TLS.
const SECURE: &str = "https";

/// Where the collector listens: `http://HOST:PORT`, `https://HOST:PORT`, or with a path before that
/// of traces.
///
/// # Errors
/// If the text is no such address.
pub(crate) fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = || {
        format!(
            "{text:?}: must be http://HOST:PORT or https://HOST:PORT, the address of a collector, \
             without a user or a query"
        )
    };
    let uri: Uri = format!("{}{PATH}", text.trim_end_matches('/'))
        .parse()
        .map_err(|_| wrong())?;
    let is_plain = !text.contains(['@', '?', '#']);
    let is_usual = matches!(uri.scheme_str(), Some("http" | SECURE)) && uri.host().is_some();
    match is_usual && is_plain {
        true => Ok(uri),
        false => Err(wrong()),
    }
}

/// See the top of this file.
pub(super) struct Collector {
    uri: Uri,
    tls: Option<TlsConnector>,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

impl Collector {
    /// The collector at this address. With TLS its certificate must lead to one in the file
    /// `authorities`.
    ///
    /// # Errors
    /// If there is TLS and no such file, or the other way round, or nothing can be read from it.
    pub(super) fn new(uri: &Uri, authorities: Option<&Path>) -> Result<Self> {
        let is_secure = uri.scheme_str() == Some(SECURE);
        let tls = match (is_secure, authorities) {
            (true, Some(path)) => Some(connector(path)?),
            (false, None) => None,
            (true, None) => bail!(
                "{uri} needs --otlp-ca FILE: certificates, as PEM, of authorities that may have \
                 signed that of the collector"
            ),
            (false, Some(_)) => {
                bail!("--otlp-ca is allowed with https:// only, and the collector is {uri}")
            }
        };
        let uri = uri.clone();
        Ok(Collector { uri, tls })
    }

    /// Gives it a request.
    ///
    /// # Errors
    /// If it cannot be reached, is not trusted, is too slow, or does not take it.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<()> {
        let posted = timeout(LIMIT, self.connect_and_post(body)).await;
        posted
            .with_context(|| format!("no answer within {} s", LIMIT.as_secs()))
            .and_then(|posted| posted)
            .with_context(|| format!("the collector at {self}"))
    }

    async fn connect_and_post(&self, body: Vec<u8>) -> Result<()> {
        // An address of IP version 6 has brackets in a URI.
        let host = self.uri.host().context("no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let port = self.uri.port_u16().unwrap_or(usual);
        let stream = TcpStream::connect((host, port)).await?;
        let Some(tls) = &self.tls else {
            return self.post_over(stream, body).await;
        };
        let name = ServerName::try_from(host.to_owned())?;
        let stream = tls.connect(name, stream).await.context("TLS")?;
        self.post_over(stream, body).await
    }

    async fn post_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        body: Vec<u8>,
    ) -> Result<()> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let authority = self.uri.authority().context("no host")?.as_str();
        let path = self.uri.path_and_query().map_or(PATH, |path| path.as_str());
        let request = Request::post(path)
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(Bytes::from(body)))?;
        let answer = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_ANSWERED);
            let body = body.collect().await.map(|it| it.to_bytes());
            let said = body.unwrap_or_default();
            ensure!(
                status.is_success(),
                "it answers {status}: {}",
                String::from_utf8_lossy(&said)
            );
            Ok(())
        };
        let driven = async {
            match connection.await {
                // The answer is there, or never will be, which ends the other branch.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            answer = answer => answer,
            error = driven => Err(error.into()),
        }
    }
}

/// Trusts what leads to the certificates in this file.
fn connector(path: &Path) -> Result<TlsConnector> {
    let named = || format!("--otlp-ca {}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).with_context(named)? {
        let certificate = certificate.with_context(named)?;
        roots.add(certificate).with_context(named)?;
    }
    ensure!(
        !roots.is_empty(),
        "{}: holds no certificate; expected PEM with BEGIN CERTIFICATE",
        named()
    );
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
