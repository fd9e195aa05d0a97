//! The state of an event loop: the roles of a node and everything that they share.

use super::application::{Submissions, level_of_features};
use super::busy::Busy;
use super::delays::Delays;
use super::event_log::EventLog;
use super::instances::InstanceFactory;
use super::io::NodeIo;
use super::loops::Loops;
use super::membership::{KnownMembership, announcement, layout_of};
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
use ionian_kernel::node::Node;
use ionian_kernel::node::homes::Hub;
use ionian_kernel::node::role_loop::Input;
use ionian_kernel::protocol::{Instance, Protocol};
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
pub(crate) struct State<P: Protocol> {
    pub(crate) node: Node<P>,
    pub(crate) io: NodeIo<P>,
    pub(crate) membership: KnownMembership,
    pub(crate) event_log: EventLog,
    /// When the roles of this loop waited long.
    pub(crate) delays: Delays,
    /// How much time the roles of this loop spend on messages.
    pub(crate) busy: Busy,
    factory: InstanceFactory,
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

impl<P: Protocol> State<P> {
    pub(crate) fn new(
        node: Node<P>,
        io: NodeIo<P>,
        (membership, delays): (KnownMembership, Delays),
        factory: InstanceFactory,
        admission: Rc<Admission>,
        submissions: Rc<Submissions>,
    ) -> Self {
        State {
            node,
            io,
            membership,
            event_log: EventLog::default(),
            delays,
            busy: Busy::default(),
            factory,
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
        self.node.start(now, &mut self.io);
        if let Some(loops) = &mut self.io.loops {
            loops.give_all(|| Input::Start);
        }
        self.started = true;
        if core::mem::take(&mut self.roles_are_outdated)
            && let Some(known) = self.membership.configuration()
        {
            let (layout, config) = layout_of::<P>(known)?;
            self.reconfigure_roles(&layout, &config);
        }
        Ok(())
    }

    /// Takes in everything that has happened since the last run.
    pub(crate) fn take_in(&mut self, now: Instant) -> Result<(), NodeError> {
        self.io.counts.pumps += 1;
        if self.io.log.poll()? {
            self.on_durable(now);
        }
        self.take_in_bursts();
        while let Some((from, snapshot)) = self.io.log.next_snapshot()? {
            self.on_snapshot(from, snapshot);
        }
        if self.started && self.io.log.wants_snapshots() {
            self.want_snapshots()?;
        }
        let State { node, io, .. } = self;
        self.submissions.swap(&mut self.requests);
        io.counts.requests += self.requests.len() as u64;
        io.unanswered += self.requests.len() as u64;
        for (lane, request) in self.requests.drain(..) {
            match self.submissions.lanes.borrow().contains(&lane) {
                true => node.submit(lane, request),
                false => io.refuse(lane, request),
            }
        }
        if node.next_timer().is_some_and(|timer| timer <= now) {
            node.fire_timers(now, io);
        }
        Ok(())
    }

    fn on_snapshot(&mut self, from: Address, snapshot: (u64, bool)) {
        let State { node, io, .. } = self;
        match io.loops.as_mut().and_then(|it| Some((it.home(from)?, it))) {
            Some((place, loops)) => loops.give(place, Input::Snapshot(from, snapshot)),
            None if node.hosts(from) => node.on_snapshot(from, snapshot, io),
            None => io.log.role_left(from),
        }
    }

    /// Has the roles that execute commands store snapshots: none under way has the stamp 0.
    fn want_snapshots(&mut self) -> Result<(), NodeError> {
        let Some(known) = self.membership.configuration() else {
            return Ok(());
        };
        let (layout, _) = layout_of::<P>(known)?;
        let here = layout.on_node(self.membership.node()).into_iter();
        for from in here.filter(|it| P::EXECUTORS.contains(&it.kind)) {
            self.on_snapshot(from, (0, false));
        }
        Ok(())
    }

    /// More records are on disk: sends what waited for that.
    pub(crate) fn on_durable(&mut self, now: Instant) {
        self.event_log.records_durable(now);
        let held = self.node.held(self.io.log.durable());
        self.delays.records_durable(now, held);
        self.node.on_durable(&mut self.io);
        self.io.report_durable();
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
            self.busy.settle(now, &mut self.node, &mut self.io);
            if let Some(loops) = &mut self.io.loops {
                loops.hand_over();
            }
            let Some(membership) = self.io.announced.take() else {
                return Ok(true);
            };
            if !self.apply_membership(membership)? {
                return Ok(false);
            }
            if self.draining || self.disk_is_slow {
                // Roles that the membership has brought do not know yet.
                self.node.drain(now, true, &mut self.io);
            }
        }
    }

    /// Writes a checkpoint if one is due. Returns whether it did: the roles then have work.
    pub(crate) fn write_checkpoint(&mut self) -> bool {
        let Some(next) = self.io.log.checkpoint_due() else {
            return false;
        };
        let loops = self.io.loops.as_ref();
        if loops.is_some_and(|loops| loops.homes.is_in_checkpoint()) {
            return false;
        }
        let needed = self.node.checkpoint(next, &mut self.io);
        match &mut self.io.loops {
            None => self.io.log.checkpoint_appended(needed),
            Some(loops) => loops.begin_checkpoint(needed),
        }
        true
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
        let (layout, config) = layout_of::<P>(&configuration)?;
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
            self.io.loops = None;
            return Ok(false);
        }
        self.submissions.level.set(level_of_features::<P>(level));
        self.admission.change(addresses.len() - 1, &left)?;
        self.io.place(&layout);
        match self.started {
            true => self.reconfigure_roles(&layout, &config),
            false => self.roles_are_outdated = true,
        }
        Ok(true)
    }

    /// Has the roles follow a membership: those that stay learn it, new ones are created and
    /// started, the others are retired.
    fn reconfigure_roles(&mut self, layout: &Layout, config: &P::Config) {
        let State { node, io, .. } = self;
        let here = self.membership.node();
        let is_here = |address| {
            let loops = io.loops.as_ref();
            node.hosts(address) || loops.is_some_and(|loops| loops.home(address).is_some())
        };
        let mut new = self.factory.missing::<P>(is_here, layout, config, false);
        node.reconfigure(io.now, (layout, config, here), io);
        if let Some(loops) = &mut io.loops {
            new = loops.reconfigure((layout, config, here), new);
        }
        for (address, instance) in new {
            node.host(address, instance);
        }
        node.start(io.now, io);
        *self.submissions.lanes.borrow_mut() = layout.client_lanes(here).iter().collect();
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
        self.node.drain(now, drains, &mut self.io);
        if let Some(loops) = &mut self.io.loops {
            loops.drain(drains);
        }
    }

    /// What a node that drains still has to finish.
    pub(crate) fn drain_status(&self) -> DrainStatus {
        let mut loops = self.io.loops.iter();
        let is_drained = self.node.is_drained() && loops.all(Loops::are_drained);
        DrainStatus {
            clients: self.io.application.clients() as u64,
            unanswered: self.io.unanswered,
            leads: !is_drained,
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
        change::check::<P>(known, change).map_err(|error| match error {
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

/// What each role reports.
pub(crate) fn role_status<P: Protocol>(now: Instant, node: &Node<P>) -> Vec<(Address, RoleStatus)> {
    let roles = node.instances().map(|(address, instance)| {
        let kind = usize::from(address.kind);
        let (name, metrics) = (P::KINDS[kind], P::METRICS[kind]);
        let status = RoleStatus::of(now, (name, address.index), instance.status(), metrics);
        (address, status)
    });
    roles.collect()
}
