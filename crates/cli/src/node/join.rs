//! Waiting to be a member, or to be told to stop.

use super::stop::{Signals, Starter};
use anyhow::Result;
use ionian_deployment::Configuration;

/// Asks `contact`, and whoever that names, until node `name` is a member; none when told to stop
/// before.
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
            why = signals.told(starter) => {
                tracing::info!("stopping: {why}");
                Ok(None)
            }
            known = ionian_runtime::wait_for_membership(name, contact) => Ok(Some(known)),
        }
    })
}
