//! Reads by closures, and reads after a receipt, on real nodes of this process.

use crate::common::{Machines, preset};
use ionian::{
    Client, ClientId, Cluster, ClusterOptions, Context, Deployment, Freshness, LocalReadError,
    Machine, MultiPaxos, Node, Protocol, ReadLevel, Receipt, Refusal, Typed, TypedClient,
};
use ionian_protocols::registry::{Work, with_protocol};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long enough for any machine; a test fails by it only if the cluster does not work.
const LIMIT: Duration = Duration::from_secs(60);

/// How often each writer has written: by its number.
#[derive(Default, Serialize, Deserialize)]
struct Writes(Vec<u64>);

impl Writes {
    fn of(&self, writer: u8) -> u64 {
        self.0.get(usize::from(writer)).copied().unwrap_or(0)
    }
}

impl Machine for Writes {
    type Command = u8;
    type Reply = u64;
    type Query = u8;
    type Answer = u64;

    fn apply(&mut self, _: &Context, writer: u8) -> u64 {
        let at = usize::from(writer);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
        self.0[at]
    }
    fn read(&self, _: &Context, writer: u8) -> u64 {
        self.of(writer)
    }
}

/// On a busy machine a replica may answer nothing for seconds, and then the next one to ask is that
/// of another process.
fn closed(client: &TypedClient<Writes>, freshness: impl Into<Freshness>, writer: u8) -> u64 {
    let (freshness, began) = (freshness.into(), Instant::now());
    loop {
        match client.read_with_blocking(freshness, move |it: &Writes| it.of(writer)) {
            Err(LocalReadError::NoReplica) if began.elapsed() < LIMIT => {}
            read => return read.expect("a read by a closure"),
        }
    }
}

/// The lanes of one cluster, from whichever nodes: all that tests of levels need.
trait Lanes: Sync {
    fn count(&self) -> usize;
    fn lane(&self, at: usize) -> Client;
}

impl<P: Protocol> Lanes for (&Cluster<P>, usize)
where
    Cluster<P>: Sync,
{
    fn count(&self) -> usize {
        self.1
    }
    fn lane(&self, at: usize) -> Client {
        self.0.client_on(ClientId(at as _))
    }
}

impl Lanes for [Node] {
    fn count(&self) -> usize {
        self.len()
    }
    fn lane(&self, at: usize) -> Client {
        self[at].client()
    }
}

/// A client that writes until it must stop, and what was acknowledged to it.
fn write_until(stop: &AtomicBool, acknowledged: &AtomicU64, client: Client, writer: u8) {
    let client = TypedClient::<Writes>::new(client);
    while !stop.load(Ordering::Relaxed) {
        match client.write_blocking(&writer) {
            Ok(count) => acknowledged.store(count, Ordering::SeqCst),
            Err(refusal) => panic!("writer {writer}: {refusal}"),
        }
    }
}

/// While others write through all lanes, reads through each are as fresh as they must be.
fn levels_hold(what: &str, lanes: &(impl Lanes + ?Sized)) {
    let (stop, acknowledged) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    std::thread::scope(|scope| {
        let stopped = Stop(&stop);
        for (at, acknowledged) in acknowledged.iter().enumerate() {
            let client = lanes.lane(at % lanes.count());
            let stop = &stop;
            scope.spawn(move || write_until(stop, acknowledged, client, at as u8));
        }
        for at in 0..lanes.count() {
            let client = TypedClient::<Writes>::new(lanes.lane(at));
            let (mut before, mut own) = (0, 0);
            for turn in 0..30 {
                let writer = (turn % 3) as u8;
                let floor = acknowledged[usize::from(writer)].load(Ordering::SeqCst);
                let read = closed(&client, ReadLevel::Linearizable, writer);
                assert!(
                    read >= floor,
                    "{what}: lane {at} reads {read} after {floor}"
                );

                let read = closed(&client, ReadLevel::Sequential, 0);
                assert!(read >= before, "{what}: lane {at} goes back to {read}");
                before = read;
                own = own.max(client.write_blocking(&9).expect("a write"));
                let read = closed(&client, ReadLevel::Sequential, 9);
                assert!(read >= own, "{what}: lane {at} misses its own write {own}");
                closed(&client, ReadLevel::Eventual, 0);
            }
        }
        drop(stopped);
    });
}

