//! Commands whose times this gateway keeps for traces: those of clients that asked for it, and a
//! sample. The slow ones are in [`slowlog`](crate::slowlog).

use crate::serve::Gateway;
use ionian_kernel::trace::{CommandId, TraceParent};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many commands are kept; the oldest makes room.
const ENTRIES: usize = 256;

/// How many commands are kept in a second: a client that traces all of its commands must not drive
/// out those of others at once.
const MOST_PER_SECOND: u32 = 64;

/// The times of a command. It is the first of its compound, and so the one that waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, without arguments.
    pub name: &'static str,
    /// How many commands are in the compound.
    pub together: usize,
    /// The name of the compound in the cluster, if the cluster has answered.
    pub command: Option<CommandId>,
    /// What it is a part of, if its client has said so.
    pub parent: Option<TraceParent>,
    /// Whether it is kept because it was slow.
    pub slow: bool,
    /// When the gateway received it.
    pub received: Instant,
    /// When its compound was formed: before, it waited for others of its client.
    pub submitted: Instant,
    /// When the answer came.
    pub answered: Instant,
}

/// What a client has asked for with CLIENT TRACE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracing {
    #[default]
    Off,
    On,
    /// Its commands are parts of this.
    Within(TraceParent),
}

/// See the top of this file.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    kept: RefCell<VecDeque<Kept>>,
    /// One in this number of commands is kept until then.
    sampling: Cell<Option<(u64, Instant)>>,
    /// When the present second began, and how many commands were kept in it.
    second: Cell<Option<(Instant, u32)>>,
}

impl Traces {
    /// Keeps one in this number of commands, for this long.
    pub(crate) fn sample(&self, one_in: u64, lasting: Duration) {
        let until = Instant::now().checked_add(lasting);
        self.sampling.set(until.map(|until| (one_in, until)));
    }

    /// Keeps a command, if its client has asked for it or it is in the sample.
    pub(crate) fn offer(&self, kept: Kept, asked: Tracing) {
        let parent = match asked {
            Tracing::Off if !self.samples(&kept) => return,
            Tracing::Off | Tracing::On => None,
            Tracing::Within(parent) => Some(parent),
        };
        if !self.has_room(kept.answered) {
            return;
        }
        let mut all = self.kept.borrow_mut();
        if all.len() == ENTRIES {
            all.pop_front();
        }
        all.push_back(Kept { parent, ..kept });
    }

    fn samples(&self, kept: &Kept) -> bool {
        let Some((one_in, until)) = self.sampling.get() else {
            return false;
        };
        kept.answered < until && kept.command.is_some_and(|it| it.is_sampled(one_in))
    }

    fn has_room(&self, now: Instant) -> bool {
        let (began, count) = match self.second.get() {
            Some((began, count)) if now.saturating_duration_since(began).as_secs() == 0 => {
                (began, count)
            }
            _ => (now, 0),
        };
        self.second.set(Some((began, count + 1)));
        count < MOST_PER_SECOND
    }

    /// All that are kept, the oldest first.
    pub(crate) fn all(&self) -> Vec<Kept> {
        self.kept.borrow().iter().copied().collect()
    }
}

impl Gateway {
    /// Keeps the times of one in this number of commands for traces, for this long.
    pub fn sample(&self, one_in: u64, lasting: Duration) {
        self.inner.host.traces.sample(one_in, lasting);
    }

    /// The commands whose times are kept: the slow ones and those that are traced, the oldest
    /// first of each.
    pub fn kept(&self) -> Vec<Kept> {
        let host = &self.inner.host;
        let slow = host.slow.newest(usize::MAX).into_iter().rev();
        slow.map(|it| it.kept).chain(host.traces.all()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::ClientId;

    fn kept(number: u64, answered: Instant) -> Kept {
        Kept {
            name: "set",
            together: 1,
            command: Some(CommandId {
                client: ClientId(0),
                sessionless: false,
                number,
            }),
            parent: None,
            slow: false,
            received: answered,
            submitted: answered,
            answered,
        }
    }

    #[test]
    fn commands_are_kept_for_clients_that_ask_within_what_they_name() {
        let (traces, now) = (Traces::default(), Instant::now());
        traces.offer(kept(0, now), Tracing::Off);
        traces.offer(kept(1, now), Tracing::On);
        let parent = TraceParent { trace: 7, span: 8 };
        traces.offer(kept(2, now), Tracing::Within(parent));
        let told = |kept: Kept| (kept.command.map(|it| it.number), kept.parent);
        let told: Vec<_> = traces.all().into_iter().map(told).collect();
        assert_eq!(told, [(Some(1), None), (Some(2), Some(parent))]);
    }

    #[test]
    fn a_sample_is_that_of_the_nodes_until_its_time_is_over() {
        let (traces, now) = (Traces::default(), Instant::now());
        traces.sample(16, Duration::from_secs(100));
        let later = |number| now + Duration::from_secs(number / 10);
        (0..900).for_each(|number| traces.offer(kept(number, later(number)), Tracing::Off));
        let all = traces.all();
        assert!((30..90).contains(&all.len()), "{}", all.len());
        assert!(all.iter().all(|it| it.command.expect("one").is_sampled(16)));
        let over = now + Duration::from_secs(101);
        (0..900).for_each(|number| traces.offer(kept(number, over), Tracing::Off));
        assert_eq!(traces.all(), all);
    }

    #[test]
    fn a_client_cannot_keep_more_than_some_commands_a_second_nor_more_than_some_at_all() {
        let (traces, now) = (Traces::default(), Instant::now());
        let mut numbers = 0..;
        let mut offer = |at| {
            let number = numbers.next().expect("a number");
            traces.offer(kept(number, at), Tracing::On);
        };
        (0..1000).for_each(|_| offer(now));
        assert_eq!(traces.all().len(), MOST_PER_SECOND as usize);
        for second in 1..10 {
            (0..1000).for_each(|_| offer(now + Duration::from_secs(second)));
        }
        assert_eq!(traces.all().len(), ENTRIES);
    }
}
