//! What the main loop does for role loops: it appends their records, sends their messages, stores
//! their snapshots, and reports what is on disk.

use super::io::NodeIo;
use super::loops::Loops;
use super::state::State;
use ionian_kernel::node::homes::Hub;
use ionian_kernel::node::role_loop::Burst;
use ionian_kernel::protocol::Protocol;

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
        let last = burst.append(io);
        let Some(loops) = &mut io.loops else {
            return;
        };
        if let Some(needed) = loops.homes.appended(place, &burst, last) {
            io.log.checkpoint_appended(needed);
        }
        if let Some(drained) = burst.drained {
            loops.has_drained(place, drained);
        }
        burst.pass_on(node, io);
    }
}

impl<P: Protocol> NodeIo<P> {
    /// Reports to role loops which of their records are on disk.
    pub(crate) fn report_durable(&mut self) {
        if let Some(loops) = &mut self.loops {
            loops.report_durable(self.log.durable());
        }
    }
}
