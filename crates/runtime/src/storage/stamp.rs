//! The owner that is written into every file, so that a node does not use the files of another.

use ionian_kernel::level::Level;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The owner of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) cluster: String,
    pub(crate) protocol: String,
    pub(crate) node: String,
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp {
            cluster,
            protocol,
            node,
        } = self;
        write!(
            formatter,
            "node '{node}' of cluster '{cluster}' under protocol '{protocol}'"
        )
    }
}

/// The version of records in stamps. It does not grow with the level of the cluster: every program
/// reads the records of all levels that it supports, and the membership of a node says whether
/// there may be later ones.
const VERSION: u16 = Level::FIRST.number();

/// The bytes in logs and snapshots. They are readable because error texts show them.
pub(crate) fn encode(stamp: &Stamp) -> Vec<u8> {
    format!("{stamp}, version {VERSION} of records").into()
}

/// The stamp that was given to [`encode`]; `None` if the bytes are not of this version. Names
/// contain no spaces and no quotes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Stamp> {
    let names: Vec<&str> = std::str::from_utf8(bytes)
        .ok()?
        .split('\'')
        .skip(1)
        .step_by(2)
        .collect();
    let [node, cluster, protocol] = names[..] else {
        return None;
    };
    let stamp = Stamp {
        cluster: cluster.into(),
        protocol: protocol.into(),
        node: node.into(),
    };
    (encode(&stamp) == bytes).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back() {
        let stamp = || Stamp {
            cluster: "of".into(),
            protocol: "multipaxos".into(),
            node: "n-0_b".into(),
        };
        let Stamp {
            cluster,
            protocol,
            node,
        } = decode(&encode(&stamp())).unwrap();
        assert_eq!(
            [cluster, protocol, node],
            [stamp().cluster, stamp().protocol, stamp().node]
        );
        for other in [
            "",
            "node n0",
            "node n0 of cluster b under protocol c, version 0 of records",
        ] {
            assert!(decode(other.as_bytes()).is_none(), "{other}");
        }
    }
}
