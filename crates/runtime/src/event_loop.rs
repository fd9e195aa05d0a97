//! The pump. Readers and applications put messages and requests in; the pump runs the roles until
//! nothing is left to do, makes records durable, and writes everything that came of it, once to each
//! connection. When there is much to make durable the log does it on a thread of its own, and the loop
//! goes on meanwhile: whatever depends on it is held back by the node's fence.
//!
//! Readers that became ready in the same moment are all queued, by the system's event queue, before
//! the pump that the first of them wakes, so that one run serves all of them; and a message that comes
//! alone is answered without any delay. Nothing here polls: the pump runs when something was put in,
//! or when the earliest timer of a role is due.

use crate::admission::Admission;
use crate::application::Submissions;
use crate::clock::Clock;
use crate::connection::Host;
use crate::log::LogError;
use crate::settings::Identity;
use crate::status::{NodeStatus, RoleStatus, cpu_time_us};
use crate::world::Outside;
use bytes::Bytes;
use ionian_kernel::client::{Refusal, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::NodeId;
use ionian_kernel::node::{Node, World};
use ionian_kernel::protocol::{Instance, Protocol};
use ionian_kernel::role::Picture;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::{WIRE_VERSION, WireError, decode_all};
use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

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
    pub(crate) patience: std::time::Duration,
}

struct State<P: Protocol> {
    node: Node<P>,
    outside: Outside,
    /// Requests just taken out of the queue. Reused.
    requests: Vec<(ClientId, Request)>,
}

impl<P: Protocol> EventLoop<P> {
    pub(crate) fn new(
        node: Node<P>,
        outside: Outside,
        submissions: Rc<Submissions>,
        log_wake: Arc<Notify>,
        about: About,
    ) -> Self {
        let state = RefCell::new(State { node, outside, requests: Vec::new() });
        EventLoop { state, submissions, log_wake, clock: Clock::start(), about }
    }

    /// Starts the roles and runs them until `shutdown` completes.
    pub(crate) async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), LogError> {
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            () = self.about.admission.admitted() => {}
            () = self.refuse_requests() => {}
        }
        self.start();
        let mut sleep = pin!(tokio::time::sleep_until(tokio::time::Instant::now()));
        let mut alarm = None;
        loop {
            let timer = self.pump()?;
            if timer.is_some() && timer != alarm {
                let at = timer.map(|timer| self.clock.at(timer)).expect("there is a timer");
                sleep.as_mut().reset(at.into());
            }
            alarm = timer;
            if self.submissions.wake.is_scheduled() {
                // An application that answers every reply with a request would otherwise keep the loop
                // to itself. Whatever has become readable meanwhile is taken in by the next run.
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                () = self.submissions.wake.woken() => {}
                () = self.log_wake.notified() => {}
                // A deadline is rounded up to the next millisecond, the grain of the runtime's timers.
                () = &mut sleep, if alarm.is_some() => {
                    alarm = None;
                    // Whatever has arrived by now is taken in by the same run; and roles whose timers
                    // are always due cannot keep everybody else from running.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// While this node waits nobody who asks waits for longer than a lane would let them. Never completes.
    async fn refuse_requests(&self) {
        loop {
            self.submissions.wake.woken().await;
            tokio::time::sleep(self.about.patience).await;
            self.submissions.wake.begin();
            let State { outside, requests, .. } = &mut *self.state.borrow_mut();
            self.submissions.swap(requests);
            for (lane, request) in requests.drain(..) {
                refuse::<P>(outside, lane, request);
            }
            outside.application.on_burst_end();
        }
    }

    fn start(&self) {
        let State { node, outside, .. } = &mut *self.state.borrow_mut();
        outside.now = self.clock.now();
        node.start(outside.now, outside);
    }

    /// One run: see the top of this file. Returns when the next timer is due.
    fn pump(&self) -> Result<Option<Instant>, LogError> {
        self.submissions.wake.begin();
        let State { node, outside, requests } = &mut *self.state.borrow_mut();
        let now = self.clock.now();
        outside.now = now;
        outside.counts.pumps += 1;
        if outside.log.poll()? {
            node.on_durable(outside);
        }
        while let Some((from, stamp)) = outside.log.stored_snapshot()? {
            node.on_snapshot(from, stamp, outside);
        }
        self.submissions.swap(requests);
        outside.counts.requests += requests.len() as u64;
        for (lane, request) in requests.drain(..) {
            match self.submissions.lanes.contains(&lane) {
                true => node.submit(lane, request),
                false => refuse::<P>(outside, lane, request),
            }
        }
        if node.next_timer().is_some_and(|timer| timer <= now) {
            node.fire_timers(now, outside);
        }
        node.settle(now, outside);
        if let Some(next) = outside.log.checkpoint_due() {
            let needed = node.checkpoint(next, outside);
            outside.log.checkpoint_appended(needed);
            node.settle(now, outside);
        }
        // One sync for everything that this burst persisted, and only then what depends on it. If it is
        // done elsewhere there is nothing to wait for: the loop is woken.
        while outside.log.is_behind() && outside.log.flush()? {
            node.on_durable(outside);
            node.settle(now, outside);
        }
        outside.application.on_burst_end();
        outside.peers.flush();
        Ok(node.next_timer())
    }

    /// Nothing is taken in any more.
    pub(crate) fn close(&self) {
        self.submissions.close();
    }
}

/// The lane lives elsewhere or does not run yet, and a request must not be left without an answer.
fn refuse<P: Protocol>(outside: &mut Outside, lane: ClientId, request: Request) {
    let reply = Reply { token: request.token, outcome: Err(Refusal::Unavailable) };
    World::<P>::reply(outside, lane, reply);
}

impl<P: Protocol> Host for EventLoop<P> {
    fn ingest(&self, members: u64, message: &Bytes) -> Result<(), WireError> {
        let message = decode_all(message)?;
        let state = &mut *self.state.borrow_mut();
        state.outside.counts.messages_in += 1;
        state.node.deliver(members, message);
        Ok(())
    }

    fn ingested(&self) {
        self.submissions.wake.wake();
    }

    fn freeze(&self, at: u64) -> Picture {
        let picture = self.state.borrow_mut().node.freeze(self.clock.now(), at);
        // What is missing may be asked for by a timer that the loop does not know of.
        self.submissions.wake.wake();
        picture
    }

    fn status(&self) -> NodeStatus {
        let State { node, outside, .. } = &*self.state.borrow();
        let About { identity, node: id, name, amnesiac, admission, .. } = &self.about;
        let roles = node.instances().map(|(address, instance)| {
            let mut figures = std::collections::BTreeMap::new();
            instance.status(&mut |name, value| {
                figures.insert(name.to_owned(), value);
            });
            RoleStatus { role: P::KINDS[address.kind as usize].to_owned(), index: address.index, figures }
        });
        let (process_cpu_us, loop_cpu_us) = cpu_time_us();
        let mut event_loop = outside.counts;
        let log = outside.log.status();
        event_loop.syncs = log.syncs;
        NodeStatus {
            cluster: identity.cluster.clone(),
            protocol: identity.protocol.clone(),
            deployment: format!("{:016x}", identity.deployment),
            node: id.0,
            name: name.clone(),
            wire_version: WIRE_VERSION,
            pid: std::process::id(),
            uptime_us: self.clock.uptime().as_micros() as u64,
            amnesiac: *amnesiac,
            directory: admission.own().map(|directory| directory.to_string()),
            takes_part: admission.is_admitted(),
            process_cpu_us,
            loop_cpu_us,
            event_loop,
            log,
            roles: roles.collect(),
            peers: outside.peers.status(),
        }
    }
}
