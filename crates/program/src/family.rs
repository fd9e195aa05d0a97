//! From the names in a deployment to a protocol's type and to a state machine, with errors in the
//! words of the file.

use crate::BadUsage;
use anyhow::{Context, Result};
use ionian_deployment::Deployment;
use ionian_kernel::layout::Layout;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::registry;
pub use ionian_protocols::registry::Work;

/// The state machine that gateways serve, and that snapshots are looked into of.
pub const MACHINE: &str = ionian_deployment::MACHINES[0];

/// Finds what makes the state machine of the deployment. Nodes with a machine that is not ours are
/// run by a program of their own, with the library; everything else that this program does with a
/// cluster works with any machine.
///
/// # Errors
/// When this program does not have that machine, or a node has a gateway for Redis clients, which
/// that machine does not serve.
pub fn machine(deployment: &Deployment) -> Result<fn() -> Box<dyn StateMachine>> {
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
pub fn with_protocol<W: Work>(name: &str, work: W) -> Result<W::Output> {
    let unknown = || {
        format!(
            "protocol = {name:?}: must be {}",
            registry::NAMES.join(" or ")
        )
    };
    registry::with_protocol(name, work).with_context(unknown)
}

/// Checks a deployment, or two between which a cluster is, in terms of its protocol.
pub fn configure<P: Protocol>(layout: Layout) -> Result<P::Config> {
    P::configure(layout).with_context(|| format!("this is no deployment of {}", P::NAME))
}

/// Checks a deployment as a node would, without running it.
pub fn check(deployment: &Deployment) -> Result<()> {
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
