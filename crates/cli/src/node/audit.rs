//! The audit log: one JSON line for each event with the target `ionian::audit`, in its own file.
//!
//! A thread writes the file, so that a slow or full disk never holds up the node. Lines wait in a
//! queue that is bounded; what does not fit is dropped and counted, and the count is a line of its
//! own as soon as there is room.

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;

/// The target of the events.
pub(super) const TARGET: &str = "ionian::audit";

/// How many lines may wait. A line has a few hundred bytes.
const QUEUE: usize = 1024;

/// The longest value of a field in a line, in characters.
const MAX_VALUE: usize = 512;

/// How often a writer that has failed opens the file again.
const RETRY: Duration = Duration::from_secs(1);

/// The layer that queues the lines.
#[derive(Debug)]
pub(crate) struct Audit {
    node: String,
    lines: SyncSender<String>,
    dropped: AtomicU64,
}

impl Audit {
    /// Begins a log in this file, which is created with mode 0600.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(path: &Path, node: &str) -> Result<Self> {
        let file = open(path).with_context(|| format!("--audit {}", path.display()))?;
        let (lines, queue) = sync_channel(QUEUE);
        let path = path.to_owned();
        std::thread::spawn(move || write_all(&path, file, &queue));
        Ok(Audit {
            node: node.to_owned(),
            lines,
            dropped: AtomicU64::new(0),
        })
    }

    fn send(&self, mut fields: Map<String, Value>) {
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        fields.insert("time".to_owned(), now.to_string().into());
        fields.insert("node".to_owned(), self.node.as_str().into());
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            fields.insert("dropped_before".to_owned(), dropped.into());
        }
        if self
            .lines
            .try_send(Value::Object(fields).to_string())
            .is_err()
        {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Opens the file for each batch of lines: after a rotation the lines are in the new file.
fn write_all(path: &Path, mut file: File, queue: &Receiver<String>) {
    while let Ok(line) = queue.recv() {
        let mut text = line + "\n";
        text.extend(queue.try_iter().take(QUEUE).map(|line| line + "\n"));
        loop {
            if let Ok(same) = open(path) {
                file = same;
            }
            match file.write_all(text.as_bytes()) {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(id = "E0904", "cannot write {}: {error}", path.display());
                    std::thread::sleep(RETRY);
                }
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Audit {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        if event.metadata().target() == TARGET {
            let mut fields = Fields(Map::new());
            event.record(&mut fields);
            self.send(fields.0);
        }
    }
}

/// The fields of an event.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value: String = value.chars().take(MAX_VALUE).collect();
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn line_that_does_not_fit_is_counted_in_the_next_one() {
        let (lines, queue) = sync_channel(1);
        let audit = Audit {
            node: "n0".into(),
            lines,
            dropped: AtomicU64::new(0),
        };
        let subscriber = tracing_subscriber::registry().with(audit);
        let next = || -> Value { serde_json::from_str(&queue.recv().unwrap()).unwrap() };
        tracing::subscriber::with_default(subscriber, || {
            for request in ["one", "two", "three"] {
                tracing::info!(target: "ionian::audit", caller = "a\"b", request);
            }
            tracing::info!("of another target");
            let first = next();
            assert_eq!(
                (&first["request"], &first["caller"]),
                (&"one".into(), &"a\"b".into())
            );
            assert_eq!(first["node"], "n0");
            tracing::info!(target: "ionian::audit", request = "four");
            let second = next();
            assert_eq!(
                (&second["request"], &second["dropped_before"]),
                (&"four".into(), &2.into())
            );
        });
    }
}
