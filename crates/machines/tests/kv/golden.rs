//! Commands and snapshots as released programs wrote them, one file for each level: every later
//! program reads them, writes the same bytes and gives the same replies. A line once written is
//! never changed. New ones come at the end, as words alone, and get their bytes by
//! `WRITE_GOLDEN=1 cargo test -p ionian-machines --test kv golden`. The file of a level is complete
//! when the level is released.
//!
//! Lines are `words => bytes => reply`, and `snapshot => bytes` for the state after the lines
//! before it, from which the next ones go on. The first word says what is encoded:
//!
//! ```text
//! do COMMAND; COMMAND ...                  commands in a pipeline
//! exec KEY VERSION KEY VERSION: COMMAND; ...   a transaction and what it watches
//! versions KEY ...
//! setuser NAME RULE ...    deluser NAME ...    users KNOWN
//! limit N    measure    room    expiring
//! at EPOCH WORDS           the same, judged by this epoch of the users
//! ```

use crate::{NOW, argv, shown, snapshot};
use bytes::Bytes;
use ionian_kernel::guard::LogCommand;
use ionian_kernel::id::{SessionId, Slot};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::{self, Command, Compound, Kv};
use std::fmt::Write;
use std::fs;

const PARTED: &str = " => ";

/// The first level that is not released: files of those before are complete.
const UNRELEASED: u16 = 18;

/// Refused ones too: they are encoded with their error.
fn commands(text: &str) -> Vec<Command> {
    let lines = text.split("; ").filter(|line| !line.is_empty());
    let words = lines.map(|line| argv(&line.split(' ').collect::<Vec<_>>()));
    let parsed = words.map(|words| Command::parse_queued(&words));
    parsed.map(|command| command.expect("a command")).collect()
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn transaction(text: &str) -> Compound {
    let (watched, lines) = text.split_once(':').expect("a colon");
    let watched: Vec<_> = watched.split(' ').filter(|it| !it.is_empty()).collect();
    let pairs = watched.chunks_exact(2);
    Compound::Transaction {
        watched: pairs
            .map(|pair| (Bytes::copy_from_slice(pair[0].as_bytes()), number(pair[1])))
            .collect(),
        commands: commands(lines.trim_start()),
    }
}

/// The encoding of what these words say.
fn encoded(words: &str) -> Vec<u8> {
    let (kind, rest) = words.split_once(' ').unwrap_or((words, ""));
    let rest_words = || argv(&rest.split(' ').collect::<Vec<_>>());
    let compound = match kind {
        "do" => Compound::Pipeline(commands(rest)),
        "exec" => transaction(rest),
        "versions" => Compound::Versions(rest_words()),
        "setuser" => {
            let mut words = rest_words();
            Compound::SetUser {
                name: words.remove(0),
                rules: words,
            }
        }
        "deluser" => Compound::DeleteUsers(rest_words()),
        "users" => Compound::Users {
            known: number(rest),
        },
        "limit" => Compound::SetLimit(number(rest)),
        "measure" => Compound::Measure,
        "room" => Compound::Room,
        "expiring" => Compound::Pipeline(vec![Command::expiring()]),
        "at" => {
            let (epoch, words) = rest.split_once(' ').expect("words");
            return kv::judged_at(number(epoch), &encoded(words)).to_vec();
        }
        _ => panic!("{words}: unknown"),
    };
    compound.encode()
}

fn apply(kv: &mut Kv, level: u16, now: u64, payload: &[u8]) -> String {
    let logged = LogCommand {
        slot: Slot(1),
        session: SessionId(1),
        number: 1,
        payload,
        level: Level(level),
    };
    let mut reply = Vec::new();
    kv.apply_logged(Timestamp(now), &logged, &mut reply);
    shown(&reply)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string has room");
        digits
    })
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits");
    (0..digits.len() / 2).map(byte).collect()
}

fn restored(bytes: &[u8]) -> Kv {
    let mut kv = Kv::default();
    kv.restore(bytes).expect("it is read");
    kv
}

/// Checks a line, or says what is missing in it. All commands come 50 ms after one another.
fn checked(kv: &mut Kv, level: u16, number: u64, line: &str, place: &str) -> String {
    let mut parts = line.split(PARTED);
    let words = parts.next().expect("there is a first");
    let written: Vec<&str> = parts.collect();
    let (is_snapshot, now) = (words == "snapshot", NOW + 50 * number);
    let found = match is_snapshot {
        true => {
            let bytes = snapshot(kv);
            *kv = restored(&bytes);
            vec![digits(&bytes)]
        }
        false => {
            let bytes = encoded(words);
            vec![digits(&bytes), apply(kv, level, now, &bytes)]
        }
    };
    if !written.is_empty() {
        assert_eq!(written, found, "{place}: {words}");
    }
    [&[words.to_owned()][..], &found].concat().join(PARTED)
}

fn are_as_before(level: u16) {
    let path = format!("{}/tests/kv/golden/{level}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).expect("there is a file");
    let (mut kv, mut whole) = (Kv::default(), String::new());
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{path}:{number}");
        whole += &checked(&mut kv, level, number, line, &place);
        whole.push('\n');
    }
    if level >= UNRELEASED && std::env::var_os("WRITE_GOLDEN").is_some() {
        fs::write(&path, &whole).expect("it is written");
    }
    let what = "a line has no bytes: those of an unreleased level are written with WRITE_GOLDEN=1";
    assert_eq!(fs::read_to_string(&path).expect("a file"), whole, "{what}");
}

#[test]
fn golden_commands_and_snapshots_of_the_first_level_are_as_before() {
    are_as_before(17);
}

#[test]
fn golden_commands_and_snapshots_of_level_18_are_as_before() {
    are_as_before(18);
}

/// Every command is in the file of some level.
#[test]
fn golden_files_have_every_command() {
    let files = [include_str!("golden/17.txt"), include_str!("golden/18.txt")];
    let lines = files.iter().flat_map(|text| text.lines());
    let words = lines.map(|line| line.split(PARTED).next().expect("words"));
    let commands: Vec<&str> = words
        .flat_map(|words| words.split("; "))
        .map(|words| words.strip_prefix("do ").unwrap_or(words))
        .map(|words| words.rsplit(": ").next().unwrap_or(words))
        .collect();
    for info in kv::command_table() {
        let name = info.name.replace('|', " ");
        let is_it = |line: &&str| **line == name || line.starts_with(&format!("{name} "));
        assert!(commands.iter().any(is_it), "{name} is in no file");
    }
}

/// Programs before streams wrote format 2, which is format 3 without them.
#[test]
fn a_snapshot_without_streams_is_read() {
    let before = bytes_of(include_str!("golden/format-2.txt").trim_end());
    assert_eq!(before[0], 2);
    let after = snapshot(&restored(&before));
    assert_eq!((after[0], &after[1..]), (3, &before[1..]));
}
