//! Which roles are driven, in which deployment.

use crate::stage::Stage;
use crate::surroundings::{Disseminating, Plain, Referring, Storing, Striped};
use crate::{Drive, acceptor, batchers, client, leader, proxy_leader, replica, unbatcher};
use ionian_deployment::{Deployment, PresetOptions};
use ionian_kernel::layout::{Layout, Options};
use ionian_protocols::multipaxos::kind;
use ionian_protocols::spaxos;

/// Executed slots that a replica keeps for peers: few, so that its log soon has the size that it
/// keeps.
const RETAINED_SLOTS: usize = 1024;

/// One role in one deployment.
pub struct Case {
    /// Its name in `docs/costs.toml`.
    pub name: &'static str,
    kind: u8,
    load: Load,
    disks: bool,
    stage: fn(u8, Load, bool) -> Stage,
    make: fn(&mut Stage, Load) -> Box<dyn Drive>,
}

/// What arrives in a burst.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The preset of the deployment.
    pub preset: &'static str,
    /// Commands in a batch.
    pub batch: usize,
    /// Batches in a burst.
    pub batches: usize,
}

impl Load {
    /// The layout of the deployment, whose protocol has these kinds of roles.
    pub(crate) fn layout(&self, kinds: &[&str]) -> Layout {
        let deployment =
            Deployment::preset(self.preset, &PresetOptions::default()).expect("a preset");
        let layout = deployment.layout(kinds).expect("a layout");
        let options = Options {
            batch_commands: self.batch,
            retained_slots: RETAINED_SLOTS,
            ..layout.options
        };
        Layout { options, ..layout }
    }
}

/// The paper's unbatched deployment.
const UNBATCHED: Load = Load {
    preset: "compartmentalized",
    batch: 1,
    batches: 32,
};

/// The paper's batched deployment.
const BATCHED: Load = Load {
    preset: "batched",
    batch: 100,
    batches: 4,
};

/// The same deployments, with as many leaders as there are stripes.
const MENCIUS: Load = Load {
    preset: "mencius-compartmentalized",
    ..UNBATCHED
};
const MENCIUS_BATCHED: Load = Load {
    preset: "mencius-batched",
    ..BATCHED
};

/// The same deployments of S-Paxos: a batch is a payload, and what is ordered is references to
/// them.
const SPAXOS: Load = Load {
    preset: "spaxos-compartmentalized",
    ..UNBATCHED
};
const SPAXOS_BATCHED: Load = Load {
    preset: "spaxos-batched",
    ..BATCHED
};

/// All cases.
pub const CASES: &[Case] = &[
    case("client", kind::Client, UNBATCHED, client::drive),
    case("client, batched", kind::Client, BATCHED, client::drive),
    case(
        "batcher, batched",
        kind::Batcher,
        BATCHED,
        batchers::drive_batcher,
    ),
    case(
        "read batcher, batched",
        kind::ReadBatcher,
        BATCHED,
        batchers::drive_read_batcher,
    ),
    case("leader", kind::Leader, UNBATCHED, leader::drive),
    case("leader, batched", kind::Leader, BATCHED, leader::drive),
    case(
        "proxy leader",
        kind::ProxyLeader,
        UNBATCHED,
        proxy_leader::drive,
    ),
    case(
        "proxy leader, batched",
        kind::ProxyLeader,
        BATCHED,
        proxy_leader::drive,
    ),
    case("acceptor", kind::Acceptor, UNBATCHED, acceptor::drive_votes),
    case(
        "acceptor, batched",
        kind::Acceptor,
        BATCHED,
        acceptor::drive_votes,
    ),
    case(
        "acceptor with a disk",
        kind::Acceptor,
        UNBATCHED,
        acceptor::drive_votes,
    )
    .with_disks(),
    case(
        "acceptor with a disk, batched",
        kind::Acceptor,
        BATCHED,
        acceptor::drive_votes,
    )
    .with_disks(),
    case(
        "acceptor, reads",
        kind::Acceptor,
        UNBATCHED,
        acceptor::drive_reads,
    ),
    case(
        "acceptor, reads, batched",
        kind::Acceptor,
        BATCHED,
        acceptor::drive_reads,
    ),
    case("replica", kind::Replica, UNBATCHED, replica::drive_share),
    case(
        "replica, batched",
        kind::Replica,
        BATCHED,
        replica::drive_share,
    ),
    case(
        "replica answering all",
        kind::Replica,
        UNBATCHED,
        replica::drive_all,
    ),
    case(
        "replica answering all, batched",
        kind::Replica,
        BATCHED,
        replica::drive_all,
    ),
    case(
        "replica, reads",
        kind::Replica,
        UNBATCHED,
        replica::drive_reads,
    ),
    case(
        "replica, reads, batched",
        kind::Replica,
        BATCHED,
        replica::drive_reads,
    ),
    case(
        "unbatcher, batched",
        kind::Unbatcher,
        BATCHED,
        unbatcher::drive,
    ),
    mencius("mencius leader", kind::Leader, MENCIUS, leader::drive),
    mencius(
        "mencius leader, batched",
        kind::Leader,
        MENCIUS_BATCHED,
        leader::drive,
    ),
    mencius(
        "mencius proxy leader",
        kind::ProxyLeader,
        MENCIUS,
        proxy_leader::drive,
    ),
    mencius(
        "mencius proxy leader, batched",
        kind::ProxyLeader,
        MENCIUS_BATCHED,
        proxy_leader::drive,
    ),
    mencius(
        "mencius acceptor",
        kind::Acceptor,
        MENCIUS,
        acceptor::drive_votes,
    ),
    mencius(
        "mencius acceptor, batched",
        kind::Acceptor,
        MENCIUS_BATCHED,
        acceptor::drive_votes,
    ),
    mencius(
        "mencius acceptor with a disk",
        kind::Acceptor,
        MENCIUS,
        acceptor::drive_votes,
    )
    .with_disks(),
    mencius(
        "mencius acceptor, reads",
        kind::Acceptor,
        MENCIUS,
        acceptor::drive_reads,
    ),
    mencius(
        "mencius replica",
        kind::Replica,
        MENCIUS,
        replica::drive_share,
    ),
    mencius(
        "mencius replica, batched",
        kind::Replica,
        MENCIUS_BATCHED,
        replica::drive_share,
    ),
    mencius(
        "mencius replica, reads",
        kind::Replica,
        MENCIUS,
        replica::drive_reads,
    ),
    disseminator("spaxos disseminator", SPAXOS),
    disseminator("spaxos disseminator, batched", SPAXOS_BATCHED),
    spaxos("spaxos leader", spaxos::kind::Leader, SPAXOS, leader::drive),
    spaxos(
        "spaxos leader, batched",
        spaxos::kind::Leader,
        SPAXOS_BATCHED,
        leader::drive,
    ),
    spaxos(
        "spaxos proxy leader",
        spaxos::kind::ProxyLeader,
        SPAXOS,
        proxy_leader::drive,
    ),
    spaxos(
        "spaxos proxy leader, batched",
        spaxos::kind::ProxyLeader,
        SPAXOS_BATCHED,
        proxy_leader::drive,
    ),
    spaxos(
        "spaxos acceptor",
        spaxos::kind::Acceptor,
        SPAXOS,
        acceptor::drive_votes,
    ),
    spaxos(
        "spaxos acceptor, batched",
        spaxos::kind::Acceptor,
        SPAXOS_BATCHED,
        acceptor::drive_votes,
    ),
    stabilizer("spaxos stabilizer", SPAXOS),
    stabilizer("spaxos stabilizer, batched", SPAXOS_BATCHED),
    stabilizer("spaxos stabilizer with a disk", SPAXOS).with_disks(),
    stabilizer("spaxos stabilizer with a disk, batched", SPAXOS_BATCHED).with_disks(),
    spaxos(
        "spaxos replica",
        spaxos::kind::Replica,
        SPAXOS,
        replica::drive_share,
    ),
    spaxos(
        "spaxos replica, batched",
        spaxos::kind::Replica,
        SPAXOS_BATCHED,
        replica::drive_share,
    ),
];

