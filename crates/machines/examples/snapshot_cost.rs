//! What a snapshot of a million keys costs an event loop: the longest that it stands still for
//! taking one, for writing a piece of it, and for restoring it whole. Of the key-value store, or of
//! the B+-tree.
//!
//! `cargo run --release -p ionian-machines --example snapshot_cost [kv|tree [KEYS]]`

use bytes::Bytes;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_machines::tree::{self, Published, TreeStore};
use ionian_replication::executor::Executor;
use std::time::{Duration, Instant};

const EXPIRY: Duration = Duration::from_secs(600);

fn filled_tree(keys: u64) -> Box<dyn StateMachine> {
    let (mut tree, mut reply) = (TreeStore::<Published>::default(), Vec::new());
    for number in 0..keys {
        // Each key once, in no order.
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let insert = tree::Command::Insert { key, value: number };
        tree.apply(Timestamp(1), &insert.encode(), &mut reply);
        reply.clear();
    }
    Box::new(tree)
}

fn filled_kv(keys: u64) -> Box<dyn StateMachine> {
    let mut kv = Kv::default();
    let (value, mut reply) = (Bytes::from(vec![b'v'; 100]), Vec::new());
    for number in 0..keys {
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
    Box::new(kv)
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    println!("{what}: {:.3} ms", began.elapsed().as_secs_f64() * 1e3);
    result
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "kv".to_owned());
    let keys = arguments.next();
    let keys = keys.map_or(1_000_000, |keys| keys.parse().expect("a number"));
    let (filled, empty): (_, fn() -> Box<dyn StateMachine>) = match &*name {
        "kv" => (filled_kv(keys), || Box::new(Kv::default())),
        "tree" => (filled_tree(keys), || {
            Box::new(TreeStore::<Published>::default())
        }),
        _ => panic!("unknown machine {name:?}; available: kv, tree"),
    };
    let mut full = Executor::new(filled, EXPIRY);
    let mut frozen = timed("freeze", || full.freeze());
    let (mut whole, mut worst) = (Vec::new(), Duration::ZERO);
    let mut piece = Vec::with_capacity(1 << 20);
    loop {
        let began = Instant::now();
        let more = frozen.write_some(&mut piece);
        worst = worst.max(began.elapsed());
        if !more {
            break;
        }
        whole.append(&mut piece);
    }
    println!(
        "longest piece: {:.3} ms; the whole is {} bytes",
        worst.as_secs_f64() * 1e3,
        whole.len()
    );
    let whole = Bytes::from(whole);
    for _ in 0..3 {
        let mut empty = Executor::new(empty(), EXPIRY);
        timed("restore into an empty machine", || empty.restore(&whole)).expect("just written");
    }
    for _ in 0..3 {
        timed("restore over a full one", || full.restore(&whole)).expect("just written");
    }
}
