//! What role instances report of themselves: to operators, to tools, and to each other's tests.
//!
//! What every protocol has is a field. All else is a metric that the role declares, with its kind,
//! unit and meaning; its value stands at the metric's place in the declaration.

use crate::id::{Epoch, Round, Slot};
use crate::role::Role;
use crate::time::{Instant, earliest};
use alloc::vec::Vec;

/// What an instance reports of itself. A field that does not apply to its kind is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What it leads.
    pub leads: Option<Leads>,
    /// The epoch of the configuration that it has, where it has no round.
    pub epoch: Option<Epoch>,
    /// The round that it leads, works for, or has promised.
    pub round: Option<Round>,
    /// It has executed all slots below this one.
    pub executed: Option<Slot>,
    /// As far as it knows, the log ends before this slot.
    pub log_end: Option<Slot>,
    /// Until when it counts as an instance that holds what is chosen: some seconds after it was
    /// last known to have all of that. While it catches up that moment is over. None for kinds that
    /// hold nothing of a log.
    pub current_until: Option<Instant>,
    /// Since when what it has asked for is not answered. None where nothing waits for an answer.
    pub unanswered_since: Option<Instant>,
    /// How often it has taken over its state from a snapshot of another instance.
    pub snapshots_installed: Option<u64>,
    /// Below this slot it needs the log no more: a snapshot of its state is stored.
    pub stored: Option<Slot>,
    /// Whether what is stored contains the last change of the [level](crate::level): after a crash
    /// no such change is executed again.
    pub level_stored: Option<bool>,
    /// It has not voted in this slot or any after it.
    pub voted: Option<Slot>,
    /// Whether it has all that earlier processes of its node kept for it. None without memory that
    /// others rely on.
    pub remembers: Option<bool>,
    /// Whether the cluster knows its session, without which it serves no client.
    pub has_session: Option<bool>,
    /// What comparing its state with that of other instances has shown.
    pub agreement: Option<Agreement>,
    /// The values of its [metrics](crate::role::Role::METRICS), in the order in which they are
    /// declared.
    pub metrics: Vec<u64>,
}

/// What comparing states has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreement {
    /// All that could be compared was equal.
    #[default]
    Equal = 0,
    /// A minority of other instances has diverged.
    OthersDiverged = 1,
    /// Instances have diverged, and no state has a majority.
    Undecided = 2,
    /// This instance has diverged, and does nothing more.
    Diverged = 3,
}

/// What a leader leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leads {
    /// Whether it leads its own part of what is led: the whole log, where there is one leader.
    pub own: bool,
    /// How many parts of other leaders it leads.
    pub others: u64,
    /// How often it has begun a round of its own to lead.
    pub elections: u64,
}

impl Leads {
    /// How many parts it leads.
    pub fn parts(self) -> u64 {
        u64::from(self.own) + self.others
    }
}

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It counts from the start of the process and never falls.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// A number that a role reports of itself.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, unique in its role.
    pub name: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// What it counts or measures, in the plural: `slots`, `bytes`, `batches`.
    pub unit: &'static str,
    /// What it means, in one line.
    pub help: &'static str,
    /// Whether it becomes 0 some time after the last failure and the last request, if only for a
    /// moment.
    pub settles: bool,
    /// Whether instances that are made of several alike report the highest of their numbers, and
    /// not the sum.
    pub highest: bool,
}

impl Metric {
    /// A number that never falls.
    pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Metric {
            name,
            kind: Kind::Counter,
            unit,
            help,
            settles: false,
            highest: false,
        }
    }

    /// A number that rises and falls.
    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Metric {
            name,
            kind: Kind::Gauge,
            unit,
            help,
            settles: false,
            highest: false,
        }
    }

    /// This metric, which [settles](Metric::settles).
    pub const fn settling(self) -> Self {
        Metric {
            settles: true,
            ..self
        }
    }

    /// This metric, of which [the highest](Metric::highest) is reported.
    pub const fn of_the_highest(self) -> Self {
        Metric {
            highest: true,
            ..self
        }
    }
}

/// The metrics of a role: lists that follow each other, so that a role can report those of a part
/// that it shares with others and its own.
pub type Metrics = &'static [&'static [Metric]];

/// The metrics one by one.
pub fn each(metrics: Metrics) -> impl Iterator<Item = &'static Metric> {
    metrics.iter().copied().flatten()
}

impl Status {
    /// What this role reports.
    pub fn of(role: &impl Role) -> Self {
        let mut status = Status::default();
        role.status(&mut status);
        status
    }

    /// Reports the value of the next metrics.
    pub fn add<const N: usize>(&mut self, values: [u64; N]) {
        self.metrics.extend(values);
    }

    /// The status of an instance that is made of several alike, each with these metrics: of fields
    /// the rounds, memories, epochs and times; what the numbers of slots are it must say itself.
    pub fn of_all(parts: impl Iterator<Item = Status>, metrics: &[Metric]) -> Self {
        let mut all = Status {
            metrics: metrics.iter().map(|_| 0).collect(),
            ..Status::default()
        };
        for part in parts {
            all.epoch = all.epoch.max(part.epoch);
            all.round = all.round.max(part.round);
            all.current_until = earliest(all.current_until, part.current_until);
            all.unanswered_since = earliest(all.unanswered_since, part.unanswered_since);
            all.remembers = match (all.remembers, part.remembers) {
                (Some(one), Some(other)) => Some(one && other),
                (one, other) => one.or(other),
            };
            let values = all.metrics.iter_mut().zip(part.metrics).zip(metrics);
            for ((value, other), metric) in values {
                *value = match metric.highest {
                    true => other.max(*value),
                    false => *value + other,
                };
            }
        }
        all
    }

    /// All of it as names and numbers, for people: fields first, then `metrics`.
    ///
    /// # Panics
    /// When these are not the metrics of the role whose status it is.
    pub fn figures(&self, metrics: Metrics) -> Vec<(&'static str, u64)> {
        assert_eq!(
            each(metrics).count(),
            self.metrics.len(),
            "a role reports a number for each of its metrics"
        );
        let slot = |slot: Option<Slot>| slot.map(|slot| slot.0);
        let epoch = self.round.map(Round::epoch).or(self.epoch);
        let fields = [
            ("leading", self.leads.map(|leads| leads.own.into())),
            ("leads_for_others", self.leads.map(|leads| leads.others)),
            ("elections", self.leads.map(|leads| leads.elections)),
            ("epoch", epoch.map(|epoch| epoch.0.into())),
            ("round", self.round.map(Round::number)),
            ("executed", slot(self.executed)),
            ("log_end", slot(self.log_end)),
            ("snapshots_installed", self.snapshots_installed),
            ("stored", slot(self.stored)),
            ("voted", slot(self.voted)),
            ("remembers", self.remembers.map(u64::from)),
            ("session_open", self.has_session.map(u64::from)),
            ("divergence", self.agreement.map(|it| it as u64)),
        ];
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let own = each(metrics).map(|metric| metric.name);
        fields
            .chain(own.zip(self.metrics.iter().copied()))
            .collect()
    }
}
