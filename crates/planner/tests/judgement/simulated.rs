//! A deployment in simulated time, with the true costs of its roles.

use bytes::Bytes;
use ionian_deployment::Deployment;
use ionian_kernel::client::ReadLevel;
use ionian_kernel::histogram::Times;
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::nothing::Nothing;
use ionian_planner::live::rates::{Counts, Rates};
use ionian_planner::prices::{Commands, Corner, Prices};
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_sim::AnyMessage;
use ionian_sim::performance::{Costs, Service, Setting, measure};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Commands before the measurement, and measured.
const COMMANDS: (u64, u64) = (8_000, 60_000);

/// What messages cost, and which instances have spent how many microseconds.
pub(crate) struct TrueCosts {
    prices: BTreeMap<&'static str, ionian_planner::line::Line>,
    /// Microseconds of a gateway for a request, and for its answer.
    gateway_us: f64,
    spent: RefCell<BTreeMap<Address, f64>>,
    /// How many messages each instance has handled.
    handled: RefCell<BTreeMap<Address, u64>>,
}

impl TrueCosts {
    /// Those of the shipped demands of a preset under writes, where the messages to one kind of
    /// role cost this many times as much.
    pub(crate) fn new(prices: &Prices, preset: &str, slow: &str, times: f64) -> Self {
        let costs = prices.of(preset, Commands::Writes, Corner::SMALL).unwrap();
        let price = |(name, price): (&String, &ionian_planner::prices::Price)| {
            let role = name.split("::").next().unwrap();
            let times = if role == slow { times } else { 1.0 };
            (&*name.clone().leak(), price.cost.times(times))
        };
        TrueCosts {
            prices: costs.messages.iter().map(price).collect(),
            gateway_us: prices.gateway.us(1.0, 1.0) / 2.0,
            spent: RefCell::default(),
            handled: RefCell::default(),
        }
    }
}

impl Costs for TrueCosts {
    fn of(&self, to: Address, message: &dyn AnyMessage) -> f64 {
        let Some(price) = self.prices.get(message.name()) else {
            return 0.0;
        };
        let us = price.us(1.0, message.encode().len() as f64);
        *self.spent.borrow_mut().entry(to).or_default() += us;
        *self.handled.borrow_mut().entry(to).or_default() += 1;
        us
    }

    fn serving(&self) -> f64 {
        self.gateway_us
    }
}

/// Clients that write, and a machine that does nothing.
struct Writes;

impl Service for Writes {
    fn write(&self, _: usize, _: u64) -> Bytes {
        Bytes::from_static(&[7; 40])
    }
    fn read(&self, _: usize, _: u64) -> Bytes {
        unreachable!("there are no reads")
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Nothing)
    }
}

/// What was measured of a deployment.
pub(crate) struct Simulated {
    /// Commands a second.
    pub(crate) commands: f64,
    /// What each node would report.
    pub(crate) rates: Vec<(String, Rates)>,
}

/// Runs a deployment under the load of this many clients, each with one command under way.
pub(crate) fn simulate(deployment: &Deployment, clients: usize, costs: &TrueCosts) -> Simulated {
    let layout = deployment.layout(MultiPaxos::KINDS).unwrap();
    let setting = Setting {
        layout: layout.clone(),
        client_kinds: Vec::new(),
        clients,
        read_fraction: 0.0,
        read_level: ReadLevel::Linearizable,
        network_delay_us: 50.0,
        network_jitter: 0.2,
        wake_us: 5.0,
        burst_us: 100.0,
        warm_up_requests: COMMANDS.0,
        requests: COMMANDS.1,
        longest_us: u64::MAX / 4000,
    };
    costs.spent.borrow_mut().clear();
    costs.handled.borrow_mut().clear();
    let protocol = ionian_sim::Simulated::of::<MultiPaxos>();
    let measured = measure(protocol, &setting, costs, &Writes).unwrap();
    let commands = measured.requests_per_second;
    let all = (COMMANDS.0 + measured.requests) as f64;
    let gateways = deployment.nodes.iter().filter(|it| it.gateway.is_some());
    let of_gateway = commands / gateways.count() as f64;
    let rates = measured.utilization.iter().map(|(node, busy)| {
        let place = deployment.ids().iter().position(|id| id == node).unwrap();
        let own = if deployment.nodes[place].gateway.is_some() {
            of_gateway
        } else {
            0.0
        };
        let (roles, messages) = roles(&layout, *node, costs, commands / all);
        let mut rates = Rates {
            loops: vec![(0, *busy)],
            roles,
            commands: [0.0, own, 0.0, 0.0],
            requests: own,
            // With the requests, which a client lane handles as messages.
            messages: messages - own,
            ..Rates::default()
        };
        if own > 0.0 {
            rates.service[1] = took(measured.latency_us.p50);
        }
        (deployment.nodes[place].name.clone(), rates)
    });
    Simulated {
        commands,
        rates: rates.collect(),
    }
}

/// Commands that took this long.
fn took(us: f64) -> Counts {
    let bucket = Times::default().buckets().position(|(bound, _)| {
        let bound = bound.map_or(f64::INFINITY, |bound| bound as f64);
        us <= bound
    });
    let mut times = vec![0; bucket.unwrap() + 1];
    *times.last_mut().unwrap() = 1;
    Counts::between(&[], &times)
}

/// How busy each instance of a node was, and how many messages a second all of them have handled,
/// if everything was done at this many runs of the measurement a second.
fn roles(
    layout: &Layout,
    node: ionian_kernel::layout::NodeId,
    costs: &TrueCosts,
    runs_per_second: f64,
) -> (Vec<(String, u8, f64)>, f64) {
    let (spent, handled) = (costs.spent.borrow(), costs.handled.borrow());
    let on_node = layout.on_node(node);
    let instances = on_node.iter().map(|at| {
        let us = spent.get(at).copied().unwrap_or(0.0);
        let kind = MultiPaxos::KINDS[usize::from(at.kind)];
        (kind.to_owned(), at.index, us * runs_per_second / 1e6)
    });
    let messages = on_node.iter().filter_map(|at| handled.get(at)).sum::<u64>();
    (instances.collect(), messages as f64 * runs_per_second)
}
