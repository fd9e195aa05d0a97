//! A node that has been removed from its cluster: what it waits for before it stops.
//!
//! It may be the only node that knows that the change is finished: the replica that executed the
//! end of the change first is often on a node that leaves. If it stopped at once, and the members
//! crashed before its announcement is on their disks, they would wait for quorums of nodes that do
//! not start again. So it waits until f+1 members know: one of them survives, and tells the others.
//!
//! Until then it does not store that it has left. If it crashes it starts again as the member that
//! it was, and learns of the end of the change once more.

use crate::admin::membership::membership_at;
use crate::transport::security::NodeTls;
use ionian_deployment::Configuration;
use ionian_kernel::id::Epoch;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The pause between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How long a member may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// After this time the log says what the node waits for.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Completes when f+1 members know `configuration`, to which this node does not belong, or a later
/// one, and have stored it. Must be called within a `LocalSet`.
pub(crate) async fn until_members_know(configuration: &Configuration, tls: Option<&NodeTls>) {
    let (began, mut is_said) = (Instant::now(), false);
    let mut latest = configuration.clone();
    loop {
        // Those of the deployment in force: what a change adds may never start.
        let members = &latest.deployment;
        let needed = (members.f + 1).min(members.nodes.len());
        let answers = ask(&latest, tls, (configuration.epoch(), needed)).await;
        if answers.len() >= needed {
            return;
        }
        if !is_said && began.elapsed() >= SILENT_FOR {
            is_said = true;
            let names: Vec<&str> = members.nodes.iter().map(|node| &*node.name).collect();
            tracing::info!(
                "this node is not a member any more; it stops when {needed} of the nodes {} know epoch {}",
                names.join(", "),
                configuration.epoch().0
            );
        }
        // The members may have changed again.
        let later = answers.into_iter().max_by_key(Configuration::epoch);
        if let Some(later) = later.filter(|later| later.epoch() > latest.epoch()) {
            latest = later;
        }
        sleep(ASK_EVERY).await;
    }
}

/// Asks all members at once what they know: `needed` answers, or all that come, of those that know
/// this epoch or a later one.
async fn ask(
    configuration: &Configuration,
    tls: Option<&NodeTls>,
    (epoch, needed): (Epoch, usize),
) -> Vec<Configuration> {
    let mut asked = JoinSet::new();
    for node in &configuration.deployment.nodes {
        let (address, name) = (node.address.clone(), node.name.clone());
        asked.spawn_local(membership_at(address, name, tls.cloned(), ANSWER_LIMIT));
    }
    let mut answers = Vec::new();
    while let Some(answer) = asked.join_next().await {
        let answer = answer.ok().flatten();
        let counts = |known: &Configuration| {
            known.founding == configuration.founding && known.epoch() >= epoch
        };
        answers.extend(answer.filter(counts));
        if answers.len() >= needed {
            break;
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::membership::send_document;
    use crate::transport::hello::receive_hello;
    use crate::transport::stream::NodeStream;
    use ionian_deployment::{Deployment, PresetOptions};
    use ionian_kernel::membership::Membership;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use tokio::net::TcpListener;
    use tokio::task::{LocalSet, spawn_local};

    /// A member that answers questions.
    struct Member {
        known: RefCell<Configuration>,
        asked: Cell<u32>,
    }

    impl Member {
        async fn serve(self: Rc<Self>, listener: TcpListener) {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = NodeStream::Plain(stream);
                receive_hello(&mut stream).await.unwrap();
                let document = self.known.borrow().to_toml();
                send_document(&mut stream, "member", &document)
                    .await
                    .unwrap();
                self.asked.set(self.asked.get() + 1);
            }
        }

        /// Waits until it has answered twice more: what it answered to the first of these two
        /// questions has been counted.
        async fn is_asked_again(&self) {
            let until = self.asked.get() + 2;
            while self.asked.get() < until {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn of_epoch(epoch: u32, founded: &Configuration) -> Configuration {
        let epoch = Epoch(epoch);
        let membership = Membership {
            epoch,
            ..Membership::default()
        };
        founded.advanced(membership).unwrap()
    }

    async fn leaves_when_enough_members_know() {
        let mut deployment = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
        let mut listeners = Vec::new();
        for node in &mut deployment.nodes {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            node.address = listener.local_addr().unwrap().to_string();
            listeners.push(listener);
        }
        let founded = Configuration::founded(deployment);
        let members: Vec<Rc<Member>> = listeners
            .into_iter()
            .map(|listener| {
                let known = RefCell::new(of_epoch(1, &founded));
                let member = Rc::new(Member {
                    known,
                    asked: Cell::new(0),
                });
                spawn_local(member.clone().serve(listener));
                member
            })
            .collect();
        let of_another_cluster = Configuration {
            founding: founded.founding + 1,
            ..of_epoch(2, &founded)
        };
        members[0].known.replace(of_another_cluster);
        members[1].known.replace(of_epoch(2, &founded));
        let left = of_epoch(2, &founded);
        let waits = spawn_local(async move { until_members_know(&left, None).await });
        for member in &members {
            member.is_asked_again().await;
        }
        assert!(!waits.is_finished(), "one member knows");
        members[2].known.replace(of_epoch(3, &founded));
        waits.await.unwrap();
    }

    #[tokio::test]
    async fn a_node_leaves_when_f_plus_one_members_know_that_it_does() {
        LocalSet::new()
            .run_until(leaves_when_enough_members_know())
            .await;
    }
}
