//! A node among real ones: a whole node, with every role that the preset puts on it (the sum of its
//! roles apart is more than what it costs, for between roles of one node a message is a function
//! call), or a role whose demand among forged messages is to be checked.
//!
//! The other nodes run on the thread of the bench, and so do the client lanes, each on a node of
//! its own. They cost more than the node that is measured, so that one is throttled.

use super::commands::Commands;
use super::flow::Flow;
use super::stage::{Measured, Scene, Subject};
use anyhow::{Context, Result, bail};
use ionian_deployment::Configuration;
use ionian_kernel::client::{Operation, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::mencius::Mencius;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_runtime::{Application, LaneHandle, NodeSettings, resolve, run_node};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::task::LocalSet;

/// Machines that the clients are on: one for each node of the presets, so that leaders of Mencius
/// have as much to do as each other.
pub(super) const LANES: usize = 3;

/// The presets that have every role on each node, unbatched.
pub(super) const PRESETS: [&str; 3] = ["baseline", "mencius", "spaxos"];

impl Scene {
    /// Measures it.
    pub(super) fn run_among_real(self) -> Result<Measured> {
        match self.deployment.protocol.as_str() {
            MultiPaxos::NAME => self.perform_among_real::<MultiPaxos>(),
            Mencius::NAME => self.perform_among_real::<Mencius>(),
            SPaxos::NAME => self.perform_among_real::<SPaxos>(),
            Unreplicated::NAME => self.perform_among_real::<Unreplicated>(),
            other => bail!("nodes of the protocol {other:?} cannot be measured"),
        }
    }

    fn perform_among_real<P: Protocol>(self) -> Result<Measured> {
        let config = P::configure(self.deployment.layout(P::KINDS)?)?;
        let machine = ionian_machines::named(&self.machine)
            .with_context(|| format!("no machine {:?}", self.machine))?;
        let subject = Subject::start(&self)?;
        let address = resolve(&self.deployment.nodes[subject.node].address)?;
        let (flow, commands) = (
            Rc::new(Flow::new(self.in_flight)),
            Rc::new(self.commands(LANES)),
        );
        let failure = Rc::new(RefCell::new(None));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, async {
            for (_, node) in self
                .deployment
                .nodes
                .iter()
                .enumerate()
                .filter(|(place, _)| *place != subject.node)
            {
                let settings = NodeSettings::new::<P>(
                    Configuration::founded(self.deployment.clone()),
                    &node.name,
                    None,
                )?;
                let (config, failure) = (config.clone(), failure.clone());
                let (flow, commands) = (flow.clone(), commands.clone());
                let window = self.in_flight / LANES as u64;
                tokio::task::spawn_local(async move {
                    let application =
                        move |handle| Box::new(Asking::begin(handle, window, flow, commands)) as _;
                    let ran = run_node::<P>(
                        settings,
                        config,
                        machine,
                        application,
                        std::future::pending(),
                    )
                    .await;
                    *failure.borrow_mut() = ran.err();
                });
            }
            self.watch(&subject, address, &flow, &failure).await
        })
    }
}

/// Keeps a number of writes of its node's lane in flight; none where the node has no lane.
struct Asking {
    handle: LaneHandle,
    flow: Rc<Flow>,
    commands: Rc<Commands>,
    next: Cell<u64>,
}

impl Asking {
    fn begin(handle: LaneHandle, window: u64, flow: Rc<Flow>, commands: Rc<Commands>) -> Self {
        let asking = Asking {
            handle,
            flow,
            commands,
            next: Cell::new(0),
        };
        if let Some(lane) = asking.handle.first_lane() {
            (0..window).for_each(|_| asking.ask(lane));
        }
        asking
    }

    fn ask(&self, lane: ClientId) {
        let token = self.next.replace(self.next.get() + 1);
        let payload = self.commands.payload(token);
        self.handle.submit(
            lane,
            Request {
                token,
                operation: Operation::Write,
                payload,
            },
        );
    }
}

impl Application for Asking {
    fn on_reply(&mut self, lane: ClientId, reply: Reply) {
        // One that was refused, before a leader is known, is asked again as any other.
        self.flow.finish(u64::from(reply.outcome.is_ok()));
        self.ask(lane);
    }
}
