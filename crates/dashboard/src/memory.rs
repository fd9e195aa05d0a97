//! What is kept from look to look.

use crate::events::Events;
use crate::figures::Figures;
use crate::history::History;
use crate::look::Look;
use crate::picture;
use ionian_planner::live::rates::Rates;
use ionian_runtime::{NodeStatus, Published};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rates and utilizations are those of this time, if the node has been observed for so long.
const WINDOW: Duration = Duration::from_secs(10);

/// The most looks that are kept for that.
const LOOKS: usize = 8;

/// Of which figures the history is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Of this node, since it started.
    Node,
    /// Of the cluster, since this node looks at it.
    Cluster,
}

/// What is kept.
#[derive(Debug)]
pub(crate) struct Memory {
    began: Instant,
    looks: VecDeque<(Instant, Arc<Look>)>,
    events: Events,
    kinds: Vec<String>,
    own: History,
    cluster: History,
    /// The last report of this node.
    last_own: Option<Arc<Published>>,
}

impl Memory {
    /// Nothing is known yet. Looks come at the first interval while a page is open, and otherwise
    /// at the second.
    pub(crate) fn new(looks_every: Duration, rarely: Duration) -> Self {
        Memory {
            began: Instant::now(),
            looks: VecDeque::new(),
            events: Events::default(),
            kinds: Vec::new(),
            own: History::every(1, 1),
            cluster: History::every(looks_every.as_secs() as u32, 2 * rarely.as_secs() as u32),
            last_own: None,
        }
    }

    fn second(&self, at: Instant) -> u32 {
        at.saturating_duration_since(self.began).as_secs() as u32
    }

    /// Takes in what this node has published, once a second.
    pub(crate) fn take_own(&mut self, published: Arc<Published>) {
        let before = self.last_own.replace(published.clone());
        let Some(before) = before.filter(|before| before.at != published.at) else {
            return;
        };
        if let Some(rates) = Rates::between(&before.status, &published.status) {
            let second = self.second(published.at);
            let lag = own_lag(&published.status);
            let kinds = self.kinds_of(&published.status);
            let figures = Figures::of(&[&rates], kinds, lag);
            self.own.push(second, figures);
        }
    }

    /// The kinds of roles. Before the first look those that this node has, in its order.
    fn kinds_of(&mut self, own: &NodeStatus) -> &[String] {
        if self.kinds.is_empty() {
            self.kinds = own.roles.iter().map(|role| role.role.clone()).collect();
            self.kinds.dedup();
        }
        &self.kinds
    }

    /// Takes in a look that began at `at`; returns what the page draws, as JSON.
    pub(crate) fn take(&mut self, at: Instant, look: Look) -> String {
        let now_ms = wall_ms();
        self.events.take(now_ms, &look);
        if self.kinds != look.kinds {
            // Before the first look the kinds of other nodes were not known.
            self.own.clear_roles();
            self.kinds = look.kinds.clone();
        }
        let look = Arc::new(look);
        let before = self.looks.back().map(|(_, look)| look.clone());
        while self.looks.len() >= LOOKS
            || self
                .looks
                .get(1)
                .is_some_and(|(second, _)| at.duration_since(*second) >= WINDOW)
        {
            self.looks.pop_front();
        }
        self.looks.push_back((at, look.clone()));
        if let Some(before) = before {
            let rates: Vec<Rates> = pairs(&before, &look)
                .filter_map(|(then, now)| Rates::between(then, now))
                .collect();
            let lag = look.nodes.iter().filter_map(|node| node.lag).max();
            let figures = Figures::of(&rates.iter().collect::<Vec<_>>(), &self.kinds, lag);
            let second = self.second(at);
            self.cluster.push(second, figures);
        }
        let rates: Vec<Option<Rates>> = look
            .nodes
            .iter()
            .map(|node| self.rates(&node.name))
            .collect();
        picture::document(now_ms, &look, &rates, &self.events)
    }

    /// The rates of a node over the window, from its earliest report in it by the same process.
    fn rates(&self, name: &str) -> Option<Rates> {
        let mut reports = self
            .looks
            .iter()
            .filter_map(|(_, look)| report_of(look, name));
        let last = reports.next_back()?;
        reports.find_map(|earlier| Rates::between(earlier, last))
    }

