//! One point, bar or row of a figure, ours or the paper's.

/// What a number rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The real roles in the simulator, at measured costs.
    Simulated,
    /// The real roles in the simulator, at a price for each message that comes from the paper.
    Priced,
    /// The utilization law on measured nodes.
    Projected,
    /// One real process among real ones.
    Measured,
    /// Published: the 90th percentile of one-second windows, which the paper plots.
    PublishedP90,
    /// Published: the mean of the same windows.
    PublishedMean,
    /// Published: what the text of the paper says.
    Published,
    /// A formula.
    Law,
}

impl Measure {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Simulated => "simulated",
            Measure::Priced => "priced",
            Measure::Projected => "projected",
            Measure::Measured => "measured",
            Measure::PublishedP90 => "published p90",
            Measure::PublishedMean => "published mean",
            Measure::Published => "published",
            Measure::Law => "law",
        }
    }
}

/// See the top of this file. What a point has none of is left out.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Which curve or bar it belongs to.
    pub(crate) series: String,
    /// What it rests on.
    pub(crate) measure: Measure,
    /// Clients in a closed loop.
    pub(crate) clients: Option<usize>,
    /// Commands of a full batch.
    pub(crate) batch: Option<usize>,
    /// Bytes of a value.
    pub(crate) value_bytes: Option<usize>,
    /// The part of the commands that are reads.
    pub(crate) read_fraction: Option<f64>,
    /// The part of the commands that are about the same key.
    pub(crate) skew: Option<f64>,
    /// Replicas.
    pub(crate) replicas: Option<usize>,
    /// Microseconds that the state machine takes to execute a command.
    pub(crate) execution_us: Option<f64>,
    /// Microseconds of processor time for a command.
    pub(crate) demand_us: Option<f64>,
    /// Sites that are far apart.
    pub(crate) sites: Option<usize>,
    /// Since the start, in the middle of the time that it is about.
    pub(crate) seconds: Option<f64>,
    /// What clients ask in a second, answered or not.
    pub(crate) offered_per_second: Option<f64>,
    /// Nodes with every role.
    pub(crate) nodes: Option<usize>,
    /// Relay groups.
    pub(crate) groups: Option<usize>,
    /// The votes of a group that its relay does not wait for.
    pub(crate) slack: Option<usize>,
    /// Threads of a replica that execute.
    pub(crate) threads: Option<usize>,
    /// The part of the commands that depend on all others.
    pub(crate) dependent: Option<f64>,
    /// Microseconds of a replica's thread for a command, system calls included.
    pub(crate) thread_us: Option<f64>,
    /// Microseconds of its busiest worker.
    pub(crate) worker_us: Option<f64>,
    /// The node or nodes that it is about.
    pub(crate) node: Option<String>,
    /// Messages per command.
    pub(crate) messages: Option<f64>,
    /// Bytes per command on links between regions.
    pub(crate) wide_bytes: Option<f64>,
    /// Throughput as a multiple of that of what it is compared with.
    pub(crate) relative: Option<f64>,
    /// Commands per second; not a number where it is about something else.
    pub(crate) commands_per_second: f64,
    /// Mean latency.
    pub(crate) mean_ms: Option<f64>,
    /// Latency of the fastest quarter at most.
    pub(crate) p25_ms: Option<f64>,
    /// Latency of the fastest three quarters at most.
    pub(crate) p75_ms: Option<f64>,
    /// Median latency.
    pub(crate) p50_ms: Option<f64>,
    /// Latency of the slowest of a hundred.
    pub(crate) p99_ms: Option<f64>,
    /// What it is that keeps it from more.
    pub(crate) bottleneck: Option<String>,
    /// How it was deployed.
    pub(crate) deployment: Option<String>,
}

impl Point {
    /// About something other than throughput.
    pub(crate) fn about(series: &str, measure: Measure) -> Self {
        Point::new(series, measure, f64::NAN)
    }

