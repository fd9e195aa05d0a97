//! The protocols of the papers on the real driver.

use crate::support::{Directory, at_last};
use ionian_kernel::client::{ReadLevel, Refusal};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::{Layout, NodeId, numbered};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::protocol::Protocol;
use ionian_machines::register::{self, Register};
use ionian_protocols::multipaxos::MultiPaxos;
use ionian_protocols::spaxos::SPaxos;
use ionian_protocols::unreplicated::Unreplicated;
use ionian_runtime::in_process::cluster::ClusterOptions;
use ionian_runtime::{Client, Cluster};
use std::time::Instant;

fn machine() -> Box<dyn StateMachine> {
    Box::new(Register::default())
}

fn write(client: &Client, value: &str) -> Result<(), Refusal> {
    client
        .write_blocking(register::write(value.as_bytes()))
        .map(|_| ())
}

fn read(client: &Client) -> Result<String, Refusal> {
    let content = client.read_blocking(register::read(), ReadLevel::Linearizable)?;
    Ok(String::from_utf8(content.to_vec()).unwrap())
}

/// Whether no role of a node has lost its state.
fn remembers<P: Protocol>(cluster: &Cluster<P>, node: NodeId) -> bool {
    let roles = cluster.status(node).unwrap().roles;
    roles.iter().all(|role| role.remembers != Some(false))
}

/// One instance of every role on each of the nodes.
fn everything_on<P: Protocol>(nodes: u16) -> Vec<Vec<NodeId>> {
    P::KINDS
        .iter()
        .map(|_| (0..nodes).map(NodeId).collect())
        .collect()
}

#[test]
fn unreplicated_server_serves_lanes_on_other_nodes() {
    let mut instances = everything_on::<Unreplicated>(2);
    instances[2].pop();
    let cluster = Cluster::<Unreplicated>::start(
        Layout {
            instances: numbered(instances),
            ..Layout::default()
        },
        machine,
    )
    .unwrap();
    write(&cluster.client_on(ClientId(1)), "here").unwrap();
    assert_eq!(read(&cluster.client_on(ClientId(0))).unwrap(), "here");
}

#[test]
fn multipaxos_elects_a_leader_and_survives_the_loss_and_return_of_each_node() {
    survives_the_loss_and_return_of_each_node::<MultiPaxos>();
}

#[test]
fn spaxos_elects_a_leader_and_survives_the_loss_and_return_of_each_node() {
    survives_the_loss_and_return_of_each_node::<SPaxos>();
}

fn survives_the_loss_and_return_of_each_node<P: Protocol>() {
    let data = Directory::new();
    let layout = Layout {
        f: 1,
        instances: numbered(everything_on::<P>(3)),
        ..Layout::default()
    };
    let options = ClusterOptions {
        data: Some(data.0.clone()),
        ..ClusterOptions::in_memory()
    };
    let mut cluster = Cluster::<P>::start_with(layout, machine, options).unwrap();
    let began = Instant::now();
    at_last(|| write(&cluster.client_on(ClientId(0)), "first"));
    let election = began.elapsed();
    for down in 0..3 {
        let others: Vec<_> = (0..3)
            .filter(|lane| *lane != down)
            .map(|lane| cluster.client_on(ClientId(lane)))
            .collect();
        cluster.kill(NodeId(u16::from(down))).unwrap();
        let value = format!("without {down}");
        at_last(|| write(&others[0], &value));
        assert_eq!(at_last(|| read(&others[1])), value);
        cluster.restart(NodeId(u16::from(down))).unwrap();
        let back = cluster.client_on(ClientId(down));
        assert_eq!(at_last(|| read(&back)), value);
        let value = format!("with {down}");
        at_last(|| write(&back, &value));
        assert_eq!(at_last(|| read(&others[0])), value);
        // Only promises are on disk: until its acceptor is admitted again, the node counts as
        // failed.
        at_last(|| match remembers(&cluster, NodeId(u16::from(down))) {
            true => Ok(()),
            false => Err(Refusal::Unavailable),
        });
    }
    println!("the first write took {election:?}");
}
