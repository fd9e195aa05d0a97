//! The performance driver keeps the laws that it is for.

use bytes::Bytes;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::machine::{NotARead, RestoreError, StateMachine};
use ionian_kernel::protocol::Protocol;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_sim::performance::{Costs, Measured, Service, Setting, measure};
use ionian_sim::{AnyMessage, Simulated};

const MULTIPAXOS: Simulated = Simulated::of::<MultiPaxos>();

/// Microseconds for a slot, by role.
#[derive(Clone, Copy)]
struct Prices {
    leader: f64,
    proxy_leader: f64,
    acceptor: f64,
    replica: f64,
}

const CHEAP: Prices = Prices {
    leader: 1.0,
    proxy_leader: 2.0,
    acceptor: 3.0,
    replica: 4.0,
};

impl Costs for Prices {
    fn of(&self, _: Address, message: &dyn AnyMessage) -> f64 {
        match message.name() {
            "leader::Propose" => self.leader,
            "proxy_leader::Phase2a" => self.proxy_leader,
            "acceptor::Phase2a" => self.acceptor,
            "replica::Chosen" | "replica::Read" => self.replica,
            _ => 0.0,
        }
    }
}

/// Answers everything with nothing.
struct Mute;

impl Service for Mute {
    fn write(&self, _: usize, _: u64) -> Bytes {
        Bytes::from_static(b"write")
    }
    fn read(&self, _: usize, _: u64) -> Bytes {
        Bytes::from_static(b"read")
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Mute)
    }
}

impl StateMachine for Mute {
    fn apply(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn layout() -> Layout {
    let deployment = Deployment::preset("compartmentalized", &PresetOptions::default()).unwrap();
    // No request is repeated because the answer takes its time.
    let patient = ["options.retry_after_ms=60000", "options.patience_ms=300000"];
    deployment
        .with_overrides(&patient)
        .unwrap()
        .layout(MultiPaxos::KINDS)
        .unwrap()
}

fn setting(clients: usize, read_fraction: f64) -> Setting {
    Setting {
        layout: layout(),
        clients,
        read_fraction,
        read_level: ReadLevel::Linearizable,
        client_kinds: vec![0],
        network_delay_us: 50.0,
        network_jitter: 0.0,
        wake_us: 5.0,
        burst_us: 100.0,
        warm_up_requests: 5 * clients as u64,
        requests: 5_000.max(10 * clients as u64),
        longest_us: 500_000,
    }
}

fn measured(clients: usize, read_fraction: f64, prices: Prices) -> Measured {
    measure(MULTIPAXOS, &setting(clients, read_fraction), &prices, &Mute).unwrap()
}

#[test]
fn the_same_setting_measures_the_same() {
    let once = measured(100, 0.5, CHEAP);
    assert_eq!(once, measured(100, 0.5, CHEAP));
    assert_ne!(once, measured(101, 0.5, CHEAP));
}

/// Ten proxy leaders of 50 us do 200,000 commands a second, and one leader of 8 us does 125,000,
/// whatever the rest.
#[test]
fn the_slowest_role_says_how_many_commands_there_are() {
    let layout = layout();
    let cases = [
        (
            Prices {
                proxy_leader: 50.0,
                ..CHEAP
            },
            200_000.0,
            "proxy-leader",
        ),
        (
            Prices {
                leader: 8.0,
                ..CHEAP
            },
            125_000.0,
            "leader",
        ),
    ];
    for (prices, peak, role) in cases {
        let measured = measured(1500, 0.0, prices);
        let off = measured.requests_per_second / peak - 1.0;
        assert!(
            off.abs() < 0.03,
            "{role}: {} a second",
            measured.requests_per_second
        );
        let (node, busy) = measured.busiest().unwrap();
        assert!(
            layout.name(node).starts_with(role) && busy > 0.97,
            "{} is busy {busy}",
            layout.name(node)
        );
    }
}

/// Six hops of 50 us, five sleepers woken for 5 us each, and what each of the roles costs: proxy
/// leaders pay at once.
#[test]
fn a_lone_client_waits_for_hops_and_wake_ups() {
    let latency = measured(1, 0.0, CHEAP).latency_us;
    assert_eq!((latency.p50, latency.p99), (335.0, 335.0));
}

/// A lone reader asks a row of acceptors and then a replica, which is shorter.
#[test]
fn reads_go_round_the_leader() {
    let latency = measured(1, 1.0, CHEAP).latency_us;
    // Four hops, two wake-ups, and a replica's 4 us.
    assert_eq!(latency.p50, 214.0);
}

#[test]
fn a_varying_delay_changes_the_latency_and_not_the_peak() {
    let jittery = |clients, prices: Prices| {
        let setting = Setting {
            network_jitter: 0.5,
            ..setting(clients, 0.0)
        };
        measure(MULTIPAXOS, &setting, &prices, &Mute).unwrap()
    };
    let latency = jittery(1, CHEAP).latency_us;
    assert!(
        (latency.mean - 335.0).abs() < 15.0 && latency.p99 > latency.p50 + 20.0,
        "{latency:?}"
    );
    let peak = jittery(
        1500,
        Prices {
            leader: 8.0,
            ..CHEAP
        },
    )
    .requests_per_second;
    assert!((peak / 125_000.0 - 1.0).abs() < 0.03, "{peak} a second");
}

#[test]
fn a_layout_of_something_else_is_refused() {
    let mut setting = setting(1, 0.0);
    setting.layout.instances.clear();
    assert!(measure(MULTIPAXOS, &setting, &CHEAP, &Mute).is_err());
}
