//! One system, and one experiment with it: clients that send to the leader, as in the paper, and a
//! price for each message.

use super::super::deployments::clients_apart;
use super::super::simulate::simulated;
use super::super::wan::trial::RegisterService;
use super::REGISTERS;
use anyhow::{Context, Result, ensure};
use ionian_deployment::{CLIENT, Deployment, Node, PresetOptions};
use ionian_kernel::id::{ClientId, Index};
use ionian_kernel::layout::Address;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_sim::AnyMessage;
use ionian_sim::performance::Costs;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Observed, Pace, Source, Variation, observe,
};

/// Processors look at their sockets again after so much work.
const BURST_US: f64 = 1000.0;
/// Between two nodes of a data center, one way, and by how much it varies.
const LAN_US: f64 = 100.0;
const LAN_VARIES_US: f64 = 50.0;
/// Machines of clients where the demand of nodes is measured.
const LANES: usize = 8;
const PIGPAXOS: &str = "pigpaxos-25";

/// What is compared: a deployment with every role on each node.
#[derive(Clone)]
pub(super) struct System {
    pub(super) name: String,
    /// Its first node is copied.
    preset: &'static str,
    pub(super) nodes: usize,
    /// Roles that the preset has and this has not.
    without: &'static [&'static str],
    /// Options of its own.
    options: Vec<String>,
    /// Whether every vote is needed for a value to be chosen.
    needs_all: bool,
    /// Whether clients send to every node, and not to the first, which leads.
    has_clients_everywhere: bool,
}

impl System {
    /// The preset, on this number of nodes.
    fn new(name: &str, preset: &'static str, nodes: usize) -> Self {
        System {
            name: name.to_owned(),
            preset,
            nodes,
            without: &[],
            options: Vec::new(),
            needs_all: false,
            has_clients_everywhere: false,
        }
    }

    /// The same, with clients at every node.
    pub(super) fn leaderless(name: &str, preset: &'static str, nodes: usize) -> Self {
        System {
            has_clients_everywhere: true,
            ..System::new(name, preset, nodes)
        }
    }

    /// PigPaxos with this number of groups, drawn anew as in the preset. A relay does
    /// without one vote where that leaves a majority, as in the paper (5.1).
    pub(super) fn pigpaxos(nodes: usize, groups: usize) -> Self {
        let slack = usize::from(groups <= nodes / 2);
        System::new(&format!("PigPaxos R={groups}"), PIGPAXOS, nodes)
            .with(format!("options.relay_groups={groups}"))
            .with(format!("options.relay_slack={slack}"))
    }

    /// The same nodes without relays: what Ionian offers without PigPaxos. Proxy leaders ask a
    /// majority of acceptors.
    pub(super) fn paxos(nodes: usize) -> Self {
        System {
            without: &["relay"],
            ..System::new(super::PAXOS, PIGPAXOS, nodes)
        }
    }

    /// The same, but all acceptors are asked, as in the paper. A majority of votes is enough.
    pub(super) fn paxos_asking_all(nodes: usize) -> Self {
        System {
            name: super::PAXOS_ASKING_ALL.to_owned(),
            ..System::paxos(nodes).with("options.thrifty=0")
        }
    }

    /// The same under another name.
    pub(super) fn called(self, name: &str) -> Self {
        System {
            name: name.to_owned(),
            ..self
        }
    }

