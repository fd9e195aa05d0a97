//! psmr-gain: what parallel execution adds to compartmentalization. The store is that of the other
//! figures, a key-value store with writes of 16 bytes.

use super::super::deployments::{batches, grid, in_words, preset, scaled};
use super::super::drawing::panel::{Bar, Marks, Panel};
use super::super::point::{Point, short};
use super::super::sheet::{Sheet, ratio};
use super::super::simulate::Bench;
use super::{LANES, MOST_THREADS, point};
use crate::model::Workload;
use anyhow::Result;
use bytes::Bytes;
use ionian_costs::{Commands, Service};
use ionian_deployment::Deployment;
use ionian_kernel::client::Operation;
use ionian_kernel::machine::StateMachine;
use ionian_machines::kv::Kv;

/// Machines with clients where much is to be done.
const MANY_LANES: usize = 6;

/// Commands of a batch, where batches are made.
const BATCH: usize = 100;

/// Commands under way.
const UNDER_WAY: usize = 4096;
const MANY_UNDER_WAY: usize = 65_536;

/// A deployment, how many threads execute in a replica, and commands of a batch.
struct Case {
    name: &'static str,
    threads: usize,
    batch: usize,
    deployment: Deployment,
}

impl Case {
    fn new(
        name: &'static str,
        threads: usize,
        batch: usize,
        deployment: Deployment,
    ) -> Result<Self> {
        let setting = match deployment.protocol.as_str() {
            "psmr" => format!("options.groups={threads}"),
            _ => format!("options.workers={threads}"),
        };
        Ok(Case {
            name,
            threads,
            batch,
            deployment: batches(deployment.with_overrides(&[setting])?, batch)?,
        })
    }
}

fn cases() -> Result<Vec<Case>> {
    let many = |mut deployment: Deployment, counts: &[(&str, usize)]| -> Result<Deployment> {
        for (role, count) in counts {
            deployment = scaled(deployment, role, *count)?;
        }
        Ok(deployment)
    };
    let psmr = || -> Result<Deployment> {
        let base = preset("p-smr-compartmentalized", MANY_LANES)?;
        let more = many(base, &[("proxy_leader", 24), ("replica", 4)])?;
        grid(more, 2, 4)
    };
    let batched = || -> Result<Deployment> {
        let base = preset("batched", MANY_LANES)?;
        many(
            base,
            &[("batcher", 16), ("proxy_leader", 4), ("unbatcher", 12)],
        )
    };
    let psmr_batched = || -> Result<Deployment> {
        let mut deployment = batched()?;
        deployment.protocol = "psmr".to_owned();
        scaled(deployment, "leader", MOST_THREADS + 1)
    };
    let compartmentalized = || preset("compartmentalized", LANES);
    Ok(vec![
        Case::new("baseline", 1, 1, preset("baseline", LANES)?)?,
        Case::new("compartmentalized", 1, 1, compartmentalized()?)?,
        Case::new("with workers", MOST_THREADS, 1, compartmentalized()?)?,
        Case::new("P-SMR", MOST_THREADS, 1, psmr()?)?,
        Case::new("batched", 1, BATCH, batched()?)?,
        Case::new("batched, with workers", MOST_THREADS, BATCH, batched()?)?,
        Case::new("batched P-SMR", MOST_THREADS, BATCH, psmr_batched()?)?,
    ])
}

/// See the top of this file.
pub(in super::super) fn gain(bench: &Bench) -> Result<Sheet> {
    let mut sheet = Sheet::empty(
        "what parallel execution adds to compartmentalization (ours projected)",
        vec![format!(
            "Writes of 16 bytes of the key-value store; batches of up to {BATCH} commands where batches are made. Each thread \
             has a processor of its own; what processors lose by sharing memory is not in it."
        )],
    );
    let mut bars = Vec::new();
    let mut first: Option<Point> = None;
    for (colour, case) in cases()?.into_iter().enumerate() {
        let found = measure(bench, &case)?;
        let base = first.get_or_insert_with(|| found.clone());
        sheet.findings.push(format!(
            "{}, {} threads: {}/s, {} the baseline. What is busy first: {}.",
            case.name,
            case.threads,
            short(found.commands_per_second),
            ratio(found.commands_per_second, base.commands_per_second),
            found.bottleneck.as_deref().unwrap_or_default()
        ));
        let label = case.name.replace(", ", "\n");
        bars.push(Bar::plain(label, colour, found.commands_per_second));
        let relative = found.commands_per_second / base.commands_per_second;
        sheet.points.push(Point {
            relative: Some(relative),
            ..found
        });
    }
    let paper = [("baseline", 25_000.0), ("compartmentalized", 150_000.0)];
    let theirs = paper.map(|(name, rate)| super::published(name, 1, rate));
    sheet.points.extend(theirs);
    sheet.panels = vec![Panel {
        title: "Ionian".to_owned(),
        x_label: String::new(),
        y_label: "commands per second".to_owned(),
        marks: Marks::Bars(bars),
    }];
    Ok(sheet)
}

/// What a deployment can do whose replicas execute on as many workers, in batches.
pub(in super::super) fn with_workers(
    bench: &Bench,
    name: &'static str,
    deployment: Deployment,
) -> Result<Point> {
    measure(bench, &Case::new(name, MOST_THREADS, BATCH, deployment)?)
}

fn measure(bench: &Bench, case: &Case) -> Result<Point> {
    let under_way = match case.batch {
        1 => UNDER_WAY,
        _ => MANY_UNDER_WAY,
    };
    let service = || -> Box<dyn Service> { Box::new(Writes::new(case.batch)) };
    let found = bench.parallel(&case.deployment, "writes", &service, under_way)?;
    Ok(Point {
        batch: Some(case.batch),
        deployment: Some(in_words(&case.deployment)),
        ..point(case.name, case.threads, &found)
    })
}

/// The key-value store with writes.
struct Writes(Commands);

impl Writes {
    fn new(batch: usize) -> Self {
        Writes(Commands::new(&Workload::writes(batch).load(1000, true)))
    }
}

impl Service for Writes {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Kv::default())
    }

    fn command(&self, number: usize) -> (Operation, Bytes) {
        self.0.get(number)
    }
}
