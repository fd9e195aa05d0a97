//! Injects the faults.

use crate::cluster::Cluster;
use crate::gateway::Gateway;
use crate::loss::{self, Loss, REFUSAL};
use crate::report::Counts;
use crate::roll;
use crate::schedule::{Fault, Remedy, Schedule};
use crate::settle;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

/// Interval between two checks of a process.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Time limit for an orderly stop, and for a membership change.
const PATIENCE: Duration = Duration::from_secs(60);

/// The context of the faults.
#[derive(Clone)]
pub(crate) struct Faults {
    pub(crate) cluster: Rc<RefCell<Cluster>>,
    pub(crate) counts: Rc<RefCell<Counts>>,
    pub(crate) gateways: Rc<RefCell<Vec<Gateway>>>,
}

impl Faults {
    /// Follows the schedule until `end`, and waits for the last fault to end.
    ///
    /// # Errors
    /// If a node did what no node may do.
    pub(crate) async fn run(&self, schedule: &mut Schedule, end: Instant) -> Result<()> {
        let mut running: JoinSet<Result<()>> = JoinSet::new();
        let begun = Instant::now();
        let mut next = schedule.next().map(|(gap, fault)| (begun + gap, fault));
        while Instant::now() < end {
            sleep_until((Instant::now() + LOOK_EVERY).min(end).into()).await;
            self.cluster.borrow_mut().check()?;
            while let Some(ended) = running.try_join_next() {
                ended??;
            }
            if let Some((due, fault)) = next.take_if(|(due, _)| *due <= Instant::now()) {
                let faults = self.clone();
                running.spawn_local(async move { faults.carry_out(fault).await });
                // Counted from the due time, so that a busy machine does not stretch the schedule.
                next = schedule.next().map(|(gap, fault)| (due + gap, fault));
            }
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        self.cluster.borrow_mut().check()
    }

    /// All nodes run, and freely.
    pub(crate) fn heal(&self) -> Result<()> {
        let mut cluster = self.cluster.borrow_mut();
        cluster.heal()?;
        self.counts.borrow_mut().starts = cluster.starts();
        Ok(())
    }

    async fn carry_out(&self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Kill(victims) => self.kill(self.hold(victims)).await,
            Fault::Pause(victims) => self.pause(self.hold(victims)).await,
            Fault::Terminate(node, absence) if self.cluster.borrow_mut().hold(node) => {
                self.terminate(node).await?;
                sleep(absence).await;
                self.back(node)
            }
            Fault::FullDisk(node, kib, window) if self.cluster.borrow_mut().hold(node) => {
                self.fill_disk(node, kib, window).await
            }
            Fault::Replace(node) if self.cluster.borrow_mut().hold_to_replace(node) => {
                self.replace(node).await
            }
            Fault::Cut(ways, duration) => {
                self.cut(&ways, duration).await;
                Ok(())
            }
            Fault::Lose(node, loss, remedy) if self.cluster.borrow_mut().hold(node) => {
                self.lose(node, loss, remedy).await
            }
            Fault::Clock(node, ahead_ms) => self.jump(node, ahead_ms),
            Fault::Roll if self.cluster.borrow_mut().reserve() => {
                let rolled = self.roll().await;
                self.cluster.borrow_mut().unreserve();
                rolled
            }
            Fault::Terminate(..)
            | Fault::FullDisk(..)
            | Fault::Replace(_)
            | Fault::Lose(..)
            | Fault::Roll => Ok(()),
        }
    }

    /// The nodes among these that no other fault holds, by the time of their return.
    fn hold(&self, mut victims: Vec<(usize, Duration)>) -> Vec<(usize, Duration)> {
        victims.retain(|(node, _)| self.cluster.borrow_mut().hold(*node));
        victims.sort_by_key(|(_, absence)| *absence);
        victims
    }

    async fn kill(&self, victims: Vec<(usize, Duration)>) -> Result<()> {
        let nodes: Vec<usize> = victims.iter().map(|(node, _)| *node).collect();
        self.count_kills(&nodes)?;
        let begun = Instant::now();
        for (node, absence) in victims {
            sleep_until((begun + absence).into()).await;
            self.back(node)?;
        }
        Ok(())
    }

    /// Kills these nodes.
    pub(crate) fn count_kills(&self, nodes: &[usize]) -> Result<()> {
        let mut cluster = self.cluster.borrow_mut();
        let mut counts = self.counts.borrow_mut();
        let killed = cluster.kill(nodes)?;
        counts.kills += killed;
        counts.kills_of_all += u64::from(killed == cluster.len() as u64);
        Ok(())
    }

