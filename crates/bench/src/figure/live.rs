//! The model held against what it is a model of: one real process, kept busy, among real ones. What
//! a role costs among forged messages should be what it costs among real ones; what the roles of a
//! node cost apart is more than what the node costs, and this says by how much.

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
        let (verdict, why) = match off.abs() <= NEAR {
            true => ("within 20 %", ""),
            false => ("NOT within 20 %", why(demand, off)),
        };
        let busy = if demand.busy < SATURATED {
            ", NOT busy all the time"
        } else {
            ""
        };
        let (least, most) = demand
            .range_us
            .unwrap_or((demand.demand_us, demand.demand_us));
        sheet.findings.push(format!(
            "{name}: {:.3} us measured ({least:.3} to {most:.3}{busy}), {model:.3} us modelled, {:+.0} %: {verdict}{why}.",
            demand.demand_us,
            100.0 * off
        ));
        let point = |measure, us: f64| Point {
            demand_us: Some(us),
            ..Point::new(&name, measure, 1e6 / us)
        };
        sheet.points.extend([
            point(Measure::Measured, demand.demand_us),
            point(Measure::Projected, model),
        ]);
        let label = format!("{}\n{}", demand.role, demand.deployment);
        bars.push(Bar {
            label,
            colour: colour % 2,
            height: demand.demand_us,
            whisker: Some(model),
        });
    }
    ensure!(
        !bars.is_empty(),
        "the demands have none that was measured among real processes"
    );
    sheet.panels = vec![Panel {
        title: "one process".to_owned(),
        x_label: "role and deployment".to_owned(),
        y_label: "microseconds a command".to_owned(),
        marks: Marks::Bars(bars),
    }];
    Ok(sheet)
}

/// Why the model is off by more than it may be.
fn why(demand: &Demand, off: f64) -> &'static str {
    match demand.role.as_str() {
        NODE if off > 0.0 => ", for between the roles of a node a message is a function call",
        _ if off < 0.0 && demand.busy < SATURATED => {
            ", for a process that is not busy is woken for less at a time"
        }
        _ => "; the reason is not known",
    }
}

/// What the model says that it spends on a command of the deployment.
fn modelled(bench: &Bench, demand: &Demand) -> Result<f64> {
    let deployment = batches(preset(&demand.deployment, LANES)?, demand.batch)?;
    let workload = Workload {
        value_bytes: demand.value_bytes,
        ..Workload::writes(demand.batch)
    };
    let projection = project(&bench.demands, &deployment, &workload, &[])?;
    Ok(match demand.role.as_str() {
        NODE => 1e6 / projection.peak,
        role => projection.roles.get(role).copied().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::demand::Kind;
    use crate::model::price::tests::{demand, demands};

    fn said(real: Demand) -> String {
        let mut demands = demands();
        demands.demands.push(Demand { real: true, ..real });
        check(&Bench {
            demands,
            network_delay_us: 50.0,
            wake_us: 5.0,
            quick: true,
        })
        .unwrap()
        .findings
        .concat()
    }

    #[test]
    fn the_model_is_held_against_a_process() {
        // The leader has a share of all of it, a proxy leader of a tenth.
        let leader = said(demand("compartmentalized", "leader", Kind::Write, 1, 1.2));
        assert!(
            leader.contains(
                "1.200 us measured (1.200 to 1.200), 1.000 us modelled, -17 %: within 20 %."
            ),
            "{leader}"
        );
        let proxy = said(demand(
            "compartmentalized",
            "proxy_leader",
            Kind::Write,
            1,
            0.5,
        ));
        assert!(
            proxy.contains("0.900 us modelled, +80 %: NOT within 20 %; the reason is not known"),
            "{proxy}"
        );
    }

    #[test]
    fn a_node_is_modelled_by_the_sum_of_its_roles() {
        let busy = Demand {
            busy: 0.5,
            ..demand("baseline", NODE, Kind::Write, 1, 5.0)
        };
        let node = said(busy);
        assert!(
            node.contains("NOT busy all the time") && node.contains("15.667 us modelled"),
            "{node}"
        );
        assert!(node.contains("a message is a function call"), "{node}");
    }
}
