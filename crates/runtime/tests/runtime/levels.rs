//! A running node that learns of a level of the cluster which its program does not support.

use crate::common::{Directory, Running, bind, eventually, start_as};
use crate::greeting::Greeting;
use ionian_deployment::{Configuration, Deployment, PresetOptions};
use ionian_kernel::id::{Epoch, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::membership::Membership;
use ionian_kernel::protocol::any;
use ionian_kernel::wire::encode_all;
use ionian_machines::register::Register;
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_runtime::storage::membership_file;
use ionian_runtime::{Identity, NodeSettings};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Node 0 of three, without the others.
fn start(data: &Directory) -> (Running, Identity) {
    let mut founding = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
    for (port, node) in (1..).zip(&mut founding.nodes) {
        node.address = format!("127.0.0.1:{port}");
    }
    let founded = Configuration::founded(founding);
    let mut settings =
        NodeSettings::new(any::<MultiPaxos>(), founded, "n0", Some(&data.0)).unwrap();
    let listener = bind();
    settings.address = listener.local_addr().unwrap();
    settings.listener = Some(listener);
    let identity = settings.identity.clone();
    let machine = || Box::<Register>::default() as Box<dyn StateMachine>;
    let node = start_as::<MultiPaxos>(settings, machine, |_| Box::new(()));
    eventually("it answers", || crate::common::status(node.address).is_ok());
    (node, identity)
}

/// Tells a node of a later membership, as node 1 does that knows it already.
fn tell(node: &Running, identity: Identity, level: Level) {
    let epoch = 7;
    let greeting = Greeting {
        version: Level::LATEST.number(),
        identity,
        epoch,
        name: "n1",
        ..Greeting::default()
    };
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.write_all(&greeting.bytes()).unwrap();
    let mut head = [0; 13];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[10], 4, "it asks for the later membership");
    let membership = Membership {
        epoch: Epoch(epoch),
        since: Epoch(epoch),
        frontier: Slot(3),
        level,
        ..Membership::default()
    };
    let bytes = encode_all(&membership);
    let length = (bytes.len() as u32).to_le_bytes();
    stream.write_all(&[&length[..], &bytes].concat()).unwrap();
}

#[test]
fn a_running_node_that_learns_of_a_later_level_stops_and_names_both() {
    let data = Directory::new();
    let (node, identity) = start(&data);
    tell(&node, identity, Level(Level::LATEST.0 + 1));
    eventually("it ends", || crate::common::status(node.address).is_err());
    let error = node.join().unwrap_err().to_string();
    let both = [
        format!("the cluster is at level {}", Level::LATEST.0 + 1),
        format!(
            "this program supports {} to {}",
            Level::OLDEST,
            Level::LATEST
        ),
    ];
    assert!(both.iter().all(|part| error.contains(part)), "{error}");
    // With the release before it the node finds what it knew.
    let stored = membership_file::stored(&data.0).unwrap().expect("a file");
    assert_eq!(
        (stored.epoch(), stored.membership.level),
        (Epoch(0), Level::LATEST)
    );
}

#[test]
fn a_running_node_that_learns_of_a_level_of_its_program_goes_on() {
    let data = Directory::new();
    let (node, identity) = start(&data);
    tell(&node, identity, Level::LATEST);
    eventually("it knows the epoch", || node.status().epoch == 7);
    assert_eq!(node.status().level, Level::LATEST.0);
    node.stop().unwrap();
}
