//! From a protocol's name to its type: the one place to add a protocol to.

use anyhow::{Context, Result, bail};
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::{LeaderId, Set};
use ionian_kernel::layout::Layout;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::quorum::QuorumSystem;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::mencius::stripe::Stripe;
use ionian_protocols::multipaxos::{self, MultiPaxos};
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::spaxos::config::Stabilizers;
use ionian_protocols::unreplicated::Unreplicated;

/// The state machines that this binary can make.
pub(crate) const MACHINES: &[&str] = ionian_deployment::MACHINES;

/// Work that is done alike for every protocol.
pub(crate) trait Work {
    type Output;
    fn run<P: Protocol>(self) -> Self::Output;
}

/// Does `work` for the protocol of this name.
pub(crate) fn with_protocol<W: Work>(name: &str, work: W) -> Result<W::Output> {
    match name {
        MultiPaxos::NAME => Ok(work.run::<MultiPaxos>()),
        Mencius::NAME => Ok(work.run::<Mencius>()),
        SPaxos::NAME => Ok(work.run::<SPaxos>()),
        Unreplicated::NAME => Ok(work.run::<Unreplicated>()),
        _ => bail!("protocol = {name:?}: must be {}", ionian_deployment::PROTOCOLS.join(" or ")),
    }
}

/// Checks a deployment, or two between which a cluster is, in terms of its protocol.
pub(crate) fn configure<P: Protocol>(deployment: &Deployment, layout: Layout) -> Result<P::Config> {
    deployment.check_machine(MACHINES)?;
    P::configure(layout).with_context(|| format!("this is no deployment of {}", P::NAME))
}

/// The quorum system of a cluster's acceptors, while it changes that of both sides; none where it has no acceptors.
pub(crate) fn quorums(known: &Configuration) -> Result<Option<QuorumSystem>> {
    Ok(match known.deployment.protocol.as_str() {
        MultiPaxos::NAME => Some(multipaxos::config::Config::new(known.layout(MultiPaxos::KINDS)?)?.quorums),
        SPaxos::NAME => Some(SPaxos::configure(known.layout(SPaxos::KINDS)?)?.ordering.quorums.clone()),
        // The same in all stripes.
        Mencius::NAME => Some(Mencius::configure(known.layout(Mencius::KINDS)?)?.of(Stripe(0)).quorums.clone()),
        _ => None,
    })
}

/// The leaders of each part of the log, any of which can lead it: of all of it, or with Mencius of each stripe.
pub(crate) fn leaders(known: &Configuration) -> Result<Vec<Set<LeaderId>>> {
    Ok(match known.deployment.protocol.as_str() {
        MultiPaxos::NAME => vec![multipaxos::config::Config::new(known.layout(MultiPaxos::KINDS)?)?.leaders()],
        SPaxos::NAME => vec![SPaxos::configure(known.layout(SPaxos::KINDS)?)?.ordering.leaders()],
        Mencius::NAME => {
            let config = Mencius::configure(known.layout(Mencius::KINDS)?)?;
            config.stripes.iter().map(|stripe| config.of(stripe).leaders()).collect()
        }
        _ => Vec::new(),
    })
}

/// How a cluster's stabilizers are arranged; none where it has none.
pub(crate) fn stabilizers(known: &Configuration) -> Result<Option<Stabilizers>> {
    Ok(match known.deployment.protocol.as_str() {
        SPaxos::NAME => Some(SPaxos::configure(known.layout(SPaxos::KINDS)?)?.stabilizers.clone()),
        _ => None,
    })
}

/// Checks a deployment as a node would, without running it.
pub(crate) fn check(deployment: &Deployment) -> Result<()> {
    struct Check<'a>(&'a Deployment);
    impl Work for Check<'_> {
        type Output = Result<()>;
        fn run<P: Protocol>(self) -> Result<()> {
            configure::<P>(self.0, self.0.layout(P::KINDS)?).map(drop)
        }
    }
    with_protocol(&deployment.protocol, Check(deployment))?
}
