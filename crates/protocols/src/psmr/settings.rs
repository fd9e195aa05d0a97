//! The settings of P-SMR beside those of all protocols.

use crate::pigpaxos::settings as relays;
use ionian_kernel::layout::Options;
use ionian_kernel::setting::{Place, Setting};
use ionian_kernel::time::Duration;

/// How many groups there are beside g_all: each has a log, and a worker at each replica.
pub(crate) const GROUPS: Setting = Setting {
    key: "groups",
    about: "logs of commands on a part of the keys, beside the log of those on several parts",
    allowed: 1..=32,
    shared: true,
    place: Place::Own {
        default: 8,
        trials: |options| match APART.value(options) {
            0 => &[1, 2, 3],
            // The deployment has instances for each group.
            _ => &[],
        },
    },
};

/// Whether groups have leaders, proxy leaders and acceptors of their own.
pub(crate) const APART: Setting = Setting {
    key: "apart",
    about: "1: each leader, proxy leader and acceptor is of one group alone, that of its number modulo the number of \
            logs; 0: each is of all",
    allowed: 0..=1,
    shared: true,
    place: Place::Own {
        default: 0,
        // It says which instances there must be.
        trials: |_| &[],
    },
};

/// How a worker merges the log of its group with that of all.
pub(crate) const TURN_SLOTS: Setting = Setting {
    key: "turn_slots",
    about: "slots of its log that a worker takes before as many of the log of all; 0: markers say where the logs meet",
    allowed: 0..=1024,
    shared: true,
    place: Place::Own {
        default: 0,
        // Each skip fills a slot until it is executed: one slot has room for nothing else.
        trials: |options| match options.window_slots {
            0..=1 => &[0],
            _ => &[0, 0, 1, 4],
        },
    },
};

/// How long logs are kept by skips, where workers take turns: the paper's lambda.
pub(crate) const SKIP_RATE: Setting = Setting {
    key: "skip_rate",
    about: "slots a second that skips bring each log to, where workers take turns; 0: replicas ask for skips",
    allowed: 0..=1_000_000,
    shared: false,
    place: Place::Own {
        default: 9000,
        // With 0 a command waits until replicas ask, perhaps more than once: not all clients do.
        trials: |options| match 4 * options.resend_after <= options.lane.patience {
            true => &[0, 100, 9000],
            false => &[100, 9000],
        },
    },
};

/// How often leaders compare their logs with that: the paper's Delta.
pub(crate) const SKIP_EVERY_MS: Setting = Setting {
    key: "skip_every_ms",
    about: "milliseconds between two skips of a log, where workers take turns",
    allowed: 1..=10_000,
    shared: false,
    place: Place::Own {
        default: 100,
        // Clients of some runs give up after 300 ms.
        trials: |_| &[20, 100],
    },
};

/// How workers take turns; `None` where markers say where the logs meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// How many slots of each log.
    pub(super) slots: u64,
    /// How many slots a second each log is kept at.
    pub(super) rate: u64,
    /// How often that is looked after.
    pub(super) every: Duration,
}

impl Turns {
    pub(super) fn of(options: &Options) -> Option<Turns> {
        let slots = TURN_SLOTS.value(options);
        (slots > 0).then(|| Turns {
            slots,
            rate: SKIP_RATE.value(options),
            every: Duration::from_millis(SKIP_EVERY_MS.value(options)),
        })
    }

    /// Two skips bring this many messages: a log that lacks more has fallen behind for good.
    pub(super) fn in_two_skips(self) -> u64 {
        2 * self.rate * self.every.as_micros() as u64 / 1_000_000
    }
}

pub(crate) const SETTINGS: &[Setting] = &[
    GROUPS,
    APART,
    relays::RELAY_GROUPS,
    relays::RELAY_SHUFFLE,
    relays::RELAY_OVERLAP,
    relays::RELAY_ROTATE,
    relays::RELAY_FAN_OUT,
    relays::RELAY_SLACK,
    relays::RELAY_TIMEOUT_MS,
    relays::COMMIT_DELAY_MS,
    relays::RELAY_READS,
    relays::READ_AT_EXECUTED,
    TURN_SLOTS,
    SKIP_RATE,
    SKIP_EVERY_MS,
];
