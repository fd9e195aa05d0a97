//! Asks all nodes for their notes, and joins those about a command.

use crate::contact;
use crate::output::explain;
use anyhow::{Context, Result};
use ionian_deployment::Configuration;
use ionian_kernel::trace::LogSlot;
use ionian_kernel::trace::path::{Path, Seen};
use ionian_runtime::admin::traces::MOST_SLOTS;
use ionian_runtime::traces::{CommandName, Delay, KeptCommand, NodeNotes, Wanted};
use ionian_runtime::{Record, query_notes};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;

/// What the nodes have answered.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) notes: Vec<NodeNotes>,
    /// Why others have not.
    pub(super) failures: Vec<String>,
}

/// A command of a client, and its path through the roles.
#[derive(Debug)]
pub(super) struct Traced {
    /// The node of its gateway.
    pub(super) node: String,
    pub(super) kept: KeptCommand,
    pub(super) path: Path,
    /// What nodes waited for meanwhile, the longest first.
    pub(super) delays: Vec<Meanwhile>,
}

/// A delay of a node that a command may have waited for.
#[derive(Clone, Debug)]
pub(super) struct Meanwhile {
    pub(super) node: String,
    /// How much of the delay was in the time of the command.
    pub(super) us: u64,
    pub(super) delay: Delay,
}

/// Has every node record, if it is to, and asks for the events about these.
pub(super) async fn ask_all(
    known: &Configuration,
    record: Option<Record>,
    wanted: &Wanted,
    limit: Duration,
) -> Gathered {
    let mut questions = JoinSet::new();
    for (place, node) in known.nodes() {
        let (name, address) = (node.name.clone(), node.address.clone());
        let wanted = wanted.clone();
        questions.spawn(async move {
            let answer = ask((&name, &address), record, &wanted, limit).await;
            (place, answer.with_context(|| format!("node {name}")))
        });
    }
    let mut answers = questions.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    let mut gathered = Gathered::default();
    for (_, answer) in answers {
        match answer {
            Ok(notes) => gathered.notes.push(notes),
            Err(error) => gathered.failures.push(explain(&error)),
        }
    }
    gathered
}

async fn ask(
    (name, address): (&str, &str),
    record: Option<Record>,
    wanted: &Wanted,
    limit: Duration,
) -> Result<NodeNotes> {
    let node = contact::to(Some(name), address);
    Ok(query_notes(node, record, wanted, limit).await?)
}

impl Gathered {
    /// The commands that gateways have kept and that are wanted, the newest first.
    pub(super) fn kept(&self, wanted: impl Fn(&KeptCommand) -> bool) -> Vec<(String, KeptCommand)> {
        let of_node = |notes: &NodeNotes| {
            let node = notes.node.clone();
            let kept = notes.commands.clone().into_iter();
            kept.map(move |kept| (node.clone(), kept))
        };
        let mut all: Vec<_> = self.notes.iter().flat_map(of_node).collect();
        all.retain(|(_, kept)| wanted(kept));
        all.sort_by_key(|(_, kept)| std::cmp::Reverse(kept.answered_us));
        all
    }

    fn seen(&self) -> Vec<Seen> {
        self.notes.iter().flat_map(NodeNotes::seen).collect()
    }

    /// The slots of these commands, if there are some that nodes without the commands do not know
    /// to be theirs: payloads and what refers to them, and inquiries.
    fn apart(&self, commands: &[CommandName]) -> BTreeSet<LogSlot> {
        let commands: Vec<_> = commands.iter().filter_map(|name| name.id()).collect();
        let has = |event: &Seen| {
            let run = event.commands.as_ref();
            run.is_some_and(|run| commands.iter().any(|command| run.contains(*command)))
        };
        let named = self.seen().into_iter().filter(has);
        let slots: BTreeSet<LogSlot> = named.filter_map(|event| event.slot).collect();
        match slots.iter().all(|slot| slot.is_of_log()) {
            true => BTreeSet::new(),
            false => slots,
        }
    }

    /// What nodes answer that are asked for more takes the place of what they have answered.
    fn replace(&mut self, by: Gathered) {
        let is_again = |of: &NodeNotes| by.notes.iter().any(|notes| notes.node == of.node);
        self.notes.retain(|notes| !is_again(notes));
        self.notes.extend(by.notes);
        let failures = by.failures.into_iter();
        let new: Vec<_> = failures.filter(|it| !self.failures.contains(it)).collect();
        self.failures.extend(new);
    }

    /// The delays of all nodes that explain a good part of the time of a command.
    fn delays(&self, kept: &KeptCommand) -> Vec<Meanwhile> {
        let (first, last) = (kept.submitted_us, kept.answered_us);
        let least = last.saturating_sub(first) / SHARE;
        let us = |delay: &Delay| {
            let ended = delay.ended_us.min(last);
            ended.saturating_sub(delay.began_us.max(first))
        };
        let all = self.notes.iter();
        let all = all.flat_map(|notes| notes.delays.iter().map(move |delay| (notes, delay)));
        let mut long: Vec<_> = all.filter(|(_, delay)| us(delay) > least).collect();
        long.sort_by_key(|(_, delay)| std::cmp::Reverse(us(delay)));
        long.truncate(MOST_DELAYS);
        let meanwhile = long.into_iter().map(|(notes, delay)| Meanwhile {
            node: notes.node.clone(),
            us: us(delay),
            delay: delay.clone(),
        });
        meanwhile.collect()
    }

    /// Whether all nodes that have answered note all commands now.
    pub(super) fn records_all(&self) -> bool {
        let of_node = |notes: &NodeNotes| notes.recording.as_ref().is_some_and(|it| it.one_in == 1);
        self.notes.iter().all(of_node)
    }
}

/// The paths of these commands.
pub(super) async fn paths(
    known: &Configuration,
    kept: Vec<(String, KeptCommand)>,
    limit: Duration,
) -> (Vec<Traced>, Gathered) {
    let commands = kept.iter().filter_map(|(_, kept)| kept.command);
    let mut wanted = Wanted {
        commands: commands.collect(),
        ..Wanted::default()
    };
    let mut gathered = ask_all(known, None, &wanted, limit).await;
    let slots = gathered.apart(&wanted.commands).into_iter();
    wanted.slots = slots.take(MOST_SLOTS).map(Into::into).collect();
    if !wanted.slots.is_empty() {
        gathered.replace(ask_all(known, None, &wanted, limit).await);
    }
    let seen = gathered.seen();
    let traced = kept.into_iter().map(|(node, kept)| {
        let id = kept.command.and_then(CommandName::id);
        let mut during = seen.clone();
        during.retain(|event| is_near(&kept, event));
        Traced {
            path: id.map_or_else(Path::default, |id| Path::of(id, &during)),
            delays: gathered.delays(&kept),
            node,
            kept,
        }
    });
    (traced.collect(), gathered)
}

/// A delay explains a command if it has more than one in this number of parts of its time.
const SHARE: u64 = 10;

/// How many delays are shown with a command, at most.
const MOST_DELAYS: usize = 8;

/// How much later or earlier an event about a command may be, by a clock that differs.
const NEAR_US: u64 = 60_000_000;

/// Whether an event may be about this command. A lane that opens another session counts anew: what
/// was long before is about another command of this name.
fn is_near(kept: &KeptCommand, event: &Seen) -> bool {
    let (first, last) = (kept.received_us, kept.answered_us);
    (first.saturating_sub(NEAR_US)..=last.saturating_add(NEAR_US)).contains(&event.at.0)
}
