//! What nodes held in the course of time: as a table, as CSV, as a picture, and whether it grew.

use anyhow::{Result, anyhow};
use ionian_harness::numbers::thousands;
use ionian_runtime::DiskOptions;
use plotters::prelude::*;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

/// What one node holds, in bytes unless it says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Resident memory of its process.
    pub(crate) memory: u64,
    /// What is allocated for its directory.
    pub(crate) disk: u64,
    /// The lengths of the files in it.
    pub(crate) length: u64,
    /// The files of its log among these.
    pub(crate) log: u64,
    /// How many snapshots it has stored.
    pub(crate) snapshots: u64,
}

/// One moment.
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    /// Commands until now.
    pub(crate) acknowledged: u64,
    /// In the order of the deployment.
    pub(crate) nodes: Vec<Held>,
}

/// See the top of this file.
pub(crate) struct Curve {
    names: Vec<String>,
    pub(crate) samples: Vec<Sample>,
}

type Figure = fn(&Held) -> u64;

/// What must not grow.
const FIGURES: [(&str, Figure); 2] = [("memory", |held| held.memory), ("disk", |held| held.disk)];

/// A maximum of what a directory holds says nothing finer than this: its log comes and goes in
/// files of this size.
fn grain(what: &str) -> u64 {
    if what == "disk" {
        DiskOptions::default().segment_bytes
    } else {
        0
    }
}

impl Curve {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Curve {
            names,
            samples: Vec::new(),
        }
    }

    /// The head of the table.
    pub(crate) fn header(&self) -> String {
        let nodes = self.names.join(" / ");
        let head = format!(
            "| minute | commands | commands/s | memory {nodes}, MiB | disk {nodes}, MiB | of this log, MiB | snapshots stored |"
        );
        head + "\n|---|---|---|---|---|---|---|"
    }

    /// The latest sample, as a line of the table; the speed is that of the last `window` seconds.
    pub(crate) fn line(&self, window: f64) -> String {
        let Some(last) = self.samples.last() else {
            return String::new();
        };
        let earlier = self
            .samples
            .iter()
            .rev()
            .find(|sample| sample.seconds <= last.seconds - window + 1.0);
        let (from, before) =
            earlier.map_or((0.0, 0), |sample| (sample.seconds, sample.acknowledged));
        let speed = (last.acknowledged - before) as f64 / (last.seconds - from);
        let each = |figure: Figure| {
            last.nodes
                .iter()
                .map(|held| figure(held).to_string())
                .collect::<Vec<_>>()
                .join(" / ")
        };
        format!(
            "| {:.0} | {} | {} | {} | {} | {} | {} |",
            last.seconds / 60.0,
            thousands(last.acknowledged),
            thousands(speed as u64),
            each(|held| held.memory >> 20),
            each(|held| held.disk >> 20),
            each(|held| held.log >> 20),
            each(|held| held.snapshots),
        )
    }

    /// All samples; a line each, and columns for each node.
    pub(crate) fn csv(&self) -> String {
        let mut text = "seconds,acknowledged".to_owned();
        for name in &self.names {
            for column in [
                "memory_bytes",
                "disk_bytes",
                "length_bytes",
                "log_bytes",
                "snapshots",
            ] {
                // Into memory: cannot fail, here and below.
                let _ = write!(text, ",{name}_{column}");
            }
        }
        for Sample {
            seconds,
            acknowledged,
            nodes,
        } in &self.samples
        {
            let _ = write!(text, "\n{seconds:.1},{acknowledged}");
            for Held {
                memory,
                disk,
                length,
                log,
                snapshots,
            } in nodes
            {
                let _ = write!(text, ",{memory},{disk},{length},{log},{snapshots}");
            }
        }
        text + "\n"
    }

    /// For the memory and the disk of each node: what its maxima were in the second and in the last
    /// quarter, and whether the later is at most this percentage above the earlier, or no more than
    /// one file of the log.
    pub(crate) fn growth(&self, tolerance: f64) -> Vec<(String, bool)> {
        let mut found = Vec::new();
        for (what, figure) in FIGURES {
            for (node, name) in self.names.iter().enumerate() {
                let (earlier, later) =
                    (self.maximum(node, figure, 1), self.maximum(node, figure, 3));
                let percent = 100.0 * (later as f64 / earlier.max(1) as f64 - 1.0);
                let (from, to) = (earlier as f64 / MIB, later as f64 / MIB);
                let text = format!(
                    "{what} of {name}: at most {from:.1} MiB in the second quarter, {to:.1} MiB in the last \
                     ({percent:+.1} %; allowed {tolerance:+.1} %)"
                );
                found.push((text, percent <= tolerance || later <= earlier + grain(what)));
            }
        }
        found
    }

    /// The most that the node held in a quarter, counted from 0.
    fn maximum(&self, node: usize, figure: Figure, quarter: usize) -> u64 {
        let count = self.samples.len();
        let samples = &self.samples[count * quarter / 4..count * (quarter + 1) / 4];
        samples
            .iter()
            .map(|sample| figure(&sample.nodes[node]))
            .max()
            .unwrap_or(0)
    }
}

