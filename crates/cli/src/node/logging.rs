//! The log of a node: lines of text or of JSON on standard error, with a limit for each place in
//! the program that logs.
//!
//! A message that an operator may have to act on has a stable id in the field `id`, such as
//! `E0104`; docs/messages.md lists cause and remedy of each.

use super::audit::{self, Audit};
use clap::ValueEnum;
use ionian_program::line_queue::LineQueue;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// How many lines a place may log in a second.
const LINES: u32 = 10;

const SECOND: Duration = Duration::from_secs(1);

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The log goes to standard error. `RUST_LOG` selects its lines: a level, or modules with one level
/// each. (The `EnvFilter` of `tracing_subscriber` also selects spans and fields, but would add two
/// crates for regular expressions.) `node` is the value of the field of that name in JSON. With an
/// audit log each line of it is in its file only. Dropping the log at the end of the process waits
/// for the last lines.
#[must_use]
pub(crate) fn begin_log(format: LogFormat, node: Option<&str>, audit: Option<Audit>) -> Log {
    let queue = LineQueue::begin(std::io::stderr(), |dropped| {
        tracing::warn!(
            id = "E0113",
            "{dropped} lines of the log were dropped: standard error did not take them"
        );
    });
    let log = Log(queue.clone());
    let selected = std::env::var("RUST_LOG").ok();
    let filter = selected
        .and_then(|text| text.parse::<Targets>().ok())
        .unwrap_or_else(|| Targets::new().with_default(tracing::Level::INFO));
    let filter = filter.with_targets(audit.iter().map(|_| (audit::TARGET, Level::INFO)));
    let (limits, is_apart) = (Limits::default(), audit.is_some());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || queue.clone())
        .with_ansi(false)
        .event_format(Lines {
            format,
            node: node.map(str::to_owned),
            limits: limits.clone(),
            text: format::format().with_ansi(false),
        })
        .with_filter(filter_fn(move |of| {
            !is_apart || of.target() != audit::TARGET
        }));
    tracing_subscriber::registry()
        .with(lines)
        .with(audit)
        .with(limits)
        .with(filter)
        .init();
    log
}

/// The log of this process.
#[derive(Clone)]
pub(crate) struct Log(LineQueue);

impl Log {
    /// Writes the line with which the process ends, as it is.
    pub(super) fn write_last(&self, line: &str) {
        // The queue takes lines or drops them.
        let _ = self.0.clone().write_all(line.as_bytes());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// What each place has logged in its present second.
#[derive(Clone, Default)]
struct Limits(Arc<Mutex<HashMap<Identifier, Place>>>);

struct Place {
    since: Instant,
    lines: u32,
    /// How many lines were left out since the last one that was written.
    left_out: u64,
}

impl Limits {
    /// Whether this place may log one more line now.
    fn allow(&self, place: Identifier, now: Instant) -> bool {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(place).or_insert(Place {
            since: now,
            lines: 0,
            left_out: 0,
        });
        if now.saturating_duration_since(place.since) >= SECOND {
            (place.since, place.lines) = (now, 0);
        }
        place.lines += 1;
        let allowed = place.lines <= LINES;
        place.left_out += u64::from(!allowed);
        allowed
    }

    /// How many lines this place has left out; the count begins anew.
    fn take_left_out(&self, place: &Identifier) -> u64 {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.get_mut(place);
        place.map_or(0, |place| std::mem::take(&mut place.left_out))
    }
}

impl<S: Subscriber> Layer<S> for Limits {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        metadata.target() == audit::TARGET || self.allow(metadata.callsite(), Instant::now())
    }
}

/// Writes the lines.
struct Lines {
    format: LogFormat,
    node: Option<String>,
    limits: Limits,
    text: Format,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let left_out = self.limits.take_left_out(&event.metadata().callsite());
        match self.format {
            LogFormat::Text => {
                if left_out > 0 {
                    writeln!(writer, "({left_out} lines like the next are left out)")?;
                }
                self.text.format_event(context, writer, event)
            }
            LogFormat::Json => {
                let mut fields = Fields::default();
                event.record(&mut fields);
                let node = self.node.as_deref();
                let line = line(event.metadata(), node, left_out, fields.0);
                writeln!(writer, "{line}")
            }
        }
    }
}

