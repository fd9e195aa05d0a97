//! What a machine learns of its commands: the same on every replica, and also after a restart.

use crate::common::{Machines, preset};
use ionian::{
    CommandOrigin, Context, Footprint, Machine, Node, ReadLevel, Typed, TypedClient, TypedError,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Long enough for any machine; a test fails by it only if the cluster does not work.
const LIMIT: Duration = Duration::from_secs(60);

const KEYS: u8 = 3;

/// The slot, the session, the number, and what was drawn.
type Told = (u64, u64, u64, u64);

/// Writes down what it learns of each command, by key. Commands on other keys commute.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Notes(BTreeMap<u8, Vec<Told>>);

impl Machine for Notes {
    type Command = u8;
    type Reply = Told;
    type Query = ();
    type Answer = bool;

    fn apply(&mut self, context: &Context, key: u8) -> Told {
        let origin = context.origin.expect("a command has an origin");
        let CommandOrigin {
            slot,
            session,
            number,
            ..
        } = origin;
        let told = (slot, session, number, context.random().any());
        self.0.entry(key).or_default().push(told);
        told
    }
    fn read(&self, context: &Context, (): ()) -> bool {
        context.origin.is_none()
    }
    fn command_footprint(key: &u8, footprint: &mut Footprint) {
        footprint.writes.push(u64::from(*key));
    }
}

fn client(node: &Node) -> TypedClient<Notes> {
    TypedClient::new(node.client())
}

/// A command that the cluster executes sooner or later.
fn write(client: &TypedClient<Notes>, key: u8) -> Told {
    let began = Instant::now();
    loop {
        match client.write_blocking(&key) {
            Ok(told) => return told,
            Err(TypedError::Refused(refused)) => assert!(began.elapsed() < LIMIT, "{refused}"),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Writes through all these nodes at the same time; what the clients were told, by key.
fn write_all(nodes: &[Node], each: usize) -> BTreeSet<(u8, Told)> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = nodes
            .iter()
            .map(|node| {
                scope.spawn(move || {
                    let keys = (0..KEYS).cycle().take(each);
                    let client = client(node);
                    keys.map(|key| (key, write(&client, key)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let told = writers.into_iter().map(|it| it.join().expect("answers"));
        told.flatten().collect()
    })
}

/// The notes of the replica on this node, when it has all that is acknowledged.
fn notes(node: &Node) -> BTreeMap<u8, Vec<Told>> {
    let (client, began) = (client(node), Instant::now());
    loop {
        match client.read_with_blocking(ReadLevel::Linearizable, |notes: &Notes| notes.0.clone()) {
            Ok(notes) => return notes,
            Err(refused) => assert!(began.elapsed() < LIMIT, "{refused}"),
        }
    }
}

fn all_are_told_the_same(name: &str, has_slots: bool) {
    let mut deployment = preset(name);
    // The node that is away stores snapshots, and gets one from a peer.
    for key in ["snapshot_slots", "retained_slots"] {
        deployment.options.set(key, 16).expect("a setting");
    }
    let machines = Machines::<Typed<Notes>>::new(&format!("context-{name}"), deployment);
    let mut nodes = machines.start_all();
    for node in &nodes {
        write(&client(node), 9);
    }
    let read = client(&nodes[0]).read_blocking(&(), ReadLevel::Linearizable);
    assert_eq!(read, Ok(true), "a query has no origin");
    let mut told = write_all(&nodes, 40);

    let last = nodes.pop().expect("three nodes");
    last.stop().expect("an orderly stop");
    told.extend(write_all(&nodes, 40));
    nodes.push(machines.start(nodes.len()));
    told.extend(write_all(&nodes[..2], 40));

    let first = notes(&nodes[0]);
    for node in &nodes[1..] {
        assert_eq!(notes(node), first, "{name}: a replica was told otherwise");
    }
    let told_all = |key: u8| first[&key].iter().map(move |it| (key, *it));
    let noted: BTreeSet<(u8, Told)> = (0..KEYS).flat_map(told_all).collect();
    assert!(
        noted.is_superset(&told),
        "{name}: clients were told otherwise"
    );
    let all = || first.values().flatten();
    let drawn: BTreeSet<u64> = all().map(|(.., drawn)| *drawn).collect();
    assert_eq!(drawn.len(), all().count(), "{name}: drawn twice");
    assert_eq!(all().any(|(slot, ..)| *slot > 0), has_slots, "{name}");
}

#[test]
fn all_replicas_of_multipaxos_are_told_the_same() {
    all_are_told_the_same("colocated", true);
}

#[test]
fn all_replicas_of_mencius_are_told_the_same() {
    all_are_told_the_same("mencius", true);
}

#[test]
fn all_replicas_of_epaxos_are_told_the_same() {
    all_are_told_the_same("epaxos", false);
}

#[test]
fn all_replicas_of_craq_are_told_the_same() {
    all_are_told_the_same("craq", true);
}
