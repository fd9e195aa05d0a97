//! Rates and utilizations, from two reports of a node. Its own clock counts, so it does not matter
//! when the reports arrived.

use ionian_kernel::histogram::{BOUNDS, Times};
use ionian_kernel::id::Index;
use ionian_runtime::NodeStatus;
use ionian_runtime::status::{ClientsStatus, WorkStatus};
use std::collections::BTreeMap;

/// Kinds of commands, as the status names them.
pub const FAMILIES: [&str; 4] = ["read", "write", "transaction", "admin"];

/// What a node did between two reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Share of processor time of each event loop by its number, the main one first.
    pub loops: Vec<(u64, f64)>,
    /// Share of the time in which the main loop was ready to run and had no processor.
    pub wait: f64,
    /// Share of the time in which the main loop itself waited for the disk.
    pub disk: f64,
    /// Share of the time that role instances worked; empty if the node has several loops.
    pub roles: Vec<(String, Index, f64)>,
    /// How many syncs took how long.
    pub syncs: Counts,
    /// Commands a second, by family.
    pub commands: [f64; FAMILIES.len()],
    /// Requests a second that the node has sent through its client lanes: what a connection
    /// pipelines is one request.
    pub requests: f64,
    /// Messages a second that came from other nodes.
    pub messages: f64,
    /// Commands a second that the cluster did not answer, or not in time.
    pub failed: f64,
    /// How many commands took how long, by family.
    pub service: [Counts; FAMILIES.len()],
}

impl Rates {
    /// `None` if the reports are not of one process, or no time lies between them.
    pub fn between(earlier: &NodeStatus, later: &NodeStatus) -> Option<Rates> {
        let us = later.uptime_us.checked_sub(earlier.uptime_us)?;
        let (then, now) = (earlier.work.as_ref()?, later.work.as_ref()?);
        if us == 0 || earlier.pid != later.pid {
            return None;
        }
        let share = |then: u64, now: u64| now.saturating_sub(then) as f64 / us as f64;
        let a_second = |then: u64, now: u64| share(then, now) * 1e6;
        let mut rates = Rates {
            loops: vec![(0, share(earlier.loop_cpu_us, later.loop_cpu_us))],
            disk: share(then.loop_sync_us, now.loop_sync_us),
            wait: match (then.loop_wait_us, now.loop_wait_us) {
                (Some(then), Some(now)) => share(then, now),
                _ => 0.0,
            },
            roles: roles((earlier, then), (later, now), share),
            syncs: Counts::between(&then.syncs, &now.syncs),
            requests: a_second(earlier.event_loop.requests, later.event_loop.requests),
            messages: a_second(earlier.event_loop.messages_in, later.event_loop.messages_in),
            ..Rates::default()
        };
        for it in &later.role_loops {
            let mut before = earlier.role_loops.iter();
            if let Some(then) = before.find(|then| then.number == it.number) {
                rates.loops.push((it.number, share(then.cpu_us, it.cpu_us)));
            }
        }
        if let (Some(then), Some(now)) = (&then.clients, &now.clients) {
            rates.clients(then, now, us as f64 / 1e6);
        }
        Some(rates)
    }

    fn clients(&mut self, then: &ClientsStatus, now: &ClientsStatus, seconds: f64) {
        let none = BTreeMap::new();
        for (place, family) in FAMILIES.into_iter().enumerate() {
            let before = then.commands.get(family).unwrap_or(&none);
            for (outcome, count) in now.commands.get(family).unwrap_or(&none) {
                let earlier = before.get(outcome).copied().unwrap_or(0);
                let rate = count.saturating_sub(earlier) as f64 / seconds;
                self.commands[place] += rate;
                if outcome.starts_with("tryagain") || outcome == "busy" {
                    self.failed += rate;
                }
            }
            let times = |it: &ClientsStatus| it.service.get(family).cloned().unwrap_or_default();
            self.service[place] = Counts::between(&times(then), &times(now));
        }
    }

    /// The share of the time that the event loop works on anything but messages of roles; `None` if
    /// there are several loops.
    pub fn outside(&self) -> Option<f64> {
        let [(_, busy)] = self.loops[..] else {
            return None;
        };
        let in_roles: f64 = self.roles.iter().map(|(.., busy)| busy).sum();
        Some((busy - in_roles).max(0.0))
    }

    /// How many commands of any family took how long.
    pub fn all_service(&self) -> Counts {
        let mut all = Counts::default();
        self.service.iter().for_each(|of| all.add(of));
        all
    }

    /// Commands a second.
    pub fn all_commands(&self) -> f64 {
        self.commands.iter().sum()
    }
}

