//! Every message of every protocol survives the wire, and no bytes of a peer do harm. A protocol
//! gets these tests with its line in the registry, in a module of its name.

pub(crate) mod drawn;
pub(crate) mod epochs;
pub(crate) mod golden;
pub(crate) mod hostile;
pub(crate) mod stored;

use bytes::Bytes;
use ionian_kernel::id::{ClientId, SessionId};
use ionian_kernel::layout::Address;
use ionian_kernel::protocol::{Birth, Instance, Message, Protocol};
use ionian_kernel::random::Random;
use ionian_kernel::wire::{Reader, decode_all, encode_all};
use ionian_replication::batch::{Batch, BatchBuilder, Command, Purpose};
use std::collections::BTreeSet;

macro_rules! tests {
    ($($(#[$when:meta])? $module:ident::$protocol:ident,)*) => {
        $(
            $(#[$when])?
            mod $module {
                use ionian_protocols::registry::types::$protocol as Protocol;

                #[test]
                fn every_message_survives_the_wire() {
                    super::survive_the_wire::<Protocol>();
                }

                #[test]
                fn b1_an_empty_or_truncated_message_is_an_error() {
                    super::are_errors_when_truncated::<Protocol>();
                }

                #[test]
                fn b1_garbage_and_damaged_messages_are_harmless() {
                    super::are_harmless_when_damaged::<Protocol>();
                }

                #[test]
                fn garbage_in_the_log_or_a_snapshot_is_an_error_and_no_panic() {
                    super::refuse_garbage::<Protocol>();
                }

                #[test]
                fn golden_messages_of_released_programs_are_read_and_written_as_before() {
                    super::golden::are_read_and_written_as_before::<Protocol>();
                }

                #[test]
                fn a_cluster_survives_faulty_peers() {
                    super::hostile::survive::<Protocol>();
                }
            }
        )*
    };
}

ionian_protocols::for_each_protocol!(tests);

/// Messages that are drawn of each kind.
const EACH: usize = 100;

fn survive_the_wire<P: Protocol>() {
    let mut kinds = BTreeSet::new();
    for message in drawn::messages::<P>(1, EACH, |_| true) {
        let bytes = Bytes::from(encode_all(&message));
        let read = decode_all::<P::Message>(&bytes).expect("it survives");
        assert_eq!(encode_all(&read), bytes);
        assert_eq!(format!("{read:?}"), format!("{message:?}"));
        kinds.insert(message.kind());
    }
    // Of each role.
    assert_eq!(kinds.len(), P::KINDS.len(), "{kinds:?}");
}

fn are_errors_when_truncated<P: Protocol>() {
    assert!(decode_all::<P::Message>(&Bytes::new()).is_err());
    for message in drawn::messages::<P>(2, EACH / 10, |_| true) {
        let bytes = Bytes::from(encode_all(&message));
        for end in 0..bytes.len() {
            let read = decode_all::<P::Message>(&bytes.slice(..end));
            assert!(read.is_err(), "{message:?} cut off at {end}");
        }
    }
}

/// Damaged bytes are an error, or a message that encodes as those very bytes: nothing is read past.
fn harmless<P: Protocol>(bytes: Vec<u8>) {
    let bytes = Bytes::from(bytes);
    if let Ok(message) = decode_all::<P::Message>(&bytes) {
        assert_eq!(encode_all(&message), bytes);
    }
}

fn are_harmless_when_damaged<P: Protocol>() {
    let mut random = Random::new(3);
    for message in drawn::messages::<P>(3, EACH, |_| true) {
        let mut damaged = encode_all(&message);
        let at = random.below(damaged.len() as u64) as usize;
        damaged[at] ^= random.below(256) as u8;
        harmless::<P>(damaged);
        let length = random.below(40);
        harmless::<P>((0..length).map(|_| random.any() as u8).collect());
    }
}

/// What a disk gives back is checked by checksums; but a mistake of an operator, or a file of
/// another role, must end with a reason.
fn refuse_garbage<P: Protocol>() {
    let mut random = Random::new(4);
    let layout = hostile::layout::<P>();
    let config = P::configure(layout.clone()).expect("a deployment");
    for (address, node) in layout.addresses() {
        let machine = || Box::new(hostile::Echo) as Box<_>;
        let born = || {
            let birth = Birth {
                address,
                node,
                seed: 7,
                amnesiac: false,
                predecessors: 0,
                keeps_records: true,
                machine: &machine,
                guard: None,
                workers: None,
            };
            P::instantiate(&config, birth)
        };
        refuses_garbage(address, &mut random, born);
    }
}

fn refuses_garbage<I: Instance>(address: Address, random: &mut Random, born: impl Fn() -> I) {
    let mut refused = 0;
    for _ in 0..200 {
        let bytes = Bytes::from(drawn::bytes(random));
        let mut instance = born();
        refused += usize::from(instance.recover(&mut Reader::new(&bytes)).is_err());
        // What a role without snapshots makes of one is no matter, as long as it does not panic.
        let _ = born().restore(random.any(), &bytes);
    }
    assert!(refused > 0, "{address:?} takes anything for a record");
}

/// What is inside a batch comes from clients and peers: only replicas look at it, and all of them
/// must read the same.
#[test]
fn b2_damaged_batches_are_read_alike_and_end() {
    let mut random = Random::new(5);
    for _ in 0..20_000 {
        let mut builder = BatchBuilder::default();
        for number in 0..random.below(4) {
            builder.push(&Command {
                client: ClientId(number as u8),
                purpose: Purpose::Execute(SessionId(random.any() >> 8)),
                number,
                floor: number / 2,
                payload: drawn::bytes(&mut random),
            });
        }
        let mut bytes = encode_all(&builder.take());
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= random.below(256) as u8;
        if let Ok(batch) = decode_all::<Batch>(&Bytes::from(bytes)) {
            let read: Vec<_> = batch.commands().collect();
            assert_eq!(read, batch.commands().collect::<Vec<_>>());
        }
    }
}
