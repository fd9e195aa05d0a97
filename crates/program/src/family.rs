//! Maps the names in a deployment to the protocol's type and to the state machine; errors name the
//! key of the file.

use crate::BadUsage;
use anyhow::{Context, Result};
use ionian_deployment::Deployment;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::AnyProtocol;
use ionian_protocols::registry;

/// The state machine that gateways serve, and whose snapshots the commands can inspect.
pub const MACHINE: &str = ionian_deployment::MACHINES[0];

/// Makes a state machine in its first state.
pub type MakeMachine = fn() -> Box<dyn StateMachine>;

/// Finds the constructor of the deployment's state machine. Nodes with a user-defined machine are
/// run by the user's program, with the library; all other commands of this program work with any
/// machine.
///
/// `own` are the machines of the program that come with a gateway of their own.
///
/// # Errors
/// If this program does not contain the machine, or a node has a gateway for Redis clients, which
/// the machine does not serve.
pub fn machine(deployment: &Deployment, own: &[(&str, MakeMachine)]) -> Result<MakeMachine> {
    let name = deployment.machine.as_str();
    if let Some((_, made)) = own.iter().find(|(own, _)| *own == name) {
        return Ok(*made);
    }
    let Some(made) = ionian_machines::named(name) else {
        let ours = ionian_deployment::MACHINES.iter();
        let ours = ours.chain(own.iter().map(|(name, _)| name));
        let ours = ours.map(|ours| format!("{ours:?}"));
        let ours = ours.collect::<Vec<_>>().join(" or ");
        return Err(BadUsage(format!(
            "machine = {name:?}: this program runs nodes with the machine {ours}; those with {name:?} are run by the program \
             that was built with it (docs/library.md)"
        ))
        .into());
    };
    match deployment.nodes.iter().find(|node| node.gateway.is_some()) {
        Some(node) if name != MACHINE => Err(BadUsage(format!(
            "machine = {name:?}: node.{} has a gateway, but only the machine {MACHINE:?} serves Redis clients",
            node.name
        ))
        .into()),
        _ => Ok(made),
    }
}

/// The protocol with this name, without its type.
pub fn protocol(name: &str) -> Result<&'static dyn AnyProtocol> {
    registry::protocol(name).with_context(|| unknown(name))
}

/// The error of a name that no protocol has.
pub fn unknown(name: &str) -> String {
    format!(
        "protocol = {name:?}: must be {}",
        registry::NAMES.join(" or ")
    )
}

/// The error of a layout that is not a deployment of a protocol.
pub fn none_of(protocol: &str) -> String {
    format!("this is not a deployment of {protocol}")
}

/// Checks a deployment as a node would, without running it.
pub fn check(deployment: &Deployment) -> Result<()> {
    let protocol = protocol(&deployment.protocol)?;
    let layout = deployment.layout(protocol.description().kinds)?;
    let checked = protocol.configure(layout);
    checked.with_context(|| none_of(&deployment.protocol))
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
