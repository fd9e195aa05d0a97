//! Tables 1 and 2, and figure 17: messages per command, counted.

use super::super::drawing::panel::{Cells, Marks};
use super::super::point::{Measure, Point};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::trial::{System, Trial};
use super::{PAXOS, panel, priced_sheet};
use anyhow::Result;
use ionian_kernel::layout::NodeId;
use ionian_sim::performance::wan::{Flow, Observed};

/// Messages by which a value is chosen, and by which replicas learn it. All others exist without
/// commands as well, or are sent once for many commands: heartbeats, and reports of replicas.
const OF_COMMANDS: [&str; 11] = [
    "proxy_leader::Phase2a",
    "proxy_leader::Phase2b",
    "proxy_leader::Votes",
    "relay::Phase2a",
    "relay::Phase2b",
    "relay::Learn",
    "acceptor::Phase2a",
    "acceptor::RelayedPhase2a",
    "acceptor::Learn",
    "acceptor::LearnSlots",
    "replica::Chosen",
];

/// Tables 1 and 2: nodes, groups, messages at the leader and at a follower.
const PAPER: [(usize, usize, f64, f64); 8] = [
    (25, 1, 4.0, 3.92),
    (25, 2, 6.0, 3.83),
    (25, 3, 8.0, 3.75),
    (25, 4, 10.0, 3.67),
    (25, 5, 12.0, 3.58),
    (25, 6, 14.0, 3.5),
    (5, 1, 4.0, 3.5),
    (5, 2, 6.0, 3.0),
];
/// The same of its Paxos.
const PAPER_PAXOS: [(usize, f64, f64); 2] = [(25, 50.0, 2.0), (5, 10.0, 2.0)];
/// What is counted: nodes, and numbers of groups.
const COUNTED: [(usize, &[usize]); 3] = [(5, &[1, 2]), (9, &[1, 2, 3]), (25, &[1, 2, 3, 4, 5, 6])];
/// The papers' tables have two decimals.
const NEAR: f64 = 0.01;

/// The leader: the first node of every system.
const LEADER: NodeId = NodeId(0);

/// Messages per command.
struct Counted {
    leader: f64,
    /// The mean of all others.
    follower: f64,
    /// Those that are not of commands, at the leader and at a follower.
    others: (f64, f64),
}

impl Counted {
    fn of(observed: &Observed, nodes: usize) -> Self {
        let commands = answers(observed);
        let count = |is_of_commands: bool, at: fn(&Flow) -> usize| {
            let wanted = |flow: &&Flow| OF_COMMANDS.contains(&flow.name) == is_of_commands;
            let of = |flow: &Flow| flow.messages * at(flow) as u64;
            observed.flows.iter().filter(wanted).map(of).sum::<u64>() as f64 / commands
        };
        let at_leader = |flow: &Flow| usize::from(flow.from == LEADER || flow.to == LEADER);
        let elsewhere =
            |flow: &Flow| usize::from(flow.from != LEADER) + usize::from(flow.to != LEADER);
        let followers = (nodes - 1) as f64;
        Counted {
            // The client's request and its answer.
            leader: count(true, at_leader) + 2.0,
            follower: count(true, elsewhere) / followers,
            others: (count(false, at_leader), count(false, elsewhere) / followers),
        }
    }

    fn points(&self, system: &System, groups: Option<usize>) -> Vec<Point> {
        let point = |node: &str, messages| Point {
            nodes: Some(system.nodes),
            groups,
            node: Some(node.to_owned()),
            messages: Some(messages),
            ..Point::about(series(groups), Measure::Simulated)
        };
        vec![
            point("leader", self.leader),
            point("follower", self.follower),
            point("leader, not of commands", self.others.0),
            point("follower, not of commands", self.others.1),
        ]
    }
}

fn answers(observed: &Observed) -> f64 {
    observed.answers_per_second() * observed.elapsed_us as f64 / 1e6
}

fn series(groups: Option<usize>) -> &'static str {
    groups.map_or(PAXOS, |_| "PigPaxos")
}

/// Formulas 1 and 3 of section 6.1.
fn law(nodes: usize, groups: usize) -> (f64, f64) {
    let others = (nodes - 1) as f64;
    let groups = groups as f64;
    (2.0 * groups + 2.0, 2.0 * (others - groups) / others + 2.0)
}