/// The share of each role instance that both reports have.
fn roles(
    (earlier, then): (&NodeStatus, &WorkStatus),
    (later, now): (&NodeStatus, &WorkStatus),
    share: impl Fn(u64, u64) -> f64,
) -> Vec<(String, Index, f64)> {
    let before: BTreeMap<(&str, Index), u64> = earlier
        .roles
        .iter()
        .zip(&then.role_busy_us)
        .map(|(role, busy)| ((role.role.as_str(), role.index), *busy))
        .collect();
    let after = later.roles.iter().zip(&now.role_busy_us);
    after
        .filter_map(|(role, busy)| {
            let then = before.get(&(role.role.as_str(), role.index))?;
            Some((role.role.clone(), role.index, share(*then, *busy)))
        })
        .collect()
}

/// How many of something took how long: counts up to the bounds of [`Times`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; BOUNDS + 1]);

impl Counts {
    /// What came between two counts, by the buckets of [`Times`].
    pub fn between(then: &[u64], now: &[u64]) -> Self {
        let of = |counts: &[u64], place| counts.get(place).copied().unwrap_or(0);
        Counts(std::array::from_fn(|place| {
            of(now, place).saturating_sub(of(then, place))
        }))
    }

    /// Adds those of another node.
    pub fn add(&mut self, other: &Counts) {
        for (own, theirs) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(theirs);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// A time in microseconds that this share of them did not exceed: between the bounds of its
    /// bucket as if they were spread evenly there, as in Prometheus. `None` without any.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all = self.count();
        let wanted = share * all as f64;
        let bounds = Times::default();
        let (mut below, mut reached) = (0.0, 0.0);
        for ((bound, _), count) in bounds.buckets().zip(self.0) {
            // Above the last bound there is no other.
            let bound = bound.map_or(below, |bound| bound as f64);
            let count = count as f64;
            if count > 0.0 && reached + count >= wanted {
                return Some(below + (bound - below) * ((wanted - reached) / count).max(0.0));
            }
            reached += count;
            below = bound;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::testing::{report, role};

    fn clients(ok: u64, busy: u64, times: Vec<u64>) -> ClientsStatus {
        let outcomes = BTreeMap::from([("ok".into(), ok), ("busy".into(), busy)]);
        ClientsStatus {
            connections: 1,
            commands: BTreeMap::from([("write".into(), outcomes)]),
            service: BTreeMap::from([("write".into(), times)]),
            ..ClientsStatus::default()
        }
    }

    #[test]
    fn rates_are_differences_over_the_time_of_the_node() {
        let mut before = WorkStatus {
            loop_sync_us: 5_000_000,
            loop_wait_us: Some(100),
            role_busy_us: vec![10, 1_000_000],
            syncs: vec![4],
            clients: Some(clients(100, 0, vec![100])),
            ..WorkStatus::default()
        };
        let mut earlier = report("n0", 10_000, before.clone());
        earlier.roles = vec![role("a", 0), role("b", 3)];
        before.loop_sync_us += 500_000;
        before.loop_wait_us = Some(200_100);
        before.role_busy_us = vec![500_000, 600_010];
        before.syncs = vec![4, 0, 9];
        before.clients = Some(clients(140, 20, vec![100, 60]));
        let mut later = report("n0", 12_000, before);
        (earlier.loop_cpu_us, later.loop_cpu_us) = (7_000_000, 8_000_000);
        (earlier.event_loop.requests, later.event_loop.requests) = (10, 40);
        (earlier.event_loop.messages_in, later.event_loop.messages_in) = (5, 105);
        // Another instance has come, and the order is another.
        later.roles = vec![role("c", 0), role("a", 0)];
        let rates = Rates::between(&earlier, &later).unwrap();
        assert_eq!(rates.all_service(), rates.service[1]);
        assert_eq!((rates.loops, rates.disk), (vec![(0, 0.5)], 0.25));
        assert_eq!(rates.wait, 0.1);
        assert_eq!(rates.roles, [("a".to_owned(), 0, 0.3)]);
        assert_eq!(rates.syncs.count(), 9);
        assert_eq!((rates.requests, rates.messages), (15.0, 50.0));
        assert_eq!(
            (rates.commands, rates.failed),
            ([0.0, 30.0, 0.0, 0.0], 10.0)
        );
        assert_eq!(rates.service[1].count(), 60);

        let mut other = later.clone();
        other.pid = 8;
        assert_eq!(Rates::between(&earlier, &other), None, "another process");
        assert_eq!(Rates::between(&later, &earlier), None, "no later report");
        assert_eq!(Rates::between(&later, &later), None, "no time between");
        other = later.clone();
        other.work = None;
        assert_eq!(Rates::between(&earlier, &other), None, "an older program");
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let counts = |counts: &[u64]| Counts::between(&[], counts);
        assert_eq!(counts(&[]).quantile(0.5), None);
        assert_eq!(counts(&[0, 10]).quantile(0.5), Some(75.0));
        assert_eq!(counts(&[50, 50]).quantile(0.99), Some(99.0));
        assert_eq!(counts(&[99, 0, 1]).quantile(0.5), Some(50.0 * 50.0 / 99.0));
        let mut above = [0; BOUNDS + 1];
        above[BOUNDS] = 1;
        assert_eq!(counts(&above).quantile(0.99), Some(26_214_400.0));
    }
}
