//! The state of an event loop: the roles of a node and everything that they share.

use super::application::{Submissions, level_of_features};
use super::delays::Delays;
use super::event_log::EventLog;
use super::io::NodeIo;
use super::membership::{KnownMembership, announcement, layout_of};
use super::roles::Roles;
use super::settings::addresses;
use crate::admin::change::{self, ChangeError, Response};
use crate::error::NodeError;
use crate::status::{DrainStatus, RoleStatus};
use crate::storage::disk_log::NoRoom;
use crate::transport::admission::Admission;
use bytes::Bytes;
use ionian_kernel::client::{DiskRoom, Refusal, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::membership::{Change, Membership};
use ionian_kernel::protocol::{AnyProtocol, Description};
use ionian_kernel::status::Status;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::encode_all;
use std::rc::Rc;
use tokio::sync::oneshot;

/// Why an event loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// The node was asked to stop.
    Stopped,
    /// The node is no longer a member of its cluster.
    Removed,
}

/// See the top of this file.
pub(crate) struct State {
    pub(crate) roles: Box<dyn Roles>,
    pub(crate) io: NodeIo,
    pub(crate) protocol: &'static dyn AnyProtocol,
    pub(crate) membership: KnownMembership,
    pub(crate) event_log: EventLog,
    /// When the roles of this loop waited long.
    pub(crate) delays: Delays,
    admission: Rc<Admission>,
    submissions: Rc<Submissions>,
    /// Whether the roles are started.
    started: bool,
    /// Whether the roles were created for an earlier membership, and must learn the present one
    /// when they are started.
    roles_are_outdated: bool,
    /// Whether the node drains: it accepts no new clients, and another node is to lead.
    draining: bool,
    /// Whether another node is to lead because the disk of this one is slow.
    disk_is_slow: bool,
    disk_room: DiskRoom,
    /// Whether the known membership lacks this node: its roles are not called any more.
    pub(crate) has_left: bool,
    /// Why the loop must end, if a membership that arrived between two runs requires it.
    pub(crate) exit: Option<Result<ExitReason, NodeError>>,
    /// The requests of this run. Reused.
    requests: Vec<(ClientId, Request)>,
}

