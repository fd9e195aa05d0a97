//! What a sentence of the documentation promises, one test each.

use crate::model::{DIRECTORY, FILE};
use crate::support::{Client, answer, apply, ask, restored, snapshot};
use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_netfs::{
    Change, Command, Content, Errno, Limits, NetFs, Query, ROOT, Reply, SetAttr, SetTime, Stamp,
    Time, WINDOW,
};

fn client() -> Client {
    Client::new(NetFs::default())
}

#[test]
fn a_file_that_is_unlinked_remains_while_any_mount_holds_it() {
    let mut client = client();
    let before = client.used();
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    client.write(ino, 0, b"content").unwrap();
    let begun = apply(&mut client.machine, 1000, &Command::Begin { nonce: 2 });
    let Ok(Reply::Begun(other)) = answer(&begun) else {
        panic!()
    };
    let open = Command::Change(
        Stamp {
            mount: other,
            number: 1,
            floor: 1,
        },
        Change::Open { ino },
    );
    answer(&apply(&mut client.machine, 1000, &open)).unwrap();
    client
        .change(Change::Unlink {
            parent: ROOT,
            name: b"f",
        })
        .unwrap();
    client.change(Change::Release { inos: vec![ino] }).unwrap();
    assert_eq!(client.read(ino), b"content");
    apply(&mut client.machine, 1000, &Command::End(other));
    assert_eq!(
        ask(&client.machine, Query::Attr { ino }),
        Err(Errno::ESTALE)
    );
    assert_eq!(client.used(), before);
}

#[test]
fn a_mount_that_does_not_come_back_loses_its_holds_when_its_lease_ends() {
    let mut client = client();
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    client
        .change(Change::Unlink {
            parent: ROOT,
            name: b"f",
        })
        .unwrap();
    let lease = Limits::default().lease_ms;
    apply(
        &mut client.machine,
        1000 + lease,
        &Command::Begin { nonce: 2 },
    );
    assert!(ask(&client.machine, Query::Attr { ino }).is_ok());
    apply(&mut client.machine, 1001 + lease, &Command::Renew(2));
    assert_eq!(
        ask(&client.machine, Query::Attr { ino }),
        Err(Errno::ESTALE)
    );
    let renewed = apply(
        &mut client.machine,
        1001 + lease,
        &Command::Renew(client.mount),
    );
    assert_eq!(answer(&renewed), Err(Errno::UNKNOWN_MOUNT));
    assert_eq!(client.write(ino, 0, b"x"), Err(Errno::ESTALE));
}

#[test]
fn a_renewed_mount_keeps_its_holds() {
    let mut client = client();
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    for minutes in (0..60).step_by(9) {
        let renewed = Command::Renew(client.mount);
        let renewed = apply(&mut client.machine, minutes * 60_000, &renewed);
        assert_eq!(answer(&renewed), Ok(Reply::Done));
    }
    client.now = 60 * 60_000;
    client.write(ino, 0, b"x").unwrap();
}

#[test]
fn a_copy_of_a_write_does_not_overwrite_what_came_after_it() {
    let mut client = client();
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    client.write(ino, 0, b"....").unwrap();
    let write = |number, floor, bytes| {
        let change = Change::Write {
            ino,
            offset: 0,
            grow: false,
            append: false,
            data: Content::Plain(bytes),
        };
        Command::Change(
            Stamp {
                mount: client.mount,
                number,
                floor,
            },
            change,
        )
    };
    let (first, second) = (write(10, 10, b"old"), write(11, 10, b"new"));
    let machine = &mut client.machine;
    answer(&apply(machine, 1, &first)).unwrap();
    answer(&apply(machine, 2, &second)).unwrap();
    answer(&apply(machine, 3, &first)).unwrap();
    // When no client waits for it any more it is refused.
    answer(&apply(machine, 4, &write(12, 12, b"new"))).unwrap();
    assert_eq!(answer(&apply(machine, 5, &first)), Err(Errno::SETTLED));
    // Not even a new hold lets it in.
    let change = |number, change| {
        Command::Change(
            Stamp {
                mount: client.mount,
                number,
                floor: number,
            },
            change,
        )
    };
    answer(&apply(
        machine,
        6,
        &change(13, Change::Release { inos: vec![ino] }),
    ))
    .unwrap();
    answer(&apply(machine, 6, &change(14, Change::Open { ino }))).unwrap();
    assert_eq!(answer(&apply(machine, 7, &first)), Err(Errno::SETTLED));
    assert_eq!(client.read(ino), b"new.");
}

