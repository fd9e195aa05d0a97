//! The metrics of a node and of its event loops.

use crate::definition::Kind::{Counter, Gauge, Histogram};
use crate::definition::{Definition, MICROSECONDS, Samples, metric, seconds};
use crate::view::{CODES, STATES, View};
use ionian_deployment::Deployment;
use ionian_kernel::level::Level;
use ionian_runtime::NodeStatus;
use std::sync::atomic::Ordering;

/// Adds what `read` finds in the status, if there is one.
pub(crate) fn status<T: Into<crate::definition::Value>>(
    view: &View<'_>,
    out: &mut Samples,
    read: impl FnOnce(&NodeStatus) -> T,
) {
    if let Some(published) = &view.published {
        out.one(read(&published.status));
    }
}

/// Adds what `read` finds in the deployment in force, if the node knows it.
fn configured(view: &View<'_>, out: &mut Samples, read: impl FnOnce(&Deployment) -> u64) {
    let published = view.published.as_ref();
    if let Some(known) = published.and_then(|published| published.configuration.as_ref()) {
        out.one(read(&known.deployment));
    }
}

pub(crate) const NODE: &[Definition] = &[
    metric(
        Gauge,
        "ionian_build_info",
        &["version", "level_min", "level_max"],
        "1; the labels say which program the node runs",
        |view, out| {
            let [least, most] = [Level::OLDEST, Level::LATEST].map(|level| level.to_string());
            out.with([view.version.into(), least.into(), most.into()], 1);
        },
    ),
    metric(
        Gauge,
        "ionian_level",
        &[],
        "the level of the cluster, as the node knows it",
        |view, out| status(view, out, |status| u64::from(status.level)),
    ),
    metric(
        Gauge,
        "ionian_start_time_seconds",
        &[],
        "when the process started, in seconds since the beginning of 1970",
        |view, out| out.one(view.process().started),
    ),
    metric(
        Gauge,
        "ionian_node_state",
        &["state"],
        "1 for the state of the node, 0 for the others",
        |view, out| {
            let state = view.state();
            for label in STATES {
                out.with([label.into()], u64::from(label == state));
            }
        },
    ),
    metric(
        Gauge,
        "ionian_metrics_age_seconds",
        &[],
        "age of the status behind these metrics; more than a few seconds: the event loop is stuck",
        |view, out| view.age().into_iter().for_each(|age| out.one(age)),
    ),
    metric(
        Gauge,
        "ionian_failure_tolerance",
        &[],
        "how many more nodes may fail, as far as this node sees; -1 if clients are not served",
        |view, out| {
            if view.published.is_some() {
                let tolerance = view.tolerance();
                out.one(tolerance.map_or(-1.0, |tolerance| tolerance as f64));
            }
        },
    ),
    metric(
        Gauge,
        "ionian_failure_tolerance_target",
        &[],
        "how many nodes may fail by the deployment: its f",
        |view, out| configured(view, out, |it| it.f as u64),
    ),
    metric(
        Gauge,
        "ionian_window_limit_slots",
        &[],
        "slots that a leader may propose before replicas have executed them",
        |view, out| configured(view, out, |it| it.options.options().window_slots as u64),
    ),
    metric(
        Gauge,
        "ionian_epoch",
        &[],
        "epoch of the membership that the node knows",
        |view, out| status(view, out, |it| u64::from(it.epoch)),
    ),
    metric(
        Gauge,
        "ionian_changing",
        &[],
        "1 while a change of the membership is in progress",
        |view, out| status(view, out, |it| u64::from(it.changing)),
    ),
    metric(
        Gauge,
        "ionian_takes_part",
        &[],
        "0 while the node has a new data directory and waits for a majority of the others",
        |view, out| status(view, out, |it| u64::from(it.takes_part)),
    ),
    metric(
        Gauge,
        "ionian_amnesiac",
        &[],
        "1 if an earlier process of the node took part and most of its records are lost",
        |view, out| status(view, out, |it| u64::from(it.amnesiac)),
    ),
    metric(
        Gauge,
        "ionian_draining",
        &[],
        "1 while the node drains",
        |view, out| status(view, out, |it| u64::from(it.drains.is_some())),
    ),
];

