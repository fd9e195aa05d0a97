//! Submits a change to the log of a cluster, through any node that can.

use super::find::Found;
use super::progress::WaitReporter;
use crate::contact;
use crate::output::explain;
use anyhow::{Context, Result, bail};
use ionian_kernel::id::Epoch;
use ionian_kernel::membership::{Change, Membership, Verdict};
use ionian_runtime::admin::change::{Response, request_change};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Time limit for one node to get a change through the log: longer than the patience of its lane.
const CHANGE_LIMIT: Duration = Duration::from_secs(15);

/// Total time for which the nodes are asked again. Nodes that failed restart meanwhile (`ionian up`
/// waits 5 s at most), catch up, and elect a leader.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first and the longest pause between two attempts; each pause doubles the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

impl Found {
    /// Makes a node submit the change to the log, and returns the epoch that the change starts.
    /// Asks all members in turn, including those that did not answer before and those that others
    /// name, and repeats this after a pause.
    ///
    /// # Errors
    /// If all nodes that answer refuse the change, if the log rejects it, or if no node could
    /// submit it within [`PATIENCE`].
    pub(crate) async fn request(&self, change: &Change) -> Result<Epoch> {
        let epoch = self.submit_until_accepted(change).await?;
        if matches!(change, Change::Abandon { .. }) {
            self.check_abandoned(epoch).await?;
        }
        Ok(epoch)
    }

    /// Returns the epoch in which the log has accepted the change.
    async fn submit_until_accepted(&self, change: &Change) -> Result<Epoch> {
        let deadline = Instant::now() + PATIENCE;
        let (mut reporter, mut pause) = (WaitReporter::new(), PAUSES.0);
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
                    "no node could get the change through the log within {} s, which needs a leader and a quorum: {reasons}. \
                     The change may still happen: run the same command again to find out",
                    PATIENCE.as_secs()
                );
            }
            reporter.waits_for(format!("a leader and a quorum: {reasons}"));
            sleep(pause).await;
            pause = PAUSES.1.min(2 * pause);
            asked = Found::ask(contacts.clone()).await;
        }
    }

    /// Asks the nodes that answered, until the log has decided. Returns the epoch, or why each node
    /// could not submit the change. A node that refuses has done nothing, and its reason may be its
    /// own, such as an audit log that it cannot write: others are asked.
    async fn put(&self, change: &Change) -> Result<Result<Epoch, Vec<String>>> {
        let mut reasons = self.failures.clone();
        let (mut refusals, mut is_refused) = (Vec::new(), true);
        for (name, address) in &self.answered {
            let reason = match ask(name, address, change).await {
                Ok(Response::Decided(Verdict::Accepted { epoch })) => return Ok(Ok(epoch)),
                Ok(Response::Decided(verdict)) => {
                    match (&verdict, came_first(change, &self.known.membership)) {
                        (_, Some(epoch)) => return Ok(Ok(epoch)),
                        // No node knows yet which change came first: it may have been this one,
                        // with a lost reply.
                        (Verdict::Outdated { epoch, .. }, _) if *epoch > self.known.epoch() => {
                            format!("the cluster is in epoch {} by now", epoch.0)
                        }
                        _ => bail!("{verdict}"),
                    }
                }
                Ok(Response::Refused(reason)) => {
                    refusals.push(format!("node {name} refuses: {reason}"));
                    continue;
                }
                Ok(Response::Undecided(reason)) => reason,
                Err(error) => explain(&error),
            };
            is_refused = false;
            reasons.push(format!("{name}: {reason}"));
        }
        if is_refused && !refusals.is_empty() {
            bail!("{}", refusals.join("; "));
        }
        reasons.extend(refusals);
        Ok(Err(reasons))
    }

    /// The log accepts the abandonment of a change that has just finished, too, because then no
    /// change is in progress.
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
                Ok(_) => "no node knows it yet".to_owned(),
                Err(error) => explain(&error),
            };
            if Instant::now() >= deadline {
                let epoch = epoch.0;
                bail!(
                    "epoch {epoch} begins, but it is unknown whether the change was abandoned or finished: {reason}"
                );
            }
            sleep(PAUSES.0).await;
        }
    }
}

async fn ask(name: &str, address: &str, change: &Change) -> Result<Response> {
    request_change(contact::to(Some(name), address), change, CHANGE_LIMIT)
        .await
        .with_context(|| address.to_owned())
}

/// Whether the cluster, which was `before` during a change, now has the configuration of that
/// change.
fn is_finished(before: &Membership, now: &Membership) -> bool {
    before.next.as_ref() == Some(&now.text)
}

/// The epoch that the change started, if it is the cluster's present or next configuration: then a
/// node submitted it and could not reply, and the cluster has continued from there.
fn came_first(change: &Change, membership: &Membership) -> Option<Epoch> {
    match change {
        Change::Begin { base, to, .. } | Change::Tune { base, to, .. } => {
            let is_there = membership.text == *to || membership.next.as_ref() == Some(to);
            (*base < membership.epoch && is_there).then(|| base.next())
        }
        Change::Level { base, to } => {
            (*base < membership.epoch && membership.level == *to).then(|| base.next())
        }
        // These start no configuration, so later states do not show them.
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
        let verdict =
            ionian_kernel::membership::verdict(&membership.execute(&command, || None)).unwrap();
        assert!(matches!(verdict, Verdict::Accepted { .. }), "{verdict}");
    }

    /// The reply to a change was lost and the command asks again. The log answers that it is too
    /// late.
    #[test]
    fn a_finished_change_is_recognized_after_later_changes() {
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

    /// The log gives the same answer in both cases.
    #[test]
    fn a_finished_change_does_not_count_as_abandoned() {
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
    fn changes_of_another_operator_do_not_count_as_this_change() {
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