const MIB: f64 = (1 << 20) as f64;

/// Draws memory and disk of all nodes over the time into an SVG file.
pub(crate) fn draw(curve: &Curve, title: &str, path: &Path) -> Result<()> {
    let area = SVGBackend::new(path, (960, 640)).into_drawing_area();
    let drawn = || -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        area.fill(&WHITE)?;
        for (half, (what, figure)) in area.split_evenly((FIGURES.len(), 1)).iter().zip(FIGURES) {
            draw_one(curve, &format!("{what}, MiB ({title})"), figure, half)?;
        }
        area.present()
    };
    drawn().map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn draw_one(
    curve: &Curve,
    title: &str,
    figure: Figure,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let most = curve
        .samples
        .iter()
        .flat_map(|sample| sample.nodes.iter().map(figure))
        .max()
        .unwrap_or(0);
    let minutes: Range<f64> = 0.0..curve
        .samples
        .last()
        .map_or(1.0, |sample| sample.seconds / 60.0);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(48)
        .build_cartesian_2d(minutes, 0.0..1.1 * most.max(1) as f64 / MIB)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("minutes")
        .draw()?;
    for (node, name) in curve.names.iter().enumerate() {
        let points = curve
            .samples
            .iter()
            .map(|one| (one.seconds / 60.0, figure(&one.nodes[node]) as f64 / MIB));
        let color = Palette99::pick(node).to_rgba();
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color);
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(name)
            .legend(legend);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK)
        .draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory as given, disk constant.
    fn curve(memory: impl Fn(u64) -> u64) -> Curve {
        let mut curve = Curve::new(vec!["n0".into(), "n1".into()]);
        for minute in 1..=40 {
            let held = Held {
                memory: memory(minute) << 20,
                disk: 100 << 20,
                ..Held::default()
            };
            let still = Held {
                memory: 1 << 20,
                disk: 1 << 20,
                ..Held::default()
            };
            let (seconds, acknowledged) = (minute as f64 * 60.0, minute * 60_000);
            curve.samples.push(Sample {
                seconds,
                acknowledged,
                nodes: vec![held, still],
            });
        }
        curve
    }

    #[test]
    fn growth_after_the_first_quarter_is_seen() {
        let flat = |curve: &Curve| {
            curve
                .growth(10.0)
                .iter()
                .map(|(_, flat)| *flat)
                .collect::<Vec<bool>>()
        };
        // It may warm up, and go up and down.
        assert_eq!(
            flat(&curve(|minute| minute.min(10) * 10 + minute % 5)),
            [true; 4]
        );
        let grows = curve(|minute| 100 + minute);
        assert_eq!(flat(&grows), [false, true, true, true]);
        let text = &grows.growth(10.0)[0].0;
        assert!(text.contains(
            "memory of n0: at most 120.0 MiB in the second quarter, 140.0 MiB in the last (+16.7 %"
        ));
    }

    #[test]
    fn of_disk_one_file_of_the_log_more_is_no_growth_and_two_are() {
        let verdict = |files: u64| {
            let mut curve = curve(|_| 100);
            let last = curve.samples.last_mut().unwrap();
            last.nodes[0].disk += files * DiskOptions::default().segment_bytes;
            last.nodes[1].memory += 1 << 20;
            curve
                .growth(10.0)
                .iter()
                .map(|(_, flat)| *flat)
                .collect::<Vec<bool>>()
        };
        assert_eq!(
            verdict(1),
            [true, false, true, true],
            "memory has no such grain"
        );
        assert_eq!(verdict(2), [true, false, false, true]);
    }

    #[test]
    fn lines_say_how_fast_it_was_lately() {
        let curve = curve(|_| 7);
        assert_eq!(
            curve.line(60.0),
            "| 40 | 2,400,000 | 1,000 | 7 / 1 | 100 / 1 | 0 / 0 | 0 / 0 |"
        );
        let csv = curve.csv();
        assert_eq!(csv.lines().count(), 41);
        assert!(csv.lines().all(|line| line.split(',').count() == 12));
    }

    #[test]
    fn the_picture_has_a_line_for_each_node_and_figure() {
        let path = std::env::temp_dir().join(format!("ionian-curve-{}.svg", std::process::id()));
        draw(&curve(|minute| minute), "a title", &path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<&str> = picture
            .lines()
            .filter(|line| line.starts_with("<polyline"))
            .collect();
        for node in 0..2 {
            let (red, green, blue) = Palette99::COLORS[node];
            let color = format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\"");
            let of_node = lines.iter().filter(|line| line.contains(&color)).count();
            assert_eq!(
                of_node,
                2 * FIGURES.len(),
                "in each chart a line, and one in the legend: {color}"
            );
        }
        assert!(picture.contains("a title"));
    }
}
