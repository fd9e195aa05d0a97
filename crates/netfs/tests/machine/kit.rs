//! The test kit of the library: the machine alone, and replicated in the simulator.

use ionian::testing::{Commands, Random, Simulation, exercise};
use ionian::{Footprint, StateMachine};
use ionian_kernel::delegate;
use ionian_netfs::{Change, Command, Content, NetFs, Query, ROOT, Rename, SetAttr, Stamp};

/// The machine. If it is not timed it denies that it asks the time, so that [`exercise`] tries its
/// commands in both orders.
#[derive(Default)]
struct Tried<const TIMED: bool>(NetFs);

impl<const TIMED: bool> StateMachine for Tried<TIMED> {
    delegate!(0: apply read snapshot freeze restore);

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        self.0.footprint(command, footprint);
        footprint.timed &= TIMED;
    }
}

const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

impl<const TIMED: bool> Commands for Tried<TIMED> {
    fn random_write(random: &mut Random) -> Vec<u8> {
        let mut below = |limit| random.below(limit);
        let (parent, ino) = (ROOT + below(3), ROOT + below(12));
        let name = NAMES[below(3) as usize];
        let kind = [0o100_000, 0o040_000][below(2) as usize];
        let content = [below(256) as u8; 300];
        let (uid, gid, rdev) = (0, 0, 0);
        let change = match below(12) {
            0..2 => Change::Create {
                parent,
                name,
                mode: kind | 0o644,
                uid,
                gid,
                rdev,
                hold: false,
            },
            2 => {
                let (mode, hold) = (0o100_644, true);
                Change::Create {
                    parent,
                    name,
                    mode,
                    uid,
                    gid,
                    rdev,
                    hold,
                }
            }
            3 => Change::Unlink { parent, name },
            4 => {
                let to = (ROOT + below(3), NAMES[below(3) as usize]);
                Change::Rename {
                    from: (parent, name),
                    to,
                    how: Rename::Replace,
                }
            }
            5 => {
                let set = SetAttr {
                    size: Some(below(9000)),
                    ..SetAttr::default()
                };
                Change::Set { ino, set }
            }
            6 => Change::Open { ino },
            7 => Change::Release { inos: vec![ino] },
            _ => Change::Write {
                ino,
                offset: below(3000),
                grow: below(3) == 0,
                append: below(4) == 0,
                data: Content::Plain(&content[..below(300) as usize]),
            },
        };
        let number = 1 + below(200);
        let stamp = Stamp {
            mount: 1 + below(3),
            number,
            floor: number.saturating_sub(below(100)),
        };
        let command = match below(8) {
            0 => Command::Begin {
                nonce: u128::from(below(3)),
            },
            1 => Command::Renew(1 + below(3)),
            _ => Command::Change(stamp, change),
        };
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        bytes
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        let ino = ROOT + random.below(12);
        let query = match random.below(5) {
            0 => Query::Attr { ino },
            1 => Query::Read {
                ino,
                offset: random.below(3000),
                length: 1000,
            },
            2 => Query::List {
                ino: ROOT,
                after: 0,
                length: 500,
            },
            3 => Query::Space,
            _ => Query::Lookup {
                parent: ROOT,
                name: NAMES[random.below(3) as usize],
            },
        };
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        bytes
    }
}

#[test]
fn it_keeps_the_contract_of_state_machines() {
    if let Err(fault) = exercise::<Tried<false>>(0..200) {
        panic!("{fault}");
    }
}

#[test]
fn it_is_linearizable_when_it_is_replicated() {
    for preset in ["colocated", "compartmentalized"] {
        match Simulation::new(preset).seeds(0..40).run::<Tried<true>>() {
            Ok(report) => assert!(report.acknowledged > 0),
            Err(failure) => panic!("{preset}: {failure}"),
        }
    }
}
