//! Bytes that no client sends.

use crate::support::{answer, snapshot};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_netfs::{
    Change, Command, Content, Errno, MAX_CONTENT, NetFs, Query, Rename, SetAttr, SetTime, Stamp,
    Time, decode_answer,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn change() -> impl Strategy<Value = Change<'static>> {
    let content: &'static [u8] = &[9; 5000];
    prop_oneof![
        any::<(u64, u32, u32, u32, u32, bool)>().prop_map(
            |(parent, mode, uid, gid, rdev, hold)| {
                Change::Create {
                    parent,
                    name: b"name",
                    mode,
                    uid,
                    gid,
                    rdev,
                    hold,
                }
            }
        ),
        any::<(u64, u32, u32)>().prop_map(|(parent, uid, gid)| {
            Change::Symlink {
                parent,
                name: b"n",
                target: b"t",
                uid,
                gid,
            }
        }),
        any::<(u64, u64)>().prop_map(|(a, b)| {
            Change::Rename {
                from: (a, b"a"),
                to: (b, b""),
                how: Rename::Exchange,
            }
        }),
        any::<(u64, Option<u32>, Option<u64>, i64)>().prop_map(|(ino, mode, size, seconds)| {
            let modified = Some(SetTime::To(Time { seconds, nanos: 1 }));
            let set = SetAttr {
                mode,
                size,
                modified,
                ..SetAttr::default()
            };
            Change::Set { ino, set }
        }),
        vec(any::<u64>(), 0..64).prop_map(|inos| Change::Release { inos }),
        (any::<(u64, u64, bool, bool)>(), 0..content.len()).prop_map(
            move |((ino, offset, grow, append), length)| Change::Write {
                ino,
                offset,
                grow,
                append,
                data: Content::Plain(&content[..length]),
            }
        ),
    ]
}

fn encoded(change: Change<'_>, mount: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Command::Change(
        Stamp {
            mount,
            number: 2,
            floor: 1,
        },
        change,
    )
    .encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_and_a_byte_less_or_more_is_refused(
        change in change(), mount in any::<u64>(),
    ) {
        let bytes = encoded(change.clone(), mount);
        let decoded = Command::decode(&bytes).unwrap();
        match (&decoded, &change) {
            // Content is compared when it is unpacked.
            (Command::Change(_, Change::Write { ino, .. }), Change::Write { ino: sent, .. }) => {
                prop_assert_eq!(ino, sent);
            }
            _ => {
                let stamp = Stamp { mount, number: 2, floor: 1 };
                prop_assert_eq!(&decoded, &Command::Change(stamp, change.clone()));
            }
        }
        let is_list = matches!(change, Change::Release { .. });
        let is_compressed = matches!(change, Change::Write { .. });
        for cut in 0..bytes.len() {
            let is_shorter_list = is_list && (bytes.len() - cut).is_multiple_of(8) && cut >= 25;
            let is_content = is_compressed && cut >= 48;
            prop_assert!(
                is_shorter_list || is_content || Command::decode(&bytes[..cut]).is_err(), "{}", cut
            );
        }
        if !is_compressed {
            let more = [&bytes[..], &[0]].concat();
            prop_assert!(Command::decode(&more).is_err());
        }
    }

    #[test]
    fn no_bytes_make_the_machine_panic_or_change(bytes in vec(any::<u8>(), 0..200)) {
        let mut machine = NetFs::default();
        let before = snapshot(&machine);
        let mut reply = Vec::new();
        let mut footprint = ionian_kernel::machine::Footprint::default();
        machine.footprint(&bytes, &mut footprint);
        // The answer to a query of random bytes is an error, or not a read.
        let _ = machine.read(Timestamp(1), &bytes, &mut Vec::new());
        machine.apply(Timestamp(1), &bytes, &mut reply);
        prop_assert!(answer(&reply).is_err() || bytes.len() == 9 || bytes.len() == 17);
        if bytes.first() != Some(&0) {
            prop_assert!(snapshot(&machine) == before);
        }
        let _ = decode_answer(&bytes);
        let _ = Query::decode(&bytes);
        prop_assert!(machine.restore(&bytes).is_err());
    }

    #[test]
    fn a_damaged_write_is_refused_or_executed_as_something_else_but_never_panics(
        change in change(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = encoded(change, 1);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut machine = NetFs::default();
        machine.apply(Timestamp(1), &bytes, &mut Vec::new());
    }
}

#[test]
fn a_length_that_is_not_true_allocates_nothing() {
    let mut bytes = encoded(
        Change::Write {
            ino: 1,
            offset: 0,
            grow: true,
            append: false,
            data: Content::Plain(&[1; 100]),
        },
        1,
    );
    // The length of the content is behind tag, stamp, inode, offset, two flags and the form.
    let at = 1 + 24 + 16 + 2 + 1;
    assert_eq!(bytes[at..at + 4], 100u32.to_le_bytes());
    bytes[at..at + 4].copy_from_slice(&(MAX_CONTENT as u32 + 1).to_le_bytes());
    assert!(Command::decode(&bytes).is_err());
    bytes[at..at + 4].copy_from_slice(&(MAX_CONTENT as u32).to_le_bytes());
    let mut reply = Vec::new();
    NetFs::default().apply(Timestamp(1), &bytes, &mut reply);
    assert!(matches!(answer(&reply), Err(Errno(errno)) if errno > 0));
}

#[test]
fn content_is_compressed_if_that_pays() {
    let of = |content: &[u8]| {
        let data = Content::Plain(content);
        encoded(
            Change::Write {
                ino: 1,
                offset: 0,
                grow: false,
                append: false,
                data,
            },
            1,
        )
        .len()
    };
    let mut random = ionian::testing::Random::new(1);
    let noise: Vec<u8> = (0..50_000).map(|_| random.any() as u8).collect();
    assert!(of(&[0; 50_000]) < 400);
    assert_eq!(of(&noise) - of(&[]), noise.len());
}
