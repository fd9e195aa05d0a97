//! The cost of the driver itself: a lane on one node asks an echo instance on another, both in this
//! process, with a constant number of requests open. Run with `cargo run --release -p
//! ionian-runtime --example echo_load`.

extern crate alloc;

// The tests use more of both.
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/runtime/common.rs"]
mod common;
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/runtime/support.rs"]
mod support;

use bytes::Bytes;
use common::{Toy, layout, no_machine};
use ionian_kernel::layout::NodeId;
use ionian_runtime::Cluster;
use std::time::{Duration, Instant};

fn main() {
    println!(
        "{:>6} {:>10} {:>9} {:>14} {:>14} {:>10}",
        "open", "requests/s", "us each", "lane node us", "echo node us", "per write"
    );
    for open in [1, 4, 16, 64, 256, 1024] {
        let cluster = Cluster::<Toy>::start(layout(&[0], &[1]), no_machine).expect("a cluster");
        let client = cluster.client();
        client.write_blocking("warm").expect("an answer");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (began, before) = (
            Instant::now(),
            [cluster.status(NodeId(0)), cluster.status(NodeId(1))],
        );
        let count: u64 = runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..open {
                let client = client.clone();
                tasks.spawn(async move {
                    let mut count = 0u64;
                    while began.elapsed() < Duration::from_secs(2) {
                        client
                            .write(Bytes::from_static(b"sixteen bytes..."))
                            .await
                            .expect("an answer");
                        count += 1;
                    }
                    count
                });
            }
            tasks.join_all().await.into_iter().sum()
        });
        let elapsed = began.elapsed().as_secs_f64();
        let cpu = |node: usize| {
            let after = cluster.status(NodeId(node as u16)).expect("a status");
            (after.loop_cpu_us - before[node].as_ref().expect("a status").loop_cpu_us) as f64
                / count as f64
        };
        let peer = cluster.status(NodeId(0)).expect("a status").peers[0].clone();
        println!(
            "{open:>6} {:>10.0} {:>9.1} {:>14.2} {:>14.2} {:>10.1}",
            count as f64 / elapsed,
            elapsed * 1e6 / count as f64 * f64::from(open),
            cpu(0),
            cpu(1),
            peer.frames_out as f64 / peer.writes as f64
        );
    }
}
