//! The key-value machine from the outside: as the gateway and the log see it.

mod behaviour;
mod budget;
mod facts;
mod golden;
#[path = "../common/in_parts.rs"]
mod in_parts;
mod properties;
mod replies;
mod room;
mod streams;
mod users;
mod watching;

use bytes::Bytes;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{Command, Compound, Kv};

/// A time of day like any other, in milliseconds.
const NOW: u64 = 1_700_000_000_000;

fn argv(words: &[&str]) -> Vec<Bytes> {
    words
        .iter()
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect()
}

/// The command that `line` spells, in words parted by spaces.
fn command(line: &str) -> Command {
    let words: Vec<_> = line.split(' ').collect();
    Command::parse(&argv(&words)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn pipeline(lines: &[&str]) -> Compound {
    Compound::Pipeline(lines.iter().map(|line| command(line)).collect())
}

fn apply(kv: &mut Kv, now: u64, compound: &Compound) -> String {
    let mut reply = Vec::new();
    kv.apply(Timestamp(now), &compound.encode(), &mut reply);
    shown(&reply)
}

/// A reply with `|` for the end of a line and other strange bytes in hexadecimal.
fn shown(reply: &[u8]) -> String {
    let text = reply.iter().map(|byte| match byte {
        b'\r' => String::new(),
        b'\n' => "|".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    text.collect()
}

/// Executes one command through the log.
fn run(kv: &mut Kv, now: u64, line: &str) -> String {
    apply(kv, now, &pipeline(&[line]))
}

fn snapshot(kv: &Kv) -> Vec<u8> {
    let mut out = Vec::new();
    kv.snapshot(&mut out);
    out
}
