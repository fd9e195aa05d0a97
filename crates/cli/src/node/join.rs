//! Waiting to be a member: a node that is started with `--join` knows nothing but where to ask.

use super::resolve;
use super::stop::{Signals, Starter};
use crate::output::explain;
use anyhow::Result;
use ionian_deployment::Configuration;
use ionian_runtime::membership::query_membership;
use std::time::Duration;

/// How often it asks.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// How long a node may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Asks `contact`, and whoever that names, until node `name` is a member; none when told to stop before.
pub(super) fn wait_for_membership(name: &str, contact: &str, starter: &mut Starter) -> Result<Option<Configuration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::listen();
        tokio::select! {
            why = signals.told(starter) => {
                tracing::info!("stopping: {why}");
                Ok(None)
            }
            known = ask_until_member(name, contact) => Ok(Some(known)),
        }
    })
}

async fn ask_until_member(name: &str, contact: &str) -> Configuration {
    let mut contacts = vec![contact.to_owned()];
    let mut told = String::new();
    loop {
        let mut wait = String::new();
        for contact in contacts.clone() {
            match ask(&contact).await {
                Err(error) => wait = format!("waits for {contact} to answer: {}", explain(&error)),
                Ok(known) if known.member(name).is_some() => return known,
                Ok(known) => {
                    let (cluster, epoch) = (&known.target().cluster, known.epoch().0);
                    wait = format!(
                        "waits to be a member of cluster {cluster}, which is in epoch {epoch} now: `ionian member add {name}` \
                         or `ionian member replace` makes it one"
                    );
                    contacts =
                        [contact].into_iter().chain(known.nodes().values().map(|node| node.address.clone())).collect();
                    break;
                }
            }
        }
        // Said once, not with every question.
        if wait != told {
            tracing::info!("node {name} {wait}");
            told = wait;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn ask(contact: &str) -> Result<Configuration> {
    Ok(query_membership(resolve("--join", contact)?, ANSWER_LIMIT).await?)
}
