//! `ionian snapshot salvage`: the newest snapshot of any replica, followed by the votes of the
//! acceptors with the highest round in each slot.
//!
//! With a read quorum of acceptors this is what a new leader would do in phase 1, and no
//! acknowledged write is lost. With fewer acceptors it is the best possible guess.

use super::file::{self, Head, Origin};
use super::stopped::{machine_in, newest, warn};
use super::{arguments, state};
use crate::output::say;
use crate::protocols::MACHINE;
use anyhow::{Context, Result, bail};
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::{AcceptorId, AcceptorSet, Epoch, Slot};
use ionian_kernel::layout::Address;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::wire::decode_all;
use ionian_protocols::multipaxos::message::Vote;
use ionian_protocols::multipaxos::{self, MultiPaxos, acceptor, kind};
use ionian_replication::executor::Executor;
use ionian_runtime::storage::membership_file;
use ionian_runtime::storage::offline::StoppedNode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(crate) fn run(arguments: &arguments::Salvage) -> Result<()> {
    file::refuse_existing(&arguments.output)?;
    let nodes = open_all(&arguments.directories)?;
    let (cluster, protocol) = (nodes[0].cluster(), nodes[0].protocol());
    let machine = machine_in(&arguments.directories[0])?;
    if machine != MACHINE {
        bail!(
            "these directories are of the state machine {machine:?}, this program contains {MACHINE:?} only"
        );
    }
    let (base, from) = furthest(&nodes)?;
    let votes = Votes::read(&nodes, base.slot)?;
    let known = known(arguments, cluster)?;
    let quorum = known
        .as_ref()
        .map(|known| votes.are_a_read_quorum(known))
        .transpose()?
        .unwrap_or(false);
    let mut executor = base.executor;
    let end = votes.execute(&mut executor, base.slot, quorum || arguments.past_holes);
    // Acceptors that joined with a change may know nothing of the slots below its frontier.
    let settled = known
        .map_or(Slot::ZERO, |known| known.membership.frontier)
        .max(votes.forgotten);
    let complete = quorum && base.slot >= settled;
    let head = Head::new(cluster, protocol, MACHINE, &from, Origin::Salvaged);
    let head = Head {
        slot: end.0,
        complete,
        ..head
    };
    file::write(&arguments.output, &head, &executor.snapshot())?;
    report(&arguments.output, &votes, (base.slot, end), &from, complete);
    Ok(())
}

/// The newest membership in the directories, or else the deployment file, if there is one.
fn known(arguments: &arguments::Salvage, cluster: &str) -> Result<Option<Configuration>> {
    let mut newest: Option<Configuration> = None;
    for directory in &arguments.directories {
        let stored = membership_file::stored(directory)?;
        newest = newest
            .filter(|newest| {
                stored
                    .as_ref()
                    .is_none_or(|it| it.epoch() <= newest.epoch())
            })
            .or(stored);
    }
    let Some(file) = &arguments.config else {
        return Ok(newest);
    };
    let deployment = Deployment::load(file)?;
    if deployment.cluster != cluster {
        bail!(
            "the deployment is of cluster {}, the directories are of cluster {cluster}",
            deployment.cluster
        );
    }
    Ok(newest.or(Some(Configuration::founded(deployment))))
}

