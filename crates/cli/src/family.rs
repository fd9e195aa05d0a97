//! Protocol-independent access to protocols, and what a protocol declares about its service.

use anyhow::Result;
use ionian_deployment::Configuration;
use ionian_kernel::id::Epoch;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::service::Service;
pub(crate) use ionian_program::family::{MACHINE, Work, check, configure, machine, with_protocol};

/// What the service of a cluster needs, as declared by its protocol, and the names of the role
/// kinds.
pub(crate) struct Outlook {
    pub(crate) service: Service,
    kinds: &'static [&'static str],
}

impl Outlook {
    /// The needs of a cluster with this configuration, while rounds of `epoch` choose values.
    pub(crate) fn of(known: &Configuration, epoch: Epoch) -> Result<Self> {
        struct Look<'a>(&'a Configuration, Epoch);
        impl Work for Look<'_> {
            type Output = Result<Outlook>;
            fn run<P: Protocol>(self) -> Result<Outlook> {
                let config = configure::<P>(self.0.layout(P::KINDS)?)?;
                Ok(Outlook {
                    service: P::service(&config, self.1),
                    kinds: P::KINDS,
                })
            }
        }
        with_protocol(&known.deployment.protocol, Look(known, epoch))?
    }

    /// The name of a role kind.
    pub(crate) fn name(&self, kind: u8) -> &'static str {
        self.kinds[usize::from(kind)]
    }

    /// The name of the role kind that orders commands.
    pub(crate) fn hub(&self) -> &'static str {
        self.name(self.service.hub)
    }
}

/// The set with this instance only; empty if the number is too large for an instance.
pub(crate) fn bit(index: u8) -> u64 {
    1_u64.checked_shl(index.into()).unwrap_or(0)
}
