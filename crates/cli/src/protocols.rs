//! Protocol-independent access to protocols, and what a protocol declares about its service.

use anyhow::{Context, Result};
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::{Epoch, Index, MAX_INSTANCES, Members};
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::service::Service;
use ionian_netfs::NetFs;
use ionian_program::family::{self, MakeMachine};
pub(crate) use ionian_program::family::{MACHINE, check, none_of, protocol};
use ionian_protocols::registry;
use ionian_runtime::Runnable;
use ionian_runtime::admin::change;

/// The constructor of the deployment's state machine.
pub(crate) fn machine(deployment: &Deployment) -> Result<MakeMachine> {
    family::machine(
        deployment,
        &[(ionian_netfs::NAME, || Box::new(NetFs::default()))],
    )
}

/// The protocol with this name, for a node to run.
pub(crate) fn runnable(name: &str) -> Result<Runnable> {
    Runnable::named(name).with_context(|| family::unknown(name))
}

/// What the service of a cluster needs, as declared by its protocol, and the names of the role
/// kinds.
pub(crate) struct ServiceNeeds {
    pub(crate) service: Service,
    kinds: &'static [&'static str],
}

impl ServiceNeeds {
    /// The needs of a cluster with this configuration, while rounds of `epoch` choose values.
    pub(crate) fn of(known: &Configuration, epoch: Epoch) -> Result<Self> {
        let protocol = protocol(&known.deployment.protocol)?;
        let kinds = protocol.description().kinds;
        let service = protocol.service(known.layout(kinds)?, epoch);
        let service = service.with_context(|| none_of(&known.deployment.protocol))?;
        Ok(ServiceNeeds { service, kinds })
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

/// What an operator must know of a deployment, and may not expect.
///
/// # Errors
/// If the deployment is none of its protocol.
pub(crate) fn cautions(deployment: &Deployment) -> Result<Vec<String>> {
    let protocol = protocol(&deployment.protocol)?;
    let layout = deployment.layout(protocol.description().kinds)?;
    let cautions = protocol.cautions(layout);
    let cautions = cautions.with_context(|| none_of(&deployment.protocol))?;
    Ok(cautions
        .into_iter()
        .chain(deployment.idle_network())
        .collect())
}

/// The names of the role kinds that execute the commands of clients: they alone have the state that
/// a backup is of.
///
/// # Errors
/// If there is no such protocol.
pub(crate) fn executors(protocol: &str) -> Result<impl Iterator<Item = &'static str>> {
    let known = registry::description(protocol);
    let known = known.with_context(|| format!("unknown protocol {protocol:?}"))?;
    let names = known.executors.iter();
    Ok(names.map(|kind| known.kinds[usize::from(*kind)]))
}

/// The names of the kinds of roles of a protocol, in its order; none if there is no such protocol.
pub(crate) fn kinds(protocol: &str) -> Vec<String> {
    let kinds = registry::description(protocol).map_or(&[][..], |it| it.kinds);
    kinds.iter().map(|kind| kind.to_string()).collect()
}

/// Those of these numbers that instances can have: a server may say anything.
pub(crate) fn members(indices: impl Iterator<Item = Index>) -> Members {
    indices
        .filter(|index| usize::from(*index) < MAX_INSTANCES)
        .collect()
}

/// Why the options of a running cluster of this protocol cannot be changed, if that is so.
///
/// # Errors
/// If there is no such protocol.
pub(crate) fn fixed_options(name: &str) -> Result<Option<String>> {
    let reason = protocol(name)?.check_tunable().err();
    Ok(reason.map(|reason| reason.to_string()))
}

/// Why the level of a running cluster of this protocol cannot be raised, if that is so.
///
/// # Errors
/// If there is no such protocol.
pub(crate) fn fixed_level(name: &str) -> Result<Option<String>> {
    let reason = protocol(name)?.check_level().err();
    Ok(reason.map(|reason| reason.to_string()))
}

/// Why the members of a running cluster cannot be changed, if that is so.
///
/// # Errors
/// If there is no such protocol.
pub(crate) fn fixed_members(known: &Configuration) -> Result<Option<String>> {
    let reason = change::check_protocol(protocol(&known.deployment.protocol)?, known).err();
    Ok(reason.map(|reason| reason.to_string()))
}

/// The quorums of a deployment with this number of voters, in words.
pub(crate) fn quorums(deployment: &Deployment, voters: usize) -> String {
    let protocol = registry::description(&deployment.protocol);
    let groups = protocol.map_or(1, |it| (it.quorum_systems)(&deployment.options.options()));
    let of_each = in_words(deployment.quorums, voters / groups);
    match groups {
        1 => of_each,
        _ => format!("of each of {groups} logs {of_each}"),
    }
}

fn in_words(spec: QuorumSpec, all: usize) -> String {
    match spec {
        QuorumSpec::Majority => format!("any {} of {all} acceptors", all / 2 + 1),
        QuorumSpec::Grid { rows, columns } => format!(
            "{all} acceptors in a {rows}x{columns} grid: a row reads ({columns} acceptors), a column writes ({rows})"
        ),
        QuorumSpec::Counts { read, write } => {
            format!("any {read} of {all} read, any {write} write")
        }
        QuorumSpec::Groups { groups } => {
            let size = all / groups.max(1);
            let most = size / 2 + 1;
            format!(
                "{groups} groups of {size} acceptors: {most} of any one group write, {most} of every group read"
            )
        }
    }
}
