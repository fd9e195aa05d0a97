//! What a snapshot of a million keys costs an event loop: the longest that it stands still for
//! taking one, for writing a piece of it, and for restoring it whole.
//!
//! `cargo run --release -p ionian-machines --example snapshot_cost`

use bytes::Bytes;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_replication::executor::Executor;
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000_000;
const EXPIRY: Duration = Duration::from_secs(600);

fn filled() -> Kv {
    let mut kv = Kv::default();
    let (value, mut reply) = (Bytes::from(vec![b'v'; 100]), Vec::new());
    for number in 0..KEYS {
        let words = [
            Bytes::from_static(b"SET"),
            format!("key:{number:010}").into(),
            value.clone(),
        ];
        let Ok(command) = Command::parse_queued(&words) else {
            unreachable!("SET is a command")
        };
        kv.apply(
            Timestamp(1),
            &Compound::Pipeline(vec![command]).encode(),
            &mut reply,
        );
        reply.clear();
    }
    kv
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    println!("{what}: {:.3} ms", began.elapsed().as_secs_f64() * 1e3);
    result
}

fn main() {
    let mut full = Executor::new(Box::new(filled()), EXPIRY);
    let mut frozen = timed("freeze", || full.freeze());
    let (mut whole, mut worst) = (Vec::new(), Duration::ZERO);
    loop {
        let began = Instant::now();
        let more = frozen.write_some(&mut whole);
        worst = worst.max(began.elapsed());
        if !more {
            break;
        }
    }
    println!(
        "longest piece: {:.3} ms; the whole is {} bytes",
        worst.as_secs_f64() * 1e3,
        whole.len()
    );
    let whole = Bytes::from(whole);
    for _ in 0..3 {
        let mut empty = Executor::new(Box::new(Kv::default()), EXPIRY);
        timed("restore into an empty machine", || empty.restore(&whole)).expect("just written");
    }
    for _ in 0..3 {
        timed("restore over a full one", || full.restore(&whole)).expect("just written");
    }
}
