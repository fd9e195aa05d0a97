//! What limits the cluster, as far as the numbers say.
//!
//! The law is that of utilization: an event loop is one processor, and the cluster cannot do more
//! than its busiest loop. A loop includes what its node does outside of roles, such as clients and
//! connections. The limits that a text names are upper bounds, and assume that the work of all
//! loops grows with the load. Waits for a disk do not: one sync serves all that waits for it.
//!
//! Where a node is short of processors the busiest loop is named as well: it is the limit as soon
//! as there are enough of them.

use super::rates::Rates;
use serde::Serialize;

/// Below this utilization nothing is named: the cluster has nearly nothing to do.
const QUIET: f64 = 0.3;

/// A node is short of processors if it waits for one this much of the time that it works.
const STARVED: f64 = 0.3;

/// A disk is slow if one sync in a hundred takes longer, in microseconds.
const SLOW_SYNC_US: f64 = 25_000.0;

/// With fewer syncs in the window nothing is said of a disk.
const SYNCS: u64 = 20;

/// What limits the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// What kind of limit it is.
    pub kind: Kind,
    /// The node that is named: that of the busiest loop, or of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The role that is named: the one that works most in the busiest loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The node that is short of processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<Short>,
    /// In a few words.
    pub title: String,
    /// What follows from it, and why.
    pub text: String,
}

/// A node that is short of processors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Short {
    /// Its name.
    pub node: String,
    /// The share of the time in which its main loop was ready to run and had no processor.
    pub waits: f64,
    /// The share of a processor that this loop had.
    pub works: f64,
}

/// Kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There are no two reports of a node yet.
    Unknown,
    /// No loop has much to do.
    None,
    /// A node has too little of its processors.
    Starved,
    /// A disk is slow, or a node waits for it most of the time.
    SlowDisk,
    /// A role, or what its node does outside of roles.
    Loop,
}

/// An event loop of a node.
struct Loaded<'a> {
    node: &'a str,
    number: u64,
    busy: f64,
    wait: f64,
    rates: &'a Rates,
}

impl Loaded<'_> {
    fn name(&self) -> String {
        match self.rates.loops.len() {
            1 => self.node.to_owned(),
            _ => format!("loop {} of {}", self.number, self.node),
        }
    }
}

/// Judges from the rates of all nodes that answer.
pub fn judge(nodes: &[(&str, &Rates)]) -> Bottleneck {
    let mut loops: Vec<Loaded<'_>> = nodes
        .iter()
        .flat_map(|(node, rates)| loaded(node, rates))
        .collect();
    loops.sort_by(|one, other| other.busy.total_cmp(&one.busy));
    let Some(busiest) = loops.first() else {
        return said(
            Kind::Unknown,
            None,
            "not known yet",
            "It takes two reports of a node.",
        );
    };
    // Of equals the busiest.
    let starved = loops
        .iter()
        .rev()
        .max_by(|one, other| one.wait.total_cmp(&other.wait));
    if let Some(it) = starved
        && it.wait >= STARVED * it.busy
        && it.wait + it.busy >= QUIET
    {
        return starvation(it, busiest);
    }
    if let Some((node, us)) = slowest_disk(nodes).filter(|(_, us)| *us > SLOW_SYNC_US) {
        return slow_disk(node, us);
    }
    let waits = nodes
        .iter()
        .max_by(|one, other| one.1.disk.total_cmp(&other.1.disk));
    if let Some((node, rates)) = waits
        && rates.disk >= QUIET.max(busiest.busy)
    {
        return busy_disk(node, rates, busiest);
    }
    if busiest.busy < QUIET {
        let text = format!(
            "The busiest event loop, {}, works {} of the time.",
            busiest.name(),
            percent(busiest.busy)
        );
        return said(Kind::None, None, "nothing", &text);
    }
    let commands = nodes.iter().map(|(_, rates)| rates.all_commands()).sum();
    limit(busiest, loops.get(1), commands)
}

fn loaded<'a>(node: &'a str, rates: &'a Rates) -> impl Iterator<Item = Loaded<'a>> {
    rates.loops.iter().map(move |(number, busy)| Loaded {
        node,
        number: *number,
        busy: *busy,
        // That of other loops is not measured.
        wait: if *number == 0 { rates.wait } else { 0.0 },
        rates,
    })
}