fn open_all(directories: &[std::path::PathBuf]) -> Result<Vec<StoppedNode>> {
    let mut nodes: Vec<StoppedNode> = Vec::new();
    for path in directories {
        let node = StoppedNode::open(path)?;
        if node.protocol() != MultiPaxos::NAME {
            bail!(
                "{} runs {}: only {} can be salvaged",
                path.display(),
                node.protocol(),
                MultiPaxos::NAME
            );
        }
        if let Some(first) = nodes
            .first()
            .filter(|first| first.cluster() != node.cluster())
        {
            bail!(
                "{} is of cluster {}, the others of {}",
                path.display(),
                node.cluster(),
                first.cluster()
            );
        }
        if nodes.iter().any(|other| other.name() == node.name()) {
            bail!(
                "{} is a second directory of node {}",
                path.display(),
                node.name()
            );
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// The state to start from.
struct Base {
    slot: Slot,
    executor: Executor,
}

/// The newest snapshot, with the name of its node; an empty state if no snapshot exists.
fn furthest(nodes: &[StoppedNode]) -> Result<(Base, String)> {
    let mut best = None;
    for node in nodes {
        if let Some(stored) = newest(node)? {
            best = best.filter(
                |(_, before): &(_, ionian_runtime::storage::offline::StoredSnapshot)| {
                    before.stamp >= stored.stamp
                },
            );
            best = best.or(Some((node, stored)));
        }
    }
    let Some((node, stored)) = best else {
        let base = Base {
            slot: Slot::ZERO,
            executor: state::empty(MACHINE),
        };
        return Ok((base, nodes[0].name().to_owned()));
    };
    let executor = state::restored(&stored.snapshot, MACHINE)
        .with_context(|| stored.path.display().to_string())?;
    Ok((
        Base {
            slot: Slot(stored.stamp),
            executor,
        },
        node.name().to_owned(),
    ))
}

/// The votes in the directories.
#[derive(Default)]
struct Votes {
    /// The vote with the highest round in each slot.
    highest: BTreeMap<Slot, Vote>,
    /// The acceptors found, each with its node: since then another node may have got the same
    /// number.
    acceptors: BTreeSet<(AcceptorId, String)>,
    /// An acceptor has forgotten all slots below this one, so f+1 replicas had stored them.
    forgotten: Slot,
    /// The latest epoch in which an acceptor has promised a round.
    epoch: Epoch,
}

impl Votes {
    /// The votes from slot `start` on.
    fn read(nodes: &[StoppedNode], start: Slot) -> Result<Votes> {
        let mut votes = Votes::default();
        for node in nodes {
            // The votes of each instance; it confirms some of them in higher rounds.
            let mut own: BTreeMap<(u8, Slot), Vote> = BTreeMap::new();
            let mut here = AcceptorSet::EMPTY;
            for record in node.records()? {
                let (author, record) = record?;
                if author.kind != kind::Acceptor {
                    continue;
                }
                here.insert(AcceptorId(author.index));
                let record = decode_all(&record);
                let record = record
                    .with_context(|| format!("a record of node {} cannot be read", node.name()))?;
                if let acceptor::Record::Promised { round }
                | acceptor::Record::Voted {
                    vote: Vote { round, .. },
                    ..
                }
                | acceptor::Record::Confirmed { round, .. } = &record
                {
                    votes.epoch = votes.epoch.max(round.epoch());
                }
                match record {
                    acceptor::Record::Voted { slot, vote } if slot >= start => {
                        own.insert((author.index, slot), vote.clone());
                        votes.add(slot, vote);
                    }
                    acceptor::Record::Confirmed { slot, round } => {
                        if let Some(vote) = own.get_mut(&(author.index, slot)) {
                            vote.round = round;
                            votes.add(slot, vote.clone());
                        }
                    }
                    acceptor::Record::Forgot { below } => {
                        votes.forgotten = votes.forgotten.max(below)
                    }
                    acceptor::Record::Voted { .. }
                    | acceptor::Record::Promised { .. }
                    | acceptor::Record::Began { .. } => {}
                }
            }
            votes.acceptors.extend(
                here.iter()
                    .map(|acceptor| (acceptor, node.name().to_owned())),
            );
        }
        Ok(votes)
    }

    fn add(&mut self, slot: Slot, vote: Vote) {
        if self
            .highest
            .get(&slot)
            .is_none_or(|highest| highest.round < vote.round)
        {
            self.highest.insert(slot, vote);
        }
    }

    /// Whether these acceptors know every acknowledged write, given that `known` is the membership.
    /// It is if none of them has promised a later epoch, which acceptors do before they leave. An
    /// acceptor of a removed node does not count for the member that has its number now.
    fn are_a_read_quorum(&self, known: &Configuration) -> Result<bool> {
        let config = multipaxos::config::Config::new(known.layout(MultiPaxos::KINDS)?)?;
        let layout = config.layout();
        let is_member = |(acceptor, node): &&(AcceptorId, String)| {
            let place = layout.node_of(Address {
                kind: kind::Acceptor,
                index: acceptor.0,
            });
            place.is_some_and(|place| layout.name(place) == *node)
        };
        let members = self
            .acceptors
            .iter()
            .filter(is_member)
            .map(|(acceptor, _)| *acceptor)
            .collect();
        Ok(config.can_read(members, self.epoch))
    }

    /// The slot after the last vote.
    fn end(&self) -> Slot {
        self.highest
            .keys()
            .next_back()
            .map_or(Slot::ZERO, |slot| slot.next())
    }

    /// Executes the votes from slot `start` on; returns the first slot that is not executed. Unless
    /// `past_holes` it stops at a slot without a vote, because other acceptors may have chosen a
    /// value there. If a read quorum has no vote in a slot that it has not forgotten, no value was
    /// chosen there.
    fn execute(&self, executor: &mut Executor, start: Slot, past_holes: bool) -> Slot {
        let mut next = start;
        for (slot, vote) in &self.highest {
            if *slot != next && !past_holes {
                break;
            }
            executor.execute(*slot, &vote.value, None);
            next = slot.next();
        }
        next
    }
}

fn report(output: &Path, votes: &Votes, (start, end): (Slot, Slot), from: &str, complete: bool) {
    let executed = votes.highest.range(..end).count() as u64;
    let holes = (end.0 - start.0).saturating_sub(executed);
    say!(
        "wrote {}: the state at slot {}, from the snapshot of node {from} at slot {} and {executed} later slots from \
         the votes of {} acceptors",
        output.display(),
        end.0,
        start.0,
        votes.acceptors.len()
    );
    if end < votes.end() {
        let left = votes.highest.range(end..).count();
        warn(
            output,
            &format!(
                "ends before slot {}, where no vote is known; it lacks {left} later slots, which --past-holes would \
                 include",
                end.0
            ),
        );
    }
    if holes > 0 && !complete {
        warn(
            output,
            &format!("lacks {holes} slots in between, where no vote is known"),
        );
    }
    if start < votes.forgotten {
        warn(
            output,
            &format!(
                "lacks acknowledged writes: only replicas whose directories were not given have stored the slots below \
                 {}",
                votes.forgotten.0
            ),
        );
    } else if complete {
        say!("These acceptors are a read quorum: the snapshot contains every acknowledged write.");
    } else {
        say!(
            "Possibly lost: acknowledged writes with votes only of acceptors whose directories were not given.\nPossibly \
             added: writes that were voted for here and never acknowledged, also in place of lost ones."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::PresetOptions;

    /// When a node leaves, the next new node gets the number of its acceptor.
    #[test]
    fn an_acceptor_of_a_removed_node_does_not_count_for_its_successor() {
        let known = Configuration::founded(
            Deployment::preset("colocated", &PresetOptions::default()).unwrap(),
        );
        let is_quorum = |acceptors: &[(u8, &str)]| {
            let acceptors = acceptors
                .iter()
                .map(|(index, node)| (AcceptorId(*index), (*node).to_owned()))
                .collect();
            Votes {
                acceptors,
                ..Votes::default()
            }
            .are_a_read_quorum(&known)
            .unwrap()
        };
        assert!(is_quorum(&[(0, "n0"), (2, "n2")]));
        assert!(!is_quorum(&[(0, "n0")]));
        assert!(!is_quorum(&[(0, "n0"), (2, "left")]));
        assert!(is_quorum(&[(0, "n0"), (1, "n1"), (2, "left")]));
    }
}
