//! The event loop, as administration uses it: what concerns roles is asked of every loop.

use super::certificates;
use super::event_loop::{EventLoop, NodeInfo};
use super::loops::{Loops, RoleThread};
use super::state::{State, role_status};
use crate::admin::change::Response;
use crate::admin::control::{Answer, NodeControl};
use crate::admin::status::cpu_time_us;
use crate::admin::traces::TraceRequest;
use crate::status::{Measured, NodeStatus, RoleLoopStatus, RoleStatus, WorkStatus, counts};
use crate::traces::NodeNotes;
use bytes::Bytes;
use ionian_deployment::Configuration;
use ionian_kernel::client::Refusal;
use ionian_kernel::layout::Address;
use ionian_kernel::level::Level;
use ionian_kernel::membership::Change;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::role::{Cover, Picture};
use ionian_kernel::time::Instant;
use tokio::sync::oneshot;

impl<P: Protocol> EventLoop<P> {
    /// The status but for other loops, with the addresses of the roles.
    fn own_status(&self) -> (NodeStatus, Vec<(Address, RoleStatus)>) {
        let state = &*self.state.borrow();
        let State {
            node,
            io,
            membership,
            ..
        } = state;
        let NodeInfo {
            identity,
            node: id,
            name,
            amnesiac,
            admission,
            guard,
            tls,
            audit,
            ..
        } = &self.info;
        let (process_cpu_us, loop_cpu_us) = cpu_time_us();
        let mut event_loop = io.counts;
        let log = io.log.status();
        let known = membership.configuration();
        let level = known.map_or(Level::FIRST, |known| known.membership.level);
        event_loop.syncs = log.syncs;
        event_loop.ignored = node.ignored();
        event_loop.overdue = node.overdue();
        let status = NodeStatus {
            cluster: identity.cluster.clone(),
            protocol: identity.protocol.clone(),
            founding: format!("{:016x}", identity.founding),
            epoch: io.peers.epoch().0,
            changing: known.is_some_and(|known| known.next.is_some()),
            node: id.0,
            name: name.clone(),
            wire_version: level.number(),
            level: level.0,
            release: Some(env!("CARGO_PKG_VERSION").to_owned()),
            supports: Some((Level::OLDEST.0, Level::LATEST.0)),
            pid: std::process::id(),
            uptime_us: self.clock.uptime().as_micros() as u64,
            amnesiac: *amnesiac,
            directory: admission.own().map(|directory| directory.to_string()),
            drains: state.drains(),
            takes_part: admission.is_admitted(),
            process_cpu_us,
            loop_cpu_us,
            event_loop,
            role_loops: Vec::new(),
            log,
            roles: Vec::new(),
            peers: io.peers.status(),
            work: Some(state.work()),
            measured: Measured {
                iterations: io.iterations,
                log: io.log.measured(),
            },
            tls: tls.as_ref().map(certificates::status),
            audit_refusal: audit.refusal(),
            unfinished: guard.executing().unfinished(),
        };
        (status, role_status(self.clock.now(), node))
    }

    /// Asks every other loop something; one that has ended does not answer.
    pub(super) async fn ask_others<T: Send + 'static>(
        &self,
        question: impl Fn(&mut RoleThread<P>) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let asked = self
            .state
            .borrow_mut()
            .io
            .loops
            .as_mut()
            .map(|loops: &mut Loops<P>| loops.ask(question));
        let mut answers = Vec::new();
        for answer in asked.unwrap_or_default() {
            answers.extend(answer.await.ok());
        }
        answers
    }
}

impl<P: Protocol> State<P> {
    /// What the node has measured of its work.
    fn work(&self) -> WorkStatus {
        let io = &self.io;
        let measured = io.log.measured();
        WorkStatus {
            loop_sync_us: measured.loop_sync_us,
            loop_wait_us: run_queue_wait_us(),
            role_busy_us: match io.loops {
                None => {
                    let instances = self.node.instances();
                    instances.map(|(it, _)| self.busy.of(it)).collect()
                }
                Some(_) => Vec::new(),
            },
            syncs: counts(&measured.sync_times),
            clients: io.application.measured(),
        }
    }
}

/// How long this thread was ready to run and had no processor, in microseconds. Linux only.
fn run_queue_wait_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited_ns: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(waited_ns / 1000)
}

/// What a role loop reports of itself and its roles.
fn others_status<P: Protocol>(
    now: Instant,
    thread: &mut RoleThread<P>,
) -> (RoleLoopStatus, Vec<(Address, RoleStatus)>) {
    let roles = role_status(now, &thread.role_loop.node);
    let name =
        |(address, status): &(Address, RoleStatus)| format!("{} {}", status.role, address.index);
    let status = RoleLoopStatus {
        roles: roles.iter().map(name).collect(),
        ..thread.status()
    };
    (status, roles)
}

impl<P: Protocol> NodeControl for EventLoop<P> {
    fn status(&self) -> Answer<'_, NodeStatus> {
        Box::pin(async {
            let now = self.clock.now();
            let others = self.ask_others(move |it| others_status(now, it)).await;
            let (mut status, mut roles) = self.own_status();
            for (of_loop, of_roles) in others {
                status.role_loops.push(of_loop);
                roles.extend(of_roles);
            }
            if !status.role_loops.is_empty() {
                roles.sort_by_key(|(address, _)| *address);
            }
            status.roles = roles.into_iter().map(|(_, status)| status).collect();
            status
        })
    }

    fn notes(&self, request: TraceRequest) -> Answer<'_, NodeNotes> {
        Box::pin(self.notes(request))
    }

    fn drain(&self, drains: bool) {
        let is_change = self.state.borrow_mut().drain(self.clock.now(), drains);
        if is_change {
            self.submissions.wake.wake();
        }
    }

    fn freeze(&self, cover: Cover) -> Answer<'_, Picture> {
        Box::pin(async move {
            let now = self.clock.now();
            let own = self.state.borrow_mut().node.freeze(now, cover);
            // A role may have set a timer to ask for what is missing.
            self.submissions.wake.wake();
            let freeze = move |thread: &mut RoleThread<P>| {
                let now = thread.clock.now();
                thread.role_loop.node.freeze(now, cover)
            };
            let others = self.ask_others(freeze).await;
            others
                .into_iter()
                .fold(own, |best, other| best.or_else(|| other))
        })
    }

    fn membership_document(&self) -> Option<String> {
        let state = self.state.borrow();
        state.membership.configuration().map(Configuration::to_toml)
    }

    fn submit(
        &self,
        change: &Change,
    ) -> Result<oneshot::Receiver<Result<Bytes, Refusal>>, Response> {
        self.state.borrow_mut().submit_change(change)
    }
}
