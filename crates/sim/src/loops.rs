//! The further event loops of a simulated node: role loops, which take in what the main loop passes
//! at random times, and hand over what follows at random times. A crash takes all loops; they share
//! the disk, which is the main loop's.

use crate::roles::Watcher;
use ionian_kernel::id::Members;
use ionian_kernel::node::Node;
use ionian_kernel::node::homes::{Homes, Hub};
use ionian_kernel::node::role_loop::{Burst, Input, RoleLoop};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::random::Random;
use ionian_kernel::role::Lsn;
use ionian_kernel::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the top of this file. None of a node with one event loop.
pub(crate) struct RoleLoops<P: Protocol> {
    pub(crate) homes: Homes,
    loops: Vec<Looped<P>>,
    random: Random,
    /// What the node's clock shows.
    clock: Arc<AtomicU64>,
}

struct Looped<P: Protocol> {
    role_loop: RoleLoop<P>,
    /// What the main loop has passed.
    inputs: VecDeque<Input<P>>,
    /// What the main loop has not taken in.
    bursts: VecDeque<Burst<P>>,
    /// Whether roles were called since the end of the last burst.
    is_open: bool,
}

impl<P: Protocol> RoleLoops<P> {
    /// Moves instances of `node` to `loops` less one role loops, and starts them: invariants are
    /// not for roles that have not started. Which kinds move, the seed says.
    pub(crate) fn split(
        (node, now): (&mut Node<P>, Instant),
        loops: usize,
        opened: Lsn,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        let home = |kind: usize| match kind {
            // Client lanes stay with the applications.
            0 => 0,
            _ => random.below(loops as u64) as usize,
        };
        let kinds = (0..P::KINDS.len()).map(home).collect();
        let (homes, nodes) = Homes::split(node, kinds, loops - 1, opened);
        let clock = Arc::new(AtomicU64::new(now.0));
        let looped = |node| {
            let shown = clock.clone();
            let read = Box::new(move || Instant(shown.load(Ordering::Relaxed)));
            let mut role_loop = RoleLoop::new(node, opened, read);
            role_loop.take(now, Input::Start);
            Looped {
                role_loop,
                inputs: VecDeque::new(),
                bursts: VecDeque::new(),
                is_open: true,
            }
        };
        RoleLoops {
            homes,
            loops: nodes.into_iter().map(looped).collect(),
            random,
            clock,
        }
    }

    /// Passes a message to the members on role loops. Returns it if there are others.
    pub(crate) fn pass(
        &mut self,
        members: Members,
        message: P::Message,
    ) -> Option<(Members, P::Message)> {
        let RoleLoops { homes, loops, .. } = self;
        homes.pass(members, message, |place, theirs, message| {
            let input = Input::Messages(vec![(theirs, message)]);
            loops[place].inputs.push_back(input);
        })
    }

    /// Most of the loops run, some way: they pass `most` messages to roles, which receive the time
    /// `local`, when the clock shows `shown`.
    pub(crate) fn run(
        &mut self,
        (local, shown): (Instant, Instant),
        most: usize,
        watch: &mut Watcher<'_>,
    ) {
        self.clock.store(shown.0, Ordering::Relaxed);
        for looped in &mut self.loops {
            if self.random.once_in(4) {
                continue;
            }
            let Looped {
                role_loop, inputs, ..
            } = looped;
            let some = match self.random.once_in(3) {
                true => self.random.below(inputs.len() as u64 + 1) as usize,
                false => inputs.len(),
            };
            for input in inputs.drain(..some) {
                let stored = match &input {
                    Input::Snapshot(from, _) => Some(*from),
                    _ => None,
                };
                role_loop.take(local, input);
                let stored = stored.and_then(|from| Some((from, role_loop.node.instance(from)?)));
                stored.into_iter().for_each(|(from, it)| watch(from, it));
                looped.is_open = true;
            }
            for _ in 0..most.max(4) {
                let (node, port) = (&mut role_loop.node, &mut role_loop.port);
                let Some((taker, _)) = node.front() else {
                    break;
                };
                node.run(local, 1, port);
                watch(taker, node.instance(taker).expect("it was just called"));
            }
            let (node, port) = (&mut role_loop.node, &mut role_loop.port);
            if node.next_timer().is_some_and(|timer| timer <= local) {
                node.fire_timers(local, port);
                looped.is_open = true;
            }
            if !self.random.once_in(3) {
                node.end_burst(local, port);
                looped.is_open = false;
                looped.bursts.extend(role_loop.burst());
            }
        }
    }

    /// The next burst that the main loop takes in at this time, if any.
    pub(crate) fn next_burst(&mut self) -> Option<(usize, Burst<P>)> {
        let waiting = |(_, looped): &(usize, &mut Looped<P>)| !looped.bursts.is_empty();
        let mut loops: Vec<_> = self.loops.iter_mut().enumerate().filter(waiting).collect();
        if loops.is_empty() || self.random.once_in(4) {
            return None;
        }
        let turn = self.random.below(loops.len() as u64) as usize;
        let (place, looped) = &mut loops[turn];
        Some((*place, looped.bursts.pop_front()?))
    }

    /// The roles are to lead nothing, or may lead again.
    pub(crate) fn drain(&mut self, drains: bool) {
        for looped in &mut self.loops {
            looped.inputs.push_back(Input::Drain(drains));
        }
    }

    /// Whether there is work to do.
    pub(crate) fn busy(&self) -> bool {
        self.loops.iter().any(|looped| {
            let waits = !looped.inputs.is_empty() || !looped.bursts.is_empty();
            waits || looped.is_open || looped.role_loop.node.queued() > 0
        })
    }

    /// Their hosts.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node<P>> {
        self.loops.iter().map(|looped| &looped.role_loop.node)
    }
}

impl<P: Protocol> Hub<P> for RoleLoops<P> {
    fn homes(&mut self) -> &mut Homes {
        &mut self.homes
    }

    fn give(&mut self, place: usize, input: Input<P>) {
        self.loops[place].inputs.push_back(input);
    }
}
