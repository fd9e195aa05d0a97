//! The deployment with the fewest nodes that carries a workload.
//!
//! From the smallest deployment of a preset on, the groups of nodes that are too busy get as many
//! more as they need at least: their work is shared by all at best. What turns out to be
//! unnecessary in the end is removed.

use crate::family::{Family, Shape};
use crate::model::{Loads, Model, NodeLoad, Unshared};
use anyhow::Result;

/// How busy a node may be after f nodes are gone.
pub const MAX_AFTER_FAILURES: f64 = 0.9;

/// Growth by one that relieves a group by less is of no use.
const RELIEF: f64 = 0.01;

/// Roundings are no violation.
const ROUNDING: f64 = 1e-9;

/// Deployments that grow from one preset, under one workload.
#[derive(Debug)]
pub struct Search<'a> {
    /// How busy nodes are.
    pub model: Model<'a>,
    /// The deployments.
    pub family: Family,
    /// How busy a node may be.
    pub headroom: f64,
    unshared: Unshared,
}

/// A deployment and how busy its nodes are.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which one of the family.
    pub shape: Shape,
    /// How busy.
    pub loads: Loads,
}

/// What came of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All limits hold.
    Fits(Candidate),
    /// They cannot, for this reason.
    Refused(String),
}

impl<'a> Search<'a> {
    /// Prepares it.
    ///
    /// # Errors
    /// If the family has no demands.
    pub fn new(model: Model<'a>, family: Family, headroom: f64) -> Result<Self> {
        let unshared = model.unshared(&family)?;
        Ok(Search {
            model,
            family,
            headroom,
            unshared,
        })
    }

    /// How busy the nodes of a deployment are.
    ///
    /// # Errors
    /// If it is not one of the family.
    pub fn candidate(&self, shape: Shape) -> Result<Candidate> {
        let loads = self.model.loads(&self.family, &shape, &self.unshared)?;
        Ok(Candidate { shape, loads })
    }

    /// How much of what it may do a node does: above 1 it does too much.
    pub fn strain(&self, node: &NodeLoad) -> f64 {
        let all_work = node.busy() / self.headroom;
        all_work.max(node.failed / MAX_AFTER_FAILURES)
    }

    /// The most of all nodes of a group.
    pub fn group_strain(&self, loads: &Loads, group: usize) -> f64 {
        let strains = loads.of_group(group).map(|node| self.strain(node));
        strains.fold(0.0, f64::max)
    }

    /// The group that is nearest to its limit, or furthest beyond it; of equals the first.
    pub fn binding(&self, loads: &Loads) -> usize {
        let groups = 0..self.family.groups.len();
        let strain = |group: &usize| self.group_strain(loads, *group);
        let most = |best: usize, group| match strain(&group) > strain(&best) {
            true => group,
            false => best,
        };
        groups.fold(0, most)
    }

    /// Whether all limits hold.
    pub fn fits(&self, loads: &Loads) -> bool {
        let strains = loads.0.iter().map(|node| self.strain(node));
        strains.fold(0.0, f64::max) <= 1.0 + ROUNDING
    }

    /// Finds the deployment.
    ///
    /// # Errors
    /// If a deployment cannot be counted.
    pub fn run(&self) -> Result<Outcome> {
        let mut at = self.candidate(self.family.least.clone())?;
        while !self.fits(&at.loads) {
            at = match self.relieved(&at)? {
                Outcome::Fits(next) => next,
                refused => return Ok(refused),
            };
        }
        for group in 0..self.family.groups.len() {
            while let Some(less) = self.family.shrunk(&at.shape, group) {
                let less = self.candidate(less)?;
                if !self.fits(&less.loads) {
                    break;
                }
                at = less;
            }
        }
        Ok(Outcome::Fits(at))
    }

    /// With more nodes in each group that is too busy.
    fn relieved(&self, at: &Candidate) -> Result<Outcome> {
        let mut shape = at.shape.clone();
        for (group, of) in self.family.groups.iter().enumerate() {
            let strain = self.group_strain(&at.loads, group);
            // Groups that share a grid grow together.
            let is_done = of.in_grid && shape.grid != at.shape.grid;
            if strain <= 1.0 + ROUNDING || is_done {
                continue;
            }
            let have = match of.in_grid {
                true => at.shape.grid.1,
                false => at.shape.counts[group],
            };
            let needed = (have as f64 * (strain - ROUNDING)).ceil() as usize;
            let Some(one_more) = self.family.grown(&at.shape, group, 1) else {
                return Ok(self.refusal(group, strain, "this preset cannot have more of it"));
            };
            let relieved = self.candidate(one_more)?;
            let then = self.group_strain(&relieved.loads, group);
            if then > strain * (1.0 - RELIEF) {
                return Ok(self.refusal(group, strain, "more of it would not relieve it"));
            }
            match self
                .family
                .grown(&shape, group, needed.max(have + 1) - have)
            {
                Some(more) => shape = more,
                None => {
                    let why = format!(
                        "it would take {needed} or more of it, and {} nodes are the most of a plan",
                        crate::family::MAX_NODES
                    );
                    return Ok(self.refusal(group, strain, &why));
                }
            }
        }
        Ok(Outcome::Fits(self.candidate(shape)?))
    }

    fn refusal(&self, group: usize, strain: f64, why: &str) -> Outcome {
        Outcome::Refused(format!(
            "{} would have {:.1} times as much to do as it may, and {why}",
            self.family.groups[group].title(),
            strain
        ))
    }
}
