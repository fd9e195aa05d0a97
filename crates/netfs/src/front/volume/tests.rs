use super::*;
use crate::client::Unanswered;
use crate::machine::{Limits, NetFs};
use crate::{ROOT, Rename};
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A state machine whose clock a test sets.
#[derive(Clone, Default)]
struct Local {
    machine: Arc<Mutex<NetFs>>,
    now: Arc<AtomicU64>,
    /// Commands that were executed.
    commands: Arc<AtomicU64>,
    /// What the next answer says of copies.
    is_copy: Arc<AtomicU64>,
}

impl Local {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Relaxed))
    }

    /// Lets the lease of every mount end.
    fn pass_lease(&self) {
        self.now
            .fetch_add(Limits::default().lease_ms + 1, Ordering::Relaxed);
        let mut answer = Vec::new();
        let mut command = Vec::new();
        Command::End(u64::MAX).encode(&mut command);
        self.machine
            .lock()
            .unwrap()
            .apply(self.now(), &command, &mut answer);
    }

    fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }
}

impl Transport for Local {
    fn command(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::new();
        self.machine
            .lock()
            .unwrap()
            .apply(self.now(), payload, &mut bytes);
        let is_first = self.is_copy.swap(0, Ordering::Relaxed) == 0;
        Ok(Answer { bytes, is_first })
    }

    fn query(&self, payload: &[u8]) -> Result<Answer, Unanswered> {
        let mut bytes = Vec::new();
        let machine = self.machine.lock().unwrap();
        machine.read(self.now(), payload, &mut bytes).unwrap();
        let is_first = true;
        Ok(Answer { bytes, is_first })
    }

    fn payload_bytes(&self) -> usize {
        1 << 20
    }
}

fn begin() -> (Local, Volume) {
    let local = Local::default();
    let volume = Volume::begin(Box::new(local.clone())).unwrap();
    (local, volume)
}

fn create(volume: &Volume, name: &[u8]) -> u64 {
    let (mode, uid, gid, rdev, hold) = (0o100_600, 0, 0, 0, true);
    let made = Change::Create {
        parent: ROOT,
        name,
        mode,
        uid,
        gid,
        rdev,
        hold,
    };
    let attr = volume.attr(volume.change(&made).unwrap()).unwrap();
    volume.holds.created(&attr);
    attr.ino
}

fn content(volume: &Volume, ino: u64) -> Result<Vec<u8>, Errno> {
    match volume.query(Query::Read {
        ino,
        offset: 0,
        length: 1000,
    })? {
        Reply::Data(content) => Ok(content),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mount_whose_lease_has_ended_goes_on_with_the_files_that_are_left() {
    let (local, volume) = begin();
    let (named, nameless) = (create(&volume, b"named"), create(&volume, b"nameless"));
    volume.write(named, Some(0), b"before").unwrap();
    volume.write(nameless, Some(0), b"before").unwrap();
    volume
        .change(&Change::Unlink {
            parent: ROOT,
            name: b"nameless",
        })
        .unwrap();
    local.pass_lease();
    volume.write(named, Some(0), b"after!").unwrap();
    assert_eq!(content(&volume, named).unwrap(), b"after!");
    assert_eq!(volume.write(nameless, Some(0), b"x"), Err(Errno::ESTALE));
    assert_eq!(content(&volume, nameless), Err(Errno::ESTALE));
    local.pass_lease();
    volume.renew();
    let before = local.commands();
    volume.write(named, Some(0), b"again!").unwrap();
    assert_eq!(
        local.commands() - before,
        1,
        "the renewal has begun the mount anew"
    );
}

#[test]
fn a_change_that_may_have_been_executed_before_the_lease_ended_is_not_sent_again() {
    let (local, volume) = begin();
    local.pass_lease();
    local.is_copy.store(1, Ordering::Relaxed);
    let moved = Change::Rename {
        from: (ROOT, b"a"),
        to: (ROOT, b"b"),
        how: Rename::Replace,
    };
    assert_eq!(volume.change(&moved), Err(Errno::EIO));
    assert_eq!(
        volume.change(&moved),
        Err(Errno::ENOENT),
        "the mount has begun anew"
    );
}

#[test]
fn opening_a_file_again_and_closing_many_cost_few_commands() {
    let (local, volume) = begin();
    let file = |number: u32| create(&volume, number.to_string().as_bytes());
    let inos: Vec<u64> = (0..300).map(file).collect();
    let before = local.commands();
    for ino in &inos {
        volume.open(*ino).unwrap();
        volume.close(*ino);
        volume.close(*ino);
    }
    assert_eq!(local.commands() - before, 0);
    // More than enough are held: some are released, and all soon.
    volume.release_idle();
    let released = local.commands() - before;
    assert!((1..=5).contains(&released), "{released} commands");
}

#[test]
fn writes_within_the_reservation_are_sent_once() {
    let (local, volume) = begin();
    let ino = create(&volume, b"file");
    let before = local.commands();
    for piece in 0..100 {
        volume.write(ino, Some(piece * 1000), &[7; 1000]).unwrap();
    }
    assert_eq!(local.commands() - before, 100);
    // Another mount has truncated the file: the reservation that is known is out of date.
    let other = Volume::begin(Box::new(local.clone())).unwrap();
    let set = crate::SetAttr {
        size: Some(0),
        ..crate::SetAttr::default()
    };
    other.change(&Change::Set { ino, set }).unwrap();
    let before = local.commands();
    volume.write(ino, Some(90_000), &[7; 1000]).unwrap();
    assert_eq!(local.commands() - before, 2);
    assert_eq!(content(&volume, ino).unwrap(), [0; 1000]);
}