#[test]
fn a_number_beyond_the_window_is_refused() {
    let mut client = client();
    let mkdir = |number| {
        let stamp = Stamp {
            mount: client.mount,
            number,
            floor: 1,
        };
        let (name, mode) = (b"d", DIRECTORY | 0o700);
        let change = Change::Create {
            parent: ROOT,
            name,
            mode,
            uid: 0,
            gid: 0,
            rdev: 0,
            hold: false,
        };
        Command::Change(stamp, change)
    };
    let refused = apply(&mut client.machine, 1, &mkdir(WINDOW + 1));
    assert_eq!(answer(&refused), Err(Errno::EINVAL));
    assert!(answer(&apply(&mut client.machine, 1, &mkdir(WINDOW))).is_ok());
}

#[test]
fn room_that_is_full_is_enospc_and_what_is_removed_can_be_used_again() {
    let limits = Limits {
        total_bytes: 100_000,
        ..Limits::default()
    };
    let mut client = Client::new(NetFs::with_limits(limits));
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    let mut written = 0;
    let full = loop {
        match client.write(ino, written, &[7; 5000]) {
            Ok(_) => written += 5000,
            Err(errno) => break errno,
        }
    };
    assert_eq!((full, written >= 90_000), (Errno::ENOSPC, true));
    assert_eq!(client.read(ino).len() as u64, written);
    let mut made = 0;
    let (mode, uid, gid, rdev, hold) = (FILE | 0o600, 0, 0, 0, false);
    while made < 1000 {
        let name = format!("{made}");
        let name = name.as_bytes();
        let create = Change::Create {
            parent: ROOT,
            name,
            mode,
            uid,
            gid,
            rdev,
            hold,
        };
        match client.change(create) {
            Ok(_) => made += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::ENOSPC);
                break;
            }
        }
    }
    assert!(made < 20, "{made}");
    let set = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    client.change(Change::Set { ino, set }).unwrap();
    client.write(ino, 0, &[7; 50_000]).unwrap();
    assert!(client.used() <= 100_000);
}

#[test]
fn a_file_has_a_largest_size() {
    let mut client = client();
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    let most = Limits::default().file_bytes;
    assert_eq!(client.write(ino, most, b"x"), Err(Errno::EFBIG));
    assert_eq!(client.write(ino, u64::MAX, b"x"), Err(Errno::EFBIG));
    let set = SetAttr {
        size: Some(most + 1),
        ..SetAttr::default()
    };
    assert_eq!(client.change(Change::Set { ino, set }), Err(Errno::EFBIG));
    client.write(ino, most - 1, b"x").unwrap();
}

#[test]
fn every_change_of_a_file_changes_its_time_even_within_a_millisecond() {
    let mut client = client();
    let ino = client.create(ROOT, "f", FILE | 0o600, true).ino;
    let mut last = None;
    for _ in 0..5 {
        let Ok(Reply::Attr(attr)) = client.write(ino, 0, b"x") else {
            panic!()
        };
        assert!(
            Some(attr.modified) > last && attr.modified.seconds == 1,
            "{attr:?}"
        );
        last = Some(attr.modified);
    }
}

#[test]
fn times_are_those_of_the_log_or_those_that_were_set() {
    let mut client = client();
    client.now = 234_567;
    let attr = client.create(ROOT, "f", FILE | 0o600, false);
    let now = Time {
        seconds: 234,
        nanos: 567_000_000,
    };
    assert_eq!([attr.accessed, attr.modified, attr.changed], [now; 3]);
    let then = Time {
        seconds: -5,
        nanos: 999_999_999,
    };
    client.now = 300_000;
    let set = SetAttr {
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::To(then)),
        ..SetAttr::default()
    };
    let attr = client.attr_of(Change::Set { ino: attr.ino, set });
    let now = Time {
        seconds: 300,
        nanos: 0,
    };
    assert_eq!(
        [attr.accessed, attr.modified, attr.changed],
        [now, then, now]
    );
}

