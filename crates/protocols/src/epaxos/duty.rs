//! What an acceptor does of the work that there is.
//!
//! Where leaders and acceptors are paired, an acceptor records commands, finds their dependencies,
//! and votes. Where the roles are apart, a *dependency node* does the first half, and an acceptor
//! the second: both are an [`Acceptor`](super::acceptor::Acceptor) that does not do the other half.

use super::{Envelope, acceptor, kind};
use ionian_kernel::id::AcceptorSet;
use ionian_kernel::wire_enum;

/// See the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It records commands and finds their dependencies, and it votes.
    All {},
    /// It is a dependency node: it records commands, and never votes.
    Records {},
    /// It votes only.
    Votes {},
}

wire_enum! { Duty { 0 => All {}, 1 => Records {}, 2 => Votes {} } }

impl Duty {
    /// What an instance of this kind does in this deployment.
    pub fn of(kind: u8, is_apart: bool) -> Self {
        match (kind == kind::DependencyNode, is_apart) {
            (true, _) => Duty::Records {},
            (false, true) => Duty::Votes {},
            (false, false) => Duty::All {},
        }
    }

    /// Whether it records commands.
    pub fn records(self) -> bool {
        self != Duty::Votes {}
    }

    /// Whether it votes.
    pub fn votes(self) -> bool {
        self != Duty::Records {}
    }

    /// A message to those that do this.
    pub fn envelope(self, to: AcceptorSet, message: acceptor::In) -> Envelope {
        match self {
            Duty::Records {} => Envelope::ToDependencyNodes(to, message),
            Duty::All {} | Duty::Votes {} => Envelope::ToAcceptors(to, message),
        }
    }
}