    /// The figures of the last `seconds`.
    pub(crate) fn history(&self, of: Of, seconds: u32) -> Value {
        let history = match of {
            Of::Node => &self.own,
            Of::Cluster => &self.cluster,
        };
        history.answer(self.second(Instant::now()), seconds, &self.kinds)
    }
}

fn report_of<'a>(look: &'a Look, name: &str) -> Option<&'a NodeStatus> {
    look.nodes
        .iter()
        .find(|node| node.name == name)?
        .status
        .as_ref()
}

/// The reports of each node in two looks.
fn pairs<'a>(
    before: &'a Look,
    now: &'a Look,
) -> impl Iterator<Item = (&'a NodeStatus, &'a NodeStatus)> {
    now.nodes
        .iter()
        .filter_map(|node| Some((report_of(before, &node.name)?, node.status.as_ref()?)))
}

/// How many slots the slowest executor of the node is behind, as far as the node itself knows.
fn own_lag(status: &NodeStatus) -> Option<u64> {
    let lags = status
        .roles
        .iter()
        .filter_map(|role| Some(role.log_end?.saturating_sub(role.executed?)));
    lags.max()
}

/// The wall clock, in milliseconds since 1970.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Node;
    use ionian_planner::live::testing::report;
    use ionian_runtime::status::WorkStatus;

    fn look(nodes: &[(&str, u64, u64)]) -> Look {
        let node = |(name, ms, busy_ms): &(&str, u64, u64)| {
            let mut status = report(name, *ms, WorkStatus::default());
            status.loop_cpu_us = busy_ms * 1000;
            Node {
                name: name.to_string(),
                status: Some(status),
                ..Node::default()
            }
        };
        Look {
            nodes: nodes.iter().map(node).collect(),
            ..Look::default()
        }
    }

    #[test]
    fn utilization_is_that_of_the_last_ten_seconds() {
        let mut memory = Memory::new(Duration::from_secs(2), Duration::from_secs(30));
        let begin = Instant::now();
        for number in 0..60 {
            // It works all the time in the first 20 s, and then not at all.
            let ms = 2000 * number;
            let last = look(&[("n0", ms, ms.min(20_000)), ("n1", ms, 0)]);
            memory.take(begin + Duration::from_millis(ms), last);
            assert!(memory.looks.len() <= LOOKS);
            let busy = memory.rates("n0").map(|rates| rates.loops[0].1);
            match ms {
                0 => assert_eq!(busy, None),
                2000..=20_000 => assert_eq!(busy, Some(1.0), "{ms}"),
                24_000 => assert_eq!(busy, Some(0.6)),
                30_000.. => assert_eq!(busy, Some(0.0), "{ms}"),
                _ => {}
            }
        }
        let busiest = &memory.history(Of::Cluster, 3600)["series"]["busiest_loop"];
        assert!(
            busiest
                .as_array()
                .unwrap()
                .iter()
                .any(|value| *value == 1.0)
        );
    }

    #[test]
    fn rare_looks_leave_no_gap_in_the_history_of_the_cluster() {
        let rarely = Duration::from_secs(30);
        let mut memory = Memory::new(Duration::from_secs(2), rarely);
        let begin = memory.began;
        for number in 0..=20 {
            let at = rarely * number;
            let ms = at.as_millis() as u64;
            memory.take(begin + at, look(&[("n0", ms, ms / 2)]));
        }
        let busiest = |seconds: u32| {
            let answer = memory.cluster.answer(20 * 30, seconds, &[]);
            answer["series"]["busiest_loop"].as_array().unwrap().clone()
        };
        assert!(busiest(300).iter().all(|value| *value == 0.5));
        // All that there was.
        let hour = busiest(3600);
        assert!(hour[201..].iter().all(|value| *value == 0.5), "{hour:?}");
        let day = busiest(crate::history::DAY);
        assert_eq!(day.last().unwrap(), &0.5);
    }

    #[test]
    fn own_figures_are_taken_once_for_each_report() {
        let mut memory = Memory::new(Duration::from_secs(2), Duration::from_secs(30));
        let published = |ms: u64| {
            Arc::new(Published {
                at: memory_start() + Duration::from_millis(ms),
                status: report("n0", ms, WorkStatus::default()),
                configuration: None,
            })
        };
        let (first, second) = (published(1000), published(2000));
        for it in [&first, &second, &second] {
            memory.take_own(it.clone());
        }
        assert_eq!(memory.own.len(), 1);
    }

    fn memory_start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}
