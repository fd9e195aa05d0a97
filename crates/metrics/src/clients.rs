//! The metrics of the gateway.

use crate::definition::Kind::{Counter, Gauge, Histogram};
use crate::definition::{Definition, MICROSECONDS, Samples, metric};
use crate::view::View;
use ionian_gateway::{DENIALS, Family, Measured, Outcome};

/// Adds what `read` finds in the measurements of the gateway, if the node has one.
fn gateway(view: &View<'_>, out: &mut Samples, read: impl FnOnce(&Measured) -> u64) {
    if let Some(measured) = &view.gateway {
        out.one(read(measured));
    }
}

pub(crate) const CLIENTS: &[Definition] = &[
    metric(
        Gauge,
        "ionian_gateway_connections",
        &[],
        "clients that are connected",
        |view, out| gateway(view, out, |it| it.connections),
    ),
    metric(
        Counter,
        "ionian_gateway_accepted_connections",
        &[],
        "clients that have connected",
        |view, out| gateway(view, out, |it| it.connections_total),
    ),
    metric(
        Counter,
        "ionian_gateway_closed_connections",
        &["reason"],
        "clients that the gateway has refused or closed",
        |view, out| {
            if let Some(it) = &view.gateway {
                out.with(["too_many".into()], it.connections_rejected);
                out.with(["memory".into()], it.evicted);
                out.with(["protocol_error".into()], it.protocol_errors);
                out.with(["tls_handshake".into()], it.handshakes_failed);
            }
        },
    ),
    metric(
        Counter,
        "ionian_gateway_commands",
        &["family", "outcome"],
        "commands by what became of them; tryagain_maybe: may have been executed",
        |view, out| {
            let Some(measured) = &view.gateway else {
                return;
            };
            for ((_, family), counts) in Family::ALL.into_iter().zip(&measured.commands) {
                for ((_, outcome), count) in Outcome::ALL.into_iter().zip(counts) {
                    out.with([family.into(), outcome.into()], *count);
                }
            }
        },
    ),
    metric(
        Counter,
        "ionian_gateway_denied",
        &["error"],
        "errors for clients that have not logged in, gave a wrong password, or lack a right",
        |view, out| {
            if let Some(it) = &view.gateway {
                for (code, count) in DENIALS.into_iter().zip(it.denied) {
                    out.with([code.into()], count);
                }
            }
        },
    ),
    metric(
        Counter,
        "ionian_gateway_delayed_logins",
        &[],
        "attempts to log in that have waited a second, after 8 wrong passwords from one address",
        |view, out| gateway(view, out, |it| it.logins_delayed),
    ),
    metric(
        Counter,
        "ionian_gateway_quotas",
        &["effect"],
        "what quotas of users have done here: commands delayed, commands and connections refused",
        |view, out| {
            if let Some(it) = &view.gateway {
                out.with(["delayed".into()], it.quota_commands.0);
                out.with(["refused".into()], it.quota_commands.1);
                out.with(["connection_refused".into()], it.quota_connections);
            }
        },
    ),
    metric(
        Gauge,
        "ionian_memory_limit_bytes",
        &[],
        "the most bytes that keys and values may take (maxmemory), as this gateway knows it; \
         0: no limit",
        |view, out| gateway(view, out, |it| it.memory.0),
    ),
    metric(
        Gauge,
        "ionian_memory_used_bytes",
        &[],
        "the bytes that keys and values took when that was measured last; 0 without a limit",
        |view, out| gateway(view, out, |it| it.memory.1),
    ),
    metric(
        Histogram,
        "ionian_gateway_service_seconds",
        &["family"],
        "time from the receipt of a command to its reply, replication included",
        |view, out| {
            let Some(measured) = &view.gateway else {
                return;
            };
            for ((_, family), times) in Family::ALL.into_iter().zip(&measured.service) {
                out.histogram(vec![family.into()], times, MICROSECONDS);
            }
        },
    ),
    metric(
        Histogram,
        "ionian_gateway_compound_commands",
        &[],
        "commands that go to the cluster together; 1: clients do not pipeline",
        |view, out| {
            if let Some(it) = &view.gateway {
                out.histogram(Vec::new(), &it.compound_commands, 1.0);
            }
        },
    ),
    metric(
        Counter,
        "ionian_gateway_input_bytes",
        &[],
        "bytes received from clients",
        |view, out| gateway(view, out, |it| it.input_bytes),
    ),
    metric(
        Counter,
        "ionian_gateway_output_bytes",
        &[],
        "bytes sent to clients",
        |view, out| gateway(view, out, |it| it.output_bytes),
    ),
    metric(
        Gauge,
        "ionian_gateway_output_backlog_bytes",
        &[],
        "bytes of replies that clients have not read",
        |view, out| gateway(view, out, |it| it.output_backlog_bytes),
    ),
    metric(
        Gauge,
        "ionian_gateway_held_bytes",
        &[],
        "memory of all clients",
        |view, out| gateway(view, out, |it| it.held_bytes),
    ),
];
