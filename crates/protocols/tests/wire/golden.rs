//! Messages as released programs wrote them, one file for each level and protocol: every later
//! program reads them and writes the same bytes. A file is never written anew, only added when a
//! level is released: `WRITE_GOLDEN=1 cargo test -p ionian-protocols --test wire golden`.

use super::drawn;
use bytes::Bytes;
use ionian_kernel::protocol::{Message, Protocol};
use ionian_kernel::wire::{decode_all, encode_all};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// The levels of which there are files.
const LEVELS: [u16; 1] = [17];

/// How many messages of each kind a file has.
const EACH: usize = 3;

fn file<P: Protocol>(level: u16) -> PathBuf {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../protocols/tests/wire/golden"
    );
    PathBuf::from(format!("{folder}/{level}/{}.txt", P::NAME))
}

/// A message on a line: its kind, its bytes, and what it says.
fn line(message: &impl Message) -> String {
    let mut line = format!("{} ", message.name());
    for byte in encode_all(message) {
        write!(line, "{byte:02x}").expect("a string has room");
    }
    format!("{line} {message:?}\n")
}

/// Whether `new` says what `old` says: a later program may say more of a message.
fn says(new: &str, old: &str) -> bool {
    let mut words = new.split_whitespace();
    old.split_whitespace()
        .all(|word| words.any(|other| other == word))
}

pub(crate) fn are_read_and_written_as_before<P: Protocol>() {
    for level in LEVELS {
        let path = file::<P>(level);
        if std::env::var_os("WRITE_GOLDEN").is_some() && !path.exists() {
            let lines: String = drawn::messages::<P>(u64::from(level), EACH, |_| true)
                .iter()
                .map(line)
                .collect();
            fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
            fs::write(&path, lines).expect("the file is written");
        }
        let text = fs::read_to_string(&path).expect("a protocol has a file for each level");
        for (number, written) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let mut parts = written.splitn(3, ' ');
            let [name, digits, said] = [(); 3].map(|()| parts.next().expect("three parts"));
            let bytes: Vec<u8> = (0..digits.len() / 2)
                .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits"))
                .collect();
            let bytes = Bytes::from(bytes);
            let message = decode_all::<P::Message>(&bytes)
                .unwrap_or_else(|error| panic!("{place}: {name} is not read any more: {error}"));
            assert_eq!(message.name(), name, "{place}");
            assert_eq!(encode_all(&message), bytes, "{place}: written otherwise");
            let now = format!("{message:?}");
            assert!(says(&now, said), "{place}: it means something else: {now}");
        }
    }
}
