//! The pump. Readers and applications put messages and requests in; the pump runs the roles until
//! nothing is left to do, makes records durable, and writes everything that came of it, once to
//! each connection. When there is much to make durable the log does it on a thread of its own, and
//! the loop goes on meanwhile: whatever depends on it is held back by the node's fence.
//!
//! Readers that became ready in the same moment are all queued, by the system's event queue, before
//! the pump that the first of them wakes, so that one run serves all of them; and a message that
//! comes alone is answered without any delay. Nothing here polls: the pump runs when something was
//! put in, or when the earliest timer of a role is due.

use super::application::Submissions;
use super::chronicle::Chronicle;
use super::clock::Clock;
use super::following::Following;
use super::io::Outside;
use crate::admin::change::{self, ChangeError, Response};
use crate::admin::control::NodeControl;
use crate::admin::status::cpu_time_us;
use crate::error::NodeError;
use crate::status::{DrainStatus, NodeStatus, RoleStatus};
use crate::transport::admission::Admission;
use crate::transport::connection::PeerHandler;
use crate::transport::frame::Encoded;
use crate::transport::handshake::Identity;
use crate::transport::membership_exchange::MAX_NEWS;
use bytes::Bytes;
use ionian_deployment::Configuration;
use ionian_kernel::client::{Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::{Change, Membership};
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Instance, Protocol};
use ionian_kernel::role::Picture;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::{WIRE_VERSION, WireError, encode_all};
use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How often it is looked whether a node that is told to stop can.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One event loop with the roles that live on it.
pub(crate) struct EventLoop<P: Protocol> {
    state: RefCell<State<P>>,
    submissions: Rc<Submissions>,
    /// Notified by the threads of the log.
    log_wake: Arc<Notify>,
    clock: Clock,
    about: About,
}

/// What a loop is called.
pub(crate) struct About {
    pub(crate) identity: Identity,
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) amnesiac: bool,
    pub(crate) admission: Rc<Admission>,
    /// How long a request may wait before the roles are started.
    pub(crate) patience: Duration,
    /// How long those who wait for an answer are waited for when the node is told to stop.
    pub(crate) drain: Duration,
    /// By how much the wall clock is misread.
    pub(crate) clock_ahead_ms: i64,
}

/// Why a loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to.
    Stopped,
    /// The node is not a member of its cluster any more.
    Removed,
}

struct State<P: Protocol> {
    node: Node<P>,
    outside: Outside,
    following: Following,
    chronicle: Chronicle,
    /// Whether the node does without clients and leadership.
    drains: bool,
    /// What came of news that were taken in between two runs, if it ends the loop.
    end: Option<Result<End, NodeError>>,
    /// Requests just taken out of the queue. Reused.
    requests: Vec<(ClientId, Request)>,
}

impl<P: Protocol> EventLoop<P> {
    pub(crate) fn new(
        node: Node<P>,
        outside: Outside,
        following: Following,
        submissions: Rc<Submissions>,
        log_wake: Arc<Notify>,
        about: About,
    ) -> Self {
        let (chronicle, drains, end, requests) = Default::default();
        let state = RefCell::new(State {
            node,
            outside,
            following,
            chronicle,
            drains,
            end,
            requests,
        });
        let clock = Clock::start(about.clock_ahead_ms);
        EventLoop {
            state,
            submissions,
            log_wake,
            clock,
            about,
        }
    }

