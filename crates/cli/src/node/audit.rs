//! The audit log: one JSON line for each event with the target `ionian::audit`, in its own file.
//!
//! A thread writes the file, so that a slow or full disk never holds up the node. Lines wait in a
//! queue that is bounded; what does not fit is dropped and counted, and the next line that fits has
//! the count. [`Sink`] knows whether the file takes lines.

use anyhow::{Context, Result};
use ionian_metrics::AuditState;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::iter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;

/// The target of the events.
pub(super) const TARGET: &str = "ionian::audit";

/// How many lines may wait. A line has a few hundred bytes.
const QUEUE: usize = 1024;

/// How many places in the queue are kept for lines of what was permitted, and of what became of it:
/// more than are permitted at once.
const RESERVED: usize = 128;

/// The longest value of a field in a line, in characters.
const MAX_VALUE: usize = 512;

/// How often a writer that has failed opens the file again.
const RETRY: Duration = Duration::from_secs(1);

/// How long the file may take for the lines that wait. After that it takes none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The layer that queues the lines.
#[derive(Debug)]
pub(crate) struct Audit {
    node: String,
    lines: SyncSender<String>,
    dropped: AtomicU64,
    sink: Arc<Sink>,
}

/// Whether the file takes lines.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    state: Mutex<Waiting>,
    /// How many lines did not fit into the queue.
    lost: AtomicU64,
    /// Notified when no line waits.
    is_empty: Condvar,
    /// Notified when the process begins to end.
    begins_to_end: Condvar,
}

/// The lines that wait.
#[derive(Debug, Default)]
struct Waiting {
    lines: usize,
    /// Since when the file has taken none of them.
    since: Option<Instant>,
    /// Why the last attempt has failed.
    error: Option<String>,
    /// Whether the process ends.
    ends: bool,
}

impl Sink {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the file takes lines.
    ///
    /// # Errors
    /// Why it takes none.
    pub(crate) fn check(&self) -> Result<(), String> {
        let state = self.state();
        let is_late = state.since.is_some_and(|at| at.elapsed() >= PATIENCE);
        let why = match &state.error {
            Some(error) => error.as_str(),
            None if is_late || state.lines + RESERVED >= QUEUE => "it takes no more lines",
            None => return Ok(()),
        };
        Err(format!(
            "the audit log of this node cannot be written (--audit-mode required): {why}"
        ))
    }

    /// Waits until the file has all lines, but no longer than it may take for some.
    ///
    /// Lines that the file does not take go to standard error.
    pub(super) fn settle(&self) {
        let waits = |state: &mut Waiting| state.lines > 0;
        let mut state = self.state();
        state.ends = true;
        self.begins_to_end.notify_all();
        // The result only says which of the two it was.
        let _ = self.is_empty.wait_timeout_while(state, PATIENCE, waits);
    }

