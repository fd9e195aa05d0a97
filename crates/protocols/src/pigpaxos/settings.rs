//! The settings of relays: sections 3.1 (groups), 4.1 (slack), 5.2 (rotation) and 8.3 (layers) of
//! the PigPaxos paper.

use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};
use ionian_kernel::time::Duration;

pub(crate) const RELAY_GROUPS: Setting = Setting {
    key: "relay_groups",
    about: "R: groups of acceptors that are asked through one relay each; 1 takes the most work off the leader",
    allowed: 1..=64,
    shared: false,
    place: Place::Own {
        default: 1,
        trials: |_| &[1, 1, 2, 2, 3, 64],
    },
};

pub(crate) const RELAY_SHUFFLE: Setting = Setting {
    key: "relay_shuffle",
    about: "1: groups are drawn anew for the requests of each instant; 0: acceptors in the order of their numbers, such as by region",
    allowed: 0..=1,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 1],
    },
};

pub(crate) const RELAY_OVERLAP: Setting = Setting {
    key: "relay_overlap",
    about: "acceptors of the next group that a group has too",
    allowed: 0..=63,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 0, 0, 1, 2],
    },
};

pub(crate) const RELAY_ROTATE: Setting = Setting {
    key: "relay_rotate",
    about: "1: a group's relay is drawn anew for each request; 0: its first one that answers",
    allowed: 0..=1,
    shared: false,
    place: Place::Own {
        default: 1,
        trials: |_| &[1, 1, 1, 0],
    },
};

pub(crate) const RELAY_FAN_OUT: Setting = Setting {
    key: "relay_fan_out",
    about: "a relay with more acceptors than this divides them among further relays; 0: never; not 1",
    allowed: 0..=63,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 0, 2, 3],
    },
};

pub(crate) const RELAY_SLACK: Setting = Setting {
    key: "relay_slack",
    about: "PRC: a relay answers when all acceptors of its group but this many have voted",
    allowed: 0..=63,
    shared: true,
    place: Place::Own {
        default: 0,
        trials: |_| &[0],
    },
};

pub(crate) const RELAY_TIMEOUT_MS: Setting = Setting {
    key: "relay_timeout_ms",
    about: "a relay answers with what it has after this time; 0: from how long answers take",
    allowed: 0..=60_000,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 0, 0, 1, 40],
    },
};

pub(crate) const COMMIT_DELAY_MS: Setting = Setting {
    key: "commit_delay_ms",
    about: "what is chosen waits this long at most for a request of a relay to ride on; 0: it is sent at once",
    allowed: 0..=1000,
    shared: false,
    place: Place::Own {
        default: 1,
        trials: |_| &[1, 1, 0, 20],
    },
};

pub(crate) const RELAY_READS: Setting = Setting {
    key: "relay_reads",
    about: "1: leaderless reads ask acceptors through relays; 0: directly, with half the delay",
    allowed: 0..=1,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 1],
    },
};

pub(crate) const READ_AT_EXECUTED: Setting = Setting {
    key: "read_at_executed",
    about: "1: a leaderless read goes to a replica that an asked acceptor knows to be far enough; 0: to the nearest",
    allowed: 0..=1,
    shared: false,
    place: Place::Own {
        default: 0,
        trials: |_| &[0, 1],
    },
};

/// Whether a leaderless read goes to a replica that has executed what it must see, if one is known.
pub(crate) fn reads_at_executed(options: &Options) -> bool {
    READ_AT_EXECUTED.value(options) != 0
}

/// The settings in a form in which roles can use them at once.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// R: how many groups.
    pub groups: usize,
    /// Whether groups are drawn anew for the requests of each instant.
    pub shuffle: bool,
    /// How many acceptors of the next group a group has too.
    pub overlap: usize,
    /// Whether the relay of a group is drawn anew for each request.
    pub rotate: bool,
    /// How many acceptors a relay asks itself at most, if there is a limit.
    pub fan_out: Option<usize>,
    /// PRC: for how many acceptors of its group a relay does not wait.
    pub slack: usize,
    /// After which time a relay answers with what it has, if that is stated.
    pub timeout: Option<Duration>,
    /// How long what is chosen waits for a request to ride on.
    pub commit_delay: Duration,
    /// Whether readers ask acceptors through relays.
    pub reads: bool,
}

impl Settings {
    /// Those of `options`.
    pub fn of(options: &Options) -> Self {
        let number = |setting: &Setting| setting.value(options) as usize;
        let unless_zero = |number: usize| (number > 0).then_some(number);
        let timeout = unless_zero(number(&RELAY_TIMEOUT_MS));
        Settings {
            groups: number(&RELAY_GROUPS),
            shuffle: number(&RELAY_SHUFFLE) != 0,
            overlap: number(&RELAY_OVERLAP),
            rotate: number(&RELAY_ROTATE) != 0,
            fan_out: unless_zero(number(&RELAY_FAN_OUT)),
            slack: number(&RELAY_SLACK),
            timeout: timeout.map(|millis| Duration::from_millis(millis as u64)),
            commit_delay: Duration::from_millis(COMMIT_DELAY_MS.value(options)),
            reads: number(&RELAY_READS) != 0,
        }
    }
}
