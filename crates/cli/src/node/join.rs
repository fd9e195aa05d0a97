//! Joining a cluster: waits until the node is a member, and checks what it may set.

use super::service;
use anyhow::Result;
use ionian_deployment::{Configuration, Deployment};
use ionian_program::BadUsage;
use ionian_runtime::NodeTls;

/// Checks what `--set` gives a node that joins the cluster of this deployment: the members agree on
/// all but the options of one node alone.
pub(super) fn check_overrides(
    deployment: &Deployment,
    overrides: &[String],
) -> Result<(), BadUsage> {
    for text in overrides {
        let key = text.split('=').next().unwrap_or_default().trim();
        let Some(option) = key.strip_prefix("options.") else {
            let why = format!("--set {text}: with --join, only options can be set");
            return Err(BadUsage(why));
        };
        let mut shared = deployment.settings().filter(|setting| setting.shared);
        if shared.any(|setting| setting.key == option) {
            return Err(BadUsage(format!(
                "--set {text}: the nodes of a cluster must agree on options.{option}; with --join, \
                 only options can be set that `ionian options` lists as per node"
            )));
        }
    }
    Ok(())
}

/// Asks these nodes, and those that they name, until node `name` is a member.
pub(super) fn wait_for_membership(
    name: &str,
    contacts: &[String],
    tls: Option<&NodeTls>,
) -> Result<Configuration> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::select! {
            never = service::joins() => match never {},
            known = ionian_runtime::wait_for_membership(name, contacts, tls) => Ok(known),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::PresetOptions;

    /// A lease that lasts longer than other nodes wait would outlast the removal of its holder.
    #[test]
    fn a_node_that_joins_sets_nothing_that_the_cluster_shares() {
        let deployment = Deployment::preset("craq", &PresetOptions::default()).unwrap();
        let said = |text: &str| {
            let checked = check_overrides(&deployment, &[text.to_owned()]);
            checked.map_err(|BadUsage(why)| why)
        };
        assert_eq!(said("options.forward_reads=1"), Ok(()));
        assert_eq!(said(" options.batch_bytes = 7"), Ok(()));
        for text in ["options.lease_ms=50", " options.heartbeat_ms = 7"] {
            let why = said(text).unwrap_err();
            let key = text.split('=').next().unwrap().trim();
            assert!(
                why.starts_with(&format!("--set {text}: ")) && why.contains(&format!("on {key};")),
                "{why}"
            );
        }
        let why = said("f=2").unwrap_err();
        assert_eq!(why, "--set f=2: with --join, only options can be set");
    }
}
