//! The bytes of a handshake, written out by hand: a change of the format that other versions could
//! not read would show.

use crate::common::identity;
use bytes::Bytes;
use ionian_kernel::level::Level;
use ionian_kernel::wire::Wire;
use ionian_runtime::Identity;

pub(crate) const MAGIC: &[u8; 8] = b"\x96ionian\n";

/// A valid introduction of node 1 to node 0; tests change fields.
pub(crate) struct Greeting {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u16,
    pub(crate) purpose: u8,
    pub(crate) identity: Identity,
    pub(crate) epoch: u32,
    pub(crate) sender: u16,
    pub(crate) name: &'static str,
    pub(crate) target: u16,
}

impl Default for Greeting {
    fn default() -> Self {
        Greeting {
            magic: *MAGIC,
            version: Level::FIRST.number(),
            purpose: 0,
            identity: identity(),
            epoch: 0,
            sender: 1,
            name: "fake",
            target: 0,
        }
    }
}

impl Greeting {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Identity {
            cluster,
            founding,
            protocol,
            ..
        } = &self.identity;
        let mut body = Vec::new();
        let text =
            |text: &str, body: &mut Vec<u8>| Bytes::copy_from_slice(text.as_bytes()).encode(body);
        text(cluster, &mut body);
        text(protocol, &mut body);
        founding.encode(&mut body);
        self.epoch.encode(&mut body);
        self.sender.encode(&mut body);
        text(self.name, &mut body);
        self.target.encode(&mut body);
        // No data directory.
        body.push(0);
        // No commands to leave out.
        text("", &mut body);
        let mut all = self.magic.to_vec();
        (self.version, (self.purpose, body.len() as u16)).encode(&mut all);
        all.extend_from_slice(&body);
        all
    }
}