    /// A throughput and nothing else.
    pub(crate) fn new(series: &str, measure: Measure, commands_per_second: f64) -> Self {
        Point {
            series: series.to_owned(),
            measure,
            commands_per_second,
            clients: None,
            batch: None,
            value_bytes: None,
            read_fraction: None,
            skew: None,
            replicas: None,
            execution_us: None,
            demand_us: None,
            sites: None,
            seconds: None,
            offered_per_second: None,
            nodes: None,
            groups: None,
            slack: None,
            threads: None,
            dependent: None,
            thread_us: None,
            worker_us: None,
            node: None,
            messages: None,
            wide_bytes: None,
            relative: None,
            p25_ms: None,
            p75_ms: None,
            mean_ms: None,
            p50_ms: None,
            p99_ms: None,
            bottleneck: None,
            deployment: None,
        }
    }
}

/// What a column shows of a point.
pub(crate) type Cell = fn(&Point) -> Option<String>;

/// The columns of a table, with how many digits people are shown.
pub(crate) const COLUMNS: &[(&str, Cell)] = &[
    ("series", |point| Some(point.series.clone())),
    ("measure", |point| Some(point.measure.name().to_owned())),
    ("clients", |point| point.clients.map(|it| it.to_string())),
    ("batch", |point| point.batch.map(|it| it.to_string())),
    ("value_bytes", |point| {
        point.value_bytes.map(|it| it.to_string())
    }),
    ("read_fraction", |point| {
        point.read_fraction.map(|it| it.to_string())
    }),
    ("skew", |point| point.skew.map(|it| it.to_string())),
    ("replicas", |point| point.replicas.map(|it| it.to_string())),
    ("execution_us", |point| {
        point.execution_us.map(|it| format!("{it:.2}"))
    }),
    ("demand_us", |point| {
        point.demand_us.map(|it| format!("{it:.3}"))
    }),
    ("sites", |point| point.sites.map(|it| it.to_string())),
    ("seconds", |point| point.seconds.map(|it| it.to_string())),
    ("offered_per_second", |point| {
        point.offered_per_second.map(|it| format!("{it:.0}"))
    }),
    ("nodes", |point| point.nodes.map(|it| it.to_string())),
    ("groups", |point| point.groups.map(|it| it.to_string())),
    ("slack", |point| point.slack.map(|it| it.to_string())),
    ("threads", |point| point.threads.map(|it| it.to_string())),
    ("dependent", |point| {
        point.dependent.map(|it| it.to_string())
    }),
    ("thread_us", |point| {
        point.thread_us.map(|it| format!("{it:.3}"))
    }),
    ("worker_us", |point| {
        point.worker_us.map(|it| format!("{it:.3}"))
    }),
    ("node", |point| point.node.clone()),
    ("messages_per_command", |point| {
        point.messages.map(|it| format!("{it:.2}"))
    }),
    ("wide_bytes_per_command", |point| {
        point.wide_bytes.map(|it| format!("{it:.0}"))
    }),
    ("commands_per_second", |point| {
        let rate = point.commands_per_second;
        rate.is_finite().then(|| format!("{rate:.0}"))
    }),
    ("relative", |point| {
        point.relative.map(|it| format!("{it:.2}"))
    }),
    ("mean_ms", |point| {
        point.mean_ms.map(|it| format!("{it:.3}"))
    }),
    ("p25_ms", |point| point.p25_ms.map(|it| format!("{it:.3}"))),
    ("p50_ms", |point| point.p50_ms.map(|it| format!("{it:.3}"))),
    ("p75_ms", |point| point.p75_ms.map(|it| format!("{it:.3}"))),
    ("p99_ms", |point| point.p99_ms.map(|it| format!("{it:.3}"))),
    ("bottleneck", |point| point.bottleneck.clone()),
    ("deployment", |point| point.deployment.clone()),
];

/// A number with at most three digits that matter: 950, 12k, 1.25M.
pub(crate) fn short(number: f64) -> String {
    let trimmed = |number: f64, digits: usize| {
        let text = format!("{number:.digits$}");
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    };
    match number {
        _ if number >= 999_500.0 => format!(
            "{}M",
            trimmed(number / 1e6, if number >= 1e7 { 1 } else { 2 })
        ),
        _ if number >= 1000.0 => format!(
            "{}k",
            trimmed(number / 1e3, if number >= 1e5 { 0 } else { 1 })
        ),
        _ => trimmed(number, 2),
    }
}
