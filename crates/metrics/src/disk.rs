//! The metrics of the log and of snapshots.

use crate::definition::Kind::{Counter, Gauge, Histogram};
use crate::definition::{Definition, MICROSECONDS, Samples, metric, seconds};
use crate::node::status;
use crate::view::View;
use ionian_runtime::status::LogMeasured;

/// Calls `read` with what the log has measured, if the node has a log on disk.
fn measured(view: &View<'_>, read: impl FnOnce(&LogMeasured)) {
    let published = view.published.as_ref();
    let on_disk = published.filter(|published| published.status.log.durability == "disk");
    if let Some(published) = on_disk {
        read(&published.status.measured.log);
    }
}

/// Whether a snapshot was stored since the start.
fn snapshot(view: &View<'_>, out: &mut Samples, read: impl FnOnce(&LogMeasured) -> u64) {
    measured(view, |log| {
        if log.snapshot_stored_at > 0 {
            out.one(read(log));
        }
    });
}

pub(crate) const DISK: &[Definition] = &[
    metric(
        Histogram,
        "ionian_log_sync_seconds",
        &[],
        "how long a sync of the log takes until the loop has noticed its end",
        |view, out| {
            measured(view, |log| {
                out.histogram(Vec::new(), &log.sync_times, MICROSECONDS)
            })
        },
    ),
    metric(
        Histogram,
        "ionian_log_sync_bytes",
        &[],
        "bytes that a sync makes durable",
        |view, out| measured(view, |log| out.histogram(Vec::new(), &log.sync_bytes, 1.0)),
    ),
    metric(
        Histogram,
        "ionian_log_sync_records",
        &[],
        "records that a sync makes durable",
        |view, out| {
            measured(view, |log| {
                out.histogram(Vec::new(), &log.sync_records, 1.0)
            })
        },
    ),
    metric(
        Counter,
        "ionian_log_syncs",
        &[],
        "syncs of the log",
        |view, out| status(view, out, |it| it.log.syncs),
    ),
    metric(
        Counter,
        "ionian_log_records",
        &[],
        "records that roles have persisted",
        |view, out| status(view, out, |it| it.event_loop.records),
    ),
    metric(
        Gauge,
        "ionian_log_bytes",
        &[],
        "size of all files of the log",
        |view, out| status(view, out, |it| it.log.bytes),
    ),
    metric(
        Gauge,
        "ionian_log_positions_behind_disk",
        &[],
        "records that are not on disk yet",
        |view, out| status(view, out, |it| it.log.lag),
    ),
    metric(
        Counter,
        "ionian_log_checkpoints",
        &[],
        "how often the beginning of the log was cut off",
        |view, out| status(view, out, |it| it.log.checkpoints),
    ),
    metric(
        Histogram,
        "ionian_snapshot_seconds",
        &[],
        "how long a snapshot takes to write",
        |view, out| {
            measured(view, |log| {
                out.histogram(Vec::new(), &log.snapshot_times, MICROSECONDS)
            })
        },
    ),
    metric(
        Counter,
        "ionian_snapshot_writing_seconds",
        &[],
        "time spent writing snapshots; its rate is the share of time",
        |view, out| measured(view, |log| out.one(seconds(log.snapshot_times.sum()))),
    ),
    metric(
        Gauge,
        "ionian_snapshot_bytes",
        &[],
        "size of the last snapshot",
        |view, out| snapshot(view, out, |log| log.snapshot_bytes),
    ),
    metric(
        Gauge,
        "ionian_snapshot_last_success_timestamp_seconds",
        &[],
        "when the last snapshot was stored, in seconds since the beginning of 1970",
        |view, out| snapshot(view, out, |log| log.snapshot_stored_at),
    ),
];
