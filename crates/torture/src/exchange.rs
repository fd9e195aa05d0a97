//! Programs that are exchanged under load: every node gets the present program, one after the
//! other, then the former one again, and so on, with SIGKILL at every step.

use crate::faults::Faults;
use crate::settle::{ANSWER_LIMIT, eventually, serving};
use crate::statuses::{executed, leader};
use anyhow::{Context, Result, ensure};
use ionian_kernel::random::Random;
use ionian_runtime::{NodeStatus, query_status};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long the cluster stays at the higher level before it is lowered.
const AT_THE_LEVEL: Duration = Duration::from_secs(1);

/// The program of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Release {
    Former,
    Present,
}

/// How the process of a node ends before the node gets another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum End {
    SigKill,
    SigTerm,
}

/// One step: a node gets another program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    end: End,
    /// It starts, and is killed after this time; then again.
    killed_after: Vec<Duration>,
}

/// One roll: every node gets the same program, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Roll {
    release: Release,
    /// The order of the nodes.
    order: Vec<usize>,
    /// Whether the node that leads waits until it is the last.
    leader_last: bool,
    steps: Vec<Step>,
    /// Whether the level is raised behind it, and lowered again before the next one.
    raises: bool,
}

/// What a step did, for the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Exchange {
    /// The number of the roll, from 1 on.
    pub(crate) roll: usize,
    pub(crate) node: String,
    pub(crate) to: Release,
    /// Whether the node led before.
    pub(crate) led: bool,
    pub(crate) end: End,
    /// How often it was killed while it started.
    pub(crate) killed_while_starting: usize,
    /// The time from its end until the cluster was healthy, in milliseconds.
    pub(crate) healthy_after_ms: Option<u64>,
    /// The longest time without an acknowledged write that ended in this step, in milliseconds.
    pub(crate) longest_without_write_ms: u64,
}

/// All rolls: so often to the present program and back, and at last to the present one. Every other
/// time about, and at last, the level is raised. The seed alone decides.
fn plan(seed: u64, nodes: usize, times: usize) -> Vec<Roll> {
    let mut random = Random::new(seed.rotate_left(16));
    let releases = [Release::Present, Release::Former];
    let releases = releases.into_iter().cycle().take(2 * times + 1);
    let mut rolls: Vec<Roll> = releases
        .map(|release| roll(&mut random, nodes, release))
        .collect();
    if let Some(last) = rolls.last_mut() {
        last.raises = true;
    }
    rolls
}

fn roll(random: &mut Random, nodes: usize, release: Release) -> Roll {
    let mut rest: Vec<usize> = (0..nodes).collect();
    let order = (0..nodes)
        .map(|_| rest.swap_remove(random.below(rest.len() as u64) as usize))
        .collect();
    Roll {
        release,
        order,
        leader_last: !random.once_in(3),
        steps: (0..nodes).map(|_| step(random)).collect(),
        raises: release == Release::Present && random.once_in(2),
    }
}

/// Each step has at least one SIGKILL: it ends the process, or the start of the next one, or both.
fn step(random: &mut Random) -> Step {
    let (end, kills) = match random.below(4) {
        0 => (End::SigTerm, random.between(1, 2)),
        1 => (End::SigKill, random.between(1, 2)),
        _ => (End::SigKill, 0),
    };
    // Before it has read its log as often as after that.
    let mut delay = || {
        let most = 2 << random.below(9);
        random.between(1, most)
    };
    Step {
        end,
        killed_after: (0..kills).map(|_| Duration::from_millis(delay())).collect(),
    }
}

/// Takes the node whose turn it is.
fn take_next(order: &mut Vec<usize>, leader_last: bool, leader: Option<usize>) -> usize {
    let waits = |node: &usize| leader_last && Some(*node) == leader;
    order.remove(order.iter().position(|node| !waits(node)).unwrap_or(0))
}

impl Faults {
    /// Exchanges the programs of all nodes, so often to the present one and back, and at last to
    /// the present one; raises the level behind some of these rolls, and lowers it before the
    /// former program comes back.
    ///
    /// # Errors
    /// If a node does not take its program, or does what no node may do.
    pub(crate) async fn exchange(&self, former: &Path, seed: u64, times: usize) -> Result<()> {
        ensure!(self.cluster.borrow_mut().reserve(), "another fault began");
        let nodes = self.cluster.borrow().len();
        let mut raised = false;
        for (number, roll) in plan(seed, nodes, times).into_iter().enumerate() {
            if std::mem::replace(&mut raised, roll.raises) {
                // Nodes say more to each other at that level, after some thousand commands.
                sleep(AT_THE_LEVEL).await;
                self.lower_level().await?;
            }
            let program = (roll.release == Release::Former).then(|| former.to_owned());
            self.exchange_all(number + 1, roll, program.as_ref())
                .await
                .with_context(|| format!("roll {}", number + 1))?;
            if raised {
                self.raise_level().await?;
            }
        }
        self.cluster.borrow_mut().unreserve();
        Ok(())
    }

    async fn exchange_all(
        &self,
        number: usize,
        roll: Roll,
        program: Option<&PathBuf>,
    ) -> Result<()> {
        let mut order = roll.order;
        for step in roll.steps {
            let statuses = eventually("every node answers", || self.statuses()).await?;
            let leader = leader(&statuses).ok();
            let node = take_next(&mut order, roll.leader_last, leader);
            let name = self.cluster.borrow().name(node).to_owned();
            self.counts.borrow_mut().begin_exchange(Exchange {
                roll: number,
                node: name.clone(),
                to: roll.release,
                led: leader == Some(node),
                end: step.end,
                killed_while_starting: step.killed_after.len(),
                healthy_after_ms: None,
                longest_without_write_ms: 0,
            });
            let begun = Instant::now();
            let exchanged = self.exchange_one(node, &step, program).await;
            // A node that has ended says better what is wrong.
            self.cluster.borrow_mut().check()?;
            exchanged
                .with_context(|| format!("node {name} gets the {:?} program", roll.release))?;
            self.counts.borrow_mut().end_exchange(begun.elapsed());
        }
        Ok(())
    }

