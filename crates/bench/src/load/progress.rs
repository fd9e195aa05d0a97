//! The line that says how far a run is, on a terminal.

use super::event_loop::Shared;
use indicatif::{ProgressBar, ProgressStyle};
use ionian_harness::numbers::thousands;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Over how long the speed is taken.
const SPEED_OVER: Duration = Duration::from_millis(500);

/// See the top of this file.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// What is done now.
    what: Cell<String>,
    speed: Cell<u64>,
    /// When the speed was taken last, and the replies until then.
    last: Cell<(Instant, u64)>,
}

impl Progress {
    /// Hidden unless standard error is a terminal.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is one"));
        Progress {
            bar,
            what: Cell::default(),
            speed: Cell::default(),
            last: Cell::new((Instant::now(), 0)),
        }
    }

    /// Something else is done from now on.
    pub(crate) fn on(&self, what: String, shared: &Shared) {
        self.bar.set_message(what.clone());
        self.bar.tick();
        self.what.set(what);
        self.speed.set(0);
        self.last
            .set((Instant::now(), shared.answered.load(Ordering::Relaxed)));
    }

    /// Draws how fast it is now.
    pub(crate) fn show(&self, shared: &Shared) {
        let (then, before) = self.last.get();
        let (elapsed, answered) = (then.elapsed(), shared.answered.load(Ordering::Relaxed));
        if elapsed >= SPEED_OVER {
            self.speed
                .set(((answered - before) as f64 / elapsed.as_secs_f64()) as u64);
            self.last.set((Instant::now(), answered));
        }
        let what = self.what.take();
        let errors = match shared.errors.load(Ordering::Relaxed) {
            0 => String::new(),
            errors => format!(", {} errors", thousands(errors)),
        };
        self.bar.set_message(format!(
            "{what}: {} commands/s{errors}",
            thousands(self.speed.get())
        ));
        self.bar.tick();
        self.what.set(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
