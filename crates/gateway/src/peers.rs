//! The gateways of a cluster, in the form that clients expect.

use std::net::IpAddr;

/// The address of a gateway.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The node's name.
    pub name: String,
    /// A host name or address; empty means the one by which the client reached this gateway.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Peer {
    /// The gateway of node `name` at `HOST:PORT`; `None` if the address has another form.
    pub fn new(name: &str, address: &str) -> Option<Peer> {
        let (host, port) = address.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        // Clients cannot connect to a wildcard address.
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

    /// Forty hexadecimal digits, like the ids of Redis's nodes; equal at every gateway.
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
