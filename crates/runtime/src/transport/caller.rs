//! Who calls this node, and what each caller may ask for.

use super::hello::{Hello, Introduction, Purpose};
use super::stream::NodeStream;
use ionian_tls::{Expected, Kind, Name, name_of};
use std::fmt;

/// The other side of a connection to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A caller without a name, on a node that does not require TLS.
    Unnamed,
    /// The owner of a valid certificate with this name.
    Named(Name),
    /// A process of this machine that runs as root or as the user of this node.
    Local,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Unnamed => f.write_str("a caller without a certificate"),
            Caller::Named(name) => name.fmt(f),
            Caller::Local => f.write_str("a local process"),
        }
    }
}

impl Caller {
    /// The caller on a connection after its TLS handshake.
    ///
    /// # Errors
    /// Why its certificate names no identity.
    pub(crate) fn of(stream: &NodeStream) -> Result<Self, String> {
        match (stream, stream.certificate()) {
            (NodeStream::Local(_), _) => Ok(Caller::Local),
            (NodeStream::Plain(_), _) | (NodeStream::Tls { .. }, None) => Ok(Caller::Unnamed),
            (NodeStream::Tls { .. }, Some(leaf)) => {
                name_of(leaf).map(Caller::Named).map_err(|e| e.to_string())
            }
        }
    }

    /// Checks whether this caller may make a request to a node of `cluster`.
    ///
    /// # Errors
    /// The reason, with the name that it has and the names that may.
    pub(crate) fn check(&self, cluster: &str, hello: &Hello) -> Result<(), String> {
        let purpose = hello.purpose();
        let mut expected = Expected {
            cluster: Some(cluster.to_owned()),
            kinds: allowed(purpose).to_vec(),
            name: None,
        };
        if let Hello::Peer(_, Introduction { sender_name, .. }) = hello {
            expected.name = Some(sender_name.0.clone());
        }
        match self {
            Caller::Unnamed => Ok(()),
            Caller::Local if purpose != Purpose::Peer => Ok(()),
            Caller::Local => Err("peers do not use the Unix socket".to_owned()),
            Caller::Named(name) => expected
                .check(name)
                .map_err(|error| format!("{} is refused: {error}", described(purpose))),
        }
    }
}

/// The owners of certificates that may make a request. Every request but that of a peer is also
/// allowed on the Unix socket.
fn allowed(purpose: Purpose) -> &'static [Kind] {
    match purpose {
        Purpose::Peer => &[Kind::Node],
        // Nodes ask each other for the dashboard, and when they join or were away.
        Purpose::Status | Purpose::Membership => &[Kind::Operator, Kind::Monitor, Kind::Node],
        // No node asks another, and the certificate of a removed one, or a stolen key, must not
        // show what clients do.
        Purpose::Notes => &[Kind::Operator, Kind::Monitor],
        // Recording makes every command cost more on all nodes, for up to an hour. The request that
        // switches it on reads as well, which an operator may: it needs no split of its own.
        Purpose::Snapshot | Purpose::Change | Purpose::Drain | Purpose::Record => &[Kind::Operator],
    }
}

fn described(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Peer => "the connection of a peer",
        Purpose::Status => "the request for the status",
        Purpose::Snapshot => "the request for a snapshot",
        Purpose::Membership => "the request for the membership",
        Purpose::Change => "the change of the membership",
        Purpose::Drain => "the request to drain",
        Purpose::Notes => "the request for traces",
        Purpose::Record => "the request to record for traces",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::traces::TraceRequest;
    use crate::transport::hello::{AdminRequest, DrainRequest};
    use ionian_kernel::id::Epoch;
    use ionian_kernel::level::Level;

    /// Who may make a request: a caller where TLS is not required, a client, a monitor, an
    /// operator, the node itself, and a process on the Unix socket. On a port that requires TLS, a
    /// caller without a certificate gets no answer to any request.
    fn row(purpose: Purpose) -> [bool; 6] {
        match purpose {
            Purpose::Peer => [true, false, false, false, true, false],
            Purpose::Status => [true, false, true, true, true, true],
            Purpose::Snapshot => [true, false, false, true, false, true],
            Purpose::Membership => [true, false, true, true, true, true],
            Purpose::Change => [true, false, false, true, false, true],
            Purpose::Drain => [true, false, false, true, false, true],
            Purpose::Notes => [true, false, true, true, false, true],
            Purpose::Record => [true, false, false, true, false, true],
        }
    }

    /// A request of each purpose, in a chain that has no end if one is left out.
    fn after(purpose: Purpose) -> Option<Hello> {
        Some(Hello::Admin(match purpose {
            Purpose::Peer => AdminRequest::Status,
            Purpose::Status => AdminRequest::Snapshot(None),
            Purpose::Snapshot => AdminRequest::Membership,
            Purpose::Membership => AdminRequest::Change,
            Purpose::Change => AdminRequest::Drain(DrainRequest {
                cluster: "shop".into(),
                node: "n1".into(),
                process: None,
                drains: true,
            }),
            Purpose::Drain => AdminRequest::Notes(TraceRequest::default()),
            Purpose::Notes => AdminRequest::Notes(TraceRequest {
                one_in: Some(1000),
                ..TraceRequest::default()
            }),
            Purpose::Record => return None,
        }))
    }

    fn peer(name: &str) -> Hello {
        let introduction = Introduction {
            cluster: "shop".into(),
            protocol: "toy".into(),
            founding: 1,
            epoch: Epoch(0),
            sender: 2,
            sender_name: name.into(),
            target: 1,
            directory: None,
            skips: "".into(),
        };
        Hello::Peer(Level::FIRST, introduction)
    }

    fn named(kind: Kind, name: &str) -> Caller {
        Caller::Named(Name {
            cluster: "shop".into(),
            kind,
            name: name.into(),
        })
    }

    #[test]
    fn each_caller_may_make_the_requests_of_its_row() {
        let callers = [
            Caller::Unnamed,
            named(Kind::Client, "web"),
            named(Kind::Monitor, "prometheus"),
            named(Kind::Operator, "eva"),
            named(Kind::Node, "n2"),
            Caller::Local,
        ];
        let mut requests = vec![peer("n2")];
        while let Some(next) = after(requests.last().unwrap().purpose()) {
            requests.push(next);
        }
        assert_eq!(requests.len(), 8);
        for hello in requests {
            let found = callers
                .each_ref()
                .map(|caller| caller.check("shop", &hello).is_ok());
            assert_eq!(found, row(hello.purpose()), "{:?}", hello.purpose());
        }
    }

    #[test]
    fn refusal_names_the_owner_and_who_may() {
        let check = |caller: Caller, hello| caller.check("shop", &hello).unwrap_err();
        assert_eq!(
            check(named(Kind::Node, "n3"), peer("n2")),
            "the connection of a peer is refused: the certificate is of ionian://shop/node/n3; \
             expected ionian://shop/node/n2"
        );
        assert_eq!(
            check(
                named(Kind::Monitor, "m"),
                Hello::Admin(AdminRequest::Change)
            ),
            "the change of the membership is refused: the certificate is of \
             ionian://shop/monitor/m; expected ionian://shop/operator/*"
        );
        let other = named(Kind::Operator, "eva")
            .check("blue", &peer("n2"))
            .unwrap_err();
        assert!(other.contains("expected ionian://blue/node/n2"), "{other}");
    }
}
