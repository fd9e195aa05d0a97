//! How long clients wait when a node fails, in simulated time and with the settings of a preset.

use crate::wan::{SECOND, experiment, source};
use bytes::Bytes;
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::layout::NodeId;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::registers::{self, Registers};
use ionian_protocols::scalog::Scalog;
use ionian_sim::Simulated;
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Change, Experiment, Link, Network, Observed, Pace, PerMessage, Source, observe,
};

const SCALOG: Simulated = Simulated::of::<Scalog>();

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
fn death_of(name: &str, clients: usize, settings: &[&str]) -> Observed {
    let deployment = Deployment::preset("scalog", &PresetOptions::default()).unwrap();
    let deployment = deployment.with_overrides(settings).unwrap();
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
    observe(SCALOG, &experiment, &PerMessage { us: 2.0 }, &Register).unwrap()
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
    for clients in [1, 30] {
        let observed = death_of("aggregator-0", clients, &[]);
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

/// Its shard is closed after `server_timeout_ms`, which is a second, and the spare one is opened.
#[test]
fn when_a_server_of_scalog_dies_a_spare_shard_takes_over_in_its_place() {
    let observed = death_of("server-0", 10, &["options.open_shards=2"]);
    let before = answers(&observed, DEATH - SECOND..DEATH);
    let after = answers(&observed, DEATH + 2 * SECOND..DEATH + 3 * SECOND);
    let series = observed.sources.iter();
    let longest = series.flat_map(|source| source.latencies()).max();
    let silence = longest_silence(&observed);
    println!("{silence} us without an answer, the longest after {longest:?} us");
    assert!(after > 0.9 * before, "{after} of {before}");
    assert!(silence < 500_000, "{silence} us");
}

/// When nodes die together. The load ends then.
const LOADED: u64 = 3 * SECOND;
/// How long they are down.
const DOWN: u64 = 200_000;
const ENDS: u64 = LOADED + DOWN + 4 * SECOND;

/// The nodes of a preset whose names begin like these die under load, and return with what they had
/// stored. Links have this delay, and a second of work of the load fills none. Counts the slots
/// that there are to catch up with, and the microseconds that a client waits from the return on.
fn return_of(preset: &str, names: &[&str], delay_us: f64, settings: &[&str]) -> (u64, u64) {
    let deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
    let deployment = deployment.with_overrides(settings).unwrap();
    let layout = deployment.layout(Scalog::KINDS).unwrap();
    let all = layout.nodes().into_iter();
    let dies = |node: &NodeId| names.iter().any(|it| layout.name(*node).starts_with(it));
    let changes = all.filter(dies).flat_map(|node| {
        let back = (LOADED + DOWN, Change::Return { node });
        [(LOADED, Change::Death { node }), back]
    });
    let changes = changes.collect();
    let link = Link {
        delay_us,
        bytes_per_second: 125e6,
    };
    let network = Network::clique(layout.nodes().len(), link);
    // Not all at once, so that there are many cuts.
    let now_and_then = Pace::Waits {
        shortest_us: 10_000,
        longest_us: 50_000,
    };
    let load = Source {
        until_us: LOADED,
        ..source(0, 200, now_and_then)
    };
    let experiment = Experiment {
        layout,
        changes,
        begins_us: 1,
        ends_us: ENDS,
        ..experiment(network, vec![load, source(1, 1, Pace::Answered)])
    };
    let observed = observe(SCALOG, &experiment, &PerMessage { us: 1.0 }, &Register).unwrap();
    let cuts = observed.flows.iter();
    let cuts = cuts.filter(|flow| flow.name == "leader::Propose");
    let slots = cuts.map(|flow| flow.messages).sum();
    let answers = observed.sources[1].answers.iter();
    let mut times = answers.map(|answer| answer.at_us).chain([ENDS]);
    let after = times.find(|at| *at > LOADED + DOWN).expect("the end");
    (slots, after - LOADED - DOWN)
}

/// The leader has the slots repaired and servers send the records, many of both under way at a
/// time. A slot may take what its messages cost the nodes that handle them, and has a small part in
/// a round trip; the rest is what a replica waits before it asks, in case that what it misses is on
/// its way.
#[test]
fn when_all_replicas_of_scalog_return_the_time_for_a_slot_is_no_round_trip() {
    for (delay_us, most_of_slot) in [(50.0, 100.0), (5000.0, 150.0)] {
        // As many cuts in a second as the time on the way lets there be.
        let settings = ["options.batches_in_flight=64", "options.batch_delay_us=100"];
        let (slots, waited) = return_of("scalog", &["replica-"], delay_us, &settings);
        let most = 400_000.0 + 20.0 * delay_us + most_of_slot * slots as f64;
        println!("links of {delay_us} us: {slots} slots, {waited} us");
        assert!(slots > 1500, "{slots} slots");
        assert!((waited as f64) < most, "{waited} us for {slots} slots");
    }
}

/// A new leader proposes them again, as many at a time as its window has.
#[test]
fn when_a_new_leader_proposes_again_what_no_replica_has_executed_records_cost_no_wait() {
    let cluster = [
        "server-",
        "leader-",
        "aggregator-",
        "acceptor-",
        "replica-",
        "unbatcher-",
    ];
    for names in [&["leader-0", "replica-"][..], &cluster] {
        let settings = ["options.window_slots=64"];
        let (slots, waited) = return_of("scalog-compartmentalized", names, 50.0, &settings);
        let most = 1_000_000.0 + 100.0 * slots as f64;
        println!("{names:?}: {slots} slots, {waited} us");
        assert!(slots > 5000, "{slots} slots");
        assert!((waited as f64) < most, "{waited} us for {slots} slots");
    }
}