pub(crate) const LOOP: &[Definition] = &[
    metric(
        Counter,
        "ionian_loop_busy_seconds",
        &["loop"],
        "processor time of an event loop's thread, for loop 0 also its own waits for the disk",
        |view, out| {
            let Some(published) = &view.published else {
                return;
            };
            let status = &published.status;
            if let Some(work) = &status.work {
                out.with(
                    ["0".into()],
                    seconds(status.loop_cpu_us + work.loop_sync_us),
                );
            }
            for other in &status.role_loops {
                out.with([other.number.to_string().into()], seconds(other.cpu_us));
            }
        },
    ),
    metric(
        Counter,
        "ionian_loop_runqueue_wait_seconds",
        &[],
        "how long the main loop's thread was ready to run and had no processor",
        |view, out| {
            let wait = view.published.as_ref();
            let wait = wait.and_then(|published| published.status.work.as_ref()?.loop_wait_us);
            wait.into_iter().for_each(|us| out.one(seconds(us)));
        },
    ),
    metric(
        Histogram,
        "ionian_loop_iteration_seconds",
        &[],
        "how long a run of the main loop takes; above the heartbeat it causes elections",
        |view, out| {
            if let Some(published) = &view.published {
                let times = &published.status.measured.iterations;
                out.histogram(Vec::new(), times, MICROSECONDS);
            }
        },
    ),
    metric(
        Counter,
        "ionian_loop_messages",
        &["direction"],
        "messages from and to other nodes",
        |view, out| {
            if let Some(published) = &view.published {
                let counts = &published.status.event_loop;
                out.with(["in".into()], counts.messages_in);
                out.with(["out".into()], counts.messages_out);
            }
        },
    ),
    metric(
        Counter,
        "ionian_loop_requests",
        &[],
        "requests that applications have submitted",
        |view, out| status(view, out, |it| it.event_loop.requests),
    ),
    metric(
        Counter,
        "ionian_loop_replies",
        &[],
        "replies that applications have received",
        |view, out| status(view, out, |it| it.event_loop.replies),
    ),
    metric(
        Counter,
        "ionian_loop_ignored_messages",
        &[],
        "messages that were ignored because their epoch is not known",
        |view, out| status(view, out, |it| it.event_loop.ignored),
    ),
    metric(
        Counter,
        "ionian_loop_overdue_messages",
        &[],
        "messages that were not sent because their time was over",
        |view, out| status(view, out, |it| it.event_loop.overdue),
    ),
    metric(
        Counter,
        "ionian_http_requests",
        &["code"],
        "answers of this HTTP server by their code",
        |view, out| {
            for (place, code) in CODES.iter().enumerate() {
                out.with([code.to_string().into()], view.answers.of(place));
            }
        },
    ),
    metric(
        Counter,
        "ionian_http_refused_connections",
        &[],
        "connections that this HTTP server closed because there were too many",
        |view, out| out.one(view.answers.refused.load(Ordering::Relaxed)),
    ),
];

/// A number of the process, if the system reports it.
macro_rules! of_process {
    ($kind:ident, $name:literal, $field:ident, $help:literal) => {
        metric($kind, $name, &[], $help, |view, out| {
            view.process().$field.into_iter().for_each(|it| out.one(it));
        })
    };
}

pub(crate) const PROCESS: &[Definition] = &[
    metric(
        Gauge,
        "process_start_time_seconds",
        &[],
        "when the process started, in seconds since the beginning of 1970",
        |view, out| out.one(view.process().started),
    ),
    of_process!(
        Counter,
        "process_cpu_seconds",
        cpu,
        "processor time of all threads of the process"
    ),
    of_process!(
        Gauge,
        "process_resident_memory_bytes",
        resident_bytes,
        "memory of the process that is in use"
    ),
    of_process!(
        Gauge,
        "process_virtual_memory_bytes",
        virtual_bytes,
        "address space of the process"
    ),
    of_process!(
        Gauge,
        "process_open_fds",
        open_files,
        "open files and sockets"
    ),
    of_process!(
        Gauge,
        "process_max_fds",
        open_files_limit,
        "limit of open files and sockets"
    ),
    of_process!(
        Gauge,
        "ionian_disk_free_bytes",
        disk_free_bytes,
        "free space on the disk of the data directory; a full disk stops the node"
    ),
    of_process!(
        Gauge,
        "ionian_disk_size_bytes",
        disk_bytes,
        "size of the disk of the data directory"
    ),
];
