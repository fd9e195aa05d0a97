//! What the commands do alike for every protocol.

use anyhow::Result;
use ionian_deployment::Configuration;
use ionian_kernel::id::{Epoch, LeaderId, Set};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum::QuorumSystem;
pub(crate) use ionian_program::family::{MACHINE, Work, check, configure, machine, with_protocol};
use ionian_protocols::mencius::Mencius;
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::multipaxos::{self, MultiPaxos};
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::spaxos::config::Stabilizers;

/// The quorum system of a cluster's acceptors, while it changes that of both sides; none where it
/// has no acceptors.
pub(crate) fn quorums(known: &Configuration) -> Result<Option<QuorumSystem>> {
    quorums_of(known, known.epoch())
}

/// The quorum system by which rounds of this epoch choose: while a cluster changes, that of the
/// configuration before until a leader of the next one leads. None where there are no acceptors.
pub(crate) fn quorums_of(known: &Configuration, epoch: Epoch) -> Result<Option<QuorumSystem>> {
    let of = |config: &multipaxos::config::Config| {
        config
            .quorums_of(epoch.first_round())
            .unwrap_or(&config.quorums)
            .clone()
    };
    Ok(match known.deployment.protocol.as_str() {
        MultiPaxos::NAME => Some(of(&multipaxos::config::Config::new(
            known.layout(MultiPaxos::KINDS)?,
        )?)),
        SPaxos::NAME => Some(of(
            &SPaxos::configure(known.layout(SPaxos::KINDS)?)?.ordering
        )),
        // The same in all stripes.
        Mencius::NAME => Some(of(
            Mencius::configure(known.layout(Mencius::KINDS)?)?.of(Stripe(0))
        )),
        _ => None,
    })
}

/// The leaders of each part of the log, any of which can lead it: of all of it, or with Mencius of
/// each stripe.
pub(crate) fn leaders(known: &Configuration) -> Result<Vec<Set<LeaderId>>> {
    Ok(match known.deployment.protocol.as_str() {
        MultiPaxos::NAME => {
            vec![multipaxos::config::Config::new(known.layout(MultiPaxos::KINDS)?)?.leaders()]
        }
        SPaxos::NAME => vec![
            SPaxos::configure(known.layout(SPaxos::KINDS)?)?
                .ordering
                .leaders(),
        ],
        Mencius::NAME => {
            let config = Mencius::configure(known.layout(Mencius::KINDS)?)?;
            config
                .stripes
                .iter()
                .map(|stripe| config.of(stripe).leaders())
                .collect()
        }
        _ => Vec::new(),
    })
}

/// How a cluster's stabilizers are arranged; none where it has none.
pub(crate) fn stabilizers(known: &Configuration) -> Result<Option<Stabilizers>> {
    Ok(match known.deployment.protocol.as_str() {
        SPaxos::NAME => Some(
            SPaxos::configure(known.layout(SPaxos::KINDS)?)?
                .stabilizers
                .clone(),
        ),
        _ => None,
    })
}
