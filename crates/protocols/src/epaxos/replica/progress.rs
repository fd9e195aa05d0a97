//! Reporting to leaders what is executed of their spaces, so that they propose what waits for it
//! (`leader/unexecuted.rs`).
//!
//! A replica reports at the end of a burst: to the leaders of its node, and of an instance for
//! which it answers also to another leader. Reports of other nodes may be lost, and a replica may
//! fail or be far behind: once a second each one reports to all leaders.

use super::Replica;
use crate::epaxos::instance::Space;
use crate::epaxos::message::{Replier, Run};
use crate::epaxos::{Envelope, RUNS, leader};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ionian_kernel::id::Set;
use ionian_kernel::role::Out;

/// See the top of this file.
#[derive(Default)]
pub(super) struct Progress {
    /// The spaces of which something is to be reported.
    spaces: BTreeSet<Space>,
}

impl Replica {
    /// An instance of this space is executed, for which that replica answers.
    pub(super) fn note_progress(&mut self, space: Space, replier: Replier) {
        if self.near_leaders.contains(space.leader) || replier == Some(self.id) {
            self.progress.spaces.insert(space);
        }
    }

    pub(super) fn report_progress(&mut self, out: &mut Out<'_, Self>) {
        while let Some(space) = self.progress.spaces.pop_first() {
            self.report_space(space, out);
        }
    }

    pub(super) fn report_all_progress(&self, out: &mut Out<'_, Self>) {
        self.missing
            .present()
            .for_each(|space| self.report_space(space, out));
    }

    fn report_space(&self, space: Space, out: &mut Out<'_, Self>) {
        let to = Set::one(space.leader).and(self.config.leaders());
        let runs = self.executed().runs(space).take(RUNS);
        let executed: Vec<_> = runs.map(|(start, end)| Run { space, start, end }).collect();
        if self.config.reports_progress() && !executed.is_empty() {
            out.send(Envelope::ToLeaders(to, leader::In::Progress { executed }));
        }
    }
}
