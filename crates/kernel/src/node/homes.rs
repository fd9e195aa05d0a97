//! The role loops of a node as its main loop sees them: which instances they have, where their
//! records are in the log, and what is passed to them.

use super::Node;
use super::positions::Positions;
use super::role_loop::{Burst, Change, Input, Instances};
use crate::id::Members;
use crate::layout::{Address, Layout, NodeId};
use crate::protocol::{Message, Protocol};
use crate::role::Lsn;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// On which loop of a node the roles of each kind run, by kind: 0 is the main loop.
///
/// The main loop has the client lanes, because applications run on it. Executors are on loop 1:
/// they take the most time, and no role waits for them but the client. `present`, the other kinds
/// that the node has, follow the executors in the order in which data flows, in runs of equal
/// length on the loops that are left; if none is left they stay on the main loop. A kind that is
/// not present, and may come with a change of the members, is where the kind before it is.
pub fn spread<P: Protocol>(present: impl Fn(u8) -> bool, loops: usize) -> Vec<usize> {
    let kinds = P::KINDS.len() as u8;
    let others = |kind: &u8| *kind > 0 && !P::EXECUTORS.contains(kind);
    let executes = loops > 1 && P::EXECUTORS.iter().any(|kind| *kind > 0 && present(*kind));
    let first = 1 + usize::from(executes);
    let left = loops.saturating_sub(first);
    let runs = (1..kinds).filter(|kind| others(kind) && present(*kind));
    let length = runs.count().div_ceil(left.max(1)).max(1);
    let (mut placed, mut last) = (0, if left == 0 { 0 } else { first });
    let mut home = |kind: u8| {
        if !others(&kind) {
            return usize::from(kind > 0 && loops > 1);
        }
        if left > 0 && present(kind) {
            last = first + placed / length;
            placed += 1;
        }
        last
    };
    (0..kinds).map(&mut home).collect()
}

/// See the top of this file.
pub struct Homes {
    /// The loop of each kind, for instances that come.
    of_kinds: Vec<usize>,
    loops: Vec<Home>,
    /// A checkpoint for which some role loops have not persisted their part.
    checkpoint: Option<Checkpoint>,
}

struct Home {
    /// The instances of each kind that run on it.
    local: Vec<Members>,
    positions: Positions,
}

struct Checkpoint {
    /// The first record that is needed after it, as far as is known.
    needed: Lsn,
    /// How many role loops have not answered.
    missing: usize,
}

impl Homes {
    /// Splits `node`, whose instances have recovered from a log up to `opened`, into its loops:
    /// the instances whose kinds `of_kinds` places on role loops leave it.
    pub fn split<P: Protocol>(
        node: &mut Node<P>,
        of_kinds: Vec<usize>,
        role_loops: usize,
        opened: Lsn,
    ) -> (Self, Vec<Node<P>>) {
        let mut homes = Homes {
            loops: Vec::new(),
            of_kinds,
            checkpoint: None,
        };
        let mut nodes = Vec::new();
        for place in 0..role_loops {
            let moves = |address: Address| homes.new_home(address) == Some(place);
            let moved = node.split_off(moves);
            homes.loops.push(Home {
                local: vec![Members::EMPTY; P::KINDS.len()],
                positions: Positions::new(opened),
            });
            for (address, _) in moved.instances() {
                homes.insert(place, address);
            }
            nodes.push(moved);
        }
        (homes, nodes)
    }

    /// The role loop for an instance that comes; `None` for the main loop.
    fn new_home(&self, address: Address) -> Option<usize> {
        self.of_kinds[usize::from(address.kind)].checked_sub(1)
    }

    /// The role loop of an instance.
    pub fn home(&self, address: Address) -> Option<usize> {
        let here = |home: &Home| home.local[usize::from(address.kind)].contains(address.index);
        self.loops.iter().position(here)
    }

    fn insert(&mut self, place: usize, address: Address) {
        self.loops[place].local[usize::from(address.kind)].insert(address.index);
    }

    /// The membership has changed, and these `new` instances come. Returns those for the main loop,
    /// and the change for each role loop.
    fn reconfigure<P: Protocol>(
        &mut self,
        (layout, config, here): (&Layout, &P::Config, NodeId),
        new: Instances<P>,
    ) -> (Instances<P>, Vec<Change<P>>) {
        self.retain(|address| layout.node_of(address) == Some(here));
        let layout = Arc::new(layout.clone());
        let change = |_: &Home| Change {
            layout: layout.clone(),
            config: config.clone(),
            here,
            new: Vec::new(),
        };
        let mut changes: Vec<Change<P>> = self.loops.iter().map(change).collect();
        let mut own = Vec::new();
        for (address, instance) in new {
            match self.new_home(address) {
                None => own.push((address, instance)),
                Some(place) => {
                    self.insert(place, address);
                    changes[place].new.push((address, instance));
                }
            }
        }
        (own, changes)
    }

