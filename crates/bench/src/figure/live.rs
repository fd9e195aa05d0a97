//! The model held against what it is a model of: one real process, kept busy, among real ones. What a role costs among forged
//! messages should be what it costs among real ones; what the roles of a node cost apart is more than what the node
//! costs, and this says by how much.

use super::deployments::{batches, preset};
use super::drawing::panel::{Bar, Marks, Panel};
use super::point::{Measure, Point};
use super::sheet::Sheet;
use super::simulate::Bench;
use crate::model::Workload;
use crate::model::demand::{Demand, NODE, SATURATED};
use crate::model::projection::project;
use anyhow::{Result, ensure};

const LANES: usize = 3;
/// How far the model may be off.
const NEAR: f64 = 0.2;

/// See the top of this file.
pub(super) fn check(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "the model held against single processes among real ones",
        vec![
            "Bars: processor time of one process that is busy whenever it may run, for each command of the whole deployment, \
             with whiskers to what the model says: for a role its demand among forged messages, for a whole node (baseline, \
             mencius, spaxos) the sum of the demands of its roles."
                .to_owned(),
        ],
    );
    let mut bars = Vec::new();
    for (colour, demand) in bench.demands.among_real().enumerate() {
        let model = modelled(bench, demand)?;
        let name = format!("{} of {}", demand.role, demand.deployment);
        let off = model / demand.demand_us - 1.0;
        let verdict = if off.abs() <= NEAR { "within 20 %" } else { "NOT within 20 %" };
        let busy = if demand.busy < SATURATED { ", NOT busy all the time" } else { "" };
        sheet.findings.push(format!(
            "{name}: {:.3} us measured{busy}, {model:.3} us modelled, {:+.0} %: {verdict}.",
            demand.demand_us,
            100.0 * off
        ));
        let point = |measure, us: f64| Point { demand_us: Some(us), ..Point::new(&name, measure, 1e6 / us) };
        sheet.points.extend([point(Measure::Measured, demand.demand_us), point(Measure::Projected, model)]);
        let label = format!("{}\n{}", demand.role, demand.deployment);
        bars.push(Bar { label, colour: colour % 2, height: demand.demand_us, whisker: Some(model) });
    }
    ensure!(!bars.is_empty(), "the demands have none that was measured among real processes");
    sheet.panels = vec![Panel {
        title: "one process".to_owned(),
        x_label: "role and deployment".to_owned(),
        y_label: "microseconds a command".to_owned(),
        marks: Marks::Bars(bars),
    }];
    Ok(sheet)
}

/// What the model says that it spends on a command of the deployment.
fn modelled(bench: &Bench, demand: &Demand) -> Result<f64> {
    let deployment = batches(preset(&demand.deployment, LANES)?, demand.batch)?;
    let workload = Workload { value_bytes: demand.value_bytes, ..Workload::writes(demand.batch) };
    let projection = project(&bench.demands, &deployment, &workload, &[])?;
    Ok(match demand.role.as_str() {
        NODE => 1e6 / projection.peak,
        role => projection.roles.get(role).copied().unwrap_or_default(),
    })
}
