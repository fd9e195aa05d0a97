//! Where lines wait for standard error or standard output: a thread writes them, so that a pipe
//! that no process reads, or a terminal that is stopped, holds up no node and no `ionian up`.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many bytes may wait. Lines that do not fit are dropped and counted.
const BYTES: usize = 1 << 20;

/// How long the end of the process waits for the lines.
const PATIENCE: Duration = Duration::from_secs(1);

/// The queue. Copies share it.
#[derive(Clone, Debug)]
pub struct LineQueue {
    lines: Sender<Vec<u8>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The bytes that wait.
    bytes: Mutex<usize>,
    is_empty: Condvar,
    /// How many lines did not fit since the last one that was written.
    dropped: AtomicU64,
}

impl Shared {
    fn bytes(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineQueue {
    /// A queue whose lines go to this output, in their order. Once the output takes lines again,
    /// `report` gets the number of lines that were dropped.
    pub fn begin(
        output: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> LineQueue {
        let (lines, queue) = channel();
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        std::thread::spawn(move || write_all(output, &queue, &of_thread, report));
        LineQueue { lines, shared }
    }

    /// Waits until all lines are written, a second at most.
    pub fn settle(&self) {
        let waits = |bytes: &mut usize| *bytes > 0;
        let is_empty = &self.shared.is_empty;
        // The result only says which of the two it was.
        let _ = is_empty.wait_timeout_while(self.shared.bytes(), PATIENCE, waits);
    }
}

/// Takes a whole line with each call, as the layer of `tracing_subscriber` writes them.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut bytes = self.shared.bytes();
        if *bytes + line.len() > BYTES || self.lines.send(line.to_vec()).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            *bytes += line.len();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(
    mut output: impl Write,
    queue: &Receiver<Vec<u8>>,
    shared: &Shared,
    report: impl Fn(u64),
) {
    while let Ok(line) = queue.recv() {
        // Where standard error fails there is no place that could take the reason.
        let _ = output.write_all(&line);
        let mut bytes = shared.bytes();
        *bytes -= line.len();
        if *bytes == 0 {
            shared.is_empty.notify_all();
        }
        drop(bytes);
        let dropped = shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            report(dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output that takes each line when the test permits it.
    struct Blocked {
        permits: Receiver<()>,
        written: Sender<usize>,
    }

    impl Write for Blocked {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(io::Error::other)?;
            self.written.send(line.len()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_blocked_output_does_not_take_are_bounded_dropped_and_counted() {
        let (permit, permits) = channel();
        let (written, lines) = channel();
        let (reports, reported) = channel();
        let report = move |dropped| reports.send(dropped).unwrap();
        let mut queue = LineQueue::begin(Blocked { permits, written }, report);
        let line = [b'x'; 1 << 10];
        (0..BYTES / line.len() + 5).for_each(|_| queue.write_all(&line).unwrap());
        assert_eq!(*queue.shared.bytes(), BYTES);
        permit.send(()).unwrap();
        assert_eq!(reported.recv(), Ok(5));
        (1..BYTES / line.len()).for_each(|_| permit.send(()).unwrap());
        queue.settle();
        assert_eq!(lines.try_iter().count(), BYTES / line.len());
        assert_eq!(*queue.shared.bytes(), 0);
    }
}
