//! Waits until the node is a member, or must stop.

use super::stop::{Signals, Starter};
use anyhow::Result;
use ionian_deployment::Configuration;

/// Asks `contact`, and the nodes that it names, until node `name` is a member. `None` if a stop
/// signal comes first.
pub(super) fn wait_for_membership(
    name: &str,
    contact: &str,
    starter: &mut Starter,
) -> Result<Option<Configuration>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut signals = Signals::listen();
        tokio::select! {
            why = signals.stop_requested(starter) => {
                tracing::info!("stopping: {why}");
                Ok(None)
            }
            known = ionian_runtime::wait_for_membership(name, contact) => Ok(Some(known)),
        }
    })
}
