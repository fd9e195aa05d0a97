//! The event loop of a node.
//!
//! Readers and applications queue messages and requests. One run of the loop takes everything that
//! is queued, runs the roles until they have nothing left to do, makes their records durable, and
//! writes the output, once to each connection. When much has to be made durable the log does it on
//! its own thread, and the loop goes on: the fence of [`Node`](ionian_kernel::node::Node) holds
//! back whatever depends on it.
//!
//! When several readers become ready at the same moment, the system's event queue puts all of them
//! before the run that the first of them wakes. So one run serves all of them, and a message that
//! comes alone is answered without delay. The loop does not poll: it runs when there is input, or
//! when the earliest timer of a role is due.

use super::application::Submissions;
use super::audit::AuditCheck;
use super::clock::Clock;
use super::guard::MachineGuard;
use super::leaving;
use super::settings::NodeSettings;
use super::state::{ExitReason, State};
use crate::admin::control::NodeControl;
use crate::error::NodeError;
use crate::transport::admission::Admission;
use crate::transport::connection::PeerHandler;
use crate::transport::frame::Encoded;
use crate::transport::handshake::Identity;
use crate::transport::membership_exchange::MAX_MEMBERSHIP_BYTES;
use crate::transport::security::NodeTls;
use ionian_deployment::Configuration;
use ionian_kernel::id::Members;
use ionian_kernel::layout::NodeId;
use ionian_kernel::membership::Membership;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::WireError;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often a node that drains before it stops checks whether it has finished.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// Completes when the node is to stop.
pub(crate) type Shutdown = Pin<Box<dyn Future<Output = ()>>>;

/// One event loop with its roles.
pub(crate) struct EventLoop {
    pub(super) state: RefCell<State>,
    pub(super) submissions: Rc<Submissions>,
    /// Notified by the threads of the log, and by the other event loops.
    log_wake: Arc<Notify>,
    pub(super) clock: Clock,
    pub(super) info: NodeInfo,
}

/// What does not change while a node runs.
pub(crate) struct NodeInfo {
    pub(super) identity: Identity,
    pub(super) node: NodeId,
    pub(super) name: String,
    /// Whether an earlier process took part in the cluster and its knowledge is lost.
    pub(super) amnesiac: bool,
    pub(super) admission: Rc<Admission>,
    pub(super) guard: Arc<MachineGuard>,
    pub(super) tls: Option<NodeTls>,
    pub(super) audit: AuditCheck,
    /// How long a request may wait before the roles are started.
    patience: Duration,
    /// The limit of draining when the node is asked to stop.
    drain: Duration,
}

impl NodeInfo {
    pub(crate) fn new(
        settings: &NodeSettings,
        amnesiac: bool,
        admission: Rc<Admission>,
        guard: Arc<MachineGuard>,
    ) -> Self {
        let options = &settings.layout.options;
        NodeInfo {
            identity: settings.identity.clone(),
            node: settings.node,
            name: settings.name.clone(),
            amnesiac,
            admission,
            guard,
            tls: settings.tls.clone(),
            audit: settings.audit.clone(),
            patience: options.lane.patience,
            drain: options.drain,
        }
    }
}

/// Completes at this time; without one it completes at once.
async fn until(at: Option<std::time::Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at.into()).await;
    }
}

/// What follows one run of the loop.
enum TickOutcome {
    /// The next run, when this timer is due at the latest.
    Continue(Option<Instant>),
    /// The end of the loop.
    Exit(ExitReason),
}

impl EventLoop {
    pub(crate) fn new(
        state: State,
        submissions: Rc<Submissions>,
        log_wake: Arc<Notify>,
        clock: Clock,
        info: NodeInfo,
    ) -> Self {
        EventLoop {
            state: RefCell::new(state),
            submissions,
            log_wake,
            clock,
            info,
        }
    }

    /// Starts the roles and runs them until `shutdown` completes and the node is drained, or the
    /// node is no longer a member and has left.
    pub(crate) async fn run(&self, mut shutdown: Shutdown) -> Result<ExitReason, NodeError> {
        let mut stop_at = None;
        let reason = self.run_roles(&mut shutdown, &mut stop_at).await?;
        match (reason, stop_at) {
            (ExitReason::Removed, None) => self.leave(&mut shutdown).await,
            // It was asked to stop before: it leaves when it is started again.
            _ => Ok(ExitReason::Stopped),
        }
    }

