//! The event loop, as administration uses it: what concerns roles is asked of every loop.

use super::application::Kept;
use super::certificates;
use super::clock::Clock;
use super::event_loop::{EventLoop, NodeInfo};
use super::loop_roles::RoleLoopView;
use super::notes::Question;
use super::state::{State, role_status};
use crate::admin::change::Response;
use crate::admin::control::{Answer, NodeControl};
use crate::admin::status::cpu_time_us;
use crate::admin::traces::TraceRequest;
use crate::process::memory_bytes;
use crate::status::{Measured, NodeStatus, RoleLoopStatus, RoleStatus, WorkStatus, counts};
use crate::traces::{KeptCommand, NodeNotes, RecordingStatus};
use bytes::Bytes;
use ionian_deployment::Configuration;
use ionian_kernel::client::Refusal;
use ionian_kernel::layout::Address;
use ionian_kernel::level::Level;
use ionian_kernel::membership::Change;
use ionian_kernel::protocol::Description;
use ionian_kernel::role::{Cover, Picture};
use ionian_kernel::time::Instant;
use ionian_kernel::trace::Recording;
use tokio::sync::oneshot;

impl EventLoop {
    /// The status but for other loops, with the addresses of the roles.
    fn own_status(&self) -> (NodeStatus, Vec<(Address, RoleStatus)>) {
        let state = &mut *self.state.borrow_mut();
        let lost = state.roles.lost_messages();
        let statuses = state.roles.of_main_loop().statuses();
        let protocol = state.protocol.description();
        let roles = role_status(self.clock.now(), protocol, statuses);
        let state = &*state;
        let State { io, membership, .. } = state;
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
        [event_loop.ignored, event_loop.overdue] = lost;
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
        (status, roles)
    }

    /// Asks every other loop something; one that has ended does not answer.
    pub(super) async fn ask_others<T: Send + 'static>(
        &self,
        question: impl Fn(&mut dyn RoleLoopView) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let mut asked = Vec::new();
        self.state.borrow_mut().roles.order(&mut || {
            let ((answer, answered), question) = (oneshot::channel(), question.clone());
            asked.push(answered);
            Box::new(move |role_loop| {
                // It fails if the question is given up.
                let _ = answer.send(question(role_loop));
            })
        });
        let mut answers = Vec::new();
        for answer in asked {
            answers.extend(answer.await.ok());
        }
        answers
    }

    /// What all loops have noted for traces.
    async fn traced(&self, request: TraceRequest) -> NodeNotes {
        let now = self.clock.now();
        let question = Question::of(&request, now);
        let asked = question.clone();
        let others = self
            .ask_others(move |role_loop: &mut dyn RoleLoopView| role_loop.roles().notes(&asked));
        let others = others.await;
        let state = &mut *self.state.borrow_mut();
        if let Some(Recording { one_in, until }) = question.record {
            state.io.application.keep(one_in, until.since(now));
        }
        let own = state.roles.of_main_loop().notes(&question);
        let mut notes = NodeNotes {
            node: self.info.name.clone(),
            protocol: self.info.identity.protocol.clone(),
            recording: own.recording.map(|recording| RecordingStatus {
                one_in: recording.one_in,
                for_ms: recording.until.since(now).as_millis() as u64,
            }),
            ..NodeNotes::default()
        };
        for of_loop in others.into_iter().chain([own]) {
            notes.lost += of_loop.lost;
            notes.events.extend(of_loop.events);
        }
        let kept = state.io.application.kept();
        if question.names_commands() {
            notes.delays = state.delays.all(state.protocol.description().kinds);
        }
        notes.commands = kept.into_iter().map(|it| it.command(self.clock)).collect();
        notes
    }
}

impl Kept {
    /// The times of this process's clock are those of the node's.
    fn command(self, clock: Clock) -> KeptCommand {
        let (now, node_now) = (std::time::Instant::now(), clock.now());
        let at = |time| (node_now - now.saturating_duration_since(time)).0;
        KeptCommand {
            name: self.name.to_owned(),
            together: self.together as u64,
            command: self.command.map(Into::into),
            parent: self.parent.map(|parent| parent.to_string()),
            slow: self.slow,
            received_us: at(self.received),
            submitted_us: at(self.submitted),
            answered_us: at(self.answered),
            id: self.id,
            written_us: at(self.written.unwrap_or(self.answered)),
        }
    }
}

impl State {
    /// What the node has measured of its work.
    fn work(&self) -> WorkStatus {
        let io = &self.io;
        let measured = io.log.measured();
        WorkStatus {
            loop_sync_us: measured.loop_sync_us,
            loop_wait_us: run_queue_wait_us(),
            role_busy_us: self.roles.busy_us(),
            syncs: counts(&measured.sync_times),
            resident_bytes: memory_bytes().map(|[_, resident]| resident),
            snapshot_stored_at: Some(measured.snapshot_stored_at).filter(|it| *it > 0),
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
fn others_status(
    now: Instant,
    protocol: &Description,
    role_loop: &mut dyn RoleLoopView,
) -> (RoleLoopStatus, Vec<(Address, RoleStatus)>) {
    let roles = role_status(now, protocol, role_loop.roles().statuses());
    let name =
        |(address, status): &(Address, RoleStatus)| format!("{} {}", status.role, address.index);
    let status = RoleLoopStatus {
        roles: roles.iter().map(name).collect(),
        ..role_loop.status()
    };
    (status, roles)
}

impl NodeControl for EventLoop {
    fn status(&self) -> Answer<'_, NodeStatus> {
        Box::pin(async {
            let now = self.clock.now();
            let protocol = self.state.borrow().protocol.description();
            let others = self.ask_others(move |it| others_status(now, protocol, it));
            let others = others.await;
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
        Box::pin(self.traced(request))
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
            let own = self
                .state
                .borrow_mut()
                .roles
                .of_main_loop()
                .freeze(now, cover);
            // A role may have set a timer to ask for what is missing.
            self.submissions.wake.wake();
            let freeze = move |role_loop: &mut dyn RoleLoopView| {
                let now = role_loop.now();
                role_loop.roles().freeze(now, cover)
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
