//! What a program learns of a node that it runs.

use ionian::{Deployment, Node, NodeOptions, Origin, PresetOptions, ReadLevel, Typed, TypedClient};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Long enough for any machine; a test fails by it only if the cluster does not work.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default, Serialize, Deserialize)]
struct Sum(u64);

impl ionian::Machine for Sum {
    type Command = u64;
    type Reply = u64;
    type Query = ();
    type Answer = u64;

    fn apply(&mut self, _: &ionian::Context, added: u64) -> u64 {
        self.0 += added;
        self.0
    }
    fn read(&self, _: &ionian::Context, (): ()) -> u64 {
        self.0
    }
}

fn start(deployment: &Deployment, name: &str, data: &Path) -> Node {
    Node::start::<Typed<Sum>>(NodeOptions {
        name: name.into(),
        origin: Origin::Founded(deployment.clone()),
        data: data.into(),
        machine: "sum".into(),
        tls: None,
    })
    .expect("a node")
}

#[test]
fn a_program_sees_the_status_of_its_node_and_whether_the_cluster_can_write() {
    let mut deployment = Deployment::preset("colocated", &PresetOptions::default()).expect("one");
    deployment.machine = "sum".into();
    let ports = ionian_harness::ports::free_ports(deployment.nodes.len(), &[]).expect("ports");
    for (node, port) in deployment.nodes.iter_mut().zip(ports) {
        node.address = format!("127.0.0.1:{port}");
    }
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-status");
    if data.exists() {
        std::fs::remove_dir_all(&data).expect("what an earlier test left");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");

    let first = start(&deployment, "n0", &data);
    let alone = runtime.block_on(first.probe(Duration::from_millis(100)));
    assert!(alone.is_err(), "one of three is no majority");

    let others = ["n1", "n2"].map(|name| start(&deployment, name, &data));
    let began = Instant::now();
    while let Err(why) = runtime.block_on(first.probe(Duration::from_secs(1))) {
        assert!(began.elapsed() < LIMIT, "{why}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = TypedClient::<Sum>::new(others[0].client());
    assert_eq!(client.write_blocking(&4), Ok(4));
    assert_eq!(client.read_blocking(&(), ReadLevel::Linearizable), Ok(4));

    let status = first.status().expect("it has recovered").status.clone();
    assert_eq!((&*status.name, &*status.protocol), ("n0", "multipaxos"));
    let metrics = first.metrics().text();
    let has = |name: &str| {
        let mut samples = metrics.lines().filter(|line| line.starts_with(name));
        samples.any(|line| line.contains("cluster=\"ionian\"") && line.contains("node=\"n0\""))
    };
    assert!(has("ionian_loop_messages_total"), "{metrics}");
    for node in others {
        node.stop().expect("an orderly stop");
    }
    first.stop().expect("an orderly stop");
}
