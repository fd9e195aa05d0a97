//! Streams of the key-value machine on each protocol, in the simulator: positions are dense, no
//! acknowledged append is missing or there twice, and all readers see the same sequence. The
//! machine alone is the measure: an answer that it would not give, one command after the other, is
//! a failure.
#![cfg(feature = "testing")]

use bytes::Bytes;
use ionian::testing::{Commands, Random, Simulation, exercise};
use ionian::{Kv, StateMachine};
use ionian_kernel::delegate;
use ionian_machines::kv::{Command, Compound};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The key-value machine, whose clients append to two streams and read them.
#[derive(Default)]
struct Streams(Kv);

impl StateMachine for Streams {
    delegate!(0: apply read snapshot freeze restore footprint parts next_deadline needs);
}

fn encoded(line: &str) -> Vec<u8> {
    let words: Vec<Bytes> = line
        .split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect();
    let command = Command::parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
    Compound::Pipeline(vec![command]).encode()
}

impl Commands for Streams {
    fn random_write(random: &mut Random) -> Vec<u8> {
        let key = ["log", "other"][random.below(2) as usize];
        let (value, position) = (random.below(1000), random.below(40));
        encoded(&match random.below(10) {
            0 => format!("xadd {key} * e {value}"),
            1 => format!("xadd {key} maxlen 7 0-* e {value}"),
            2 => format!("xtrim {key} minid 0-{position}"),
            3 => format!("xdel {key} 0-{position}"),
            _ => format!("xadd {key} 0-* e {value}"),
        })
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        let key = ["log", "other"][random.below(2) as usize];
        let position = random.below(20);
        encoded(&match random.below(4) {
            0 => format!("xrange {key} - +"),
            1 => format!("xlen {key}"),
            2 => format!("xread block 0 streams {key} $"),
            _ => format!("xread count 5 streams {key} 0-{position}"),
        })
    }

    /// Each stream by itself: commands on different ones commute.
    fn part(command: &[u8]) -> u64 {
        u64::from(command.windows(5).any(|word| word == b"other"))
    }
}

#[test]
fn the_machine_alone_is_right() {
    let exercised = exercise::<Streams>(0..60).expect("the machine is right");
    assert!(exercised.commuted > 0);
}

/// One preset of each protocol, as many at a time as there are processors: a run takes seconds,
/// because the measure executes all commands again for each order that it tries.
#[test]
fn streams_are_linearizable_on_every_protocol() {
    let mut first = BTreeMap::new();
    for (protocol, preset) in ionian::presets() {
        first.entry(protocol.name).or_insert(preset.name);
    }
    let (first, next) = (Vec::from_iter(first), AtomicUsize::new(0));
    let work = || {
        while let Some((protocol, preset)) = first.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = Simulation::new(preset).seeds(0..4).run::<Streams>();
            let report = report.unwrap_or_else(|failure| panic!("{protocol}: {failure}"));
            let answered = report.acknowledged;
            assert!(answered > 60, "{protocol}: {answered} acknowledged");
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}