impl State {
    pub(crate) fn new(
        (protocol, roles): (&'static dyn AnyProtocol, Box<dyn Roles>),
        io: NodeIo,
        (membership, delays): (KnownMembership, Delays),
        admission: Rc<Admission>,
        submissions: Rc<Submissions>,
    ) -> Self {
        State {
            roles,
            io,
            protocol,
            membership,
            event_log: EventLog::default(),
            delays,
            admission,
            submissions,
            started: false,
            roles_are_outdated: false,
            draining: false,
            disk_is_slow: false,
            disk_room: DiskRoom::Enough,
            has_left: false,
            exit: None,
            requests: Vec::new(),
        }
    }

    /// Starts the roles.
    pub(crate) fn start(&mut self, now: Instant) -> Result<(), NodeError> {
        self.io.now = now;
        self.roles.start(now, &mut self.io);
        self.started = true;
        if core::mem::take(&mut self.roles_are_outdated)
            && let Some(known) = self.membership.configuration()
        {
            let layout = layout_of(self.protocol, known)?;
            self.reconfigure_roles(&layout)?;
        }
        Ok(())
    }

    /// Takes in everything that has happened since the last run.
    pub(crate) fn take_in(&mut self, now: Instant) -> Result<(), NodeError> {
        self.io.counts.pumps += 1;
        if self.io.log.poll()? {
            self.on_durable(now);
        }
        self.roles.take_in_bursts(&mut self.io);
        while let Some((from, snapshot)) = self.io.log.next_snapshot()? {
            self.roles.on_snapshot(from, snapshot, &mut self.io);
        }
        if self.started && self.io.log.wants_snapshots() {
            self.want_snapshots()?;
        }
        let State { roles, io, .. } = self;
        self.submissions.swap(&mut self.requests);
        io.counts.requests += self.requests.len() as u64;
        io.unanswered += self.requests.len() as u64;
        for (lane, request) in self.requests.drain(..) {
            match self.submissions.lanes.borrow().contains(&lane) {
                true => roles.submit(lane, request),
                false => io.refuse(lane, request),
            }
        }
        roles.fire_timers(now, io);
        Ok(())
    }

    /// Has the roles that execute commands store snapshots: none under way has the stamp 0.
    fn want_snapshots(&mut self) -> Result<(), NodeError> {
        let Some(known) = self.membership.configuration() else {
            return Ok(());
        };
        let layout = layout_of(self.protocol, known)?;
        let executors = self.protocol.description().executors;
        let here = layout.on_node(self.membership.node()).into_iter();
        for from in here.filter(|it| executors.contains(&it.kind)) {
            self.roles.on_snapshot(from, (0, false), &mut self.io);
        }
        Ok(())
    }

    /// More records are on disk: sends what waited for that.
    pub(crate) fn on_durable(&mut self, now: Instant) {
        self.event_log.records_durable(now);
        let held = || self.roles.held(self.io.log.durable());
        self.delays.records_durable(now, held);
        self.roles.on_durable(&mut self.io);
    }

    /// Refuses every request: the roles are not started.
    pub(crate) fn refuse_requests(&mut self) {
        self.submissions.swap(&mut self.requests);
        for (lane, request) in self.requests.drain(..) {
            self.io.refuse(lane, request);
        }
        self.io.application.on_burst_end();
    }

    /// Runs the roles until no message is queued, and applies the memberships that the log leads
    /// to. Returns whether this node is still a member.
    pub(crate) fn run_roles(&mut self, now: Instant) -> Result<bool, NodeError> {
        loop {
            self.roles.settle(now, &mut self.io);
            let Some(membership) = self.io.announced.take() else {
                return Ok(true);
            };
            if !self.apply_membership(membership)? {
                return Ok(false);
            }
            if self.draining || self.disk_is_slow {
                // Roles that the membership has brought do not know yet.
                self.roles.drain_new(&mut self.io);
            }
        }
    }

    /// Writes a checkpoint if one is due. Returns whether it did: the roles then have work.
    pub(crate) fn write_checkpoint(&mut self) -> bool {
        let due = self.io.log.checkpoint_due();
        due.is_some_and(|next| self.roles.checkpoint(next, &mut self.io))
    }

    /// Takes in a membership that another node has announced, between two runs of the loop. Returns
    /// whether it is later than the known one.
    pub(crate) fn learn(&mut self, now: Instant, membership: Membership) -> bool {
        let is_over = self.exit.is_some() || self.has_left;
        if is_over || membership.epoch <= self.io.peers.epoch() {
            return false;
        }
        self.io.now = now;
        let level = membership.level;
        self.exit = match self.apply_membership(membership) {
            Ok(true) => None,
            Ok(false) => Some(Ok(ExitReason::Removed)),
            // A wrong message must not stop this node. If the membership is right, the log leads to
            // it too. A level that this program does not support is different: others send what it
            // does not understand.
            Err(error @ NodeError::Membership { .. }) if level.is_supported() => {
                tracing::error!(
                    id = "E0305",
                    "ignoring an invalid membership from another node: {error}"
                );
                None
            }
            Err(error) => Some(Err(error)),
        };
        true
    }

    /// Applies a membership if it is later than the known one. Returns false if this node is not a
    /// member of it: the node has announced it to the others, and must [leave](super::leaving).
    ///
    /// The order matters. The membership is on disk before anything is done that assumes it, so
    /// that a restart cannot regress to an earlier configuration; but not on the disk of a node
    /// that leaves, which does nothing more. Peers receive it before any
    /// message of a role that assumes it, so that no node receives a message of an epoch that it
    /// does not know. Then the roles learn it.
    fn apply_membership(&mut self, membership: Membership) -> Result<bool, NodeError> {
        let level = membership.level;
        let Some(configuration) = self.membership.advanced(membership)? else {
            return Ok(true);
        };
        let layout = layout_of(self.protocol, &configuration)?;
        let stays = self.membership.is_member_of(&configuration);
        if stays {
            self.membership.store(&configuration)?;
        }
        let addresses = addresses(&configuration);
        let peers = &self.io.peers;
        peers.change(
            configuration.epoch(),
            &addresses,
            announcement(&configuration)?,
        );
        peers.set_distances(&configuration.distances(self.membership.node()));
        let left = self.membership.replace(configuration);
        if !stays {
            self.has_left = true;
            peers.leave();
            self.roles.end_loops();
            return Ok(false);
        }
        self.submissions
            .level
            .set(level_of_features(self.protocol, level));
        self.admission.change(addresses.len() - 1, &left)?;
        self.io.place(&layout);
        match self.started {
            true => self.reconfigure_roles(&layout)?,
            false => self.roles_are_outdated = true,
        }
        Ok(true)
    }

    /// Has the roles follow a membership.
    fn reconfigure_roles(&mut self, layout: &Layout) -> Result<(), NodeError> {
        let here = self.membership.node();
        let followed = self.roles.reconfigure(layout, here, &mut self.io);
        followed.map_err(|error| NodeError::Settings(error.0))?;
        *self.submissions.lanes.borrow_mut() = layout.client_lanes(here).iter().collect();
        Ok(())
    }

    /// Starts or ends draining. Returns whether that is a change.
    pub(crate) fn drain(&mut self, now: Instant, drains: bool) -> bool {
        if self.draining == drains {
            return false;
        }
        self.draining = drains;
        match drains {
            true => tracing::info!("draining: no new clients, and another node is to lead"),
            false => tracing::info!("no longer draining: clients are served again"),
        }
        self.hand_over(now);
        self.io.application.drain(drains);
        true
    }

    /// Has another node lead while the disk of this one is slow. If those of all are, one of them
    /// leads all the same.
    pub(crate) fn judge_disk(&mut self, now: Instant) {
        self.judge_room();
        let is_slow = self.io.log.is_slow();
        if is_slow == core::mem::replace(&mut self.disk_is_slow, is_slow) {
            return;
        }
        match is_slow {
            true => tracing::warn!(
                id = "E0206",
                "the disk of this node is slow: another node is to lead until it is not"
            ),
            false => tracing::info!("the disk of this node is not slow any more: it may lead"),
        }
        self.hand_over(now);
    }

    /// Has clients use no more room while the disk has none.
    fn judge_room(&mut self) {
        let lacks = self.io.log.lacks_room();
        let room = match lacks {
            None => DiskRoom::Enough,
            Some(NoRoom::LogFile | NoRoom::Snapshot(_)) => DiskRoom::Little,
            Some(NoRoom::Log) => DiskRoom::None,
        };
        if room == core::mem::replace(&mut self.disk_room, room) {
            return;
        }
        let accepted = match room {
            DiskRoom::Little => "only reads and what frees memory are accepted",
            _ => "only reads and FLUSHALL are accepted",
        };
        match lacks {
            Some(lacks) => tracing::error!(
                id = "E0207",
                "the disk of this node has no room for {lacks}: {accepted}"
            ),
            None => tracing::info!("the disk of this node has room again: all is accepted"),
        }
        self.io.application.disk_has_room(room);
    }

    /// Drains the roles if another node is to lead, or ends that.
    fn hand_over(&mut self, now: Instant) {
        let drains = self.draining || self.disk_is_slow;
        self.io.now = now;
        self.roles.drain(drains, &mut self.io);
    }

    /// What a node that drains still has to finish.
    pub(crate) fn drain_status(&self) -> DrainStatus {
        DrainStatus {
            clients: self.io.application.clients() as u64,
            unanswered: self.io.unanswered,
            leads: !self.roles.is_drained(),
        }
    }

    /// As [`drain_status`](Self::drain_status); `None` if the node does not drain.
    pub(crate) fn drains(&self) -> Option<DrainStatus> {
        self.draining.then(|| self.drain_status())
    }

    /// Submits a change of the membership; the channel brings what the log decides.
    pub(crate) fn submit_change(
        &mut self,
        change: &Change,
    ) -> Result<oneshot::Receiver<Result<Bytes, Refusal>>, Response> {
        let known = self.membership.configuration().ok_or_else(|| {
            Response::Refused("the membership of this cluster cannot change".into())
        })?;
        change::check(self.protocol, known, change).map_err(|error| match error {
            ChangeError::Ahead(_) => Response::Undecided(error.to_string()),
            error => Response::Refused(error.to_string()),
        })?;
        let lane = self.submissions.first_lane().ok_or_else(|| {
            Response::Undecided(
                "it has no client lane, through which a change could be asked for".into(),
            )
        })?;
        let (request, answer) = self.io.changes.request(encode_all(change).into());
        self.submissions.submit(lane, request);
        Ok(answer)
    }

    /// The name of a node; empty if it is not known.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        let nodes = self.membership.configuration().map(|known| known.nodes());
        nodes
            .and_then(|nodes| Some(nodes.get(&node)?.name.clone()))
            .unwrap_or_default()
    }
}

/// What each role of a protocol reports.
pub(crate) fn role_status(
    now: Instant,
    protocol: &Description,
    statuses: Vec<(Address, Status)>,
) -> Vec<(Address, RoleStatus)> {
    let roles = statuses.into_iter().map(|(address, status)| {
        let kind = usize::from(address.kind);
        let (name, metrics) = (protocol.kinds[kind], protocol.metrics[kind]);
        let status = RoleStatus::of(now, (name, address.index), status, metrics);
        (address, status)
    });
    roles.collect()
}
