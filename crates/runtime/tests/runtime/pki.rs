//! Certificates of a test, a pair of nodes that use them, and callers.

use crate::common::{self, Running, layout, settings, start};
use crate::support::{DEADLINE, Directory};
use ionian_runtime::status::PeerState;
use ionian_runtime::{
    Contact, NodeSettings, NodeStatus, NodeTls, QueryError, TlsMode, query_status,
};
use ionian_tls::rustls::pki_types::pem::PemObject;
use ionian_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use ionian_tls::rustls::version::{TLS12, TLS13};
use ionian_tls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use ionian_tls::{Authority, ClientAuth, Expected, Files, Hosts, Issued, Kind, Live, Name};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// An authority, and the certificates of a test.
pub(crate) struct Pki {
    pub(crate) authority: Authority,
    pub(crate) directory: Directory,
}

impl Pki {
    pub(crate) fn new() -> Self {
        Pki {
            authority: Authority::create("blue", HOUR).unwrap().0,
            directory: Directory::new(),
        }
    }

    pub(crate) fn issue(&self, kind: Kind, name: &str) -> Issued {
        let name = Name {
            cluster: "blue".into(),
            kind,
            name: name.into(),
        };
        let hosts = Hosts {
            names: vec!["localhost".into()],
            addresses: Vec::new(),
        };
        self.authority.issue(&name, &hosts, HOUR).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, issued: &Issued) {
        let write = |file: &str, text: &str| {
            let path = self.path(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        write("tls.crt", &issued.certificate);
        write("tls.key", &issued.key);
        write("ca.crt", self.authority.certificate());
    }

    /// The certificate of an owner, in force.
    pub(crate) fn tls(&self, kind: Kind, name: &str, mode: TlsMode) -> NodeTls {
        self.write(name, &self.issue(kind, name));
        self.open(name, mode)
    }

    /// The certificate that was written last.
    pub(crate) fn open(&self, name: &str, mode: TlsMode) -> NodeTls {
        let expected = Expected::any();
        let files = Files::within(&self.path(name));
        let live = Live::open(files, expected, ClientAuth::None).unwrap();
        NodeTls::new(mode, Arc::new(live))
    }

    pub(crate) fn required(&self, kind: Kind, name: &str) -> Option<NodeTls> {
        Some(self.tls(kind, name, TlsMode::Required))
    }
}

/// Two nodes, of which node 1 dials node 0.
pub(crate) struct Pair {
    pub(crate) listeners: [Option<TcpListener>; 2],
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let listeners = [common::bind(), common::bind()];
        let addresses = listeners
            .iter()
            .map(|at| at.local_addr().unwrap())
            .collect();
        Pair {
            listeners: listeners.map(Some),
            addresses,
        }
    }

    pub(crate) fn settings(&mut self, node: u16, tls: Option<NodeTls>) -> NodeSettings {
        let address = self.addresses[usize::from(node)];
        let listener = self.listeners[usize::from(node)]
            .take()
            .unwrap_or_else(|| TcpListener::bind(address).unwrap());
        let mut settings = settings(node, listener, &self.addresses, &layout(&[0], &[1]));
        settings.tls = tls;
        settings
    }

    pub(crate) fn start(&mut self, node: u16, tls: Option<NodeTls>) -> Running {
        start(self.settings(node, tls))
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

pub(crate) fn status_by(node: &Running, tls: &Option<NodeTls>) -> Result<NodeStatus, QueryError> {
    let contact = Contact {
        tls: tls.clone(),
        ..Contact::from(node.address)
    };
    block_on(query_status(contact, DEADLINE))
}

pub(crate) fn is_connected(node: &Running, tls: &Option<NodeTls>) -> bool {
    status_by(node, tls).is_ok_and(|status| status.peers[0].state == PeerState::Connected)
}

/// What a caller reads that opens TLS with a certificate and sends `hello`: the bytes of the
/// answer, or why there are none.
pub(crate) fn ask(
    pki: &Pki,
    node: &Running,
    own: Option<&Issued>,
    hello: &[u8],
) -> Result<Vec<u8>, String> {
    ask_by(pki, node, own, hello, &[&TLS12, &TLS13])
}

/// The same with these versions of TLS.
pub(crate) fn ask_by(
    pki: &Pki,
    node: &Running,
    own: Option<&Issued>,
    hello: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Vec<u8>, String> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(pki.authority.certificate().as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(ionian_tls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let exchange = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let stream = tokio::net::TcpStream::connect(node.address).await?;
        let host = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(host, stream)
            .await?;
        stream.write_all(hello).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer).await {
            // A node that has given an answer may end the connection without notice.
            Err(error) if answer.is_empty() || error.kind() != ErrorKind::UnexpectedEof => {
                Err(error)
            }
            _ => Ok(answer),
        }
    };
    block_on(exchange).map_err(|error| error.to_string())
}

/// The verdict in an answer: 0 accepted, 1 refused.
pub(crate) fn verdict(answer: &[u8]) -> (u8, String) {
    (
        answer[10],
        String::from_utf8_lossy(&answer[13..]).into_owned(),
    )
}
