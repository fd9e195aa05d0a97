//! Sends traced commands to an OpenTelemetry collector: OTLP over HTTP, in Protocol Buffers,
//! with or without TLS.

mod collector;

pub(super) use collector::endpoint;

use super::gather::{Meanwhile, Traced, ask_all, paths};
use crate::cluster_args::ClusterArgs;
use crate::output::{explain, say, say_on_stderr};
use crate::source::ANSWER_LIMIT;
use crate::waiting;
use anyhow::Result;
use collector::Collector;
use hyper::Uri;
use ionian_kernel::trace::TraceParent;
use ionian_kernel::trace::path::Place;
use ionian_runtime::admin::traces::MOST_COMMANDS;
use ionian_runtime::traces::{CommandName, KeptCommand, Wanted};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Sends the commands that gateways keep, each once.
///
/// # Errors
/// If the cluster is not known, or nothing can be sent at first; later failures are printed, and
/// the commands are sent in the next second.
pub(super) fn run(
    (to, authorities): (&Uri, Option<&Path>),
    once: bool,
    cluster_args: &ClusterArgs,
) -> Result<ExitCode> {
    let to = Collector::new(to, authorities)?;
    waiting::block_on(async {
        let known = super::known(cluster_args).await?;
        let mut sent = HashSet::new();
        loop {
            let gathered = ask_all(&known, None, &Wanted::default(), ANSWER_LIMIT).await;
            let mut kept = gathered.kept(|_| true);
            let now: HashSet<Key> = kept.iter().map(key).collect();
            // One that was slow and traced is there twice.
            let mut seen = HashSet::new();
            kept.retain(|kept| !sent.contains(&key(kept)) && seen.insert(key(kept)));
            kept.truncate(MOST_COMMANDS);
            let new: Vec<Key> = kept.iter().map(key).collect();
            let (traced, gathered) = paths(&known, kept, ANSWER_LIMIT).await;
            super::warn(&gathered);
            match send(&to, &traced).await {
                Ok(()) if once => {
                    say!("{} commands sent to {to}", traced.len());
                    return Ok(ExitCode::SUCCESS);
                }
                // What gateways no longer keep does not come again.
                Ok(()) => {
                    sent.extend(new);
                    sent.retain(|key| now.contains(key));
                }
                Err(error) if once || sent.is_empty() => return Err(error),
                Err(error) => say_on_stderr!("not sent: {}", explain(&error)),
            }
            tokio::time::sleep(EVERY).await;
        }
    })
}

/// How often nodes are asked.
const EVERY: Duration = Duration::from_secs(1);

/// What tells a kept command from others.
type Key = (String, u64, Option<CommandName>);

fn key((node, kept): &(String, KeptCommand)) -> Key {
    (node.clone(), kept.id, kept.command)
}

/// Sends these commands; nothing if there are none.
///
/// # Errors
/// If the collector cannot be reached, is too slow, or does not take them.
async fn send(to: &Collector, traced: &[Traced]) -> Result<()> {
    match traced.is_empty() {
        true => Ok(()),
        false => to.post(request(traced).encode_to_vec()).await,
    }
}

/// The spans of these commands, by node.
pub(super) fn request(traced: &[Traced]) -> ExportTraceServiceRequest {
    let mut by_node: BTreeMap<&str, Vec<Span>> = BTreeMap::new();
    for one in traced {
        for (node, span) in spans(one) {
            by_node.entry(node).or_default().push(span);
        }
    }
    let resource_spans = by_node.into_iter().map(|(node, spans)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![
                text("service.name", "ionian"),
                text("service.instance.id", node),
            ],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope {
                name: "ionian".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            }),
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    });
    ExportTraceServiceRequest {
        resource_spans: resource_spans.collect(),
    }
}

/// The spans of a command with their nodes: that of the client's wait, which has the name of the
/// command, one of the gateway, and those of roles.
fn spans(traced: &Traced) -> Vec<(&str, Span)> {
    let Traced {
        node,
        kept,
        path,
        delays,
    } = traced;
    let parent = kept.parent.as_deref();
    let parent = parent.and_then(|text| TraceParent::parse(text.as_bytes()));
    let trace = parent.map_or_else(|| own_trace(traced), |parent| parent.trace);
    let id = |number: u64| span_id(trace, number);
    let operation = kept.name.to_uppercase();
    let span = |number: u64, name: &str, (began, ended): (u64, u64)| Span {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: id(number),
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: began * 1000,
        end_time_unix_nano: ended.max(began) * 1000,
        attributes: vec![text("ionian.node", node)],
        ..Span::default()
    };
    let whole = (kept.received_us, kept.written_us);
    let mut root = span(0, &operation, whole);
    root.kind = SpanKind::Server.into();
    root.parent_span_id = parent.map_or_else(Vec::new, |it| it.span.to_be_bytes().to_vec());
    root.attributes.push(text("db.system.name", "redis"));
    root.attributes.push(text("db.operation.name", &operation));
    root.attributes
        .push(number("db.operation.batch.size", kept.together));
    root.events = delays.iter().map(event).collect();
    let mut receive = span(1, "gateway.receive", (kept.received_us, kept.submitted_us));
    receive.parent_span_id = id(0);
    let mut spans = vec![(node.as_str(), root), (node.as_str(), receive)];
    // Those of roles come after these two.
    for (place, of_role) in (2..).zip(&path.spans) {
        let mut one = span(place, &of_role.stage, (of_role.began.0, of_role.ended.0));
        one.parent_span_id = id(of_role.parent.map_or(0, |parent| parent as u64 + 2));
        let Place { node, role, index } = &of_role.place;
        one.attributes = vec![
            text("ionian.node", node),
            text("ionian.role", role),
            number("ionian.instance", *index),
        ];
        one.attributes
            .extend(path.slot.map(|slot| number("ionian.slot", slot.slot.0)));
        spans.push((node, one));
    }
    spans
}

/// What a node waited for meanwhile.
fn event(of: &Meanwhile) -> Event {
    let Meanwhile { node, us, delay } = of;
    Event {
        name: format!("waited: {}", delay.what),
        time_unix_nano: delay.began_us * 1000,
        attributes: vec![text("ionian.node", node), number("ionian.waited_us", *us)],
        ..Event::default()
    }
}

/// The trace of a command whose client has given none: nearly always the same when it is exported
/// again.
fn own_trace(traced: &Traced) -> u128 {
    let Traced { node, kept, .. } = traced;
    let command = kept.command.unwrap_or_default();
    let node = node.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
    let one = mix(node ^ mix(kept.received_us / SECOND_US));
    let other = mix(one ^ mix(kept.id ^ mix(command.lane ^ mix(command.number))));
    u128::from(one) << 64 | u128::from(other | 1)
}

/// Times of the same command may differ by a microsecond when they are asked for again.
const SECOND_US: u64 = 1_000_000;

fn span_id(trace: u128, number: u64) -> Vec<u8> {
    let id = mix(trace as u64 ^ mix(number + 1)) | 1;
    id.to_be_bytes().to_vec()
}

/// The finalizer of SplitMix64.
fn mix(mut hash: u64) -> u64 {
    hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(value as i64))
}

#[cfg(test)]
mod tests;