/// A write is seen by the read after its receipt, through every other lane.
fn receipts_hold(what: &str, lanes: &(impl Lanes + ?Sized)) {
    let client = |at: usize| TypedClient::<Writes>::new(lanes.lane(at % lanes.count()));
    for turn in 0..30 {
        let written = client(turn).write_with_receipt_blocking(&7);
        let (count, receipt) = written.expect("a write");
        let copy = Receipt::at(receipt.position());
        let read = closed(&client(turn + 1), copy, 7);
        assert!(read >= count, "{what}: {read} after the receipt of {count}");
        let read = client(turn + 2).read_blocking(&7, receipt).expect("a read");
        assert!(read >= count, "{what}: {read} after the receipt of {count}");
    }
}

/// Ends the writers also when the reader fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct InOneProcess(Deployment);

impl Work for InOneProcess {
    type Output = ();

    fn run<P: Protocol>(self) {
        let machine = || Box::new(Typed::<Writes>::default()) as _;
        let options = ClusterOptions::in_memory();
        let cluster = ionian::start_deployment::<P>(&self.0, machine, options).expect("a cluster");
        let layout = self.0.layout(P::KINDS).expect("a layout");
        let lanes = (&cluster, layout.count(0));
        levels_hold(P::NAME, &lanes);
        receipts_hold(P::NAME, &lanes);
    }
}

/// One test for each deployment, so that they can run at the same time.
macro_rules! in_one_process {
    ($($name:ident: $preset:literal,)*) => {$(
        #[test]
        fn $name() {
            let deployment = preset($preset);
            let protocol = deployment.protocol.clone();
            with_protocol(&protocol, InOneProcess(deployment)).expect("a protocol");
        }
    )*};
}

in_one_process! {
    levels_and_receipts_hold_with_multipaxos: "colocated",
    levels_and_receipts_hold_with_multipaxos_taken_apart: "compartmentalized",
    levels_and_receipts_hold_with_threads_that_execute: "sp-smr",
    levels_and_receipts_hold_with_pigpaxos: "pigpaxos",
    levels_and_receipts_hold_with_mencius: "mencius",
    levels_and_receipts_hold_with_spaxos: "spaxos",
    levels_and_receipts_hold_with_epaxos: "epaxos",
    levels_and_receipts_hold_with_psmr: "p-smr",
    levels_and_receipts_hold_with_craq: "craq",
    levels_and_receipts_hold_with_scalog: "scalog",
    levels_and_receipts_hold_unreplicated: "unreplicated",
}

/// Nodes as of several machines: the closures of one are unknown to the machines of the others.
fn nodes(test: &str, deployment: Deployment) -> Vec<Node> {
    let machines = Machines::<Typed<Writes>>::new(&format!("reads-{test}"), deployment);
    let nodes = machines.start_all();
    for node in &nodes {
        serves(&node.client());
    }
    nodes
}

/// Waits until the cluster serves a lane.
fn serves(client: &Client) {
    let (client, began) = (TypedClient::<Writes>::new(client.clone()), Instant::now());
    while let Err(why) = client.write_blocking(&200) {
        assert!(began.elapsed() < LIMIT, "{why}");
    }
}

/// Three nodes, of which the first has no instance of this role.
fn first_without(role: &str) -> Deployment {
    let mut deployment = preset("colocated");
    let roles = &mut deployment.nodes[0].roles;
    let before = roles.len();
    roles.retain(|placed| placed.role != role);
    assert_eq!(roles.len(), before - 1);
    deployment
}

macro_rules! on_several_machines {
    ($($name:ident: $deployment:expr,)*) => {$(
        #[test]
        fn $name() {
            let nodes = nodes(stringify!($name), $deployment);
            levels_hold(stringify!($name), &nodes[..]);
            receipts_hold(stringify!($name), &nodes[..]);
        }
    )*};
}

