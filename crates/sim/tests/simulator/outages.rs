//! How long clients wait when a node fails, in simulated time and with the settings of a preset.

use crate::wan::{SECOND, experiment, source};
use bytes::Bytes;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::registers::{self, Registers};
use ionian_protocols::scalog::Scalog;
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Observed, Pace, PerMessage, observe,
};

struct Register;

impl Service for Register {
    fn write(&self, client: usize, number: u64) -> Bytes {
        registers::write(client as u16 % 16, number as u32, 0).into()
    }
    fn read(&self, client: usize, number: u64) -> Bytes {
        registers::read(client as u16 % 16, number as u32, 0).into()
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Registers::new(16))
    }
}

/// When the node dies: the cluster has long been at work then.
const DEATH: u64 = 4 * SECOND;

/// A preset of Scalog in one room, with these many clients at each gateway that ask again as soon
/// as they have an answer; a node of it dies.
fn death_of(name: &str, clients: usize) -> Observed {
    let deployment = Deployment::preset("scalog", &PresetOptions::default()).unwrap();
    let layout = deployment.layout(Scalog::KINDS).unwrap();
    let mut nodes = layout.nodes().into_iter();
    let node = nodes.find(|node| layout.name(*node) == name).unwrap();
    let link = Link {
        delay_us: 50.0,
        bytes_per_second: f64::INFINITY,
    };
    let network = Network::clique(layout.nodes().len(), link);
    let sources = (0..2).map(|lane| source(lane, clients, Pace::Answered));
    let experiment = Experiment {
        layout,
        changes: vec![(DEATH, Change::Death { node })],
        begins_us: 2 * SECOND,
        ends_us: 8 * SECOND,
        ..experiment(network, sources.collect())
    };
    observe::<Scalog>(&experiment, &PerMessage { us: 2.0 }, &Register).unwrap()
}

/// The longest time without an answer to any client, in microseconds; there were answers until the
/// end.
fn longest_silence(observed: &Observed) -> u64 {
    let answers = observed.sources.iter().flat_map(|source| &source.answers);
    let mut times: Vec<u64> = answers.map(|answer| answer.at_us).collect();
    times.extend([2 * SECOND, 8 * SECOND]);
    times.sort_unstable();
    let pairs = times.windows(2);
    pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// The answers to all clients from one time up to another.
fn answers(observed: &Observed, times: core::ops::Range<u64>) -> f64 {
    let answers = observed.sources.iter().flat_map(|source| &source.answers);
    let within = answers.filter(|answer| times.contains(&answer.at_us));
    within.count() as f64
}

/// Aggregator 0 makes all cuts until it dies. Servers turn to the next one together.
#[test]
fn when_the_aggregator_of_scalog_dies_no_client_waits_for_200_milliseconds() {
    for clients in [1, 10, 100] {
        let observed = death_of("aggregator-0", clients);
        let silence = longest_silence(&observed);
        let before = answers(&observed, DEATH - SECOND..DEATH);
        let after = answers(&observed, DEATH..DEATH + SECOND);
        // What was not answered in the second after the death, in the time that it takes otherwise.
        let lost = (1.0 - after / before) * 1e3;
        println!("{clients} clients: {silence} us without an answer, answers of {lost:.0} ms lost");
        assert!(silence < 200_000, "{clients} clients: {silence} us");
        assert!(lost < 200.0, "{clients} clients: {lost} ms");
        // It is left for good.
        let last = answers(&observed, DEATH + 2 * SECOND..DEATH + 3 * SECOND);
        assert!(last > 0.9 * before, "{clients} clients: {last} of {before}");
    }
}