/// Tables 1 and 2.
pub(in super::super) fn tables(bench: &Bench) -> Result<Sheet> {
    let mut sheet = priced_sheet(
        "tables 1 and 2: messages per command at the leader and at a follower",
        &[
            "Clients are on the leader's node, and a request and its answer count there, as in the paper. Counted are \
             the messages of phase 2 and those that say what is chosen, under the load of 400 clients that wait for \
             their answers, from the first command to the last, with relays that give up after 500 ms, and what is \
             chosen waits up to 100 ms for a request: with Ionian's own timeouts it is a few hundredths more. What is *not of commands* stands apart, because it depends on time and not on commands \
             (heartbeats), or is sent once for 64 commands (reports of replicas, from each node to each leader).",
            super::WHO,
        ],
    );
    let (mut worst, mut rows) = (0.0_f64, Vec::new());
    for (nodes, all) in COUNTED {
        if bench.quick && nodes > 9 {
            continue;
        }
        for system in [System::paxos(nodes), System::paxos_asking_all(nodes)] {
            let counted = count(bench, &system)?;
            let points = counted.points(&system, None);
            let named = |point| Point {
                series: system.name.clone(),
                ..point
            };
            sheet.points.extend(points.into_iter().map(named));
            rows.push(row(&format!("{}, {nodes} nodes", system.name), &counted));
        }
        for groups in all {
            let system = System::pigpaxos(nodes, *groups);
            let counted = count(bench, &system)?;
            let (leader, follower) = law(nodes, *groups);
            worst = worst
                .max((counted.leader - leader).abs())
                .max((counted.follower - follower).abs());
            sheet.points.extend(counted.points(&system, Some(*groups)));
            sheet.points.extend(of_law(nodes, *groups));
            rows.push(row(&format!("{}, {nodes} nodes", system.name), &counted));
        }
    }
    sheet.points.extend(of_paper());
    sheet.findings.push(format!(
        "PigPaxos: the largest difference from the paper's formulas 2R+2 and 2(N-R-1)/(N-1)+2 is {worst:.3} messages \
         per command: {}.",
        if worst < NEAR { "reproduced to the digit" } else { "NOT reproduced" }
    ));
    sheet.findings.extend(rows);
    sheet.panels = bars(&sheet.points);
    Ok(sheet)
}

/// Counts from before the first command until after the last, so that none is counted in part.
fn count(bench: &Bench, system: &System) -> Result<Counted> {
    // Enough that other commands are always under way.
    const MANY_CLIENTS: usize = 400;
    const LEADS_AT_MS: u64 = 1500;
    const REST_MS: u64 = 300;
    let ends = if bench.quick { 2500 } else { 5000 };
    let mut trial = Trial {
        asks_ms: (LEADS_AT_MS, ends - REST_MS),
        ..Trial::new(system.nodes, MANY_CLIENTS, (0, ends))
    };
    // A relay that gives up costs messages, and here nothing fails. Nor is a leader idle, though
    // it may handle votes alone for a millisecond.
    let patient = [
        "options.relay_timeout_ms=500",
        "options.commit_delay_ms=100",
    ];
    trial.options.extend(patient.map(str::to_owned));
    Ok(Counted::of(&system.observe(&trial)?, system.nodes))
}

fn row(what: &str, counted: &Counted) -> String {
    let Counted {
        leader,
        follower,
        others,
    } = counted;
    format!(
        "{what}: {leader:.2} at the leader, {follower:.2} at a follower; not of commands {:.2} and {:.2}.",
        others.0, others.1
    )
}

fn of_law(nodes: usize, groups: usize) -> [Point; 2] {
    let (leader, follower) = law(nodes, groups);
    [("leader", leader), ("follower", follower)].map(|(node, messages)| Point {
        nodes: Some(nodes),
        groups: Some(groups),
        node: Some(node.to_owned()),
        messages: Some(messages),
        ..Point::about("PigPaxos", Measure::Law)
    })
}

fn of_paper() -> Vec<Point> {
    let pigpaxos =
        PAPER.map(|(nodes, groups, leader, follower)| (nodes, Some(groups), leader, follower));
    let paxos = PAPER_PAXOS.map(|(nodes, leader, follower)| (nodes, None, leader, follower));
    let both = pigpaxos.into_iter().chain(paxos);
    let rows = both.flat_map(|(nodes, groups, leader, follower)| {
        [("leader", leader), ("follower", follower)].map(|(node, messages)| Point {
            nodes: Some(nodes),
            groups,
            node: Some(node.to_owned()),
            messages: Some(messages),
            ..Point::about(series(groups), Measure::Published)
        })
    });
    rows.collect()
}