#[test]
fn names_are_bytes_and_impossible_ones_are_refused() {
    let mut client = client();
    let mut make = |name: &[u8]| {
        client.change(Change::Create {
            parent: ROOT,
            name,
            mode: FILE | 0o600,
            uid: 0,
            gid: 0,
            rdev: 0,
            hold: false,
        })
    };
    for good in [
        &b"a"[..],
        b"A",
        b"\xc3\xa9",
        b"e\xcc\x81",
        b"\xff",
        b" ",
        b"...",
    ] {
        assert!(make(good).is_ok(), "{good:?}");
        assert_eq!(make(good), Err(Errno::EEXIST));
    }
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(make(bad), Err(Errno::EINVAL), "{bad:?}");
    }
    assert_eq!(make(&[b'x'; 256]), Err(Errno::ENAMETOOLONG));
    assert!(make(&[b'x'; 255]).is_ok());
}

#[test]
fn a_list_in_pieces_has_each_entry_that_stays_exactly_once() {
    let mut client = client();
    for i in 0..40 {
        client.create(ROOT, &format!("stays{i}"), FILE, false);
        client.create(ROOT, &format!("goes{i}"), FILE, false);
    }
    let (mut after, mut found, mut turn) = (0, Vec::new(), 0);
    loop {
        let query = Query::List {
            ino: ROOT,
            after,
            length: 100,
        };
        let Ok(Reply::Entries(entries)) = ask(&client.machine, query) else {
            panic!()
        };
        let Some(last) = entries.last() else { break };
        after = last.cookie;
        found.extend(
            entries
                .into_iter()
                .map(|it| String::from_utf8(it.name).unwrap()),
        );
        if turn < 40 {
            let name = format!("goes{turn}");
            client
                .change(Change::Unlink {
                    parent: ROOT,
                    name: name.as_bytes(),
                })
                .unwrap();
            turn += 1;
        }
    }
    found.retain(|name| name.starts_with("stays"));
    let expected: Vec<_> = (0..40).map(|i| format!("stays{i}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn entries_of_a_directory_with_the_bit_get_its_group() {
    let mut client = client();
    let dir = client.attr_of(Change::Create {
        parent: ROOT,
        name: b"d",
        mode: DIRECTORY | 0o2775,
        uid: 3,
        gid: 4,
        rdev: 0,
        hold: false,
    });
    let below = client.create(dir.ino, "e", DIRECTORY | 0o755, false);
    assert_eq!((below.gid, below.mode & 0o7777), (4, 0o2755));
    assert_eq!(client.create(dir.ino, "f", FILE | 0o644, false).gid, 4);
}

#[test]
fn footprints_name_the_file_and_are_the_same_on_every_platform() {
    let machine = NetFs::default();
    let of = |bytes: &[u8]| {
        let mut footprint = Footprint::default();
        machine.footprint(bytes, &mut footprint);
        footprint
    };
    let write = |grow| {
        let change = Change::Write {
            ino: 77,
            offset: 0,
            grow,
            append: false,
            data: Content::Plain(b"x"),
        };
        let mut bytes = Vec::new();
        Command::Change(
            Stamp {
                mount: 1,
                number: 1,
                floor: 1,
            },
            change,
        )
        .encode(&mut bytes);
        bytes
    };
    let keyed = of(&write(false));
    assert_eq!((keyed.everything, &keyed.writes[..]), (false, &[77][..]));
    assert!(of(&write(true)).everything);
    let mut list = Vec::new();
    Query::List {
        ino: 77,
        after: 0,
        length: 1,
    }
    .encode(&mut list);
    assert_eq!(
        (of(&list).everything, &of(&list).reads[..]),
        (false, &[77][..])
    );
    assert!(of(&list).conflicts(&keyed));
}

#[test]
fn a_snapshot_that_contradicts_itself_is_refused_and_changes_nothing() {
    let mut client = client();
    let dir = client.create(ROOT, "d", DIRECTORY | 0o700, false).ino;
    let file = client.create(dir, "f", FILE | 0o600, true).ino;
    client.write(file, 0, &[5; 40_000]).unwrap();
    client
        .change(Change::Link {
            ino: file,
            parent: ROOT,
            name: b"g",
        })
        .unwrap();
    let good = snapshot(&client.machine);
    let mut machine = restored(&good);
    let mut refused = 0;
    // Every byte of it that is no content or time, and each cut.
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        let before = snapshot(&machine);
        match machine.restore(&bad) {
            Ok(()) => machine = restored(&good),
            Err(_) => {
                refused += 1;
                assert!(snapshot(&machine) == before, "byte {at}");
            }
        }
        if at % 97 == 0 {
            assert!(machine.restore(&good[..at]).is_err(), "cut at {at}");
        }
    }
    assert!(refused > 200, "{refused} of {}", good.len());
}
