//! Commands whose times this gateway keeps for traces: those of clients that asked for it, and a
//! sample. The slow ones are in [`slowlog`](crate::slowlog).

use crate::host::{Client, Host};
use crate::serve::Gateway;
use crate::slowlog::Slow;
use ionian_kernel::trace::{CommandId, TraceParent};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many commands are kept of the sample, and of those that clients trace; the oldest makes
/// room.
const ENTRIES: usize = 256;

/// How many commands are kept in a second, of each: a client that traces all of its commands must
/// not drive out those of others at once.
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
    /// When the write of the reply to the client's socket began; none if it is not written.
    pub written: Option<Instant>,
    /// A number of its own, of this process.
    pub id: u64,
}

impl Kept {
    /// A command that is not written.
    pub(crate) fn new(
        (name, together): (&'static str, usize),
        command: Option<CommandId>,
        [received, submitted, answered]: [Instant; 3],
        slow: bool,
    ) -> Self {
        Kept {
            name,
            together,
            command,
            parent: None,
            slow,
            received,
            submitted,
            answered,
            written: None,
            id: 0,
        }
    }

    /// Its reply is written, if it is the one with this number.
    pub(crate) fn on_written(&mut self, id: u64, at: Instant) {
        if self.id == id {
            self.written.get_or_insert(at);
        }
    }
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
    sampled: Keeper,
    /// Those that clients have asked for: the sample of a busy gateway takes no room of theirs.
    asked: Keeper,
    /// One in this number of commands is kept until then.
    sampling: Cell<Option<(u64, Instant)>>,
    next_id: Cell<u64>,
}

/// Some of the commands, within their limits.
#[derive(Debug, Default)]
struct Keeper {
    kept: RefCell<VecDeque<Kept>>,
    /// When the present second began, and how many commands were kept in it.
    second: Cell<Option<(Instant, u32)>>,
}

impl Keeper {
    /// Keeps a command, if there is room in this second. Whether it does.
    fn keep(&self, kept: Kept) -> bool {
        let now = kept.answered;
        let (began, count) = match self.second.get() {
            Some((began, count)) if now.saturating_duration_since(began).as_secs() == 0 => {
                (began, count)
            }
            _ => (now, 0),
        };
        self.second.set(Some((began, count + 1)));
        if count >= MOST_PER_SECOND {
            return false;
        }
        let mut all = self.kept.borrow_mut();
        if all.len() == ENTRIES {
            all.pop_front();
        }
        all.push_back(kept);
        true
    }

    fn on_written(&self, id: u64, at: Instant) {
        let mut all = self.kept.borrow_mut();
        all.iter_mut().for_each(|kept| kept.on_written(id, at));
    }
}

impl Traces {
    /// Keeps one in this number of commands, for this long.
    pub(crate) fn sample(&self, one_in: u64, lasting: Duration) {
        let until = Instant::now().checked_add(lasting);
        self.sampling.set(until.map(|until| (one_in, until)));
    }

    /// Keeps a command, if its client has asked for it or it is in the sample. Whether it does.
    pub(crate) fn offer(&self, kept: Kept, asked: Tracing) -> bool {
        let (keeper, parent) = match asked {
            Tracing::Off if !self.samples(&kept) => return false,
            Tracing::Off => (&self.sampled, None),
            Tracing::On => (&self.asked, None),
            Tracing::Within(parent) => (&self.asked, Some(parent)),
        };
        let slow = false;
        keeper.keep(Kept {
            parent,
            slow,
            ..kept
        })
    }

    /// The same command with a number of its own.
    pub(crate) fn numbered(&self, kept: Kept) -> Kept {
        let id = self.next_id.get() + 1;
        self.next_id.set(id);
        Kept { id, ..kept }
    }

    fn on_written(&self, id: u64, at: Instant) {
        self.sampled.on_written(id, at);
        self.asked.on_written(id, at);
    }

    fn samples(&self, kept: &Kept) -> bool {
        let Some((one_in, until)) = self.sampling.get() else {
            return false;
        };
        kept.answered < until && kept.command.is_some_and(|it| it.is_sampled(one_in))
    }

    /// All that are kept, the oldest first of the sample and of the others.
    pub(crate) fn all(&self) -> Vec<Kept> {
        let (sampled, asked) = (self.sampled.kept.borrow(), self.asked.kept.borrow());
        sampled.iter().chain(asked.iter()).copied().collect()
    }
}

impl Host {
    /// Keeps the times of a command, if it was slow or is traced.
    pub(crate) fn keep(&self, kept: Kept, client: &Client, slow: impl FnOnce(Kept) -> Slow) {
        let tracing = client.tracing.get();
        if !kept.slow && tracing == Tracing::Off && !self.traces.samples(&kept) {
            return;
        }
        let kept = self.traces.numbered(kept);
        let is_kept = self.traces.offer(kept, tracing);
        if kept.slow {
            self.slow.add(slow(kept));
        }
        if is_kept || kept.slow {
            client.unwritten.set(Some((kept.id, kept.answered)));
        }
    }

    /// Replies of a client are about to be written.
    pub(crate) fn on_writing(&self, client: &Client) {
        if let Some((id, _)) = client.unwritten.get() {
            client.unwritten.set(Some((id, Instant::now())));
        }
    }

    /// All replies of a client are written. The client may have had them for a while: the time is
    /// that at which the last write began.
    pub(crate) fn on_written(&self, client: &Client) {
        if let Some((id, began)) = client.unwritten.take() {
            self.traces.on_written(id, began);
            self.slow.on_written(id, began);
        }
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
        let command = CommandId {
            client: ClientId(0),
            sessionless: false,
            number,
        };
        Kept::new(("set", 1), Some(command), [answered; 3], false)
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
        for number in 0..900 {
            traces.offer(kept(number, later(number)), Tracing::Off);
        }
        let all = traces.all();
        assert!((30..90).contains(&all.len()), "{}", all.len());
        assert!(all.iter().all(|it| it.command.expect("one").is_sampled(16)));
        let over = now + Duration::from_secs(101);
        for number in 0..900 {
            traces.offer(kept(number, over), Tracing::Off);
        }
        assert_eq!(traces.all(), all);
    }

    /// `ionian trace exec` has all nodes record everything, the commands of other clients too.
    #[test]
    fn a_command_that_is_asked_for_is_kept_on_a_busy_gateway() {
        let (traces, now) = (Traces::default(), Instant::now());
        traces.sample(1, Duration::from_secs(10));
        let parent = TraceParent { trace: 7, span: 8 };
        let busy = || {
            for it in 0..1000 {
                traces.offer(kept(it, now), Tracing::Off);
            }
        };
        busy();
        assert!(traces.offer(kept(2000, now), Tracing::Within(parent)));
        busy();
        assert!(traces.all().iter().any(|kept| kept.parent == Some(parent)));
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
