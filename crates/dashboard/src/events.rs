//! What changed between two looks at the cluster.

use crate::look::Look;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most events that are kept.
const KEPT: usize = 200;

/// Looks further apart than this, in milliseconds, do not say when something happened.
const APART_MS: u64 = 10_000;

/// The trouble that a node does not answer.
const NODE_DOWN: &str = "node_down";

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// When it was seen, in milliseconds since 1970 by the clock of this node.
    pub(crate) at_ms: u64,
    /// If the look before was long ago: when that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since_ms: Option<u64>,
    pub(crate) text: String,
}

/// The last events, and since when there are troubles.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    before: Option<Before>,
    /// When each kind of trouble was first seen.
    since: BTreeMap<String, u64>,
}

/// What counts of the look before.
#[derive(Debug)]
struct Before {
    at_ms: u64,
    leader: Option<String>,
    health: String,
    epoch: u32,
    /// Whether each node answered, and the id of its process.
    nodes: BTreeMap<String, Option<u32>>,
}

impl Before {
    fn of(at_ms: u64, look: &Look) -> Self {
        let process = |status: &ionian_runtime::NodeStatus| status.pid;
        Before {
            at_ms,
            leader: look.leader.clone(),
            health: look.health.clone(),
            epoch: look.epoch,
            nodes: look
                .nodes
                .iter()
                .map(|node| (node.name.clone(), node.status.as_ref().map(process)))
                .collect(),
        }
    }
}

impl Events {
    /// Takes in what a look found.
    pub(crate) fn take(&mut self, at_ms: u64, look: &Look) {
        let now = Before::of(at_ms, look);
        let mut found = Vec::new();
        if let Some(before) = &self.before {
            found = differences(before, &now);
        }
        found.extend(self.troubles(at_ms, look));
        let earlier = self.before.as_ref().map(|before| before.at_ms);
        let since_ms = earlier.filter(|earlier| at_ms.saturating_sub(*earlier) > APART_MS);
        // The first look shows how things are, not what has changed.
        if self.before.is_some() {
            for text in found {
                self.push(Event {
                    at_ms,
                    since_ms,
                    text,
                });
            }
        }
        self.before = Some(now);
    }

    fn push(&mut self, event: Event) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
    }

    /// Kinds of troubles that begin or end, but for failed nodes, which are named one by one.
    fn troubles(&mut self, at_ms: u64, look: &Look) -> Vec<String> {
        let ids: BTreeSet<&str> = look.troubles.iter().map(|it| it.id.as_str()).collect();
        let mut found = Vec::new();
        self.since.retain(|id, _| {
            let stays = ids.contains(id.as_str());
            if !stays && id != NODE_DOWN {
                found.push(format!("trouble is over: {}", id.replace('_', " ")));
            }
            stays
        });
        for trouble in &look.troubles {
            if !self.since.contains_key(&trouble.id) {
                self.since.insert(trouble.id.clone(), at_ms);
                if trouble.id != NODE_DOWN {
                    found.push(format!("trouble: {}", trouble.text));
                }
            }
        }
        found
    }

    /// When this kind of trouble was first seen.
    pub(crate) fn since(&self, id: &str) -> Option<u64> {
        self.since.get(id).copied()
    }

    /// The last `count` events, the latest first.
    pub(crate) fn last(&self, count: usize) -> Vec<&Event> {
        self.kept.iter().rev().take(count).collect()
    }
}

fn differences(before: &Before, now: &Before) -> Vec<String> {
    let mut found = Vec::new();
    for (name, process) in &now.nodes {
        match (before.nodes.get(name), process) {
            (None, _) => found.push(format!("{name} is a member now")),
            (Some(Some(_)), None) => found.push(format!("{name} does not answer any more")),
            (Some(None), Some(_)) => found.push(format!("{name} answers again")),
            (Some(Some(then)), Some(now)) if then != now => {
                found.push(format!("{name} has restarted"))
            }
            _ => {}
        }
    }
    let gone = before
        .nodes
        .keys()
        .filter(|name| !now.nodes.contains_key(*name));
    found.extend(gone.map(|name| format!("{name} is no longer a member")));
    if before.leader != now.leader {
        found.push(match &now.leader {
            Some(leader) => format!("{leader} leads"),
            None => "no node leads".to_owned(),
        });
    }
    if before.health != now.health {
        found.push(format!("the cluster is {}", now.health.replace('_', " ")));
    }
    if before.epoch != now.epoch {
        found.push(format!("epoch {} of the membership", now.epoch));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{Node, Trouble};
    use ionian_planner::live::testing::report;
    use ionian_runtime::status::WorkStatus;

    fn node(name: &str, pid: Option<u32>) -> Node {
        let status = |pid| {
            let mut status = report(name, 1, WorkStatus::default());
            status.pid = pid;
            status
        };
        Node {
            name: name.into(),
            status: pid.map(status),
            ..Node::default()
        }
    }

    fn look(leader: Option<&str>, nodes: &[(&str, Option<u32>)], troubles: &[&str]) -> Look {
        let trouble = |id: &&str| Trouble {
            id: id.to_string(),
            text: format!("{id} of n1"),
            stops: false,
            ..Trouble::default()
        };
        Look {
            leader: leader.map(str::to_owned),
            nodes: nodes.iter().map(|(name, pid)| node(name, *pid)).collect(),
            troubles: troubles.iter().map(trouble).collect(),
            ..Look::default()
        }
    }

    fn texts(events: &Events) -> Vec<&str> {
        events
            .last(KEPT)
            .into_iter()
            .rev()
            .map(|it| it.text.as_str())
            .collect()
    }

    #[test]
    fn what_changes_between_two_looks_is_an_event() {
        let mut events = Events::default();
        events.take(
            1000,
            &look(Some("n0"), &[("n0", Some(1)), ("n1", Some(2))], &["old"]),
        );
        assert_eq!(texts(&events), [""; 0], "the first look is no change");
        assert_eq!(events.since("old"), Some(1000));
        events.take(
            3000,
            &look(
                None,
                &[("n0", Some(1)), ("n1", None)],
                &["old", "node_down", "tolerance_low"],
            ),
        );
        events.take(
            5000,
            &look(Some("n0"), &[("n0", Some(9)), ("n2", Some(3))], &["old"]),
        );
        assert_eq!(
            texts(&events),
            [
                "n1 does not answer any more",
                "no node leads",
                "trouble: tolerance_low of n1",
                "n0 has restarted",
                "n2 is a member now",
                "n1 is no longer a member",
                "n0 leads",
                "trouble is over: tolerance low",
            ]
        );
        assert_eq!(
            (events.since("old"), events.since("node_down")),
            (Some(1000), None)
        );
    }

    #[test]
    fn after_a_pause_an_event_says_when_the_look_before_was() {
        let mut events = Events::default();
        events.take(1000, &look(Some("n0"), &[], &[]));
        events.take(3000, &look(Some("n1"), &[], &[]));
        events.take(60_000, &look(Some("n2"), &[], &[]));
        let since: Vec<_> = events.last(2).iter().map(|it| it.since_ms).collect();
        assert_eq!(since, [Some(3000), None]);
    }

    #[test]
    fn the_number_of_events_is_bounded() {
        let mut events = Events::default();
        for number in 0..1000 {
            let leader = ["n0", "n1"][number % 2];
            events.take(number as u64, &look(Some(leader), &[], &[]));
        }
        assert_eq!(events.kept.len(), KEPT);
        assert_eq!(events.last(1)[0].at_ms, 999);
    }
}
