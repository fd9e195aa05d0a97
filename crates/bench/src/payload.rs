//! A lone command of the key-value store as a gateway hands it to its client lane.

use bytes::Bytes;
use ionian_machines::kv;

/// The command of these words, which must be one.
pub(crate) fn payload(words: &[Bytes]) -> Vec<u8> {
    let command = kv::Command::parse(words).expect("a command of the store");
    kv::Compound::Pipeline(vec![command]).encode()
}
