//! How servers are used: with TLS or without, and as whom.

use super::arguments::Servers;
use anyhow::{Context, Result};
use ionian_tls::rustls::ClientConfig;
use ionian_tls::{ClientAuth, Expected, Files, Live};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// A user and its password.
    pub(crate) login: Option<(String, String)>,
}

impl Access {
    /// That of the servers that the arguments name.
    ///
    /// # Errors
    /// If a certificate or a password cannot be used.
    pub(crate) fn of(servers: &Servers) -> Result<Self> {
        Ok(Access {
            tls: servers.tls.as_deref().map(client).transpose()?,
            login: servers.credentials.find()?,
        })
    }
}

fn live(directory: &Path) -> Result<Live> {
    Live::open(Files::within(directory), Expected::any(), ClientAuth::None)
        .with_context(|| format!("--tls {}", directory.display()))
}

fn client(directory: &Path) -> Result<Arc<ClientConfig>> {
    Ok(live(directory)?.loaded().gateway_client.clone())
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// The name or address that its certificate must have.
    pub(crate) host: String,
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Place {
            address,
            host: IpAddr::to_string(&address.ip()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::connection::Connection;
    use crate::load::ledger::{Ledger, Loop, Window};
    use crate::load::target::connect;
    use ionian_tls::rustls::{ServerConfig, ServerConnection, StreamOwned};
    use ionian_tls::{Authority, Hosts};
    use std::fs::{self, Permissions};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    /// Commands, and bytes of each and of its reply: more than the buffers of a socket and of TLS.
    const COMMANDS: u64 = 64;
    const BYTES: usize = 200_000;

    const LIMIT: Duration = Duration::from_secs(60);

    /// The settings of a server, and those of a client for it, both with a certificate in this
    /// directory.
    fn settings(directory: &Path) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        fs::create_dir_all(directory).unwrap();
        let (authority, _) = Authority::create("shop", LIMIT * 60).unwrap();
        let hosts = Hosts {
            names: Vec::new(),
            addresses: vec![[127, 0, 0, 1].into()],
        };
        let name = "ionian://shop/node/n0".parse().unwrap();
        let issued = authority.issue(&name, &hosts, LIMIT * 60).unwrap();
        for (file, text) in [
            ("tls.crt", &*issued.certificate),
            ("tls.key", &*issued.key),
            ("ca.crt", authority.certificate()),
        ] {
            let path = directory.join(file);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
        let live = live(directory).unwrap();
        let loaded = live.loaded();
        (loaded.gateway_server.clone(), loaded.gateway_client.clone())
    }

    #[test]
    fn what_a_connection_with_tls_sends_and_gets_is_whole() {
        let directory = format!("ionian-bench-access-{}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        let (server, client) = settings(&directory);
        fs::remove_dir_all(&directory).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::from(listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            let session = ServerConnection::new(server).unwrap();
            let mut stream = StreamOwned::new(session, socket);
            for (request, reply) in [
                ("*3\r\n$4\r\nAUTH\r\n$3\r\neva\r\n$1\r\np\r\n", "+OK\r\n"),
                ("*1\r\n$4\r\nPING\r\n", "+PONG\r\n"),
            ] {
                let mut found = vec![0; request.len()];
                stream.read_exact(&mut found).unwrap();
                assert_eq!(found, request.as_bytes());
                stream.write_all(reply.as_bytes()).unwrap();
            }
            let reply = format!("${BYTES}\r\n{}\r\n", "v".repeat(BYTES));
            let mut command = vec![0; BYTES];
            for _ in 0..COMMANDS {
                stream.read_exact(&mut command).unwrap();
                assert!(command.iter().all(|byte| *byte == b'c'));
                stream.write_all(reply.as_bytes()).unwrap();
            }
            // Until the client has gone.
            let _ = stream.read(&mut [0]);
        });
        let access = Access {
            tls: Some(client),
            login: Some(("eva".into(), "p".into())),
        };
        let opened = connect(&place, &access, None).unwrap();
        let mut connection = Connection::new(opened).unwrap();
        let window = Window {
            begin: 0,
            end: u64::MAX,
        };
        let mut ledger = Ledger::new(window, Loop::Closed);
        let fill = |output: &mut Vec<u8>| {
            output.resize(COMMANDS as usize * BYTES, b'c');
            COMMANDS
        };
        connection.begin(0, fill).unwrap();
        let (mut answered, deadline) = (0, Instant::now() + LIMIT);
        let mut buffer = vec![0; 64 << 10];
        while !connection.is_idle() {
            assert!(Instant::now() < deadline, "{answered} are answered");
            connection.write().unwrap();
            answered += connection
                .read(&mut buffer, || 1, &mut ledger)
                .unwrap()
                .answered;
            std::thread::yield_now();
        }
        assert_eq!(answered, COMMANDS);
        drop(connection);
        serving.join().unwrap();
    }
}
