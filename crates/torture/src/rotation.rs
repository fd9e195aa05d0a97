//! Replaces certificates while everything runs, and the authority in the three steps of
//! docs/security.md, each of which waits until all nodes have taken the one before.

use crate::certificates::Certificates;
use crate::faults::Faults;
use crate::settle::{ANSWER_LIMIT, eventually};
use anyhow::{Context, Result, bail, ensure};
use ionian_kernel::random::Random;
use ionian_runtime::query_status;
use ionian_runtime::status::TlsStatus;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How often certificates, and the steps of an exchange, are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a node that may be disturbed may take to answer a query. Others wait meanwhile.
const DISTURBED_LIMIT: Duration = Duration::from_secs(2);

/// Certificates that live shorter than this are replaced too often for nodes that read them every
/// 10 s.
const SHORT: Duration = Duration::from_secs(60);

/// How long all nodes may take for a step of an exchange, beyond the time in which all certificates
/// are replaced.
const PATIENCE: Duration = Duration::from_secs(120);

/// How far the exchange of the authority is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// None is in progress.
    None,
    /// Nodes learn to trust the new authority.
    Trust,
    /// Certificates of the new one replace the others.
    Sign,
    /// Nodes forget the old one.
    Drop,
}

/// See the top of this file.
pub(crate) struct Rotation {
    faults: Faults,
    /// Whether there are no faults: then every node answers, with its latest certificate.
    undisturbed: bool,
    random: Random,
    step: Step,
    since: Instant,
    /// The nodes that have taken the step.
    taken: BTreeSet<String>,
}

impl Rotation {
    pub(crate) fn new(faults: Faults, undisturbed: bool, seed: u64) -> Self {
        Rotation {
            faults,
            undisturbed,
            random: Random::new(seed),
            step: Step::None,
            since: Instant::now(),
            taken: BTreeSet::new(),
        }
    }

    /// Replaces certificates until it is dropped.
    ///
    /// # Errors
    /// If nodes do not take them.
    pub(crate) async fn run(mut self) -> Result<Infallible> {
        loop {
            sleep(LOOK_EVERY).await;
            let now = Instant::now();
            let due = self.certificates(|certificates| certificates.due(now));
            if self.undisturbed {
                for node in &due {
                    self.expect_latest(node).await?;
                }
            }
            let renewed = self.certificates(|certificates| certificates.renew(now))?;
            self.faults.counts.borrow_mut().certificates += renewed;
            self.announce(&due).await?;
            self.exchange().await?;
        }
    }

    fn certificates<T>(&self, work: impl FnOnce(&mut Certificates) -> T) -> T {
        let mut cluster = self.faults.cluster.borrow_mut();
        work(cluster.certificates.as_mut().expect("they are replaced"))
    }

    /// The certificates in force on a node; none if a fault keeps it from answering.
    async fn status(&self, node: &str) -> Result<Option<TlsStatus>> {
        let contact = self.faults.cluster.borrow().contact(node)?;
        let Some(contact) = contact else {
            return Ok(None);
        };
        let limit = match self.undisturbed {
            true => ANSWER_LIMIT,
            false => DISTURBED_LIMIT,
        };
        match query_status(contact, limit).await {
            Ok(status) => Ok(Some(status.tls.context("a node has no certificate")?)),
            Err(error) if self.undisturbed => {
                Err(error).with_context(|| format!("node {node} tells no operator its status"))
            }
            Err(_) => Ok(None),
        }
    }

    /// A node that is not disturbed has used its latest certificate since long.
    async fn expect_latest(&self, node: &str) -> Result<()> {
        let status = self.status(node).await?;
        let status = status.with_context(|| format!("there is no node {node}"))?;
        ensure!(
            self.certificates(|certificates| certificates.is_latest(node, &status)),
            "node {node} does not use the certificate that has been in its files for a third of \
             its time, but one until {} (refused sets: {})",
            status.certificate.not_after,
            status.refused_sets
        );
        Ok(())
    }

