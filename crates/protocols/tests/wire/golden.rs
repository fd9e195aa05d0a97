//! Messages as released programs wrote them, one file for each level and protocol: every later
//! program reads them and writes the same bytes. A file is never written anew, only added when a
//! level is released: `WRITE_GOLDEN=1 cargo test -p ionian-protocols --test wire golden`.

use super::drawn;
use bytes::Bytes;
use ionian_kernel::protocol::{Message, Protocol};
use ionian_kernel::wire::{Wire, decode_all, encode_all};
use std::fmt::{Debug, Write};
use std::fs;
use std::path::{Path, PathBuf};

/// The levels of which there are files.
pub(crate) const LEVELS: [u16; 1] = [17];

/// How many messages of each kind a file has.
pub(crate) const EACH: usize = 3;

/// The folder of a level.
pub(crate) fn folder(level: u16) -> PathBuf {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../protocols/tests/wire/golden"
    );
    PathBuf::from(format!("{folder}/{level}"))
}

fn file<P: Protocol>(level: u16) -> PathBuf {
    folder(level).join(format!("{}.txt", P::NAME))
}

/// Bytes as digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string has room");
        digits
    })
}

/// The bytes that these digits stand for.
pub(crate) fn bytes_of(digits: &str) -> Bytes {
    let byte = |at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("two digits");
    (0..digits.len() / 2).map(byte).collect()
}

/// A value on a line: its name, its bytes, and what it says.
pub(crate) fn line<T: Wire + Debug>(name: &str, value: &T) -> String {
    format!("{name} {} {value:?}\n", digits(&encode_all(value)))
}

/// Whether `new` says what `old` says: a later program may say more of a value.
fn says(new: &str, old: &str) -> bool {
    let words = |text| str::split_whitespace(text).map(|word| word.trim_end_matches(','));
    let mut new = words(new);
    words(old).all(|word| new.any(|other| other == word))
}

/// Checks the value of a line, which is at this place.
pub(crate) fn is_read_and_written_as_before<T: Wire + Debug>(place: &str, line: &str) -> T {
    let mut parts = line.splitn(3, ' ');
    let [name, digits, said] = [(); 3].map(|()| parts.next().expect("three parts"));
    let bytes = bytes_of(digits);
    let value = decode_all::<T>(&bytes)
        .unwrap_or_else(|error| panic!("{place}: {name} is not read any more: {error}"));
    assert_eq!(encode_all(&value), bytes, "{place}: written otherwise");
    let now = format!("{value:?}");
    assert!(says(&now, said), "{place}: it means something else: {now}");
    value
}

/// The text of a file, which is made if it is missing and is to be written.
pub(crate) fn text(path: &Path, made: impl FnOnce() -> String) -> String {
    if std::env::var_os("WRITE_GOLDEN").is_some() && !path.exists() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
        fs::write(path, made()).expect("the file is written");
    }
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn are_read_and_written_as_before<P: Protocol>() {
    let founded_since = P::FOUNDED_SINCE.number();
    for level in LEVELS.into_iter().filter(|level| *level >= founded_since) {
        let path = file::<P>(level);
        let text = text(&path, || {
            let drawn = drawn::messages::<P>(u64::from(level), EACH, |_| true);
            let lines = drawn.iter().map(|message| line(message.name(), message));
            lines.collect()
        });
        assert!(
            text.lines().count() >= EACH,
            "{}: no messages",
            path.display()
        );
        for (number, written) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let message = is_read_and_written_as_before::<P::Message>(&place, written);
            let name = written.split_whitespace().next();
            assert_eq!(name, Some(message.name()), "{place}");
        }
    }
}
