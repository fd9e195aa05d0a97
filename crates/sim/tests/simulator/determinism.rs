//! The same seed gives the same trace, byte for byte; another seed gives another.
use crate::toy::{TOY, scenario};
use ionian_sim::{Scenario, Watch, run_seed, run_seed_watched};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn traced(scenario: &Scenario, seed: u64) -> (u64, String) {
    let lines = Shared::default();
    let watch = Watch {
        trace: Some(Box::new(lines.clone())),
        ..Watch::default()
    };
    let outcome = run_seed_watched(TOY, scenario, seed, watch);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    (outcome.trace_hash, text)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..30 {
        let (first, again) = (traced(&scenario(), seed), traced(&scenario(), seed));
        assert!(first == again, "seed {seed}");
        // A sink changes nothing.
        let (one, two) = (
            run_seed(TOY, &scenario(), seed),
            run_seed(TOY, &scenario(), seed),
        );
        assert_eq!((one.trace_hash, &one.report), (first.0, &two.report));
    }
}

#[test]
fn other_seeds_give_other_traces() {
    let hashes: BTreeSet<u64> = (0..100)
        .map(|seed| run_seed(TOY, &scenario(), seed).trace_hash)
        .collect();
    assert_eq!(hashes.len(), 100);
}

#[test]
fn a_trace_can_be_read() {
    let (_, text) = traced(&scenario(), 0);
    for word in [
        "submit",
        "deliver",
        "append",
        "synced",
        "reply",
        "heal",
        "server::Execute from n1",
    ] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
}