fn bars(points: &[Point]) -> Vec<super::Panel> {
    let of = |nodes: usize| {
        let here = move |point: &&Point| {
            point.nodes == Some(nodes)
                && point.measure == Measure::Simulated
                && matches!(point.node.as_deref(), Some("leader" | "follower"))
        };
        let bar = |point: &Point| {
            let name = point
                .groups
                .map_or("Paxos".to_owned(), |it| format!("R={it}"));
            let name = match point.series == super::PAXOS_ASKING_ALL {
                true => "all".to_owned(),
                false => name,
            };
            let is_leader = point.node.as_deref() == Some("leader");
            let height = point.messages.unwrap_or_default();
            super::bar(&name, usize::from(is_leader), height)
        };
        let bars: Vec<_> = points.iter().filter(here).map(bar).collect();
        let title = format!("{nodes} nodes: leader, follower");
        let marks = Marks::Bars(bars);
        panel(&title, ("", "messages per command"), marks)
    };
    let counted = COUNTED.iter().map(|(nodes, _)| *nodes);
    let found = |nodes: &usize| points.iter().any(|point| point.nodes == Some(*nodes));
    counted.filter(found).map(of).collect()
}

/// Figure 17.
pub(in super::super) fn pairs(bench: &Bench) -> Result<Sheet> {
    const NODES: usize = 9;
    const PER_SECOND: usize = 1500;
    let mut sheet = priced_sheet(
        "messages between each pair of nodes, 1,500 commands/s",
        &[
            "Nine nodes, clients on the leader's node n0, all messages, heartbeats and reports included. A row sends, a \
             column receives; the numbers are messages per command. The paper counts messages that are under way and \
             shows no numbers but the most, 33 in one millisecond.",
            super::WHO,
        ],
    );
    let span_ms = if bench.quick {
        (1500, 2000)
    } else {
        (2000, 12_000)
    };
    let trial = Trial::new(NODES, 300, span_ms).at_rate(PER_SECOND);
    for (system, series) in [
        (System::paxos(NODES), PAXOS),
        (System::pigpaxos(NODES, 3), "PigPaxos R=3"),
    ] {
        let observed = system.observe(&trial)?;
        let values = matrix(&observed, NODES);
        sheet.findings.push(busiest(series, &values));
        for (from, row) in values.iter().enumerate() {
            for (to, messages) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                sheet.points.push(Point {
                    nodes: Some(NODES),
                    node: Some(format!("n{from} to n{to}")),
                    messages: Some(*messages),
                    ..Point::about(series, Measure::Simulated)
                });
            }
        }
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let names = (0..NODES).map(|node| format!("n{node}")).collect();
        let cells = Cells {
            names,
            values,
            most,
        };
        let marks = Marks::Cells(cells);
        sheet.panels.push(panel(series, ("to", "from"), marks));
    }
    Ok(sheet)
}

fn matrix(observed: &Observed, nodes: usize) -> Vec<Vec<f64>> {
    let commands = answers(observed);
    let mut values = vec![vec![0.0; nodes]; nodes];
    for Flow {
        from, to, messages, ..
    } in &observed.flows
    {
        values[usize::from(from.0)][usize::from(to.0)] += *messages as f64 / commands;
    }
    values
}

/// How unevenly the messages are spread.
fn busiest(series: &str, values: &[Vec<f64>]) -> String {
    let handled = |node: usize| -> f64 {
        let sent: f64 = values[node].iter().sum();
        sent + values.iter().map(|row| row[node]).sum::<f64>()
    };
    let leader = handled(0);
    let followers: Vec<f64> = (1..values.len()).map(handled).collect();
    let mean = followers.iter().sum::<f64>() / followers.len() as f64;
    format!(
        "{series}: the leader handles {leader:.2} messages with other nodes per command, a follower {mean:.2} on \
         average: {:.1} times as many.",
        leader / mean
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::invented::UNBATCHED;
    use super::super::super::simulate::tests::invented;
    use super::*;

    #[test]
    fn what_is_counted_is_the_formula() {
        let bench = invented(UNBATCHED, true);
        for (nodes, groups) in [(5, 1), (5, 2), (9, 3)] {
            let counted = count(&bench, &System::pigpaxos(nodes, groups)).unwrap();
            let (leader, follower) = law(nodes, groups);
            let off = [counted.leader - leader, counted.follower - follower];
            assert!(
                off.iter().all(|off| off.abs() < NEAR),
                "{nodes} {groups}: {off:?}"
            );
        }
    }

    #[test]
    fn the_formulas_are_the_papers_tables() {
        for (nodes, groups, leader, follower) in PAPER {
            let law = law(nodes, groups);
            assert_eq!(law.0, leader);
            assert!(
                (law.1 - follower).abs() < 0.005,
                "{nodes} {groups}: {law:?}"
            );
        }
    }
}
