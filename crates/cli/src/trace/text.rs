//! Traced commands as text and as JSON.

use super::gather::{Meanwhile, Traced};
use ionian_kernel::time::Instant;
use ionian_kernel::trace::path::{Path, Place};
use ionian_runtime::traces::{DELAY_DISK, DELAY_LATE, DELAY_RUN, DelayedRole};
use serde_json::{Value, json};
use std::fmt::Write;

/// The kind of role that a gateway stands for in a list of steps.
const GATEWAY: &str = "gateway";

/// A part of the time between the receipt of a command and its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The role; none if the command was under way or in a queue.
    pub(super) place: Option<Place>,
    pub(super) stage: String,
    pub(super) us: u64,
}

impl Traced {
    /// How long the gateway took, in microseconds.
    pub(super) fn took_us(&self) -> u64 {
        let kept = &self.kept;
        kept.written_us.saturating_sub(kept.received_us)
    }

    /// What this time consists of, in order and without gaps. They add up to it even where clocks
    /// differ: each begins where the one before has ended.
    pub(super) fn shares(&self) -> Vec<Share> {
        let kept = &self.kept;
        let mut shares = Vec::new();
        let mut reached = kept.received_us;
        let mut until = |place: Option<Place>, stage: &str, end: u64| {
            let end = end.min(kept.written_us).max(reached);
            shares.push(Share {
                place,
                stage: stage.to_owned(),
                us: end - reached,
            });
            reached = end;
        };
        let gateway = || {
            Some(Place {
                node: self.node.clone(),
                role: GATEWAY.to_owned(),
                index: 0,
            })
        };
        until(gateway(), "receive", kept.submitted_us);
        match self.path.steps.first() {
            None => until(gateway(), "cluster", kept.answered_us),
            Some(first) => {
                until(gateway(), "submit", first.began.0);
                for step in &self.path.steps {
                    until(step.at.clone(), &step.stage, step.ended.0);
                }
                until(gateway(), "reply", kept.answered_us);
            }
        }
        until(gateway(), "write", kept.written_us);
        shares
    }

    /// The name of the command, the slot, and how long it took.
    pub(super) fn title(&self) -> String {
        let mut title = self.kept.name.to_uppercase();
        if self.kept.together > 1 {
            let _ = write!(title, " and {} more", self.kept.together - 1);
        }
        let _ = write!(title, " at {}", self.node);
        if let Some(slot) = self.path.slot {
            let _ = write!(title, ", slot {}", slot.slot.0);
        }
        if let Some(log) = self.path.slot.and_then(|slot| slot.log.checked_sub(1)) {
            let _ = write!(title, " of log {log}");
        }
        let _ = write!(title, ", {}", ms(self.took_us()));
        title
    }

    /// What the reply waited for: one line for each share.
    pub(super) fn waited(&self, lines: &mut String) {
        for share in self.shares().iter().filter(|share| share.us > 0) {
            let place = share.place.as_ref().map_or("on the way".to_owned(), name);
            let line = format!("{:>12}  {place:<24} {}", ms(share.us), share.stage);
            let _ = writeln!(lines, "{line}");
        }
    }

    /// What nodes waited for meanwhile, if they did: one line for each role.
    pub(super) fn meanwhile(&self, lines: &mut String) {
        if !self.delays.is_empty() {
            *lines += "Meanwhile nodes waited\n";
        }
        for Meanwhile { node, us, delay } in &self.delays {
            let what = match delay.what.as_str() {
                DELAY_DISK => "for the disk",
                DELAY_LATE => "to run: stopped, or without a processor",
                DELAY_RUN => "for one run of the event loop",
                other => other,
            };
            let mut line = |place: &str, slots: &str| {
                let _ = writeln!(lines, "{:>12}  {place:<24} {what}{slots}", ms(*us));
            };
            if delay.roles.is_empty() {
                line(node, "");
            }
            for role in &delay.roles {
                let place = format!("{node} {} {}", role.role, role.index);
                line(&place, &slots(role));
            }
        }
    }

    pub(super) fn document(&self) -> Value {
        let place = |place: &Option<Place>| {
            let place = place.as_ref();
            place.map(|it| json!({"node": it.node, "role": it.role, "index": it.index}))
        };
        let shares = self.shares().into_iter();
        let shares =
            shares.map(|it| json!({"at": place(&it.place), "stage": it.stage, "us": it.us}));
        let delays = self.delays.iter();
        let delays = delays.map(|it| json!({"node": it.node, "us": it.us, "delay": it.delay}));
        let spans = self.path.spans.iter().map(|span| {
            json!({
                "at": place(&Some(span.place.clone())),
                "stage": span.stage,
                "began_us": span.began.0,
                "ended_us": span.ended.0,
                "parent": span.parent,
            })
        });
        json!({
            "command": self.kept,
            "node": self.node,
            "slot": self.path.slot.map(|it| it.slot.0),
            "took_us": self.took_us(),
            "delays": delays.collect::<Vec<_>>(),
            "shares": shares.collect::<Vec<_>>(),
            "spans": spans.collect::<Vec<_>>(),
        })
    }
}

/// The slots that what was held back of a role names.
fn slots(of: &DelayedRole) -> String {
    let log = match of.log.checked_sub(1) {
        Some(log) => format!(" of log {log}"),
        None => String::new(),
    };
    match of.slots {
        None => String::new(),
        Some((first, last)) if first == last => format!(", slot {first}{log}"),
        Some((first, last)) => format!(", slots {first} to {last}{log}"),
    }
}

/// A time in microseconds, in milliseconds.
pub(super) fn ms(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

fn name(place: &Place) -> String {
    match place.role.as_str() {
        GATEWAY => format!("{} {GATEWAY}", place.node),
        role => format!("{} {role} {}", place.node, place.index),
    }
}

/// The spans of a path as a tree: when each began after the first, and how long it took.
pub(super) fn tree(path: &Path) -> String {
    let mut lines = String::new();
    let Some(root) = path.root() else {
        return lines;
    };
    let mut branches = Branches {
        path,
        since: path.spans[root].began,
        lines: &mut lines,
    };
    branches.draw(root, "", "");
    let rest = path.spans.iter().filter(|span| span.parent.is_none());
    if rest.count() > 1 {
        lines += "Other spans are left out: the events that lead to them are missing.\n";
    }
    lines
}

struct Branches<'a> {
    path: &'a Path,
    since: Instant,
    lines: &'a mut String,
}

impl Branches<'_> {
    /// One span behind `lead`, and those that follow from it behind `indent`.
    fn draw(&mut self, at: usize, lead: &str, indent: &str) {
        let span = &self.path.spans[at];
        let what = format!("{lead}{} {}", name(&span.place), span.stage);
        let after = ms(span.began.since(self.since).as_micros() as u64);
        let took = ms(span.ended.since(span.began).as_micros() as u64);
        let _ = writeln!(self.lines, "{what:<52} {after:>12} {took:>12}");
        let children: Vec<usize> = self.path.children(at).collect();
        for (number, child) in children.iter().enumerate() {
            let (fork, below) = match number + 1 == children.len() {
                true => ("└ ", "  "),
                false => ("├ ", "│ "),
            };
            self.draw(
                *child,
                &format!("{indent}{fork}"),
                &format!("{indent}{below}"),
            );
        }
    }
}
