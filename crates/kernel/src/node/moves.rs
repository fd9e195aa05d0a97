//! Instances that leave a node, or move to another event loop of it.

use super::{Hosted, Node};
use crate::id::{MAX_INSTANCES, Members};
use crate::layout::Address;
use crate::protocol::Protocol;
use crate::role::Outbox;
use crate::trace::Recorder;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

impl<P: Protocol> Node<P> {
    /// Removes the instances that do not stay, and the messages that are queued for them.
    pub(super) fn retire(&mut self, stays: impl Fn(Address) -> bool) {
        let places: Vec<Address> = self.hosted.iter().map(|hosted| hosted.address).collect();
        self.hosted.retain(|hosted| stays(hosted.address));
        self.index();
        for (place, message) in core::mem::take(&mut self.inbox) {
            if let Some(place) = self.place(places[place as usize]) {
                self.inbox.push_back((place, message));
            }
        }
    }

    /// Moves the instances that `moves` names, with what they have recovered, into a node that
    /// another event loop can host. Call it before they are started.
    pub fn split_off(&mut self, moves: impl Fn(Address) -> bool) -> Node<P> {
        assert!(self.inbox.is_empty(), "nothing was started");
        let all = core::mem::take(&mut self.hosted);
        let (moved, stays) = all.into_iter().partition(|hosted| moves(hosted.address));
        self.hosted = stays;
        self.index();
        let mut other = Node {
            hosted: moved,
            places: vec![[None; MAX_INSTANCES]; self.places.len()],
            local: vec![Members::EMPTY; self.local.len()],
            inbox: VecDeque::new(),
            outbox: Outbox::new(self.outbox.keeps_records),
            latest: self.latest,
            ignored: 0,
            overdue: 0,
            recorder: self.recording().map(|it| Box::new(Recorder::new(it))),
            lsns: Vec::new(),
        };
        other.index();
        other
    }

    /// Notes anew where each instance is.
    fn index(&mut self) {
        self.places.fill([None; MAX_INSTANCES]);
        self.local.fill(Members::EMPTY);
        for (place, Hosted { address, .. }) in self.hosted.iter().enumerate() {
            self.places[address.kind as usize][address.index as usize] = Some(place as u16);
            self.local[address.kind as usize].insert(address.index);
        }
    }
}
