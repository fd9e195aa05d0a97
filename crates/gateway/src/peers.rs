//! The gateways of a cluster, as clients that look for several addresses want them told.

use std::net::IpAddr;

/// Where a gateway serves.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The node's name.
    pub name: String,
    /// A host name or an address; empty means that by which the client reached this gateway.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Peer {
    /// The gateway of node `name` at `HOST:PORT`; `None` if it is not of this form.
    pub fn new(name: &str, address: &str) -> Option<Peer> {
        let (host, port) = address.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        // All addresses of a machine are none that a client can connect to.
        let host = if host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()) {
            ""
        } else {
            host
        };
        Some(Peer {
            name: name.to_owned(),
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }

    /// Forty hexadecimal digits, as Redis's nodes have; the same from every gateway.
    pub(crate) fn id(&self) -> String {
        let hash = |seed: u64| {
            let step =
                |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            self.name
                .as_bytes()
                .iter()
                .fold(0xcbf2_9ce4_8422_2325 ^ seed, step)
        };
        let digits = format!(
            "{:016x}{:016x}{:016x}",
            hash(0),
            hash(1 << 32),
            hash(3 << 48)
        );
        digits[..40].to_owned()
    }
}