/// A loop waits for a processor. With enough of them the busiest would be the limit.
fn starvation(it: &Loaded<'_>, busiest: &Loaded<'_>) -> Bottleneck {
    let (role, works_most) = largest_part(busiest);
    let title = format!(
        "{}: short of processors, waits for one {} of the time; busiest is {works_most}",
        it.node,
        percent(it.wait)
    );
    let text = format!(
        "The event loop of {} works {} of the time. Other programs of its machine, or other nodes \
         there, take the processors. While that is so, more instances of a role do not help. With \
         enough processors the event loop of {} would be the limit: it takes the most processor \
         time, {} of the time.",
        it.name(),
        percent(it.busy),
        busiest.name(),
        percent(busiest.busy)
    );
    Bottleneck {
        role,
        short: Some(Short {
            node: it.node.to_owned(),
            waits: it.wait,
            works: it.busy,
        }),
        ..said(Kind::Starved, Some(busiest.node), &title, &text)
    }
}

fn slowest_disk<'a>(nodes: &[(&'a str, &Rates)]) -> Option<(&'a str, f64)> {
    let measured = nodes
        .iter()
        .filter(|(_, rates)| rates.syncs.count() >= SYNCS);
    let slow = measured.filter_map(|(node, rates)| Some((*node, rates.syncs.quantile(0.99)?)));
    slow.max_by(|one, other| one.1.total_cmp(&other.1))
}

fn slow_disk(node: &str, us: f64) -> Bottleneck {
    let title = format!(
        "{node}: slow disk, one sync in a hundred takes {:.0} ms or more",
        us / 1000.0
    );
    let text = "Writes wait for syncs, and for this node where a quorum needs it. What a faster disk brings cannot be \
                computed from these numbers.";
    said(Kind::SlowDisk, Some(node), &title, text)
}

fn busy_disk(node: &str, rates: &Rates, busiest: &Loaded<'_>) -> Bottleneck {
    let title = format!(
        "{node}: waits for its disk {} of the time",
        percent(rates.disk)
    );
    let text = format!(
        "No event loop takes more processor time: the busiest, {}, takes {}. One sync serves all that waits for it, so the \
         share of waiting grows more slowly than the load, and no limit can be computed from it.",
        busiest.name(),
        percent(busiest.busy)
    );
    said(Kind::SlowDisk, Some(node), &title, &text)
}

/// What works most in a loop: the role, if it is one, and in words with its share.
fn largest_part(of: &Loaded<'_>) -> (Option<String>, String) {
    let roles = of.rates.roles.iter();
    let largest = roles.max_by(|one, other| one.2.total_cmp(&other.2));
    match (largest, of.rates.outside()) {
        (Some((role, index, busy)), Some(outside)) if *busy >= outside => {
            let role = format!("{} {index}", role.replace('_', " "));
            let words = format!("{role} on {}, {} busy", of.node, percent(*busy));
            (Some(role), words)
        }
        (_, Some(outside)) => {
            let what = "clients and connections";
            let words = format!("{}: {what}, {} busy", of.name(), percent(outside));
            (None, words)
        }
        (_, None) => (None, format!("{}, {} busy", of.name(), percent(of.busy))),
    }
}

/// The busiest loop is the limit.
fn limit(busiest: &Loaded<'_>, next: Option<&Loaded<'_>>, commands: f64) -> Bottleneck {
    let (role, title) = largest_part(busiest);
    let mut text = format!(
        "The event loop of {} works {} of the time.",
        busiest.name(),
        percent(busiest.busy)
    );
    if commands >= 1.0 {
        let peak = commands / busiest.busy.min(1.0);
        text += &format!(
            " At this mix of commands the cluster ends at {} a second or earlier.",
            rounded(peak)
        );
    }
    text += &match next {
        None => " There is no other event loop to compare it with.".to_owned(),
        Some(next) => without(busiest, next),
    };
    Bottleneck {
        role,
        ..said(Kind::Loop, Some(busiest.node), &title, &text)
    }
}

/// What would be the limit without the busiest loop.
fn without(busiest: &Loaded<'_>, next: &Loaded<'_>) -> String {
    let next_name = next.name();
    let times = busiest.busy / next.busy.max(0.001);
    if times < 1.05 {
        return format!(" {next_name} is as busy, so to relieve this one alone brings nothing.");
    }
    let bound = match times {
        large if large > 10.0 => "more than 10".to_owned(),
        times => format!("at most {times:.1}"),
    };
    format!(
        " Without this limit {next_name} is the next, {} busy: {bound} times as much, if all work grows with the load.",
        percent(next.busy)
    )
}

