//! Figure 14: relays that do not wait for the slowest of their group.

use super::super::drawing::panel::{Bar, Marks};
use super::super::point::Point;
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::trial::{System, Trial};
use super::{bar, panel, priced, priced_sheet, size, spared};
use anyhow::Result;
use ionian_kernel::layout::NodeId;
use ionian_kernel::random::Random;
use ionian_sim::performance::wan::Change;

const NODES: usize = 25;
const PER_SECOND: usize = 3000;
const CLIENTS: usize = 300;
/// How long a follower does nothing, and how often that happens.
const STALL_US: u64 = 10_000;
const STALL_EVERY_US: u64 = 1_000_000;
/// Groups and slack.
const CASES: [(usize, usize); 6] = [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)];

/// Figure 14.
pub(in super::super) fn partial(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, NODES);
    let mut sheet = priced_sheet(
        &format!("latency at 3,000 commands/s when followers stall, {nodes} nodes"),
        &[
            "Clients ask at random times, together 3,000 times a second. Every follower does nothing for 10 ms about \
             once a second, as processes of a garbage-collected language do: without stragglers there is nothing to \
             show, and the paper does not say what its own are. It measures for 300 s, we for 8. Bars are medians, \
             whiskers go to the 75th percentile. `R=1, all` is the case of the paper that needs PRC most: \
             the only relay waits for all others. Ionian does not have it, because with one group a relay answers when \
             it has a majority; so it is shown with acceptors in one column, where every vote is needed. The paper's \
             text has no numbers.",
            super::WHO,
        ],
    );
    let one = System::pigpaxos(nodes, 1);
    let mut systems = vec![
        (one.clone().needing_all().called("R=1, all"), 1, Some(0)),
        (one.called("R=1, a majority"), 1, None),
    ];
    for (groups, slack) in bench.some(&CASES) {
        let slack = spared(bench, groups, slack);
        let system = System::pigpaxos(nodes, groups)
            .with(format!("options.relay_slack={slack}"))
            .called(&format!("R={groups}, PRC={slack}"));
        systems.push((system, groups, Some(slack)));
    }
    let trial = trial(bench, nodes);
    let mut bars = Vec::new();
    for (system, groups, slack) in systems {
        let observed = system.observe(&trial)?;
        let point = Point {
            groups: Some(groups),
            slack,
            offered_per_second: Some(PER_SECOND as f64),
            ..priced(&system, &observed)
        };
        bars.extend(bar_of(&point));
        sheet.findings.extend(finding(&point));
        sheet.points.push(point);
    }
    sheet.findings.push(
        "The paper: PRC lowers the latency with R=1; with more groups a whole group may be late, and PRC changes \
         little."
            .to_owned(),
    );
    sheet.findings.push(
        "With two groups PRC makes it worse: all votes of one group and the leader's own are a majority, all but one \
         are not, so that both groups are waited for."
            .to_owned(),
    );
    let labels = ("", "median latency (ms), to the 75th percentile");
    let title = "Ionian at the paper's price (simulated)";
    sheet.panels.push(panel(title, labels, Marks::Bars(bars)));
    Ok(sheet)
}

fn trial(bench: &Bench, nodes: usize) -> Trial {
    let span_ms = if bench.quick {
        (500, 600)
    } else {
        (1000, 9000)
    };
    let mut random = Random::new(14);
    let mut changes = Vec::new();
    for node in 1..nodes {
        let mut at = random.below(STALL_EVERY_US);
        while at < span_ms.1 * 1000 {
            let node = NodeId(node as u16);
            changes.push((at, Change::Stall { node, us: STALL_US }));
            at += random.between(STALL_EVERY_US / 2, STALL_EVERY_US * 3 / 2);
        }
    }
    Trial {
        changes,
        ..Trial::new(nodes, CLIENTS, span_ms).at_rate(PER_SECOND)
    }
}

fn bar_of(point: &Point) -> Option<Bar> {
    Some(Bar {
        whisker: Some(point.p75_ms?),
        ..bar(&point.series, point.groups? - 1, point.p50_ms?)
    })
}

fn finding(point: &Point) -> Option<String> {
    Some(format!(
        "{}: median {:.2} ms, quartiles {:.2} and {:.2} ms, 99th percentile {:.1} ms.",
        point.series, point.p50_ms?, point.p25_ms?, point.p75_ms?, point.p99_ms?
    ))
}