    fn retain(&mut self, stays: impl Fn(Address) -> bool) {
        for home in &mut self.loops {
            for (kind, members) in (0..).zip(&mut home.local) {
                for index in members.iter() {
                    if !stays(Address { kind, index }) {
                        members.remove(index);
                    }
                }
            }
        }
    }

    /// Puts a message for the members on each role loop there. Returns it if there are others.
    pub fn pass<M: Message>(
        &self,
        members: Members,
        message: M,
        mut put: impl FnMut(usize, Members, M),
    ) -> Option<(Members, M)> {
        let mut left = members;
        for (place, theirs) in self.parts(message.kind(), members) {
            left = left.without(theirs);
            if left.is_empty() {
                put(place, theirs, message);
                return None;
            }
            put(place, theirs, message.clone());
        }
        Some((left, message))
    }

    /// The members that run on each role loop.
    fn parts(&self, kind: u8, members: Members) -> impl Iterator<Item = (usize, Members)> {
        let there = move |home: &Home| Some(home.local.get(usize::from(kind))?.and(members));
        let parts = self
            .loops
            .iter()
            .map(move |home| there(home).unwrap_or(Members::EMPTY));
        parts.enumerate().filter(|(_, members)| !members.is_empty())
    }

    /// The main loop has appended the records of a role loop's burst; `last` is the last of them.
    /// If that was the last part of a checkpoint, returns from where on the log is needed.
    pub fn appended<P: Protocol>(
        &mut self,
        place: usize,
        burst: &Burst<P>,
        last: Option<Lsn>,
    ) -> Option<Lsn> {
        if let Some(last) = last {
            let count = burst.records.count() as u64;
            self.loops[place].positions.appended(count, last);
        }
        self.checkpointed(place, burst.checkpointed?)
    }

    /// The log is on disk up to `durable`: what the role loops learn from that, each in its own
    /// positions.
    pub fn on_durable(&mut self, durable: Lsn) -> impl Iterator<Item = (usize, Lsn)> {
        let reached = move |home: &mut Home| home.positions.on_durable(durable);
        let all = self.loops.iter_mut().map(reached).enumerate();
        all.filter_map(|(place, reached)| Some((place, reached?)))
    }

    /// A checkpoint begins; the instances of the main loop need the log from `needed` on.
    pub fn begin_checkpoint(&mut self, needed: Lsn) {
        self.checkpoint = Some(Checkpoint {
            needed,
            missing: self.loops.len(),
        });
    }

    /// Whether role loops have still to write their part of a checkpoint.
    pub fn is_in_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// A role loop has written its part of the checkpoint and still needs its record `needed` and
    /// later ones. When all have, returns from where on the log is needed.
    fn checkpointed(&mut self, place: usize, needed: Option<Lsn>) -> Option<Lsn> {
        let needed = needed.map(|own| self.loops[place].positions.not_after(own));
        let checkpoint = self.checkpoint.as_mut()?;
        checkpoint.needed = needed.map_or(checkpoint.needed, |lsn| lsn.min(checkpoint.needed));
        checkpoint.missing -= 1;
        let is_written = checkpoint.missing == 0;
        self.checkpoint
            .take_if(|_| is_written)
            .map(|written| written.needed)
    }
}

/// A main loop's way to its role loops.
pub trait Hub<P: Protocol> {
    /// What it knows of them.
    fn homes(&mut self) -> &mut Homes;

    /// Passes an input to a role loop.
    fn give(&mut self, place: usize, input: Input<P>);

    /// As [`give`](Self::give), to each.
    fn give_all(&mut self, input: impl Fn() -> Input<P>) {
        (0..self.homes().loops.len()).for_each(|place| self.give(place, input()));
    }

    /// The log is on disk up to `durable`: passes on what of that is news.
    fn report_durable(&mut self, durable: Lsn) {
        let reached: Vec<(usize, Lsn)> = self.homes().on_durable(durable).collect();
        for (place, durable) in reached {
            self.give(place, Input::Durable(durable));
        }
    }

    /// A checkpoint begins; the instances of the main loop need the log from `needed` on.
    fn begin_checkpoint(&mut self, needed: Lsn) {
        self.homes().begin_checkpoint(needed);
        self.give_all(|| Input::Checkpoint);
    }

    /// The membership has changed, and these `new` instances come. Returns those for the main loop.
    fn reconfigure(
        &mut self,
        change: (&Layout, &P::Config, NodeId),
        new: Instances<P>,
    ) -> Instances<P> {
        let (own, changes) = self.homes().reconfigure(change, new);
        for (place, change) in changes.into_iter().enumerate() {
            self.give(place, Input::Reconfigure(Box::new(change)));
        }
        own
    }
}