on_several_machines! {
    nodes_of_multipaxos_read_locally: preset("colocated"),
    // Linearizable reads are answered by the replica of another node first.
    nodes_whose_reads_are_batched_elsewhere_read_locally: first_without("read_batcher"),
    nodes_whose_answers_are_unbatched_elsewhere_read_locally: first_without("unbatcher"),
    nodes_of_mencius_read_locally: preset("mencius"),
    nodes_of_epaxos_read_locally: preset("epaxos"),
    nodes_of_craq_read_locally: preset("craq"),
    nodes_of_psmr_read_locally: preset("p-smr"),
}

fn colocated() -> Cluster<MultiPaxos> {
    ionian::start::<Typed<Writes>>("colocated").expect("a cluster")
}

#[test]
fn a_panic_of_a_closure_goes_on_in_its_caller_and_the_node_goes_on() {
    let cluster = colocated();
    let client = TypedClient::<Writes>::new(cluster.client());
    assert_eq!(client.write_blocking(&1), Ok(1));
    for level in [ReadLevel::Linearizable, ReadLevel::Sequential] {
        let read = std::panic::AssertUnwindSafe(|| {
            client.read_with_blocking(level, |_: &Writes| -> u64 { panic!("on purpose") })
        });
        let panic = std::panic::catch_unwind(read).expect_err("the panic of the closure");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }
    assert_eq!(closed(&client, ReadLevel::Linearizable, 1), 1);
    assert_eq!(client.write_blocking(&1), Ok(2));
}

#[test]
fn a_closure_for_a_machine_of_another_type_is_refused() {
    let cluster = colocated();
    let read = |_: &ionian::Kv| ();
    let refused = cluster
        .client()
        .read_with_blocking(ReadLevel::Eventual, read);
    assert_eq!(refused, Err(LocalReadError::OtherMachine));
}

#[test]
fn a_node_without_a_replica_says_so() {
    let nodes = nodes("no-replica", first_without("replica"));
    let at = |node: &Node| TypedClient::<Writes>::new(node.client());
    let (first, last) = (at(&nodes[0]), at(&nodes[2]));
    let (_, receipt) = first.write_with_receipt_blocking(&1).expect("a write");
    for freshness in [ReadLevel::Eventual.into(), Freshness::After(receipt)] {
        let refused = first.read_with_blocking(freshness, |it: &Writes| it.of(1));
        assert_eq!(refused, Err(LocalReadError::NoReplica));
        assert_eq!(first.read_blocking(&1, freshness), Ok(1), "queries travel");
    }
    assert_eq!(closed(&last, receipt, 1), 1);
}

/// With threads that read all the time, also while the node stops.
#[test]
fn a_reader_of_a_node_that_stops_gets_an_error() {
    let mut cluster = colocated();
    let client = TypedClient::<Writes>::new(cluster.client_on(ClientId(1)));
    serves(client.client());
    let (send, read) = std::sync::mpsc::channel();
    let readers: Vec<_> = [
        Freshness::from(ReadLevel::Linearizable),
        ReadLevel::Sequential.into(),
        ReadLevel::Eventual.into(),
        Receipt::at(u64::MAX).into(),
    ]
    .into_iter()
    .map(|freshness| {
        let (client, send) = (client.clone(), send.clone());
        std::thread::spawn(move || {
            loop {
                match client.read_with_blocking(freshness, |it: &Writes| it.of(1)) {
                    Ok(_) => drop(send.send(())),
                    Err(refused) => return refused,
                }
            }
        })
    })
    .collect();
    for _ in 0..readers.len() * 10 {
        read.recv().expect("a read");
    }
    cluster.kill(ionian::NodeId(1)).expect("it ran");
    for reader in readers {
        let refused = reader.join().expect("no panic");
        assert_eq!(refused, LocalReadError::Refused(Refusal::Unavailable));
    }
    let other = TypedClient::<Writes>::new(cluster.client_on(ClientId(0)));
    closed(&other, ReadLevel::Sequential, 1);
}