    /// Ends a node, starts it with this program, and waits until the next one may follow.
    async fn exchange_one(
        &self,
        node: usize,
        step: &Step,
        program: Option<&PathBuf>,
    ) -> Result<()> {
        self.cluster.borrow_mut().hold_reserved(node);
        match step.end {
            End::SigTerm => self.terminate(node).await?,
            End::SigKill => self.count_kills(&[node])?,
        }
        let program = program.cloned();
        self.cluster.borrow_mut().set_program(node, program);
        for delay in &step.killed_after {
            self.cluster.borrow_mut().start(node)?;
            sleep(*delay).await;
            self.cluster.borrow_mut().check_held(node)?;
            self.count_kills(&[node])?;
        }
        self.back(node)?;
        self.caught_up(node).await
    }

    /// Waits until every gateway takes writes, the node has executed what the others had executed
    /// by then, and the cluster calls itself healthy: what docs/upgrade.md tells operators to wait
    /// for.
    async fn caught_up(&self, node: usize) -> Result<()> {
        let gateways = self.gateways.borrow().clone();
        serving(&gateways).await?;
        let statuses = eventually("every node answers", || self.statuses()).await?;
        let reached = statuses.iter().filter_map(executed).max();
        let behind = || async {
            let statuses = self.statuses().await?;
            let own = executed(&statuses[node]);
            ensure!(
                own.is_none() || own >= reached,
                "it has executed what is before slot {own:?}"
            );
            Ok(())
        };
        eventually(
            &format!("it has executed what is before {reached:?}"),
            behind,
        )
        .await?;
        eventually("the cluster is healthy", || self.command(&["status"])).await?;
        Ok(())
    }

    /// What every node reports of itself, in the order of the deployment.
    async fn statuses(&self) -> Result<Vec<NodeStatus>> {
        let contacts = self.cluster.borrow().contacts()?;
        let mut statuses = Vec::new();
        for contact in contacts {
            let address = contact.address.clone();
            let status = query_status(contact, ANSWER_LIMIT).await;
            statuses.push(status.with_context(|| address)?);
        }
        Ok(statuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_gets_every_program_so_often_and_the_present_one_at_last() {
        let rolls = plan(1, 3, 20);
        assert_eq!(rolls.len(), 41);
        for (number, roll) in rolls.iter().enumerate() {
            let upwards = number % 2 == 0;
            assert_eq!(roll.release == Release::Present, upwards);
            let mut nodes = roll.order.clone();
            nodes.sort_unstable();
            assert_eq!((nodes, roll.steps.len()), (vec![0, 1, 2], 3));
        }
        assert_eq!(rolls, plan(1, 3, 20));
        assert_ne!(rolls, plan(2, 3, 20));
    }

    #[test]
    fn the_level_is_raised_behind_some_rolls_to_the_present_program_and_behind_the_last() {
        let rolls = plan(1, 3, 20);
        let raising = rolls.iter().filter(|roll| roll.raises);
        assert!(raising.clone().all(|roll| roll.release == Release::Present));
        assert!((5..=16).contains(&raising.count()));
        assert!(rolls.last().is_some_and(|roll| roll.raises));
    }

    #[test]
    fn every_step_kills_and_all_kinds_of_steps_come() {
        let rolls = plan(1, 3, 20);
        let steps: Vec<&Step> = rolls.iter().flat_map(|roll| &roll.steps).collect();
        let kills = |step: &&Step| step.end == End::SigKill || !step.killed_after.is_empty();
        assert!(steps.iter().all(kills));
        for (end, kills) in [
            (End::SigKill, 0),
            (End::SigKill, 1),
            (End::SigKill, 2),
            (End::SigTerm, 1),
            (End::SigTerm, 2),
        ] {
            let is = |step: &&Step| step.end == end && step.killed_after.len() == kills;
            assert!(steps.iter().any(is), "{end:?} and {kills} kills");
        }
        let delays = steps.iter().flat_map(|step| &step.killed_after);
        let soon = |delay: &&Duration| delay.as_millis() < 20;
        let (all, soon) = (delays.clone().count(), delays.filter(soon).count());
        assert!((10..all - 10).contains(&soon), "{soon} of {all}");
        let is_last = |roll: &&Roll| roll.leader_last;
        let last = rolls.iter().filter(is_last).count();
        assert!((20..=35).contains(&last), "{last}");
    }

    #[test]
    fn the_leader_is_the_last_if_it_must_wait() {
        let order = |leader_last, leaders: [Option<usize>; 3]| {
            let mut order = vec![2, 0, 1];
            leaders.map(|leader| take_next(&mut order, leader_last, leader))
        };
        assert_eq!(order(false, [Some(2), Some(0), Some(1)]), [2, 0, 1]);
        assert_eq!(order(true, [Some(2); 3]), [0, 1, 2]);
        assert_eq!(order(true, [None; 3]), [2, 0, 1]);
        // Another node leads after the first step: it waits from then on.
        assert_eq!(order(true, [Some(2), Some(1), Some(1)]), [0, 2, 1]);
    }
}
