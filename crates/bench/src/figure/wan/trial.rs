//! One experiment with one system.

use super::super::simulate::simulated;
use super::{MESSAGE_US, SITE_NAMES};
use anyhow::Result;
use bytes::Bytes;
use ionian_deployment::{Deployment, Node, PresetOptions};
use ionian_kernel::id::{ClientId, Index};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::random::Random;
use ionian_machines::registers::{self, Registers};
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Change, Experiment, Network, Observed, Pace, PerMessage, Source, observe,
};

/// Processors look at their sockets again after so much work.
const BURST_US: f64 = 1000.0;
const SECOND: u64 = 1_000_000;

/// What is compared: a protocol on one node a site.
#[derive(Clone, Copy)]
pub(super) struct System {
    pub(super) name: &'static str,
    /// Every node of it has all roles.
    preset: &'static str,
    /// Every acceptor's vote is asked for, and waited for.
    asks_all: bool,
    /// Options of its own.
    options: &'static [&'static str],
    /// Of the register service: how many there are says how many commands conflict.
    registers: u16,
}

/// What is done with it.
#[derive(Clone)]
pub(super) struct Trial {
    pub(super) sites: usize,
    pub(super) network: Network,
    /// Dummy bytes of a command.
    pub(super) padding: usize,
    pub(super) loads: Vec<Load>,
    /// With the second in which each happens.
    pub(super) changes: Vec<(u64, Change)>,
    /// A site with this number of commands in flight makes its clients wait, or refuses more where
    /// they do not.
    pub(super) in_flight: usize,
    /// A client whose site has more bytes waiting for a link waits.
    pub(super) room_bytes: f64,
    /// What is not answered for so long is asked of others, and a leader silent for longer is
    /// suspected. Where no site fails, that is longer than any queue.
    pub(super) resend_after_ms: usize,
    pub(super) election_timeout_ms: usize,
    /// The price of a message.
    pub(super) message_us: f64,
    /// It counts from this second until that one.
    pub(super) seconds: (u64, u64),
}

/// Clients of one site.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) site: usize,
    pub(super) clients: usize,
    pub(super) pace: Pace,
    /// From this second until that one.
    pub(super) seconds: (u64, u64),
}

impl System {
    /// The protocol of this preset, which has all roles on each node.
    pub(super) const fn new(name: &'static str, preset: &'static str) -> Self {
        System {
            name,
            preset,
            asks_all: false,
            options: &[],
            registers: 1024,
        }
    }

    /// The same with these options.
    pub(super) const fn with(self, options: &'static [&'static str]) -> Self {
        System { options, ..self }
    }

    /// The same on this number of registers.
    pub(super) const fn on_registers(self, registers: u16) -> Self {
        System { registers, ..self }
    }

    /// The same, but every acceptor's vote is asked for and waited for: no failure is tolerated.
    pub(super) const fn asking_all(self) -> Self {
        System {
            asks_all: true,
            ..self
        }
    }

    pub(super) fn observe(&self, trial: &Trial) -> Result<Observed> {
        let Trial {
            padding,
            message_us,
            seconds: (begins, ends),
            ..
        } = *trial;
        let source = |load: &Load| Source {
            lane: ClientId(load.site as Index),
            clients: load.clients,
            pace: load.pace,
            from_us: load.seconds.0 * SECOND,
            until_us: load.seconds.1 * SECOND,
        };
        let deployment = self.deployment(trial)?;
        let protocol = simulated(&deployment.protocol)?;
        let experiment = Experiment {
            layout: deployment.layout(protocol.description().kinds)?,
            network: trial.network.clone(),
            sources: trial.loads.iter().map(source).collect(),
            room_bytes: trial.room_bytes,
            changes: trial
                .changes
                .iter()
                .map(|(second, change)| (second * SECOND, *change))
                .collect(),
            wake_us: 0.0,
            burst_us: BURST_US,
            begins_us: begins * SECOND,
            ends_us: ends * SECOND,
        };
        let service = RegisterService::new(self.registers, padding);
        let prices = PerMessage { us: message_us };
        Ok(observe(protocol, &experiment, &prices, &service)?)
    }

    fn deployment(
        &self,
        &Trial {
            sites,
            in_flight,
            resend_after_ms,
            election_timeout_ms,
            ..
        }: &Trial,
    ) -> Result<Deployment> {
        let preset = Deployment::preset(self.preset, &PresetOptions::default())?;
        let node = |name: &&str| Node {
            name: (*name).to_owned(),
            address: format!("{name}:1"),
            gateway: Some(format!("{name}:2")),
            ..preset.nodes[0].clone()
        };
        let nodes = SITE_NAMES[..sites].iter().map(node).collect();
        let (f, quorums) = match self.asks_all {
            // One column of all of them.
            true => (
                0,
                QuorumSpec::Grid {
                    rows: sites,
                    columns: 1,
                },
            ),
            false => ((sites - 1) / 2, preset.quorums),
        };
        let options = [
            "options.heartbeat_ms=200".to_owned(),
            format!("options.election_timeout_ms={election_timeout_ms}"),
            "options.patience_ms=300000".to_owned(),
            "options.retry_after_ms=60000".to_owned(),
            format!("options.resend_after_ms={resend_after_ms}"),
            format!("options.in_flight={in_flight}"),
        ];
        let own = self.options.iter().map(|option| (*option).to_owned());
        let options: Vec<String> = options.into_iter().chain(own).collect();
        Ok(Deployment {
            nodes,
            f,
            quorums,
            ..preset
        }
        .with_overrides(&options)?)
    }
}

impl Trial {
    /// On this number of sites with this network, without clients yet.
    pub(super) fn new(sites: usize, network: Network, padding: usize, seconds: (u64, u64)) -> Self {
        Trial {
            sites,
            network,
            padding,
            loads: Vec::new(),
            changes: Vec::new(),
            in_flight: 4096,
            room_bytes: f64::INFINITY,
            resend_after_ms: 60_000,
            election_timeout_ms: 60_000,
            message_us: MESSAGE_US,
            seconds,
        }
    }

    /// With clients at every site, all the time.
    pub(super) fn with_clients(self, clients: usize, pace: Pace) -> Self {
        let (sites, seconds) = (self.sites, (1, self.seconds.1));
        let loads = (0..sites)
            .map(|site| Load {
                site,
                clients,
                pace,
                seconds,
            })
            .collect();
        Trial { loads, ..self }
    }
}

/// The paper's: half reads and half writes of registers that all are as likely.
pub(in super::super) struct RegisterService {
    registers: u16,
    padding: usize,
}

impl RegisterService {
    /// On this number of registers, with this number of dummy bytes in each command.
    pub(in super::super) fn new(registers: u16, padding: usize) -> Self {
        RegisterService { registers, padding }
    }
}

impl Service for RegisterService {
    fn write(&self, client: usize, number: u64) -> Bytes {
        let mut random = Random::new((client as u64) << 40 | number);
        let register = random.below(u64::from(self.registers)) as u16;
        match random.chance(0.5) {
            true => registers::write(register, number as u32, self.padding).into(),
            false => registers::read(register, number as u32, self.padding).into(),
        }
    }

    fn read(&self, client: usize, number: u64) -> Bytes {
        self.write(client, number)
    }

    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Registers::new(self.registers))
    }
}
