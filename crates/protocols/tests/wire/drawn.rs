//! Messages drawn from bytes: what the decoder makes of them. So every kind of message of every
//! protocol is drawn, with absurd numbers in it, and no list can lack one.

use bytes::Bytes;
use ionian_kernel::protocol::{Message, Protocol};
use ionian_kernel::random::Random;
use ionian_kernel::wire::{Reader, Wire};
use std::collections::BTreeMap;

/// No role has more kinds of message.
const MOST_KINDS: u64 = 16;

/// Attempts to draw a message of each kind.
const DRAWN: usize = 500_000;

/// Small numbers and the largest are where mistakes are.
const EXTREMES: [u64; 6] = [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 40, 1 << 22, 0];

/// Bytes as messages consist of them: ids, lengths and tags, which are small, and numbers.
pub(crate) fn bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.between(1, 40) {
        match random.below(8) {
            0..3 => bytes.push(random.below(4) as u8),
            3 => bytes.push(random.below(64) as u8),
            4..6 => bytes.extend((random.below(4) as u32).to_le_bytes()),
            6 => bytes.extend(random.any().to_le_bytes()),
            _ => bytes.extend(EXTREMES[random.below(6) as usize].to_le_bytes()),
        }
    }
    bytes
}

/// A message, if these random bytes begin with one.
fn draw<P: Protocol>(random: &mut Random) -> Option<P::Message> {
    let mut bytes = bytes(random);
    let kind = random.below(P::KINDS.len() as u64);
    let [message, part, inner] = [MOST_KINDS, 4, MOST_KINDS].map(|most| random.below(most));
    // A message can be in another one, for a part of the log.
    let tags = [kind, message, part, inner].map(|tag| tag as u8);
    let tags = match random.below(3) {
        0 => &tags[..2],
        1 => &[tags[0], tags[1], tags[3]],
        _ => &tags[..],
    };
    bytes.splice(..0, tags.iter().copied());
    let bytes = Bytes::from(bytes);
    P::Message::decode(&mut Reader::new(&bytes)).ok()
}

/// One message.
pub(crate) fn message<P: Protocol>(random: &mut Random) -> P::Message {
    let drawn = (0..100_000).find_map(|_| draw::<P>(random));
    drawn.expect("random bytes are messages now and then")
}

/// Messages of all kinds for which `wanted` holds, `each` of a kind at most.
pub(crate) fn messages<P: Protocol>(
    seed: u64,
    each: usize,
    wanted: impl Fn(&P::Message) -> bool,
) -> Vec<P::Message> {
    let (mut random, mut drawn) = (Random::new(seed), BTreeMap::<_, usize>::new());
    let mut messages = Vec::new();
    for _ in 0..DRAWN {
        let Some(message) = draw::<P>(&mut random).filter(&wanted) else {
            continue;
        };
        let drawn = drawn.entry(message.name()).or_default();
        *drawn += 1;
        if *drawn <= each {
            messages.push(message);
        }
    }
    messages
}
