//! What the main loop does for role loops: it appends their records, sends their messages, stores
//! their snapshots, and reports what is on disk.

use super::io::NodeIo;
use super::loops::Loops;
use super::state::State;
use ionian_kernel::node::World;
use ionian_kernel::node::role_loop::{Burst, Input};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::Lsn;

impl<P: Protocol> State<P> {
    /// Takes in the bursts that role loops have handed over.
    pub(crate) fn take_in_bursts(&mut self) {
        while let Some((place, burst)) = self.io.loops.as_mut().and_then(Loops::next_burst) {
            self.take_in_burst(place, *burst);
        }
        // A log in memory is durable at once.
        self.io.report_durable();
        if let Some(loops) = &self.io.loops {
            loops.offer_room();
        }
    }

    fn take_in_burst(&mut self, place: usize, burst: Burst<P>) {
        let State { node, io, .. } = self;
        io.append_all(place, &burst);
        for (kind, members, message) in burst.sends {
            node.route_to((kind, members), message, io);
        }
        for (from, stamp, frozen) in burst.snapshots {
            io.log.store_snapshot(from, stamp, frozen);
        }
        for (lane, reply) in burst.replies {
            World::<P>::reply(io, lane, reply);
        }
        if let Some(membership) = burst.announced {
            World::<P>::announce(io, membership);
        }
    }
}

impl<P: Protocol> NodeIo<P> {
    /// Appends the records of a role loop.
    fn append_all(&mut self, place: usize, burst: &Burst<P>) {
        let Some(loops) = &mut self.loops else {
            return;
        };
        let mut last = None;
        for (from, record, vital) in burst.records.iter() {
            self.counts.records += 1;
            last = Some(self.log.append(from, record, vital));
        }
        if let Some(last) = last {
            let count = burst.records.count() as u64;
            loops.homes.appended(place, count, last);
        }
        if let Some(needed) = burst.checkpointed
            && let Some(needed) = loops.homes.checkpointed(place, needed)
        {
            self.log.checkpoint_appended(needed);
        }
        if let Some(drained) = burst.drained {
            loops.has_drained(place, drained);
        }
    }

    /// Reports to role loops which of their records are on disk.
    pub(crate) fn report_durable(&mut self) {
        let Some(loops) = &mut self.loops else {
            return;
        };
        let reached: Vec<(usize, Lsn)> = loops.homes.on_durable(self.log.durable()).collect();
        for (place, durable) in reached {
            loops.give(place, Input::Durable(durable));
        }
    }
}
