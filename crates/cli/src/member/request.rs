//! Putting a change into the log of a cluster, through whichever node can.

use super::find::Found;
use super::progress::Teller;
use crate::node::resolve;
use crate::output::explain;
use anyhow::{Context, Result, bail};
use ionian_kernel::id::Epoch;
use ionian_kernel::membership::{Change, Membership, Verdict};
use ionian_runtime::admin::change::{Response, request_change};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long a node may take to get a change through the log: longer than the patience of its lane.
const CHANGE_LIMIT: Duration = Duration::from_secs(15);

/// For so long nodes are asked anew when none can get a change through: nodes that died are started
/// again meanwhile (`ionian up` waits 5 s at most), learn what they missed, and elect a leader.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait before they are asked anew: twice as long each time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

impl Found {
    /// Has some node put the change into the log, and returns the epoch that it leads to. All
    /// members are asked, those that did not answer before as well, and those that others name: one
    /// after the other, and anew after a pause.
    ///
    /// # Errors
    /// When a node refuses it, the log decides otherwise, or none could ask the log for
    /// [`PATIENCE`].
    pub(crate) async fn request(&self, change: &Change) -> Result<Epoch> {
        let epoch = self.put_through(change).await?;
        if matches!(change, Change::Abandon { .. }) {
            self.check_abandoned(epoch).await?;
        }
        Ok(epoch)
    }

    /// The epoch that the log has accepted it in.
    async fn put_through(&self, change: &Change) -> Result<Epoch> {
        let deadline = Instant::now() + PATIENCE;
        let (mut teller, mut pause) = (Teller::new(), PAUSES.0);
        let (mut contacts, mut asked) = (self.contacts.clone(), Ok(self.clone()));
        loop {
            let reasons = match asked {
                Err(error) => vec![explain(&error)],
                Ok(found) => {
                    contacts.extend(found.contacts.clone());
                    match found.put(change).await? {
                        Ok(epoch) => return Ok(epoch),
                        Err(reasons) => reasons,
                    }
                }
            };
            let reasons = reasons.join("; ");
            if Instant::now() >= deadline {
                bail!(
                    "no node could get the change through the log within {} s, which takes a leader and a quorum: {reasons}. \
                     Whether it will be carried out is not known: the same command, given again, finds out",
                    PATIENCE.as_secs()
                );
            }
            teller.waits_for(format!("a leader and a quorum: {reasons}"));
            sleep(pause).await;
            pause = PAUSES.1.min(2 * pause);
            asked = Found::ask(contacts.clone()).await;
        }
    }

    /// Asks those that have answered, until the log has decided: the epoch, or why each could not
    /// ask it.
    async fn put(&self, change: &Change) -> Result<Result<Epoch, Vec<String>>> {
        let mut reasons = self.failures.clone();
        for (name, address) in &self.answered {
            let reason = match ask(address, change).await {
                Ok(Response::Decided(Verdict::Accepted { epoch })) => return Ok(Ok(epoch)),
                Ok(Response::Decided(verdict)) => {
                    match (&verdict, came_first(change, &self.known.membership)) {
                        (_, Some(epoch)) => return Ok(Ok(epoch)),
                        // Nobody who was asked has heard of what came first: it may have been this
                        // very change.
                        (Verdict::Outdated { epoch, .. }, _) if *epoch > self.known.epoch() => {
                            format!("the log has led to epoch {} by now", epoch.0)
                        }
                        _ => bail!("{verdict}"),
                    }
                }
                Ok(Response::Refused(reason)) => bail!("node {name} refuses: {reason}"),
                Ok(Response::Undecided(reason)) => reason,
                Err(error) => explain(&error),
            };
            reasons.push(format!("{name}: {reason}"));
        }
        Ok(Err(reasons))
    }

    /// The log accepts in `epoch` that a change is abandoned also when it has just been finished:
    /// nothing is under way then.
    async fn check_abandoned(&self, epoch: Epoch) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reason = match Found::ask(self.contacts.clone()).await {
                Ok(now)
                    if now.known.epoch() >= epoch
                        && is_finished(&self.known.membership, &now.known.membership) =>
                {
                    bail!(
                        "the change was finished before it could be abandoned, in epoch {}",
                        epoch.0
                    )
                }
                Ok(now) if now.known.epoch() >= epoch => return Ok(()),
                Ok(_) => "no node has heard of it yet".to_owned(),
                Err(error) => explain(&error),
            };
            if Instant::now() >= deadline {
                let epoch = epoch.0;
                bail!(
                    "epoch {epoch} begins, but whether the change was abandoned or finished is not known: {reason}"
                );
            }
            sleep(PAUSES.0).await;
        }
    }
}