/// A share in words.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// With two digits, in thousands or millions.
fn rounded(value: f64) -> String {
    let digits = value.log10().floor() - 1.0;
    let unit = 10f64.powf(digits);
    let value = (value / unit).round() * unit;
    match value {
        large if large >= 1e6 => format!("{:.1} million", large / 1e6),
        middle if middle >= 1e4 => format!("{:.0},000", middle / 1e3),
        middle if middle >= 1e3 => format!("{:.1} thousand", middle / 1e3),
        small => format!("{small:.0}"),
    }
}

fn said(kind: Kind, node: Option<&str>, title: &str, text: &str) -> Bottleneck {
    Bottleneck {
        kind,
        node: node.map(str::to_owned),
        role: None,
        short: None,
        title: title.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::testing::{report, role};
    use ionian_kernel::id::Index;
    use ionian_runtime::status::WorkStatus;

    /// Rates of a node whose main loop has this utilization, and its roles these.
    fn rates(busy: f64, roles: &[(&str, Index, f64)]) -> Rates {
        let roles = roles
            .iter()
            .map(|(role, index, busy)| (role.to_string(), *index, *busy));
        Rates {
            loops: vec![(0, busy)],
            roles: roles.collect(),
            commands: [100.0, 300.0, 0.0, 0.0],
            ..Rates::default()
        }
    }

    /// Rates with this many syncs of the given bucket.
    fn synced(mut rates: Rates, bucket: usize, count: u64) -> Rates {
        let mut syncs = vec![0; bucket + 1];
        syncs[bucket] = count;
        let work = |syncs| WorkStatus {
            syncs,
            ..WorkStatus::default()
        };
        let between = Rates::between(&report("n", 1, work(vec![])), &report("n", 2, work(syncs)));
        rates.syncs = between.unwrap().syncs;
        rates
    }

    #[test]
    fn the_largest_role_of_the_busiest_loop_is_named() {
        // A role of n2 works more than any of n1, but n1 as a whole is busier.
        let n1 = rates(0.8, &[("alpha", 0, 0.5), ("beta", 2, 0.2)]);
        let n2 = rates(0.6, &[("alpha", 1, 0.55)]);
        let found = judge(&[("n1", &n1), ("n2", &n2)]);
        assert_eq!(
            (found.kind, found.node.as_deref(), found.role.as_deref()),
            (Kind::Loop, Some("n1"), Some("alpha 0"))
        );
        assert_eq!(found.title, "alpha 0 on n1, 50 % busy");
        assert_eq!(
            found.text,
            "The event loop of n1 works 80 % of the time. At this mix of commands the cluster ends at 1.0 thousand a \
             second or earlier. Without this limit n2 is the next, 60 % busy: at most 1.3 times as much, if all work grows with the \
             load."
        );
    }

    #[test]
    fn what_a_node_does_outside_of_roles_is_named_if_it_is_most() {
        let n0 = rates(0.9, &[("alpha", 0, 0.3), ("beta", 0, 0.1)]);
        let found = judge(&[("n0", &n0)]);
        assert_eq!(
            (found.title.as_str(), found.role),
            ("n0: clients and connections, 50 % busy", None)
        );
        assert!(
            found
                .text
                .ends_with("There is no other event loop to compare it with.")
        );
        // With several loops the time of roles is not measured.
        let mut n0 = rates(0.2, &[]);
        n0.loops.push((1, 0.7));
        assert_eq!(judge(&[("n0", &n0)]).title, "loop 1 of n0, 70 % busy");
    }

    #[test]
    fn two_loops_that_are_equally_busy_promise_nothing() {
        let n0 = rates(0.80, &[("beta", 0, 0.7)]);
        let n1 = rates(0.79, &[("beta", 1, 0.7)]);
        let text = judge(&[("n0", &n0), ("n1", &n1)]).text;
        assert!(
            text.ends_with("n1 is as busy, so to relieve this one alone brings nothing."),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_named_in_a_quiet_cluster_or_before_two_reports() {
        let quiet = rates(0.29, &[("alpha", 0, 0.29)]);
        assert_eq!(judge(&[("n0", &quiet)]).kind, Kind::None);
        let busy = rates(0.31, &[("alpha", 0, 0.31)]);
        assert_eq!(judge(&[("n0", &busy)]).kind, Kind::Loop);
        assert_eq!(judge(&[]).kind, Kind::Unknown);
    }

    #[test]
    fn a_node_that_waits_for_processors_is_named_with_the_role_that_works_most() {
        let mut starved = rates(0.4, &[("alpha", 0, 0.4)]);
        starved.wait = 0.13;
        let busy = rates(0.5, &[("beta", 1, 0.45)]);
        let found = judge(&[("n0", &starved), ("n1", &busy)]);
        assert_eq!(
            (found.kind, found.node.as_deref(), found.role.as_deref()),
            (Kind::Starved, Some("n1"), Some("beta 1"))
        );
        let short = found.short.unwrap();
        assert_eq!((&*short.node, short.waits, short.works), ("n0", 0.13, 0.4));
        assert_eq!(
            found.title,
            "n0: short of processors, waits for one 13 % of the time; busiest is beta 1 on n1, \
             45 % busy"
        );
        starved.wait = 0.11;
        let found = judge(&[("n0", &starved), ("n1", &busy)]);
        assert_eq!((found.kind, found.short), (Kind::Loop, None));
        let mut quiet = rates(0.1, &[]);
        quiet.wait = 0.1;
        assert_eq!(
            judge(&[("n0", &quiet)]).kind,
            Kind::None,
            "it has nothing to do"
        );
    }

    #[test]
    fn a_loop_that_gets_too_little_of_a_processor_to_count_as_busy_is_named_all_the_same() {
        // The machine is so busy that no loop works 30 % of the time.
        let mut slow = rates(0.28, &[("alpha", 0, 0.2)]);
        slow.wait = 0.6;
        let mut other = rates(0.1, &[("beta", 1, 0.1)]);
        other.wait = 0.7;
        let found = judge(&[("n0", &slow), ("n1", &other)]);
        assert_eq!(
            (found.node.as_deref(), found.role.as_deref()),
            (Some("n0"), Some("alpha 0"))
        );
        assert_eq!(found.short.unwrap().node, "n1");
    }

    #[test]
    fn a_slow_disk_is_named_instead_of_a_role() {
        let busy = rates(0.5, &[("beta", 1, 0.5)]);
        // Up to 51.2 ms, and up to 25.6 ms.
        let slow = synced(rates(0.1, &[]), 10, 20);
        let found = judge(&[("n0", &busy), ("n1", &slow)]);
        assert_eq!(
            (found.kind, found.node.as_deref()),
            (Kind::SlowDisk, Some("n1"))
        );
        assert_eq!(
            found.title,
            "n1: slow disk, one sync in a hundred takes 51 ms or more"
        );
        let fast = synced(rates(0.1, &[]), 8, 20);
        assert_eq!(judge(&[("n0", &busy), ("n1", &fast)]).kind, Kind::Loop);
        let few = synced(rates(0.1, &[]), 10, 19);
        assert_eq!(judge(&[("n0", &busy), ("n1", &few)]).kind, Kind::Loop);
    }

    #[test]
    fn waits_for_a_disk_are_named_without_a_limit_if_they_are_most() {
        let busy = rates(0.5, &[("beta", 1, 0.5)]);
        let mut waits = rates(0.1, &[]);
        waits.disk = 0.6;
        let found = judge(&[("n0", &busy), ("n1", &waits)]);
        assert_eq!(
            (found.kind, found.node.as_deref()),
            (Kind::SlowDisk, Some("n1"))
        );
        assert_eq!(found.title, "n1: waits for its disk 60 % of the time");
        assert!(!found.text.contains("a second"), "{}", found.text);
        waits.disk = 0.4;
        assert_eq!(judge(&[("n0", &busy), ("n1", &waits)]).kind, Kind::Loop);
        waits.disk = 0.2;
        assert_eq!(judge(&[("n1", &waits)]).kind, Kind::None);
    }

    #[test]
    fn the_role_that_is_slowed_down_is_the_one_that_is_named() {
        // From reports, as they come from nodes: an instance works 1.2 s of 2 s.
        let work = |busy: [u64; 2]| WorkStatus {
            role_busy_us: busy.to_vec(),
            ..WorkStatus::default()
        };
        for slow in 0..2 {
            let mut busy = [100_000; 2];
            busy[slow] = 1_200_000;
            let mut pair = [
                report("n0", 10, work([0, 0])),
                report("n0", 2010, work(busy)),
            ];
            for it in &mut pair {
                it.roles = vec![role("gamma", 0), role("long_name", 1)];
                it.loop_cpu_us = it.uptime_us / 10 * 7;
            }
            let rates = Rates::between(&pair[0], &pair[1]).unwrap();
            let named = judge(&[("n0", &rates)]).role;
            assert_eq!(named.as_deref(), Some(["gamma 0", "long name 1"][slow]));
        }
    }
}
