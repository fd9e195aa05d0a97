//! All metrics.

use crate::audit::AUDIT;
use crate::certificates::CERTIFICATES;
use crate::clients::CLIENTS;
use crate::definition::{Definition, Kind, Line, Samples, Value};
use crate::disk::DISK;
use crate::node::{LOOP, NODE, PROCESS};
use crate::peers::PEERS;
use crate::roles::{self, FIELDS};
use crate::view::View;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::borrow::Cow;
use std::fmt;

/// The metrics that every node has, by subject.
const FIXED: &[(&str, &[Definition])] = &[
    ("The node", NODE),
    ("Event loops", LOOP),
    ("Role instances", FIELDS),
    ("Clients", CLIENTS),
    ("Log and snapshots", DISK),
    ("Other nodes", PEERS),
    ("Certificates", CERTIFICATES),
    ("The audit log", AUDIT),
    ("The process", PROCESS),
];

/// The metrics of one subject.
pub struct Registered {
    /// The subject.
    pub subject: &'static str,
    /// Its metrics.
    pub lines: Vec<Line>,
}

/// All metrics by subject; those that roles declare come last.
pub fn all() -> Vec<Registered> {
    let line = |it: &Definition| Line {
        name: in_promql(it.name, it.kind),
        kind: it.kind,
        labels: it.labels.to_vec(),
        help: it.help.to_owned(),
        protocols: Vec::new(),
    };
    let fixed = FIXED.iter().map(|(subject, metrics)| Registered {
        subject,
        lines: metrics.iter().map(line).collect(),
    });
    let declared = roles::declared().into_iter().map(|line| Line {
        name: in_promql(&line.name, line.kind),
        ..line
    });
    let declared = Registered {
        subject: "What roles declare",
        lines: declared.collect(),
    };
    fixed.chain([declared]).collect()
}

/// All metrics, each a line.
pub fn lines() -> Vec<Line> {
    all().into_iter().flat_map(|it| it.lines).collect()
}

fn in_promql(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Counter => format!("{name}_total"),
        Kind::Gauge | Kind::Histogram => name.to_owned(),
    }
}

/// One metric with its samples.
struct Family<'a> {
    name: Cow<'a, str>,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'a str,
    samples: Samples,
}

/// What a scrape has read, as the library wants it.
pub(crate) struct Scrape(Vec<Family<'static>>);

impl Scrape {
    pub(crate) fn of(view: &View<'_>) -> Self {
        let fixed = FIXED.iter().flat_map(|(_, metrics)| *metrics);
        let fixed = fixed.map(|it| {
            let mut samples = Samples::default();
            (it.read)(view, &mut samples);
            Family {
                name: it.name.into(),
                kind: it.kind,
                labels: it.labels,
                help: it.help,
                samples,
            }
        });
        let own = roles::own(view).into_iter().map(|it| Family {
            name: it.name.into(),
            kind: it.kind,
            labels: &["index"],
            help: it.help,
            samples: it.samples,
        });
        let all = fixed.chain(own);
        Scrape(all.filter(|it| !it.samples.0.is_empty()).collect())
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} metrics", self.0.len())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(&family.name, family.help, None, kind)?;
            for (values, value) in &family.samples.0 {
                let sample = Sample {
                    kind: family.kind,
                    value,
                };
                let labels: Vec<(&str, &str)> = family
                    .labels
                    .iter()
                    .copied()
                    .zip(values.iter().map(|value| &**value))
                    .collect();
                sample.encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

struct Sample<'a> {
    kind: Kind,
    value: &'a Value,
}

impl EncodeMetric for Sample<'_> {
    fn encode(&self, mut encoder: prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result {
        match (self.kind, self.value) {
            (Kind::Counter, Value::Whole(value)) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
            }
            (Kind::Counter, Value::Real(value)) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
            }
            (_, Value::Whole(value)) => encoder.encode_gauge(value),
            (_, Value::Real(value)) => encoder.encode_gauge(value),
            (_, Value::Histogram(sum, count, buckets)) => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        for Line {
            name, kind, help, ..
        } in lines()
        {
            assert!(
                name.starts_with("ionian_") || name.starts_with("process_"),
                "{name}"
            );
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            assert!(name.bytes().all(|it| is_plain(it) || it == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            for not_base in ["_ms", "_us", "_kb", "_mib", "_percent"] {
                let is_unit = format!("{name}_").contains(&format!("{not_base}_"));
                assert!(!is_unit, "{name} is not in a base unit");
            }
            for reserved in ["_bucket", "_count", "_sum"] {
                assert!(!name.ends_with(reserved), "{name}");
            }
            assert!(!help.is_empty() && !help.contains('\n'), "{name}");
            let before = kinds.insert(name.clone(), kind);
            assert!(
                before.is_none_or(|before| before == kind),
                "{name} has two types"
            );
        }
    }
}
