//! Waits until a node is a member: a node that is added to a running cluster knows only the address
//! of another node.

use crate::admin::contact::Contact;
use crate::admin::membership::query_membership;
use crate::admin::query::QueryError;
use crate::transport::security::NodeTls;
use ionian_deployment::Configuration;
use std::time::Duration;

/// The pause between two queries.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Asks the nodes at these addresses (`host:port`), and those in their answers, until the node
/// `name` is a member of their cluster. It has no time limit; it logs what it waits for. `tls`
/// secures the connections.
pub async fn wait_for_membership(
    name: &str,
    contacts: &[String],
    tls: Option<&NodeTls>,
) -> Configuration {
    let mut contacts = contacts.to_vec();
    let mut logged = String::new();
    loop {
        let mut wait = String::new();
        for contact in contacts.clone() {
            match ask(&contact, tls).await {
                Err(error) => wait = format!("waits for {contact} to answer: {error}"),
                Ok(known) if known.member(name).is_some() => return known,
                Ok(known) => {
                    let (cluster, epoch) = (&known.target().cluster, known.epoch().0);
                    wait = format!(
                        "waits to be a member of cluster {cluster}, which is in epoch {epoch} now: `ionian member add {name}` \
                         or `ionian member replace` makes it one"
                    );
                    contacts = [contact]
                        .into_iter()
                        .chain(known.nodes().values().map(|node| node.address.clone()))
                        .collect();
                    break;
                }
            }
        }
        // Logged once, not with every query.
        if wait != logged {
            tracing::info!("node {name} {wait}");
            logged = wait;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn ask(contact: &str, tls: Option<&NodeTls>) -> Result<Configuration, String> {
    let contact = Contact {
        address: contact.to_owned(),
        socket: None,
        tls: tls.cloned(),
        name: None,
    };
    query_membership(contact, ANSWER_LIMIT)
        .await
        .map_err(|error: QueryError| error.to_string())
}
