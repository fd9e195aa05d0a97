//! From a protocol's name, as deployment files give it, to its type.

use crate::mencius::Mencius;
use crate::multipaxos::MultiPaxos;
use crate::spaxos::SPaxos;
use crate::unreplicated::Unreplicated;
use ionian_kernel::protocol::Protocol;

/// Work that is done alike for every protocol.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Does it for `P`.
    fn run<P: Protocol>(self) -> Self::Output;
}

/// Does `work` for the protocol of this name. `None` when there is none.
pub fn with_protocol<W: Work>(name: &str, work: W) -> Option<W::Output> {
    Some(match name {
        MultiPaxos::NAME => work.run::<MultiPaxos>(),
        Mencius::NAME => work.run::<Mencius>(),
        SPaxos::NAME => work.run::<SPaxos>(),
        Unreplicated::NAME => work.run::<Unreplicated>(),
        _ => return None,
    })
}
