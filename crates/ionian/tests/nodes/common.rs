//! Nodes of several machines, in this process.

use ionian::{Deployment, Node, NodeOptions, Origin, PresetOptions, StateMachine};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A cluster of machines of type `M`, of which each node is started alone.
pub(crate) struct Machines<M> {
    deployment: Deployment,
    pub(crate) ports: Vec<u16>,
    data: PathBuf,
    machine: PhantomData<fn() -> M>,
}

pub(crate) fn preset(name: &str) -> Deployment {
    Deployment::preset(name, &PresetOptions::default()).expect("a preset")
}

impl<M: StateMachine + Default> Machines<M> {
    /// A new cluster, for the test of this name.
    pub(crate) fn new(test: &str, deployment: Deployment) -> Self {
        let machines = Self::at(test, &ports(deployment.nodes.len()), deployment);
        if machines.data.exists() {
            std::fs::remove_dir_all(&machines.data).expect("what an earlier test left");
        }
        machines
    }

    /// The cluster of this test, with these ports.
    pub(crate) fn at(test: &str, ports: &[u16], mut deployment: Deployment) -> Self {
        deployment.machine = "tested".into();
        for (node, port) in deployment.nodes.iter_mut().zip(ports) {
            node.address = format!("127.0.0.1:{port}");
        }
        Machines {
            deployment,
            ports: ports.to_owned(),
            data: Path::new(env!("CARGO_TARGET_TMPDIR")).join(test),
            machine: PhantomData,
        }
    }

    pub(crate) fn start(&self, at: usize) -> Node {
        Node::start::<M>(self.options(at)).expect("a node")
    }

    pub(crate) fn options(&self, at: usize) -> NodeOptions {
        NodeOptions {
            name: self.deployment.nodes[at].name.clone(),
            origin: Origin::Founded(self.deployment.clone()),
            data: self.data.clone(),
            machine: "tested".into(),
            tls: None,
        }
    }

    pub(crate) fn start_all(&self) -> Vec<Node> {
        let all = 0..self.deployment.nodes.len();
        all.map(|at| self.start(at)).collect()
    }
}

/// Ports that no other test of this process has taken.
fn ports(count: usize) -> Vec<u16> {
    static TAKEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().expect("no test fails with it");
    let ports = ionian_harness::ports::free_ports(count, &taken).expect("ports");
    taken.extend(&ports);
    ports
}
