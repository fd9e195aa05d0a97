//! What the roles of Scalog report beside [what their parts do](crate::parts::metrics).

use ionian_kernel::status::Metric;

pub(super) const SERVER: &[Metric] = &[
    Metric::gauge(
        "generation",
        "slot",
        "the generation of its shard in which it takes part; 0 while the shard is closed",
    ),
    Metric::counter("commands", "commands", "commands put into records"),
    Metric::gauge("length", "records", "records in its log"),
    Metric::gauge(
        "unordered",
        "records",
        "records of its log that no cut covers, as far as it knows",
    )
    .settling(),
    Metric::gauge(
        "held_bytes",
        "bytes",
        "bytes of records that it holds, of all logs of its shard",
    ),
    Metric::counter("reports", "reports", "reports sent to aggregators"),
    Metric::counter(
        "turn",
        "turns",
        "turns to the next aggregator, because the one before led to no cut in time",
    ),
    Metric::counter(
        "passed_on",
        "commands",
        "commands passed on to a server of another shard",
    ),
    Metric::counter(
        "void",
        "records",
        "records of its log that were not ordered when the shard was closed",
    ),
    Metric::counter(
        "fetched",
        "records",
        "records sent to replicas that missed them",
    ),
    Metric::counter(
        "dropped_commands",
        "commands",
        "commands dropped for want of room",
    ),
];

pub(super) const AGGREGATOR: &[Metric] = &[
    Metric::counter("reports", "reports", "reports of servers"),
    Metric::counter("proposals", "batches", "cuts proposed to leaders"),
    Metric::gauge("under_way", "batches", "cuts not known to be chosen").settling(),
    Metric::gauge("open_shards", "shards", "shards that are open"),
    Metric::counter("closed", "shards", "shards that it wanted to be closed"),
];

pub(super) const REPLICA: &[Metric] = &[
    Metric::gauge(
        "records_ordered",
        "records",
        "records ordered by executed cuts",
    ),
    Metric::gauge("waiting_records", "records", "records that wait for a cut"),
    Metric::gauge("waiting_bytes", "bytes", "bytes of these"),
    Metric::counter(
        "dropped_records",
        "records",
        "records that came early and had no room",
    ),
    Metric::counter(
        "record_fetches",
        "requests",
        "requests for missing records to servers",
    ),
];
