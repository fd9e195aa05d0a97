//! What a metric is.

use crate::view::View;
use ionian_kernel::histogram::Histogram;
use std::borrow::Cow;

/// The type of a metric in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It begins with 0 when the process starts and never falls. Its samples end in `_total`.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The name in the text formats.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric of every node, and how to read its samples.
pub(crate) struct Definition {
    /// The name without `_total`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The labels besides `cluster` and `node`.
    pub(crate) labels: &'static [&'static str],
    /// The meaning, in one line.
    pub(crate) help: &'static str,
    pub(crate) read: fn(&View<'_>, &mut Samples),
}

pub(crate) const fn metric(
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&View<'_>, &mut Samples),
) -> Definition {
    Definition {
        name,
        kind,
        labels,
        help,
        read,
    }
}

/// A value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    /// The sum, the number of values, and the buckets with their upper bounds.
    Histogram(f64, u64, Vec<(f64, u64)>),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

/// The samples of one metric: the values of its labels, and the value.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<(Vec<Cow<'static, str>>, Value)>);

impl Samples {
    /// A sample of a metric without labels of its own.
    pub(crate) fn one(&mut self, value: impl Into<Value>) {
        self.0.push((Vec::new(), value.into()));
    }

    /// A sample with these values of its labels.
    pub(crate) fn with<const N: usize>(
        &mut self,
        labels: [Cow<'static, str>; N],
        value: impl Into<Value>,
    ) {
        self.0.push((labels.into(), value.into()));
    }

    /// A sample that is a histogram, whose values are divided by `unit`.
    pub(crate) fn histogram<const FIRST: u64>(
        &mut self,
        labels: Vec<Cow<'static, str>>,
        histogram: &Histogram<FIRST>,
        unit: f64,
    ) {
        let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bound| bound as f64 / unit);
        let buckets = histogram.buckets().map(|(at, count)| (bound(at), count));
        let value = Value::Histogram(
            histogram.sum() as f64 / unit,
            histogram.count(),
            buckets.collect(),
        );
        self.0.push((labels, value));
    }
}

/// Microseconds as seconds.
pub(crate) fn seconds(us: u64) -> f64 {
    us as f64 / MICROSECONDS
}

/// How many of them a second has.
pub(crate) const MICROSECONDS: f64 = 1e6;

/// A metric as the reference lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The name in PromQL, without the suffixes of histograms.
    pub name: String,
    /// The type.
    pub kind: Kind,
    /// The labels besides `cluster` and `node`.
    pub labels: Vec<&'static str>,
    /// The meaning.
    pub help: String,
    /// The names of the protocols whose nodes have it; empty if all have it.
    pub protocols: Vec<&'static str>,
}