/// One line of JSON.
fn line(
    metadata: &Metadata<'_>,
    node: Option<&str>,
    left_out: u64,
    fields: Map<String, Value>,
) -> Value {
    let now = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    let mut line = Map::new();
    line.insert("ts".into(), now.into());
    line.insert("level".into(), metadata.level().as_str().into());
    line.insert("target".into(), metadata.target().into());
    if let Some(node) = node {
        line.insert("node".into(), node.into());
    }
    if left_out > 0 {
        line.insert("left_out".into(), left_out.into());
    }
    line.extend(fields);
    Value::Object(line)
}

/// The fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Callsite;

    struct Nowhere;

    impl Callsite for Nowhere {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("only its identity counts")
        }
    }

    struct Elsewhere;

    impl Callsite for Elsewhere {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("only its identity counts")
        }
    }

    #[test]
    fn a_place_that_logs_too_much_is_cut_and_says_so() {
        let limits = Limits::default();
        let (one, other) = (Identifier(&Nowhere), Identifier(&Elsewhere));
        let begin = Instant::now();
        let written =
            |limits: &Limits, at| (0..1000).filter(|_| limits.allow(one.clone(), at)).count();
        assert_eq!(written(&limits, begin), 10);
        assert!(limits.allow(other.clone(), begin));
        assert_eq!(limits.take_left_out(&other), 0);
        assert_eq!(written(&limits, begin + SECOND), 10);
        assert_eq!(limits.take_left_out(&one), 1980);
        assert_eq!(limits.take_left_out(&one), 0);
    }

    /// The source files of the programs that log.
    fn sources() -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut folders: Vec<std::path::PathBuf> =
            ["cli", "gateway", "metrics", "netfs", "runtime"]
                .iter()
                .map(|name| format!("{}/../{name}/src", env!("CARGO_MANIFEST_DIR")).into())
                .collect();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let text = std::fs::read_to_string(&path).unwrap();
                        files.push((path.display().to_string(), text));
                    }
                }
            }
        }
        files
    }

    #[test]
    fn every_warning_has_an_id_and_every_id_is_in_the_documents_once() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/messages.md");
        let page = std::fs::read_to_string(page).unwrap();
        let mut documented: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `E")?.get(..4))
            .collect();
        let (mut used, mut without) = (Vec::new(), Vec::new());
        let sources = sources();
        for (path, text) in &sources {
            for macro_name in ["warn", "error"] {
                let call = format!("tracing::{macro_name}!(");
                for (at, _) in text.match_indices(&call) {
                    let rest = text[at + call.len()..].trim_start();
                    match rest.strip_prefix("id = \"E") {
                        Some(rest) => used.push(&rest[..4]),
                        // The words of the program are not a call.
                        None if rest.starts_with('"') || rest.starts_with('%') => {
                            without.push(path.as_str());
                        }
                        None => {}
                    }
                }
            }
        }
        // Connections between nodes have none yet.
        without.retain(|path| !path.contains("/runtime/src/transport/"));
        assert_eq!(without, [""; 0]);
        used.sort_unstable();
        documented.sort_unstable();
        assert!(used.len() > 20);
        assert_eq!(used, documented);
    }

    #[test]
    fn a_line_of_json_has_the_fields_of_the_event() {
        let fields = json!({"id": "E0101", "message": "a \"quoted\" text\n", "client": 7});
        let Value::Object(fields) = fields else {
            unreachable!()
        };
        let line = line(&METADATA, Some("n0"), 3, fields);
        let mut line: Map<String, Value> = serde_json::from_str(&line.to_string()).unwrap();
        let time = line.remove("ts").unwrap();
        assert!(humantime::parse_rfc3339(time.as_str().unwrap()).is_ok());
        let expected = json!({
            "level": "WARN", "target": "ionian::here", "node": "n0", "left_out": 3,
            "id": "E0101", "message": "a \"quoted\" text\n", "client": 7,
        });
        assert_eq!(Value::Object(line), expected);
    }

    static PLACE: Nowhere = Nowhere;
    static METADATA: Metadata<'static> = tracing::Metadata::new(
        "here",
        "ionian::here",
        tracing::Level::WARN,
        None,
        None,
        None,
        tracing::field::FieldSet::new(&[], Identifier(&PLACE)),
        tracing::metadata::Kind::EVENT,
    );
}