    /// Starts the roles and runs them until `shutdown` completes and what was begun is over, or the
    /// node is no member any more.
    pub(crate) async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<End, NodeError> {
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(End::Stopped),
            () = self.about.admission.admitted() => {}
            end = self.wait_for_news() => return end,
        }
        self.start()?;
        let mut sleep = pin!(tokio::time::sleep_until(tokio::time::Instant::now()));
        let mut alarm = None;
        let mut stop_at = None;
        loop {
            let timer = match self.pump()? {
                Pumped::Next(timer) => timer,
                Pumped::Over(end) => return Ok(end),
            };
            if stop_at.is_some_and(|at| self.has_stopped(at)) {
                return Ok(End::Stopped);
            }
            if timer.is_some() && timer != alarm {
                let at = timer
                    .map(|timer| self.clock.at(timer))
                    .expect("there is a timer");
                sleep.as_mut().reset(at.into());
            }
            alarm = timer;
            if self.submissions.wake.is_scheduled() {
                // An application that answers every reply with a request would otherwise keep the
                // loop to itself. Whatever has become readable meanwhile is taken in by the next
                // run.
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                () = &mut shutdown, if stop_at.is_none() => {
                    stop_at = Some(tokio::time::Instant::now() + self.about.drain);
                    self.drain(true);
                }
                // Clients leave without a word to this loop.
                () = tokio::time::sleep(LOOK_EVERY), if stop_at.is_some() => {}
                () = self.submissions.wake.woken() => {}
                () = self.log_wake.notified() => {}
                // A deadline is rounded up to the next millisecond, the grain of the runtime's
                // timers.
                () = &mut sleep, if alarm.is_some() => {
                    alarm = None;
                    // Whatever has arrived by now is taken in by the same run; and roles whose
                    // timers are always due cannot keep everybody else from running.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Whether a node that was told to stop has answered everything, or has gone on until `at`,
    /// which is as long as it may.
    fn has_stopped(&self, at: tokio::time::Instant) -> bool {
        let left = self.state.borrow().drain_status();
        if !left.is_done() && tokio::time::Instant::now() >= at {
            let limit = self.about.drain.as_secs_f64();
            tracing::warn!(
                "stopping after {limit} s, the limit of options.drain_ms; what is left: {left}"
            );
            return true;
        }
        left.is_done()
    }

    /// While this node waits nobody who asks waits for longer than a lane would let them. Completes
    /// when it is told something that ends it.
    async fn wait_for_news(&self) -> Result<End, NodeError> {
        loop {
            self.submissions.wake.woken().await;
            if self.state.borrow().end.is_none() {
                tokio::time::sleep(self.about.patience).await;
            }
            self.submissions.wake.begin();
            let State {
                outside,
                requests,
                end,
                ..
            } = &mut *self.state.borrow_mut();
            if let Some(end) = end.take() {
                return end;
            }
            self.submissions.swap(requests);
            for (lane, request) in requests.drain(..) {
                refuse::<P>(outside, lane, request);
            }
            outside.application.on_burst_end();
        }
    }

    fn start(&self) -> Result<(), NodeError> {
        let State {
            node,
            outside,
            following,
            ..
        } = &mut *self.state.borrow_mut();
        outside.now = self.clock.now();
        node.start(outside.now, outside);
        following.start(node, outside, &self.submissions)
    }

    /// One run: see the top of this file.
    fn pump(&self) -> Result<Pumped, NodeError> {
        self.submissions.wake.begin();
        let state = &mut *self.state.borrow_mut();
        if let Some(end) = state.end.take() {
            return end.map(Pumped::Over);
        }
        let now = self.clock.now();
        state.outside.now = now;
        state.take_in(now, &self.submissions)?;
        let mut is_member = state.settle(now, &self.submissions)?;
        let State { node, outside, .. } = state;
        if let Some(next) = outside.log.checkpoint_due() {
            let needed = node.checkpoint(next, outside);
            outside.log.checkpoint_appended(needed);
            is_member &= state.settle(now, &self.submissions)?;
        }
        // One sync for everything that this burst persisted, and only then what depends on it. If
        // it is done elsewhere there is nothing to wait for: the loop is woken.
        while state.outside.log.is_behind() {
            state.chronicle.waits(now);
            if !state.outside.log.flush()? {
                break;
            }
            state.chronicle.is_durable(self.clock.now());
            state.node.on_durable(&mut state.outside);
            is_member &= state.settle(now, &self.submissions)?;
        }
        let State {
            node,
            outside,
            chronicle,
            ..
        } = state;
        chronicle.look::<P>(now, node.instances(), || outside.log.status());
        state.outside.application.on_burst_end();
        state.outside.peers.flush();
        Ok(match is_member {
            true => Pumped::Next(state.node.next_timer()),
            false => Pumped::Over(End::Removed),
        })
    }

    /// Nothing is taken in any more.
    pub(crate) fn close(&self) {
        self.submissions.close();
    }

    /// Writes out what the log has, at an orderly end.
    pub(crate) fn close_log(&self) -> Result<(), NodeError> {
        Ok(self.state.borrow_mut().outside.log.close()?)
    }
}

/// What comes after a run.
enum Pumped {
    /// Another, when this timer is due at the latest.
    Next(Option<Instant>),
    /// Nothing.
    Over(End),
}

impl<P: Protocol> State<P> {
    /// Everything that has happened since the last run.
    fn take_in(&mut self, now: Instant, submissions: &Submissions) -> Result<(), NodeError> {
        let State {
            node,
            outside,
            chronicle,
            requests,
            ..
        } = self;
        outside.counts.pumps += 1;
        if outside.log.poll()? {
            chronicle.is_durable(now);
            node.on_durable(outside);
        }
        while let Some((from, stamp)) = outside.log.stored_snapshot()? {
            node.on_snapshot(from, stamp, outside);
        }
        submissions.swap(requests);
        outside.counts.requests += requests.len() as u64;
        outside.unanswered += requests.len() as u64;
        for (lane, request) in requests.drain(..) {
            match submissions.lanes.borrow().contains(&lane) {
                true => node.submit(lane, request),
                false => refuse::<P>(outside, lane, request),
            }
        }
        if node.next_timer().is_some_and(|timer| timer <= now) {
            node.fire_timers(now, outside);
        }
        Ok(())
    }

    /// Lets the roles work until nothing is queued, and follows where they find that the log has
    /// led. False when this node is not a member there.
    fn settle(&mut self, now: Instant, submissions: &Submissions) -> Result<bool, NodeError> {
        let State {
            node,
            outside,
            following,
            ..
        } = self;
        loop {
            node.settle(now, outside);
            let Some(membership) = outside.announced.take() else {
                return Ok(true);
            };
            if !following.follow(membership, node, outside, submissions)? {
                return Ok(false);
            }
            if self.drains {
                // Roles that came with it do not know.
                node.drain(now, true, outside);
            }
        }
    }

    /// What is left of what it is to do without.
    fn drain_status(&self) -> DrainStatus {
        let State { node, outside, .. } = self;
        DrainStatus {
            clients: outside.application.clients() as u64,
            unanswered: outside.unanswered,
            leads: !node.is_drained(),
        }
    }
}

/// The lane lives elsewhere or does not run yet, and a request must not be left without an answer.
fn refuse<P: Protocol>(outside: &mut Outside, lane: ClientId, request: Request) {
    let reply = Reply {
        token: request.token,
        outcome: Err(Refusal::Unavailable),
    };
    World::<P>::reply(outside, lane, reply);
}

impl<P: Protocol> PeerHandler for EventLoop<P> {
    fn ingest(&self, members: u64, message: Encoded<'_>) -> Result<(), WireError> {
        if members == 0 {
            // Meant for no role, so it is for the driver: news of the membership.
            let size = message.as_slice().len();
            if size > MAX_NEWS {
                return Err(WireError::OutOfRange {
                    what: "size of a membership",
                    value: size as u64,
                });
            }
            self.learn(message.decode()?);
            return Ok(());
        }
        let message = message.decode()?;
        let state = &mut *self.state.borrow_mut();
        state.outside.counts.messages_in += 1;
        state.node.deliver(members, message);
        Ok(())
    }

    fn ingested(&self) {
        self.submissions.wake.wake();
    }

    fn learn(&self, membership: Membership) {
        let state = &mut *self.state.borrow_mut();
        let State {
            node,
            outside,
            following,
            end,
            ..
        } = state;
        if end.is_some() || membership.epoch <= outside.peers.epoch() {
            return;
        }
        outside.now = self.clock.now();
        *end = match following.follow(membership, node, outside, &self.submissions) {
            Ok(true) => None,
            Ok(false) => Some(Ok(End::Removed)),
            // Whoever says such a thing is no reason to stop. If it is true, this node will find it
            // in the log.
            Err(error @ NodeError::Membership { .. }) => {
                tracing::error!("what a node says of the membership is not believed: {error}");
                None
            }
            Err(error) => Some(Err(error)),
        };
        self.submissions.wake.wake();
    }

    fn configuration(&self) -> Option<Configuration> {
        self.state.borrow().following.configuration.clone()
    }

    fn name_of(&self, node: NodeId) -> String {
        let state = self.state.borrow();
        let nodes = state
            .following
            .configuration
            .as_ref()
            .map(Configuration::nodes);
        nodes
            .and_then(|nodes| Some(nodes.get(&node)?.name.clone()))
            .unwrap_or_default()
    }
}

impl<P: Protocol> NodeControl for EventLoop<P> {
    fn status(&self) -> NodeStatus {
        let state = &*self.state.borrow();
        let State {
            node,
            outside,
            following,
            ..
        } = state;
        let About {
            identity,
            node: id,
            name,
            amnesiac,
            admission,
            ..
        } = &self.about;
        let roles = node.instances().map(|(address, instance)| {
            let mut figures = std::collections::BTreeMap::new();
            instance.status(&mut |name, value| {
                figures.insert(name.to_owned(), value);
            });
            RoleStatus {
                role: P::KINDS[address.kind as usize].to_owned(),
                index: address.index,
                figures,
            }
        });
        let (process_cpu_us, loop_cpu_us) = cpu_time_us();
        let mut event_loop = outside.counts;
        let log = outside.log.status();
        event_loop.syncs = log.syncs;
        event_loop.ignored = node.ignored();
        NodeStatus {
            cluster: identity.cluster.clone(),
            protocol: identity.protocol.clone(),
            founding: format!("{:016x}", identity.founding),
            epoch: outside.peers.epoch().0,
            changing: following
                .configuration
                .as_ref()
                .is_some_and(|known| known.next.is_some()),
            node: id.0,
            name: name.clone(),
            wire_version: WIRE_VERSION,
            pid: std::process::id(),
            uptime_us: self.clock.uptime().as_micros() as u64,
            amnesiac: *amnesiac,
            directory: admission.own().map(|directory| directory.to_string()),
            drains: state.drains.then(|| state.drain_status()),
            takes_part: admission.is_admitted(),
            process_cpu_us,
            loop_cpu_us,
            event_loop,
            log,
            roles: roles.collect(),
            peers: outside.peers.status(),
        }
    }

    fn drain(&self, drains: bool) {
        let state = &mut *self.state.borrow_mut();
        if state.drains == drains {
            return;
        }
        state.drains = drains;
        match drains {
            true => tracing::info!("draining: no new clients, and another node is to lead"),
            false => tracing::info!("no longer draining: clients are served again"),
        }
        state.outside.now = self.clock.now();
        state
            .node
            .drain(state.outside.now, drains, &mut state.outside);
        state.outside.application.drain(drains);
        self.submissions.wake.wake();
    }

    fn freeze(&self, at: u64) -> Picture {
        let picture = self.state.borrow_mut().node.freeze(self.clock.now(), at);
        // What is missing may be asked for by a timer that the loop does not know of.
        self.submissions.wake.wake();
        picture
    }

    fn membership_document(&self) -> Option<String> {
        let state = self.state.borrow();
        let configuration = state.following.configuration.as_ref();
        configuration.map(Configuration::to_toml)
    }

    fn submit(
        &self,
        change: &Change,
    ) -> Result<oneshot::Receiver<Result<Bytes, Refusal>>, Response> {
        let state = &mut *self.state.borrow_mut();
        let refused = |text: &dyn core::fmt::Display| Response::Refused(text.to_string());
        let known = state.following.configuration.as_ref();
        let known =
            known.ok_or_else(|| refused(&"the membership of this cluster cannot change"))?;
        change::check::<P>(known, change).map_err(|error| match error {
            ChangeError::Ahead(_) => Response::Undecided(error.to_string()),
            error => refused(&error),
        })?;
        let no_lane = || {
            Response::Undecided(
                "it has no client lane, through which a change could be asked for".into(),
            )
        };
        let lane = self.submissions.first_lane().ok_or_else(no_lane)?;
        let (request, answer) = state.outside.operator.request(encode_all(change).into());
        self.submissions.submit(lane, request);
        Ok(answer)
    }
}
