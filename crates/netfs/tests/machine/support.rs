//! A machine, and a client of it that numbers its changes.

use ionian_kernel::machine::{Footprint, StateMachine};
use ionian_kernel::time::Timestamp;
use ionian_netfs::{
    Attr, Change, Command, Content, Errno, NetFs, Query, Reply, Stamp, decode_answer,
};

pub(crate) fn apply(machine: &mut NetFs, now: u64, command: &Command<'_>) -> Vec<u8> {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    command.encode(&mut bytes);
    machine.apply(Timestamp(now), &bytes, &mut reply);
    reply
}

pub(crate) fn answer(bytes: &[u8]) -> Result<Reply, Errno> {
    decode_answer(bytes).expect("the machine writes answers")
}

pub(crate) fn ask(machine: &NetFs, query: Query<'_>) -> Result<Reply, Errno> {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    query.encode(&mut bytes);
    machine
        .read(Timestamp(0), &bytes, &mut reply)
        .expect("a query");
    answer(&reply)
}

pub(crate) fn snapshot(machine: &NetFs) -> Vec<u8> {
    let mut out = Vec::new();
    machine.snapshot(&mut out);
    out
}

pub(crate) fn restored(snapshot: &[u8]) -> NetFs {
    let mut machine = NetFs::default();
    machine.restore(snapshot).expect("its own snapshot");
    machine
}

/// Executes a command as a replica with workers does: in a part, if it touches one key.
pub(crate) fn apply_divided(machine: &mut NetFs, now: u64, command: &[u8]) -> Vec<u8> {
    let (mut footprint, mut reply) = (Footprint::default(), Vec::new());
    machine.footprint(command, &mut footprint);
    if footprint.everything {
        machine.apply(Timestamp(now), command, &mut reply);
        return reply;
    }
    let key = footprint.writes.first().or(footprint.reads.first());
    let parts = machine.parts().expect("it has parts");
    let part = parts.part_of(*key.expect("it touches something"));
    let mut lent = parts.lend(part);
    lent.apply(Timestamp(now), command, &mut reply);
    parts.take_back(part, lent);
    reply
}

/// One mount of one machine.
pub(crate) struct Client {
    pub(crate) machine: NetFs,
    pub(crate) mount: u64,
    pub(crate) number: u64,
    pub(crate) now: u64,
}

impl Client {
    pub(crate) fn new(mut machine: NetFs) -> Client {
        let begun = apply(&mut machine, 1000, &Command::Begin { nonce: 1 });
        let Ok(Reply::Begun(mount)) = answer(&begun) else {
            panic!("the mount does not begin: {begun:?}")
        };
        Client {
            machine,
            mount,
            number: 1,
            now: 1000,
        }
    }

    pub(crate) fn stamp(&mut self) -> Stamp {
        let number = self.number;
        self.number += 1;
        Stamp {
            mount: self.mount,
            number,
            floor: number,
        }
    }

    pub(crate) fn change(&mut self, change: Change<'_>) -> Result<Reply, Errno> {
        let stamp = self.stamp();
        let reply = apply(&mut self.machine, self.now, &Command::Change(stamp, change));
        answer(&reply)
    }

    pub(crate) fn attr_of(&mut self, change: Change<'_>) -> Attr {
        match self.change(change.clone()) {
            Ok(Reply::Attr(attr)) => attr,
            other => panic!("{change:?} is answered with {other:?}"),
        }
    }

    pub(crate) fn create(&mut self, parent: u64, name: &str, mode: u32, hold: bool) -> Attr {
        let (name, uid, gid, rdev) = (name.as_bytes(), 0, 0, 0);
        self.attr_of(Change::Create {
            parent,
            name,
            mode,
            uid,
            gid,
            rdev,
            hold,
        })
    }

    pub(crate) fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Result<Reply, Errno> {
        let data = Content::Plain(bytes);
        self.change(Change::Write {
            ino,
            offset,
            grow: true,
            append: false,
            data,
        })
    }

    pub(crate) fn read(&self, ino: u64) -> Vec<u8> {
        match ask(
            &self.machine,
            Query::Read {
                ino,
                offset: 0,
                length: 1 << 17,
            },
        ) {
            Ok(Reply::Data(content)) => content,
            other => panic!("reading {ino} is answered with {other:?}"),
        }
    }

    pub(crate) fn used(&self) -> u64 {
        match ask(&self.machine, Query::Space) {
            Ok(Reply::Space(space)) => space.used,
            other => panic!("{other:?}"),
        }
    }
}
