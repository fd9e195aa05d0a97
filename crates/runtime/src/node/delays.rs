//! Times in which the roles of a node waited long: for the disk, for the processor, or for each
//! other. They explain slow commands for which the node has noted no messages.
//!
//! They are found from what the event loop measures anyway, once for a run of it and once for a
//! sync of the log. Only one that was long costs more: what it held back is looked up then.

use crate::traces::{DELAY_DISK, DELAY_LATE, DELAY_RUN, Delay, DelayedRole};
use ionian_kernel::layout::Address;
use ionian_kernel::time::Instant;
use ionian_kernel::trace::LogSlot;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many are kept; the oldest makes room.
const MOST: usize = 1024;

/// Of how many roles each names what it held back, at most.
const MOST_ROLES: usize = 8;

/// The shortest that is kept, however short slow commands are: the timers of the loop are no more
/// exact.
const SHORTEST: Duration = Duration::from_millis(2);

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Delays {
    least: Duration,
    kept: VecDeque<Kept>,
    /// Since when records wait for the disk.
    waits_since: Option<Instant>,
    /// When the present run began, and how much of it was spent on the disk.
    run: (Instant, Duration),
    /// When the last run ended, and when a role had to be called next.
    idle: Option<(Instant, Instant)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Kept {
    what: &'static str,
    began: Instant,
    ended: Instant,
    /// How many messages of each role it held back in each log, and the first and the last slot
    /// that these name.
    held: BTreeMap<(Address, u16), Held>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    messages: u64,
    slots: Option<(u64, u64)>,
}

impl Held {
    fn add(&mut self, slot: Option<u64>) {
        self.messages += 1;
        let Some(slot) = slot else {
            return;
        };
        let (first, last) = self.slots.unwrap_or((slot, slot));
        self.slots = Some((first.min(slot), last.max(slot)));
    }
}

impl Delays {
    /// For a node whose commands are slow if they take this long: half of that is kept, because a
    /// command may wait more than once.
    pub(crate) fn new(slower_than: Duration) -> Self {
        Delays {
            least: (slower_than / 2).max(SHORTEST),
            kept: VecDeque::new(),
            waits_since: None,
            run: (Instant::ZERO, Duration::ZERO),
            idle: None,
        }
    }

    /// A run of the loop begins.
    pub(super) fn run_begins(&mut self, now: Instant) {
        self.run = (now, Duration::ZERO);
        if let Some((ended, due)) = self.idle.take() {
            self.keep(DELAY_LATE, (due.max(ended), now), BTreeMap::new);
        }
    }

    /// The run of the loop has ended; roles are to be called at this time, if nothing comes before.
    pub(super) fn run_ends(&mut self, now: Instant, due: Option<Instant>) {
        // What was spent on the disk is a delay of its own.
        let (began, on_disk) = self.run;
        self.keep(DELAY_RUN, (began + on_disk, now), BTreeMap::new);
        self.idle = due.map(|due| (now, due));
    }

    /// Records wait for the disk.
    pub(super) fn records_wait(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// The records that waited are on disk, and these messages leave.
    pub(super) fn records_durable(
        &mut self,
        now: Instant,
        held: impl FnOnce() -> Vec<(Address, Option<LogSlot>)>,
    ) {
        if let Some(since) = self.waits_since.take() {
            let (began, on_disk) = &mut self.run;
            *on_disk += now.since(since.max(*began));
            self.keep(DELAY_DISK, (since, now), || by_role(held().into_iter()));
        }
    }

    fn keep(
        &mut self,
        what: &'static str,
        (began, ended): (Instant, Instant),
        held: impl FnOnce() -> BTreeMap<(Address, u16), Held>,
    ) {
        if ended.since(began) < self.least {
            return;
        }
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        let held = held();
        self.kept.push_back(Kept {
            what,
            began,
            ended,
            held,
        });
    }

    /// All that are kept, the oldest first, for a protocol with these names of kinds.
    pub(super) fn all(&self, kinds: &[&str]) -> Vec<Delay> {
        let role = |(&(address, log), held): (&(Address, u16), &Held)| DelayedRole {
            role: kinds[usize::from(address.kind)].to_owned(),
            index: address.index.into(),
            messages: held.messages,
            log,
            slots: held.slots,
        };
        let delay = |kept: &Kept| Delay {
            what: kept.what.to_owned(),
            began_us: kept.began.0,
            ended_us: kept.ended.0,
            roles: kept.held.iter().map(role).collect(),
        };
        self.kept.iter().map(delay).collect()
    }
}

fn by_role(
    held: impl Iterator<Item = (Address, Option<LogSlot>)>,
) -> BTreeMap<(Address, u16), Held> {
    let mut all: BTreeMap<(Address, u16), Held> = BTreeMap::new();
    for (role, slot) in held {
        let slot = slot.filter(|slot| slot.is_of_log());
        let place = (role, slot.map_or(0, |slot| slot.log));
        if all.len() < MOST_ROLES || all.contains_key(&place) {
            let held = all.entry(place).or_default();
            held.add(slot.map(|slot| slot.slot.0));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::Slot;

    const MS: u64 = 1000;

    const ACCEPTOR: Address = Address { kind: 1, index: 2 };

    const KINDS: &[&str] = &["leader", "acceptor"];

    fn delays() -> Delays {
        Delays::new(Duration::from_millis(20))
    }

    /// What is kept: what it was, when it began and when it ended, in milliseconds.
    fn told(delays: &Delays) -> Vec<(String, u64, u64)> {
        let all = delays.all(KINDS).into_iter();
        let told = all.map(|it| (it.what, it.began_us / MS, it.ended_us / MS));
        told.collect()
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * MS)
    }

    #[test]
    fn a_slow_disk_names_the_roles_that_waited_for_it_and_their_slots() {
        let mut delays = delays();
        let vote = |slot| {
            (
                ACCEPTOR,
                Some(LogSlot {
                    log: 3,
                    slot: Slot(slot),
                }),
            )
        };
        delays.run_begins(at(100));
        delays.records_wait(at(101));
        delays.records_durable(at(110), || vec![vote(6)]);
        assert_eq!(told(&delays), [], "half of 20 ms is not reached");
        delays.records_wait(at(111));
        delays.records_wait(at(115));
        let other = (Address { kind: 0, index: 0 }, None);
        delays.records_durable(at(121), || vec![vote(8), vote(7), other]);
        delays.run_ends(at(122), None);
        let all = delays.all(KINDS);
        assert_eq!(told(&delays), [("disk".to_owned(), 111, 121)]);
        let roles = all[0].roles.iter();
        let roles: Vec<_> = roles
            .map(|it| (it.role.as_str(), it.index, it.messages, it.log, it.slots))
            .collect();
        let acceptor = ("acceptor", 2, 2, 3, Some((7, 8)));
        assert_eq!(roles, [("leader", 0, 1, 0, None), acceptor]);
    }

    #[test]
    fn a_loop_that_comes_too_late_or_takes_long_is_kept_and_one_that_sleeps_is_not() {
        let mut delays = delays();
        delays.run_begins(at(100));
        delays.run_ends(at(101), Some(at(200)));
        delays.run_begins(at(150));
        delays.run_ends(at(151), Some(at(200)));
        delays.run_begins(at(209));
        delays.run_ends(at(210), Some(at(300)));
        assert_eq!(told(&delays), [], "9 ms are not long");
        delays.run_begins(at(450));
        assert_eq!(told(&delays), [("late".to_owned(), 300, 450)]);
        delays.run_ends(at(470), Some(Instant::ZERO));
        delays.run_begins(at(471));
        assert_eq!(told(&delays)[1..], [("run".to_owned(), 450, 470)]);
        delays.run_ends(at(472), None);
        delays.run_begins(at(9000));
        assert_eq!(told(&delays).len(), 2, "nothing was due");
    }

    #[test]
    fn they_are_bounded_in_number_and_each_in_roles() {
        let mut delays = delays();
        for number in 0..2000 {
            delays.records_wait(at(100 * number));
            let role = |index| (Address { kind: 0, index }, None);
            delays.records_durable(at(100 * number + 50), || (0..20).map(role).collect());
        }
        let all = delays.all(KINDS);
        assert_eq!(all.len(), MOST);
        assert!(all.iter().all(|it| it.roles.len() == MOST_ROLES));
        assert_eq!(all.last().map(|it| it.began_us), Some(199_900 * MS));
    }
}