const fn case(
    name: &'static str,
    kind: u8,
    load: Load,
    make: fn(&mut Stage, Load) -> Box<dyn Drive>,
) -> Case {
    Case {
        name,
        kind,
        load,
        disks: false,
        stage: Stage::new::<Plain>,
        make,
    }
}

/// The same role in Mencius: it hears what one of MultiPaxos hears, and what Mencius adds to that.
const fn mencius(
    name: &'static str,
    kind: u8,
    load: Load,
    make: fn(&mut Stage, Load) -> Box<dyn Drive>,
) -> Case {
    Case {
        stage: Stage::new::<Striped>,
        ..case(name, kind, load, make)
    }
}

/// The same role in S-Paxos, where references are ordered.
const fn spaxos(
    name: &'static str,
    kind: u8,
    load: Load,
    make: fn(&mut Stage, Load) -> Box<dyn Drive>,
) -> Case {
    Case {
        stage: Stage::new::<Referring>,
        ..case(name, kind, load, make)
    }
}

/// The stabilizer of S-Paxos, which stores payloads and hands them over.
const fn stabilizer(name: &'static str, load: Load) -> Case {
    Case {
        stage: Stage::new::<Storing>,
        ..case(name, spaxos::kind::Stabilizer, load, acceptor::drive_votes)
    }
}

/// The disseminator of S-Paxos, which has payloads stored and then ordered.
const fn disseminator(name: &'static str, load: Load) -> Case {
    Case {
        stage: Stage::new::<Disseminating>,
        ..case(name, spaxos::kind::Disseminator, load, proxy_leader::drive)
    }
}

impl Case {
    const fn with_disks(self) -> Case {
        Case {
            disks: true,
            ..self
        }
    }

    /// The case of this name.
    pub fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }

    /// The role, led to where it serves.
    pub fn begin(&self) -> Run {
        let mut stage = (self.stage)(self.kind, self.load, self.disks);
        let drive = (self.make)(&mut stage, self.load);
        stage.begin();
        Run {
            name: self.name,
            stage,
            drive,
            commands: 0,
            due: 0,
        }
    }
}

/// A role that serves.
pub struct Run {
    name: &'static str,
    /// The role.
    pub stage: Stage,
    drive: Box<dyn Drive>,
    commands: usize,
    due: usize,
}

impl Run {
    /// Has the messages of one burst arrive; they are still to be taken in.
    pub fn arrive(&mut self) {
        self.stage.answer();
        let burst = self.drive.burst(&mut self.stage);
        self.commands += burst.commands;
        self.due += burst.due;
    }

    /// How many commands have passed.
    ///
    /// # Panics
    /// When the role has said less than it should have: then it is not the steady state that was
    /// driven.
    pub fn commands(&self) -> usize {
        let (left, due) = (self.stage.left(), self.due);
        assert!(
            left >= due,
            "{}: {left} messages and replies have left for {due} that were due",
            self.name
        );
        self.commands
    }
}