    /// Kills all nodes, calls a function while none runs, and restarts them.
    pub(crate) fn while_all_are_down(
        &self,
        work: impl FnOnce(&Cluster) -> Result<()>,
    ) -> Result<()> {
        let all: Vec<usize> = (0..self.cluster.borrow().len()).collect();
        self.count_kills(&all)?;
        work(&self.cluster.borrow())?;
        self.heal()
    }

    /// Starts a node and releases it.
    pub(crate) fn back(&self, node: usize) -> Result<()> {
        let mut cluster = self.cluster.borrow_mut();
        cluster.start(node)?;
        cluster.release(node);
        self.counts.borrow_mut().starts = cluster.starts();
        Ok(())
    }

    async fn pause(&self, victims: Vec<(usize, Duration)>) -> Result<()> {
        for (node, _) in &victims {
            self.cluster.borrow().signal(*node, Signal::SIGSTOP)?;
            self.counts.borrow_mut().pauses += 1;
        }
        let begun = Instant::now();
        for (node, absence) in victims {
            sleep_until((begun + absence).into()).await;
            let mut cluster = self.cluster.borrow_mut();
            cluster.signal(node, Signal::SIGCONT)?;
            cluster.release(node);
        }
        Ok(())
    }

    async fn cut(&self, ways: &[(usize, usize)], duration: Duration) {
        let Some(ways) = self.cluster.borrow_mut().cut(ways) else {
            return;
        };
        self.counts.borrow_mut().cuts += 1;
        sleep(duration).await;
        let mut cluster = self.cluster.borrow_mut();
        cluster.join(&ways);
        self.counts.borrow_mut().held_back = cluster.held_back();
    }

    /// Ends a node in order.
    pub(crate) async fn terminate(&self, node: usize) -> Result<()> {
        self.cluster.borrow().signal(node, Signal::SIGTERM)?;
        self.counts.borrow_mut().terminations += 1;
        match self.end(node, PATIENCE).await? {
            // The signal simply ends a process that is still recovering, because it has nothing to
            // put in order.
            Some(status) if status.signal() == Some(Signal::SIGTERM as i32) => Ok(()),
            Some(status) => self.expect(node, status, 0, "SIGTERM"),
            None => bail!(
                "node {} does not end upon SIGTERM",
                self.cluster.borrow().name(node)
            ),
        }
    }