    /// The same with one more option.
    pub(super) fn with(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// The same from another preset.
    pub(super) fn of_preset(self, preset: &'static str) -> Self {
        System { preset, ..self }
    }

    /// With static groups whose first member is always the relay.
    pub(super) fn with_static_relays(self) -> Self {
        self.with("options.relay_shuffle=0")
            .with("options.relay_rotate=0")
    }

    /// Every vote is needed, so relays wait for all.
    pub(super) fn needing_all(self) -> Self {
        System {
            needs_all: true,
            ..self.with("options.relay_slack=0")
        }
    }

    fn deployment(&self) -> Result<Deployment> {
        let preset = Deployment::preset(self.preset, &PresetOptions::default())?;
        let mut template = preset.nodes[0].clone();
        template
            .roles
            .retain(|placed| !self.without.contains(&placed.role.as_str()));
        let node = |index: usize| Node {
            name: format!("n{index}"),
            address: format!("n{index}:1"),
            gateway: Some(format!("n{index}:2")),
            ..template.clone()
        };
        let (f, quorums) = match self.needs_all {
            true => (
                0,
                QuorumSpec::Grid {
                    rows: self.nodes,
                    columns: 1,
                },
            ),
            false => ((self.nodes - 1) / 2, preset.quorums),
        };
        Ok(Deployment {
            nodes: (0..self.nodes).map(node).collect(),
            f,
            quorums,
            ..preset
        }
        .with_overrides(&self.options)?)
    }

    /// With clients on machines of their own: what is measured.
    pub(super) fn measured(&self) -> Result<Deployment> {
        clients_apart(self.deployment()?, LANES)
    }

    /// With clients where they send to: what is simulated at a price for each message.
    fn priced(&self, options: &[String]) -> Result<Deployment> {
        let mut deployment = self.deployment()?;
        for node in deployment.nodes.iter_mut().skip(1) {
            if !self.has_clients_everywhere {
                node.gateway = None;
                node.roles.retain(|placed| placed.role != CLIENT);
            }
        }
        let patient = [
            "durability=memory",
            "options.in_flight=16384",
            "options.patience_ms=300000",
            "options.retry_after_ms=60000",
        ];
        Ok(deployment
            .with_overrides(&patient)?
            .with_overrides(options)?)
    }

    /// Carries out an experiment.
    ///
    /// # Errors
    /// Says so if it cannot be carried out, or if no client has an answer.
    pub(super) fn observe(&self, trial: &Trial) -> Result<Observed> {
        let deployment = self.priced(&trial.options)?;
        let lanes = if self.has_clients_everywhere {
            self.nodes
        } else {
            1
        };
        let observed = observed(&deployment, trial, lanes)
            .with_context(|| format!("{} on {} nodes", self.name, self.nodes))?;
        ensure!(
            observed.sources.iter().any(|it| !it.answers.is_empty()),
            "{} on {} nodes: none of {} clients had an answer",
            self.name,
            self.nodes,
            trial.clients
        );
        Ok(observed)
    }
}

/// What is done with a system.
#[derive(Clone)]
pub(super) struct Trial {
    pub(super) network: Network,
    /// Of all nodes with clients together.
    pub(super) clients: usize,
    pub(super) pace: Pace,
    /// With the microsecond in which each happens.
    pub(super) changes: Vec<(u64, Change)>,
    pub(super) value_bytes: usize,
    pub(super) price: Price,
    /// Options of the experiment.
    pub(super) options: Vec<String>,
    /// It counts from this millisecond until that one.
    pub(super) span_ms: (u64, u64),
    /// Clients ask from this millisecond until that one.
    pub(super) asks_ms: (u64, u64),
}

impl Trial {
    /// In a data center without faults: patient, so that a long queue is not taken for a fault.
    pub(super) fn new(nodes: usize, clients: usize, span_ms: (u64, u64)) -> Self {
        let options = [
            "options.heartbeat_ms=500",
            "options.election_timeout_ms=3000",
            "options.resend_after_ms=2000",
        ];
        let link = Link {
            delay_us: LAN_US,
            bytes_per_second: f64::INFINITY,
        };
        let variation = Variation::Uniform {
            longest_us: LAN_VARIES_US,
        };
        Trial {
            network: Network {
                variation,
                ..Network::clique(nodes, link)
            },
            clients,
            pace: Pace::Answered,
            changes: Vec::new(),
            value_bytes: super::VALUE_BYTES,
            price: Price::PAPER,
            options: options.map(str::to_owned).to_vec(),
            span_ms,
            asks_ms: (0, span_ms.1),
        }
    }

    /// With clients that ask so often, all together, answered or not.
    pub(super) fn at_rate(self, per_second: usize) -> Self {
        let longest_us = 2_000_000 * self.clients as u64 / per_second as u64;
        let pace = Pace::Waits {
            shortest_us: 0,
            longest_us,
        };
        Trial { pace, ..self }
    }
}

/// What messages cost a processor.
#[derive(Clone, Copy)]
pub(super) struct Price {
    /// Microseconds for each message that a node receives or sends, also from and to a client.
    pub(super) message_us: f64,
    /// Microseconds for all else that a command of a client costs the node that serves it.
    pub(super) command_us: f64,
}

impl Price {
    /// That of the paper's implementation: with it the leader of its Paxos, which handles 50
    /// messages a command with 25 nodes, is saturated at 2,000 commands/s, and that of its PigPaxos
    /// with three groups, which handles 8, at 7,000.
    pub(super) const PAPER: Price = Price {
        message_us: 8.5,
        command_us: 75.0,
    };
}

impl Costs for Price {
    fn of(&self, _: Address, _: &dyn AnyMessage) -> f64 {
        0.0
    }

    fn carrying(&self, _: &dyn AnyMessage) -> f64 {
        self.message_us
    }

    fn serving(&self) -> f64 {
        self.message_us + self.command_us / 2.0
    }
}

/// How many of `clients` are on this one of `lanes`: as many as on each other, or one more.
fn share(clients: usize, lanes: usize, lane: usize) -> usize {
    clients / lanes + usize::from(lane < clients % lanes)
}

fn observed(deployment: &Deployment, trial: &Trial, lanes: usize) -> Result<Observed> {
    let Trial {
        clients,
        pace,
        value_bytes,
        price,
        span_ms: (begins, ends),
        asks_ms: (from, until),
        ..
    } = *trial;
    let source = |lane: usize| Source {
        lane: ClientId(lane as Index),
        clients: share(clients, lanes, lane),
        pace,
        from_us: from * 1000,
        until_us: until * 1000,
    };
    let protocol = simulated(&deployment.protocol)?;
    let experiment = Experiment {
        layout: deployment.layout(protocol.description().kinds)?,
        network: trial.network.clone(),
        sources: (0..lanes).map(source).collect(),
        room_bytes: f64::INFINITY,
        changes: trial.changes.clone(),
        wake_us: 0.0,
        burst_us: BURST_US,
        begins_us: begins * 1000,
        ends_us: ends * 1000,
    };
    let service = RegisterService::new(REGISTERS, value_bytes);
    Ok(observe(protocol, &experiment, &price, &service)?)
}