async fn ask(address: &str, change: &Change) -> Result<Response> {
    request_change(resolve("address", address)?, change, CHANGE_LIMIT)
        .await
        .with_context(|| address.to_owned())
}

/// Whether the cluster, which was `before` in the midst of a change, has become what it was
/// changing into.
fn is_finished(before: &Membership, now: &Membership) -> bool {
    before.next.as_ref() == Some(&now.text)
}

/// The epoch that the change began, if it is what the cluster has become or is becoming: a node
/// that could not tell any more had put it into the log, and the cluster has gone on from there.
fn came_first(change: &Change, membership: &Membership) -> Option<Epoch> {
    match change {
        Change::Begin { base, to, .. } | Change::Tune { base, to, .. } => {
            let is_there = membership.text == *to || membership.next.as_ref() == Some(to);
            (*base < membership.epoch && is_there).then(|| base.next())
        }
        // Nothing begins: what comes after does not show it.
        Change::Finish { .. } | Change::Abandon { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use ionian_kernel::id::Slot;

    fn epoch(epoch: u32) -> Epoch {
        Epoch(epoch)
    }

    fn begin(base: u32, from: &'static str, to: &'static str) -> Change {
        Change::Begin {
            base: epoch(base),
            from: Bytes::from(from),
            to: Bytes::from(to),
            joint: true,
        }
    }

    fn execute(membership: &mut Membership, change: &Change) {
        let command = ionian_kernel::wire::encode_all(change).into();
        let verdict = ionian_kernel::membership::verdict(&membership.execute(&command)).unwrap();
        assert!(matches!(verdict, Verdict::Accepted { .. }), "{verdict}");
    }

    /// Whose reply was lost, is asked for again: the log says that it is too late by then.
    #[test]
    fn a_change_that_has_been_carried_out_is_found_when_the_log_has_gone_on() {
        let (ours, next) = (begin(0, "a", "b"), begin(2, "b", "c"));
        let finish = |at| Change::Finish {
            epoch: epoch(at),
            frontier: Slot(0),
        };
        let mut membership = Membership::default();
        assert_eq!(came_first(&ours, &membership), None, "nothing has happened");
        for change in [ours.clone(), finish(1), next] {
            execute(&mut membership, &change);
            assert_eq!(
                came_first(&ours, &membership),
                Some(epoch(1)),
                "after {change:?}"
            );
        }
        execute(&mut membership, &finish(3));
        assert_eq!(
            came_first(&ours, &membership),
            None,
            "others have changed it since"
        );
    }

    /// The log says the same of both.
    #[test]
    fn a_change_that_was_finished_is_not_taken_for_one_that_was_abandoned() {
        let abandon = Change::Abandon { epoch: epoch(1) };
        let mut before = Membership::default();
        execute(&mut before, &begin(0, "a", "b"));
        let mut finished = before.clone();
        execute(
            &mut finished,
            &Change::Finish {
                epoch: epoch(1),
                frontier: Slot(0),
            },
        );
        execute(&mut finished, &abandon);
        assert!(is_finished(&before, &finished));
        execute(&mut finished, &begin(2, "b", "c"));
        assert!(
            is_finished(&before, &finished),
            "another change is under way"
        );
        let mut abandoned = before.clone();
        execute(&mut abandoned, &abandon);
        assert!(!is_finished(&before, &abandoned));
    }

    #[test]
    fn what_another_has_changed_or_abandoned_is_not_taken_for_it() {
        let (ours, theirs) = (begin(0, "a", "b"), begin(0, "a", "c"));
        let mut membership = Membership::default();
        execute(&mut membership, &theirs);
        assert_eq!(came_first(&ours, &membership), None);
        let mut membership = Membership::default();
        execute(&mut membership, &ours);
        execute(&mut membership, &Change::Abandon { epoch: epoch(1) });
        assert_eq!(came_first(&ours, &membership), None);
    }
}