    /// When all other faults are over and all nodes serve, stops the nodes one after the other in
    /// order.
    async fn roll(&self) -> Result<()> {
        let free = async {
            while !self.cluster.borrow().is_free() {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(2 * PATIENCE, free)
            .await
            .context("a fault does not end")?;
        let gateways = self.gateways.borrow().clone();
        settle::serving(&gateways)
            .await
            .context("before the nodes are stopped one after the other")?;
        let roll = self.counts.borrow().rolls;
        self.counts.borrow_mut().rolls += 1;
        let clients = roll::Clients::start(roll, &gateways);
        let nodes = self.cluster.borrow().len();
        for node in 0..nodes {
            self.cluster.borrow_mut().hold_reserved(node);
            self.terminate(node).await?;
            self.back(node)?;
            settle::serving(&gateways)
                .await
                .context("while the nodes are stopped one after the other")?;
        }
        let told = clients
            .end()
            .await
            .context("while the nodes were stopped one after the other")?;
        let mut counts = self.counts.borrow_mut();
        counts.roll_replies += told.replies;
        counts.roll_idle += told.idle;
        counts.roll_open += told.open;
        Ok(())
    }

    /// Ends an upgrade: every node gets the present program, one after the other, and the level is
    /// raised.
    pub(crate) async fn upgrade(&self) -> Result<()> {
        ensure!(self.cluster.borrow_mut().reserve(), "another fault began");
        self.cluster.borrow_mut().mix_with(None);
        self.roll().await?;
        self.raise_level().await?;
        self.cluster.borrow_mut().unreserve();
        Ok(())
    }

    /// Raises the level of the cluster to the highest that the nodes support.
    pub(crate) async fn raise_level(&self) -> Result<()> {
        let said = self.command(&["upgrade", "finalize"]).await?;
        ensure!(
            said.contains("level"),
            "`ionian upgrade finalize` says: {said}"
        );
        Ok(())
    }

    /// Lowers the level by one, and waits until every node is ready for the former program.
    pub(crate) async fn lower_level(&self) -> Result<()> {
        let said = self.command(&["upgrade", "revert"]).await?;
        ensure!(
            said.contains("every node is ready"),
            "`ionian upgrade revert` says: {said}"
        );
        Ok(())
    }

    /// Runs a command of an operator, while clients go on; returns its output.
    ///
    /// # Errors
    /// If it does not exit with code 0: what it says.
    pub(crate) async fn command(&self, words: &[&str]) -> Result<String> {
        let mut command = self.cluster.borrow().command(words);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "`ionian {}` ended with {}: {said}{}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }

    async fn fill_disk(&self, node: usize, kib: u64, window: Duration) -> Result<()> {
        self.count_kills(&[node])?;
        self.cluster.borrow_mut().start_limited(node, kib)?;
        self.counts.borrow_mut().full_disk_starts += 1;
        match self.end(node, window).await? {
            Some(status) => {
                self.expect(node, status, 1, "a full disk")?;
                self.counts.borrow_mut().full_disks += 1;
            }
            // It has not written beyond the limit.
            None => self.count_kills(&[node])?,
        }
        self.back(node)
    }

    /// Restarts a node with a wrong clock, or with a correct one again. At most one clock is wrong,
    /// because more than f wrong clocks would move the time of the log.
    fn jump(&self, node: usize, ahead_ms: i64) -> Result<()> {
        let Some(node) = self.cluster.borrow_mut().jump(node, ahead_ms) else {
            return Ok(());
        };
        self.count_kills(&[node])?;
        self.counts.borrow_mut().jumps += 1;
        self.back(node)
    }

    /// Removes a part of a node's log while the node is down. The node must refuse to start, with a
    /// reason.
    async fn lose(&self, node: usize, loss: Loss, remedy: Remedy) -> Result<()> {
        self.count_kills(&[node])?;
        let (log, aside) = {
            let cluster = self.cluster.borrow();
            (
                cluster.store(node).join("wal"),
                cluster.root().join("aside").join(cluster.name(node)),
            )
        };
        let Some(taken) = loss::take(loss, &log, &aside)? else {
            return self.back(node);
        };
        self.cluster.borrow_mut().start(node)?;
        let Some(status) = self.end(node, PATIENCE).await? else {
            bail!(
                "node {} lost a part of its log, {loss:?}, and goes on",
                self.cluster.borrow().name(node)
            );
        };
        self.expect(node, status, 1, "a part of its log was lost")?;
        let said = self.cluster.borrow().last_output(node).unwrap_or_default();
        ensure!(
            said.contains(REFUSAL),
            "a node that lost a part of its log, {loss:?}, says: {said}"
        );
        self.counts.borrow_mut().losses += 1;
        if remedy == Remedy::Replace && self.cluster.borrow_mut().may_replace() {
            self.counts.borrow_mut().losses_replaced += 1;
            return self.replace(node).await;
        }
        taken.put_back()?;
        self.back(node)
    }

    /// Waits for the node's process to end.
    async fn end(&self, node: usize, patience: Duration) -> Result<Option<ExitStatus>> {
        let ended = async {
            loop {
                if let Some(status) = self.cluster.borrow_mut().ended(node)? {
                    return Ok(status);
                }
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(patience, ended).await.ok().transpose()
    }

    fn expect(&self, node: usize, status: ExitStatus, code: i32, why: &str) -> Result<()> {
        let cluster = self.cluster.borrow();
        let how = || cluster.describe(node, status);
        ensure!(
            status.code() == Some(code),
            "after {why} node {} must end with exit code {code}, and did not: {}",
            cluster.name(node),
            how()
        );
        Ok(())
    }

    async fn replace(&self, node: usize) -> Result<()> {
        let name = format!("m{}", self.counts.borrow().replacements);
        let mut replacement = self.cluster.borrow_mut().begin_replacement(node, &name)?;
        let made = async {
            while !replacement.is_made()? {
                sleep(LOOK_EVERY).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, made)
            .await
            .with_context(|| format!("`ionian member replace` to {name} does not end"))??;
        let ran = self.cluster.borrow().is_started(node);
        if ran {
            match self.end(node, PATIENCE).await? {
                Some(status) => self.expect(node, status, 0, "its replacement")?,
                None => bail!(
                    "node {} was replaced and does not end",
                    self.cluster.borrow().name(node)
                ),
            }
        }
        self.cluster
            .borrow_mut()
            .finish_replacement(node, replacement);
        self.cluster.borrow_mut().release(node);
        self.counts.borrow_mut().replacements += 1;
        *self.gateways.borrow_mut() = self.cluster.borrow().gateways()?;
        Ok(())
    }
}
