//! The numbers of a mount's changes, and the floor below which it waits for none.

use crate::errno::Errno;
use crate::machine::WINDOW;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long a change waits for the floor to rise. The oldest change is given up earlier.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Numbers {
    open: Mutex<Open>,
    risen: Condvar,
}

#[derive(Default)]
struct Open {
    last: u64,
    numbers: BTreeSet<u64>,
}

impl Open {
    fn floor(&self) -> u64 {
        self.numbers.first().copied().unwrap_or(self.last + 1)
    }
}

/// A number in use, until it is dropped.
pub(super) struct Number<'a> {
    numbers: &'a Numbers,
    pub(super) number: u64,
    pub(super) floor: u64,
}

impl Numbers {
    /// The next number. Waits while it would be beyond the window.
    pub(super) fn next(&self) -> Result<Number<'_>, Errno> {
        let open = self.open.lock().expect("no holder of this lock panics");
        let is_far = |open: &mut Open| open.last + 1 - open.floor() >= WINDOW;
        let waited = self.risen.wait_timeout_while(open, LIMIT, is_far);
        let (mut open, waited) = waited.expect("no holder of this lock panics");
        if waited.timed_out() {
            return Err(Errno::EIO);
        }
        open.last += 1;
        let number = open.last;
        open.numbers.insert(number);
        Ok(Number {
            numbers: self,
            number,
            floor: open.floor(),
        })
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        let mut open = self
            .numbers
            .open
            .lock()
            .expect("no holder of this lock panics");
        open.numbers.remove(&self.number);
        self.numbers.risen.notify_all();
    }
}