    /// Whether the process ends, which is waited for this long.
    fn ends_within(&self, limit: Duration) -> bool {
        let goes_on = |state: &mut Waiting| !state.ends;
        let waited = self
            .begins_to_end
            .wait_timeout_while(self.state(), limit, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    fn add(&self) {
        let mut state = self.state();
        state.lines += 1;
        state.since.get_or_insert_with(Instant::now);
    }

    /// What the metrics say of it.
    pub(super) fn seen(&self) -> AuditState {
        AuditState {
            lost: self.lost.load(Ordering::Relaxed),
            fails: self.check().is_err(),
        }
    }

    /// A line that was added does not fit into the queue.
    fn drop_one(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.lines -= 1;
        self.waits_for_none(&mut state);
    }

    fn has_written(&self, lines: usize) {
        let mut state = self.state();
        state.lines -= lines;
        state.since = Some(Instant::now());
        state.error = None;
        self.waits_for_none(&mut state);
    }

    fn waits_for_none(&self, state: &mut Waiting) {
        if state.lines == 0 {
            state.since = None;
            self.is_empty.notify_all();
        }
    }

    fn has_failed(&self, error: &io::Error) {
        self.state().error = Some(error.to_string());
    }
}

impl Audit {
    /// Begins a log in this file, which is created with mode 0600.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(path: &Path, node: &str) -> Result<Self> {
        begin_line(path).with_context(|| format!("--audit {}", path.display()))?;
        let (lines, queue) = sync_channel(QUEUE);
        let (path, sink) = (path.to_owned(), Arc::new(Sink::default()));
        let audit = Audit {
            node: node.to_owned(),
            lines,
            dropped: AtomicU64::new(0),
            sink: sink.clone(),
        };
        std::thread::spawn(move || write_all(&path, &queue, &sink));
        Ok(audit)
    }

    pub(super) fn sink(&self) -> Arc<Sink> {
        self.sink.clone()
    }

    fn send(&self, mut fields: Map<String, Value>) {
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        fields.insert("time".to_owned(), now.to_string().into());
        fields.insert("node".to_owned(), self.node.as_str().into());
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            fields.insert("dropped_before".to_owned(), dropped.into());
        }
        self.sink.add();
        let line = Value::Object(fields).to_string();
        if let Err(error) = self.lines.try_send(line) {
            if matches!(error, TrySendError::Disconnected(_)) {
                self.sink
                    .has_failed(&io::Error::other("its writer has ended"));
            }
            self.sink.drop_one();
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}

/// Ends the line of a program that could not finish it, so that the next one is a line of its own.
fn begin_line(path: &Path) -> io::Result<()> {
    let mut file = open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() > 0 {
        let mut last = [0];
        let mut read = File::open(path)?;
        read.seek(SeekFrom::End(-1))?;
        read.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        // A pipe without a reader is an error, and not waited for.
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::ENXIO as i32 => io::Error::other(
                "it is a pipe that no process reads, or a socket; allowed is a file",
            ),
            _ => error,
        })
}

/// Opens the file for each batch of lines: after a rotation the lines are in the new file.
fn write_all(path: &Path, queue: &Receiver<String>, sink: &Sink) {
    while let Ok(line) = queue.recv() {
        let lines: Vec<String> = iter::once(line)
            .chain(queue.try_iter().take(QUEUE))
            .map(|line| line + "\n")
            .collect();
        let mut left = &*lines.concat().into_bytes();
        while !left.is_empty() {
            match open(path).and_then(|mut file| file.write(left)) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    sink.has_failed(&error);
                    tracing::error!(id = "E0904", "cannot write {}: {error}", path.display());
                    if sink.ends_within(RETRY) {
                        // The process ends: they are not lost with it.
                        let _ = io::stderr().write_all(left);
                        break;
                    }
                }
            }
        }
        sink.has_written(lines.len());
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

    /// What is permitted must have a line, so nothing is when the queue is nearly full; nor is
    /// anything refused for lines that were dropped.
    #[test]
    fn nothing_is_permitted_when_its_line_may_not_fit() {
        let sink = Sink::default();
        for _ in 0..QUEUE - RESERVED {
            assert_eq!(sink.check(), Ok(()));
            sink.add();
        }
        let why = sink.check().unwrap_err();
        assert!(why.ends_with("it takes no more lines"), "{why}");
        sink.drop_one();
        assert_eq!(sink.check(), Ok(()));
        sink.has_written(QUEUE - RESERVED - 2);
        assert!(sink.state().since.is_some());
        sink.drop_one();
        assert!(sink.state().since.is_none());
    }

    #[test]
    fn a_torn_line_does_not_swallow_the_next_one() {
        let path = std::env::temp_dir().join(format!("ionian-audit-{}", std::process::id()));
        std::fs::write(&path, "{\"request\":\"st").unwrap();
        for _ in 0..2 {
            begin_line(&path).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"{\"request\":\"st\n");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn line_that_does_not_fit_is_counted_in_the_next_one() {
        let (lines, queue) = sync_channel(1);
        let audit = Audit {
            node: "n0".into(),
            lines,
            dropped: AtomicU64::new(0),
            sink: Arc::default(),
        };
        let sink = audit.sink();
        let subscriber = tracing_subscriber::registry().with(audit);
        let next = || -> Value { serde_json::from_str(&queue.recv().unwrap()).unwrap() };
        tracing::subscriber::with_default(subscriber, || {
            for request in ["one", "two", "three"] {
                tracing::info!(target: "ionian::audit", caller = "a\"b", request);
            }
            tracing::info!("of another target");
            let two_are_lost = AuditState {
                lost: 2,
                fails: false,
            };
            assert_eq!(sink.seen(), two_are_lost);
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
