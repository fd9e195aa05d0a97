//! What the commands do alike for every protocol.

use crate::arguments::BadUsage;
use anyhow::{Context, Result};
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::{Epoch, LeaderId, Set};
use ionian_kernel::layout::Layout;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum::QuorumSystem;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::multipaxos::{self, MultiPaxos};
use ionian_protocols::registry;
pub(crate) use ionian_protocols::registry::Work;
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::spaxos::config::Stabilizers;

/// The state machine that gateways serve, and that snapshots are looked into of.
pub(crate) const MACHINE: &str = ionian_deployment::MACHINES[0];

/// Finds what makes the state machine of the deployment. Nodes with a machine that is not ours are
/// run by a program of their own, with the library; everything else that this program does with a
/// cluster works with any machine.
///
/// # Errors
/// When this program does not have that machine, or a node has a gateway for Redis clients, which
/// that machine does not serve.
pub(crate) fn machine(deployment: &Deployment) -> Result<fn() -> Box<dyn StateMachine>> {
    let name = deployment.machine.as_str();
    let Some(made) = ionian_machines::named(name) else {
        let ours = ionian_deployment::MACHINES
            .iter()
            .map(|ours| format!("{ours:?}"));
        let ours = ours.collect::<Vec<_>>().join(" or ");
        return Err(BadUsage(format!(
            "machine = {name:?}: this program runs nodes with the machine {ours}; those with {name:?} are run by the program \
             that was built with it (docs/library.md)"
        ))
        .into());
    };
    match deployment.nodes.iter().find(|node| node.gateway.is_some()) {
        Some(node) if name != MACHINE => Err(BadUsage(format!(
            "machine = {name:?}: node.{} has a gateway, and clients of Redis are served by the machine {MACHINE:?}",
            node.name
        ))
        .into()),
        _ => Ok(made),
    }
}

/// Does `work` for the protocol of this name.
pub(crate) fn with_protocol<W: Work>(name: &str, work: W) -> Result<W::Output> {
    let unknown = || {
        format!(
            "protocol = {name:?}: must be {}",
            registry::NAMES.join(" or ")
        )
    };
    registry::with_protocol(name, work).with_context(unknown)
}

/// Checks a deployment, or two between which a cluster is, in terms of its protocol.
pub(crate) fn configure<P: Protocol>(layout: Layout) -> Result<P::Config> {
    P::configure(layout).with_context(|| format!("this is no deployment of {}", P::NAME))
}

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

/// Checks a deployment as a node would, without running it.
pub(crate) fn check(deployment: &Deployment) -> Result<()> {
    struct Check<'a>(&'a Deployment);
    impl Work for Check<'_> {
        type Output = Result<()>;
        fn run<P: Protocol>(self) -> Result<()> {
            configure::<P>(self.0.layout(P::KINDS)?).map(drop)
        }
    }
    with_protocol(&deployment.protocol, Check(deployment))?
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_machine_that_a_file_may_name_as_ours_is_made() {
        for name in ionian_deployment::MACHINES {
            assert!(ionian_machines::named(name).is_some(), "{name}");
        }
    }
}