    /// Sends SIGHUP to some of these nodes. The others find their new files within 10 s.
    async fn announce(&mut self, nodes: &[String]) -> Result<()> {
        let always = self.certificates(|certificates| certificates.valid()) < SHORT;
        for node in nodes {
            if !always && self.random.once_in(2) {
                continue;
            }
            // The signal ends a process that has not begun to wait for it.
            let process = || self.faults.cluster.borrow().process_of(node);
            let before = process();
            if self.status(node).await?.is_some()
                && let Some(process) = process().filter(|now| Some(*now) == before)
            {
                kill(Pid::from_raw(i32::try_from(process)?), Signal::SIGHUP)?;
            }
        }
        Ok(())
    }

    /// Takes the next step in the exchange of the authority, if all nodes have taken the last one.
    async fn exchange(&mut self) -> Result<()> {
        let valid = self.certificates(|certificates| certificates.valid());
        let step = self.step;
        let next = match step {
            Step::None if self.since.elapsed() < valid / 2 => return Ok(()),
            Step::None => {
                self.certificates(Certificates::trust_another)?;
                Step::Trust
            }
            _ if !self.is_taken(step).await? => {
                if self.since.elapsed() > PATIENCE + valid {
                    let (nodes, taken) = (self.faults.cluster.borrow().names(), &self.taken);
                    bail!(
                        "the exchange of the authority stops: of {nodes:?} only {taken:?} take the step {step:?}"
                    );
                }
                return Ok(());
            }
            Step::Trust => {
                self.certificates(Certificates::sign_with_another);
                Step::Sign
            }
            Step::Sign => {
                self.certificates(Certificates::drop_first)?;
                Step::Drop
            }
            Step::Drop => {
                self.faults.counts.borrow_mut().authorities += 1;
                Step::None
            }
        };
        (self.step, self.since, self.taken) = (next, Instant::now(), BTreeSet::new());
        if matches!(next, Step::Trust | Step::Drop) {
            let nodes = self.faults.cluster.borrow().names();
            self.announce(&nodes).await?;
        }
        Ok(())
    }

    /// Whether all nodes have taken this step.
    async fn is_taken(&mut self, step: Step) -> Result<bool> {
        if step == Step::Sign
            && !self.certificates(|certificates| certificates.is_signed_by_another())
        {
            return Ok(false);
        }
        let nodes = self.faults.cluster.borrow().names();
        for node in &nodes {
            if self.taken.contains(node) {
                continue;
            }
            let Some(status) = self.status(node).await? else {
                continue;
            };
            let has_taken = self.certificates(|certificates| match step {
                Step::Sign => certificates.is_signer_of(&status),
                _ => certificates.is_trusted_by(&status),
            });
            if has_taken {
                self.taken.insert(node.clone());
            }
        }
        let cluster = self.faults.cluster.borrow();
        // A node that joins has no place yet, and may have read its files before.
        let is_one_joining = cluster.is_changing();
        let names = cluster.names();
        Ok(!is_one_joining && names.iter().all(|node| self.taken.contains(node)))
    }
}

/// Waits until every node uses its latest certificate, and counts what they have refused.
pub(crate) async fn settled(faults: &Faults) -> Result<()> {
    if faults.cluster.borrow().certificates.is_none() {
        return Ok(());
    }
    let (mut refused, nodes) = (0, faults.cluster.borrow().names());
    for node in nodes {
        let is_latest = async || {
            let contact = faults.cluster.borrow().contact(&node)?;
            let contact = contact.context("it is a member")?;
            let status = query_status(contact, ANSWER_LIMIT).await?;
            let status = status.tls.context("it has no certificate")?;
            let cluster = faults.cluster.borrow();
            let certificates = cluster.certificates.as_ref();
            let is_latest = certificates.is_some_and(|it| it.is_latest(&node, &status));
            ensure!(is_latest, "it uses another one");
            Ok(status.refused_sets)
        };
        let what = format!("node {node} uses its latest certificate");
        refused += eventually(&what, is_latest).await?;
    }
    faults.counts.borrow_mut().refused_sets = refused;
    Ok(())
}
