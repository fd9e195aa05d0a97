//! Figure 13: larger values.

use super::super::drawing::panel::{Look, Marks};
use super::super::point::{Measure, Point, short};
use super::super::sheet::Sheet;
use super::super::simulate::Bench;
use super::super::verdict::verdict;
use super::trial::System;
use super::{PAXOS, curve, measured_sheet, multiple, panel, size, workload};
use crate::model::Workload;
use anyhow::Result;

const NODES: usize = 25;
const GROUPS: usize = 3;
const SIZES: [usize; 4] = [8, 128, 512, 1280];
/// The paper's text: three times at every size, and each at least nine tenths of its best.
const TIMES: f64 = 3.0;
const AT_LEAST: f64 = 0.9;

/// Figure 13.
pub(in super::super) fn sizes(bench: &Bench) -> Result<Sheet> {
    let nodes = size(bench, NODES);
    let mut sheet = measured_sheet(
        &format!("throughput by the size of values, {nodes} nodes, R={GROUPS} (ours projected)"),
        &[
            "Each size is measured by itself. What a network card can do is not in it: at 1,280 bytes and a leader \
             that asks 12 acceptors, 10 Gbit/s carry about 75,000 commands/s.",
            super::WHO,
        ],
    );
    let pigpaxos = System::pigpaxos(nodes, GROUPS);
    let systems = [
        System::paxos(nodes),
        System::paxos_asking_all(nodes),
        pigpaxos.clone(),
    ];
    let (mut all, mut normal) = (Vec::new(), Vec::new());
    for (colour, system) in systems.iter().enumerate() {
        let mut rates = Vec::new();
        for value_bytes in bench.some(&SIZES) {
            let workload = Workload {
                value_bytes,
                ..workload()
            };
            let point = bench.project(&system.name, &system.measured()?, &workload, &[])?;
            rates.push((value_bytes as f64, point.commands_per_second));
            sheet.points.push(Point {
                nodes: Some(nodes),
                ..point
            });
        }
        let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let least = rates
            .iter()
            .map(|(_, rate)| *rate)
            .fold(f64::INFINITY, f64::min);
        sheet.findings.push(format!(
            "{}: {} commands/s at best, {:.2} of it at worst; the paper: at least {AT_LEAST} of it.",
            system.name,
            short(most),
            least / most
        ));
        let share = rates.iter().map(|(bytes, rate)| (*bytes, rate / most));
        normal.push(curve(&system.name, colour, Look::Solid, share.collect()));
        all.push(curve(&system.name, colour, Look::Solid, rates));
    }
    sheet.findings.push(ratios(&sheet.points, &pigpaxos.name));
    sheet.points.push(multiple(
        "PigPaxos R=3 as a multiple of Paxos, every size",
        TIMES,
    ));
    let labels = ("bytes of a value", "commands per second");
    let shares = ("bytes of a value", "part of the best");
    sheet.panels = vec![
        panel("Ionian (projected)", labels, Marks::Curves(all)),
        panel("Each relative to its best", shares, Marks::Curves(normal)),
    ];
    Ok(sheet)
}

fn ratios(points: &[Point], pigpaxos: &str) -> String {
    let of = |series: &str| -> Vec<&Point> {
        let here = |point: &&Point| point.series == series && point.measure == Measure::Projected;
        points.iter().filter(here).collect()
    };
    let both = of(pigpaxos).into_iter().zip(of(PAXOS));
    let times = both.map(|(one, other)| {
        let times = one.commands_per_second / other.commands_per_second;
        (one.value_bytes.unwrap_or_default(), times)
    });
    let times: Vec<(usize, f64)> = times.collect();
    let said: Vec<String> = times
        .iter()
        .map(|(bytes, times)| format!("{times:.2}x at {bytes} bytes"))
        .collect();
    let least = times
        .iter()
        .map(|(_, times)| *times)
        .fold(f64::INFINITY, f64::min);
    let why_not = "our leader handles the messages of many commands at once, and spends most of its time on other \
                   things; see the findings of figure pig-9";
    format!(
        "PigPaxos over Paxos: {}; the paper {TIMES}x at every size: {}.",
        said.join(", "),
        verdict(least, TIMES, why_not)
    )
}