    /// Runs the roles; `stop_at` is set when `shutdown` has completed.
    async fn run_roles(
        &self,
        shutdown: &mut Shutdown,
        stop_at: &mut Option<tokio::time::Instant>,
    ) -> Result<ExitReason, NodeError> {
        if let Some(reason) = self.wait_for_admission(shutdown).await? {
            return Ok(reason);
        }
        self.state.borrow_mut().start(self.clock.now())?;
        let mut sleep = pin!(tokio::time::sleep_until(tokio::time::Instant::now()));
        let mut alarm = None;
        loop {
            let timer = match self.run_once()? {
                TickOutcome::Continue(timer) => timer,
                TickOutcome::Exit(reason) => return Ok(reason),
            };
            if stop_at.is_some_and(|at| self.has_drained(at)) {
                return Ok(ExitReason::Stopped);
            }
            if let Some(timer) = timer.filter(|timer| alarm != Some(*timer)) {
                sleep.as_mut().reset(self.clock.at(timer).into());
            }
            alarm = timer;
            let room_at = self.state.borrow().io.log.looks_for_room();
            if self.submissions.wake.is_scheduled() {
                // An application that answers every reply with a request would otherwise keep the
                // loop to itself. The next run takes in whatever has become readable meanwhile.
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                () = &mut *shutdown, if stop_at.is_none() => {
                    *stop_at = Some(tokio::time::Instant::now() + self.info.drain);
                    self.drain(true);
                }
                // The loop is not notified when a client leaves.
                () = tokio::time::sleep(CHECK_EVERY), if stop_at.is_some() => {}
                () = self.submissions.wake.woken() => {}
                () = self.log_wake.notified() => {}
                () = until(room_at), if room_at.is_some() => {}
                // A deadline is rounded up to the next millisecond, the grain of the runtime's
                // timers.
                () = &mut sleep, if alarm.is_some() => {
                    alarm = None;
                    // The same run takes in whatever has arrived by now; and roles whose timers are
                    // always due cannot keep other tasks from running.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Completes when the roles may be started, or else with the reason why the loop ends before.
    async fn wait_for_admission(
        &self,
        shutdown: &mut Shutdown,
    ) -> Result<Option<ExitReason>, NodeError> {
        tokio::select! {
            biased;
            () = shutdown => Ok(Some(ExitReason::Stopped)),
            () = self.info.admission.admitted() => Ok(None),
            exit = self.refuse_until_exit() => exit.map(Some),
        }
    }

    /// Waits until the node can stop that is not a member any more, or is asked to: then it starts
    /// again as a member, and leaves another time.
    async fn leave(&self, shutdown: &mut Shutdown) -> Result<ExitReason, NodeError> {
        self.state.borrow().io.peers.flush();
        let configuration = self.configuration().expect("it has changed");
        tokio::select! {
            biased;
            () = shutdown => return Ok(ExitReason::Stopped),
            () = leaving::until_members_know(&configuration, self.info.tls.as_ref()) => {}
            never = self.refuse_requests() => match never {},
        }
        self.state.borrow().membership.store(&configuration)?;
        Ok(ExitReason::Removed)
    }

    /// Refuses each request when a lane would have given it up.
    async fn refuse_requests(&self) -> Infallible {
        loop {
            self.submissions.wake.woken().await;
            tokio::time::sleep(self.info.patience).await;
            self.submissions.wake.begin();
            self.state.borrow_mut().refuse_requests();
        }
    }

    /// Whether a node that was asked to stop has answered everything, or has reached the limit
    /// `at`.
    fn has_drained(&self, at: tokio::time::Instant) -> bool {
        if let Some(takes) = self.state.borrow().io.log.hangs() {
            let seconds = takes.as_secs_f64();
            tracing::warn!(
                id = "E0605",
                "stopping without draining: the disk has not finished a sync for {seconds:.1} s"
            );
            return true;
        }
        let left = self.state.borrow().drain_status();
        if !left.is_done() && tokio::time::Instant::now() >= at {
            let limit = self.info.drain.as_secs_f64();
            tracing::warn!(
                id = "E0602",
                "stopping after {limit} s, the limit of options.drain_ms; what is left: {left}"
            );
            return true;
        }
        left.is_done()
    }

    /// While the roles are not started, refuses each request when a lane would have given it up.
    /// Completes if the node must end.
    async fn refuse_until_exit(&self) -> Result<ExitReason, NodeError> {
        loop {
            self.submissions.wake.woken().await;
            if self.state.borrow().exit.is_none() {
                tokio::time::sleep(self.info.patience).await;
            }
            self.submissions.wake.begin();
            let state = &mut *self.state.borrow_mut();
            if let Some(exit) = state.exit.take() {
                return exit;
            }
            state.refuse_requests();
        }
    }

    /// One run: see the top of this file.
    fn run_once(&self) -> Result<TickOutcome, NodeError> {
        self.submissions.wake.begin();
        let state = &mut *self.state.borrow_mut();
        if let Some(exit) = state.exit.take() {
            return exit.map(TickOutcome::Exit);
        }
        let now = self.clock.now();
        state.io.now = now;
        state.delays.run_begins(now);
        state.take_in(now)?;
        state.judge_disk(now);
        let mut is_member = state.run_roles(now)?;
        if state.write_checkpoint() {
            is_member &= state.run_roles(now)?;
        }
        // One sync for everything that this burst persisted, and only then what depends on it. If
        // another thread syncs there is nothing to wait for: it wakes the loop.
        while state.io.log.is_behind() {
            state.event_log.records_wait(now);
            state.delays.records_wait(self.clock.now());
            if !state.io.log.flush()? {
                break;
            }
            state.on_durable(self.clock.now());
            is_member &= state.run_roles(now)?;
        }
        let State {
            roles,
            io,
            event_log,
            delays,
            ..
        } = state;
        roles.log_changes(now, event_log, &|| io.log.status());
        io.application.on_burst_end();
        io.peers.flush();
        let (ended, timer) = (self.clock.now(), roles.next_timer());
        delays.run_ends(ended, timer);
        io.iterations.record(ended.since(now).as_micros() as u64);
        Ok(match is_member {
            true => TickOutcome::Continue(timer),
            false => TickOutcome::Exit(ExitReason::Removed),
        })
    }

    /// The membership that the node knows.
    pub(super) fn known_configuration(&self) -> Option<Configuration> {
        self.state.borrow().membership.configuration().cloned()
    }

    /// Closes the queue of requests.
    pub(crate) fn close(&self) {
        self.submissions.close();
    }

    /// Ends the other loops, and writes out what the log has, when the node stops in order.
    pub(crate) fn close_log(&self) -> Result<(), NodeError> {
        let state = &mut *self.state.borrow_mut();
        state.roles.end_loops();
        Ok(state.io.log.close()?)
    }
}

impl PeerHandler for EventLoop {
    fn ingest(&self, members: Members, message: Encoded<'_>) -> Result<(), WireError> {
        if self.state.borrow().has_left {
            return Ok(());
        }
        if members.is_empty() {
            // Addressed to no role, so it is for the driver: a membership.
            let size = message.as_slice().len();
            if size > MAX_MEMBERSHIP_BYTES {
                return Err(WireError::OutOfRange {
                    what: "size of a membership",
                    value: size as u64,
                });
            }
            self.learn(message.decode()?);
            return Ok(());
        }
        let State { roles, io, .. } = &mut *self.state.borrow_mut();
        roles.receive(members, message)?;
        io.counts.messages_in += 1;
        Ok(())
    }

    fn ingested(&self) {
        self.state.borrow_mut().roles.received();
        self.submissions.wake.wake();
    }

    fn must_wait(&self) -> Option<Rc<Notify>> {
        self.state.borrow().roles.must_wait()
    }

    fn learn(&self, membership: Membership) {
        let is_later = self.state.borrow_mut().learn(self.clock.now(), membership);
        if is_later {
            self.submissions.wake.wake();
        }
    }

    fn configuration(&self) -> Option<Configuration> {
        self.known_configuration()
    }

    fn name_of(&self, node: NodeId) -> String {
        self.state.borrow().name_of(node)
    }
}
