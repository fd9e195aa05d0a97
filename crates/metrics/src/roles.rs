//! The metrics of role instances: the fields that every protocol has, and what each role declares.

use crate::definition::Kind::{self, Counter, Gauge};
use crate::definition::{Definition, Line, Samples, Value, metric, seconds};
use crate::view::View;
use ionian_kernel::status::{self, Metric, each};
use ionian_protocols::registry;
use ionian_runtime::status::RoleStatus;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The labels of an instance.
pub(crate) const LABELS: &[&str] = &["role", "index"];

fn labels(role: &RoleStatus) -> [Cow<'static, str>; 2] {
    [role.role.clone().into(), role.index.to_string().into()]
}

/// Adds a sample for each instance that reports this field.
fn field(view: &View<'_>, out: &mut Samples, read: impl Fn(&RoleStatus) -> Option<u64>) {
    if let Some(published) = &view.published {
        for role in &published.status.roles {
            if let Some(value) = read(role) {
                out.with(labels(role), value);
            }
        }
    }
}

/// How many slots an instance is behind the end of the log.
pub(crate) fn lag(role: &RoleStatus) -> Option<u64> {
    Some(role.log_end?.saturating_sub(role.executed?))
}

/// A field of all roles.
macro_rules! of_role {
    ($kind:ident, $name:literal, $help:literal, $read:expr) => {
        metric($kind, $name, LABELS, $help, |view, out| {
            field(view, out, $read)
        })
    };
}

pub(crate) const FIELDS: &[Definition] = &[
    of_role!(
        Gauge,
        "ionian_role_leading",
        "1 if the instance leads its own part of the log: all of it, where there is one leader",
        |it| Some(it.leads?.own.into())
    ),
    of_role!(
        Gauge,
        "ionian_role_leading_for_others",
        "parts of other leaders that the instance leads",
        |it| Some(it.leads?.others)
    ),
    of_role!(
        Counter,
        "ionian_role_elections",
        "how often the instance has started an election",
        |it| Some(it.leads?.elections)
    ),
    of_role!(
        Gauge,
        "ionian_role_round",
        "round that the instance leads, works for or has promised, within its epoch",
        |it| it.round
    ),
    of_role!(
        Gauge,
        "ionian_role_executed_slot",
        "the instance has executed all slots below this one",
        |it| it.executed
    ),
    of_role!(
        Gauge,
        "ionian_role_known_end_slot",
        "as far as the instance knows, the log ends before this slot",
        |it| it.log_end
    ),
    of_role!(
        Gauge,
        "ionian_role_lag_slots",
        "slots that the instance knows of and has not executed",
        lag
    ),
    metric(
        Gauge,
        "ionian_role_headroom_slots",
        LABELS,
        "how much further the instance may fall behind before it needs a snapshot",
        |view, out| {
            let retained = view.published.as_ref().and_then(|published| {
                let known = published.configuration.as_ref()?;
                Some(known.deployment.options.options().retained_slots as u64)
            });
            if let Some(retained) = retained {
                field(view, out, |role| Some(retained.saturating_sub(lag(role)?)));
            }
        },
    ),
    of_role!(
        Gauge,
        "ionian_role_stored_slot",
        "the stored snapshot of the instance contains everything below this slot",
        |it| it.stored
    ),
    of_role!(
        Counter,
        "ionian_role_installed_snapshots",
        "how often the instance has taken over the snapshot of another one",
        |it| it.snapshots_installed
    ),
    of_role!(
        Gauge,
        "ionian_role_remembers",
        "0 while the instance has lost what others rely on: the cluster tolerates fewer failures",
        |it| it.remembers.map(u64::from)
    ),
    of_role!(
        Gauge,
        "ionian_role_current",
        "0 while the instance catches up: it does not hold what was chosen some seconds ago, and \
         the cluster tolerates fewer failures",
        |it| it.current.map(u64::from)
    ),
    metric(
        Gauge,
        "ionian_role_unanswered_seconds",
        LABELS,
        "for how long the oldest request of the client lane is not answered; 0 if none waits",
        |view, out| {
            let roles = view.published.iter().flat_map(|it| &it.status.roles);
            for role in roles.filter(|role| role.has_session.is_some()) {
                let ms = role.unanswered_ms.unwrap_or(0);
                out.with(labels(role), seconds(ms * 1000));
            }
        },
    ),
    of_role!(
        Gauge,
        "ionian_role_session_open",
        "0 while the cluster does not know the instance's session and it serves no client",
        |it| it.has_session.map(u64::from)
    ),
    of_role!(
        Gauge,
        "ionian_role_divergence",
        "comparing states has shown: 0 they are equal, 1 others have diverged, 2 some have and \
         it is not known which, 3 this instance has and does nothing more",
        |it| it.divergence.map(u64::from)
    ),
    metric(
        Counter,
        "ionian_role_busy_seconds",
        LABELS,
        "estimated time on messages, from one run of the loop in 31; only with one loop",
        |view, out| {
            if let Some(published) = &view.published {
                let status = &published.status;
                let busy = status.work.iter().flat_map(|work| &work.role_busy_us);
                for (role, busy) in status.roles.iter().zip(busy) {
                    out.with(labels(role), seconds(*busy));
                }
            }
        },
    ),
];

/// The name of a metric that is a time without its unit, and how many of the unit a second has.
fn time(name: &str) -> Option<(&str, f64)> {
    let of = |suffix, in_a_second| Some((name.strip_suffix(suffix)?, in_a_second));
    of("_ms", 1e3).or_else(|| of("_us", 1e6))
}

/// The name of a role's own metric, without `_total`.
fn name(role: &str, metric: &Metric) -> String {
    match time(metric.name) {
        Some((own, _)) => format!("ionian_{role}_{own}_seconds"),
        None => format!("ionian_{role}_{}", metric.name),
    }
}

fn kind(metric: &Metric) -> Kind {
    match metric.kind {
        status::Kind::Counter => Kind::Counter,
        status::Kind::Gauge => Kind::Gauge,
    }
}

/// A metric that a role declares, and its samples.
pub(crate) struct OfRole {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) samples: Samples,
}

/// The own metrics of the roles on this node.
pub(crate) fn own(view: &View<'_>) -> Vec<OfRole> {
    let Some(published) = &view.published else {
        return Vec::new();
    };
    let Some(protocol) = registry::description(&published.status.protocol) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (role, metrics) in protocol.kinds.iter().zip(protocol.metrics) {
        let here = || published.status.roles.iter().filter(|it| it.role == *role);
        if here().next().is_none() {
            continue;
        }
        for metric in each(metrics) {
            let mut samples = Samples::default();
            for instance in here() {
                let value = instance.metrics.get(metric.name).copied().unwrap_or(0);
                let value = match time(metric.name) {
                    Some((_, in_a_second)) => Value::Real(value as f64 / in_a_second),
                    None => Value::Whole(value),
                };
                samples.with([instance.index.to_string().into()], value);
            }
            found.push(OfRole {
                name: name(role, metric),
                kind: kind(metric),
                help: metric.help,
                samples,
            });
        }
    }
    found
}

/// The own metrics of all roles of all protocols, by name.
pub(crate) fn declared() -> Vec<Line> {
    let mut lines: BTreeMap<(String, &str), Line> = BTreeMap::new();
    for protocol in registry::ALL {
        for (role, metrics) in protocol.kinds.iter().zip(protocol.metrics) {
            for metric in each(metrics) {
                let name = name(role, metric);
                let line = lines
                    .entry((name.clone(), metric.help))
                    .or_insert_with(|| Line {
                        name,
                        kind: kind(metric),
                        labels: vec!["index"],
                        help: metric.help.to_owned(),
                        protocols: Vec::new(),
                    });
                line.protocols.push(protocol.name);
            }
        }
    }
    lines.into_values().collect()
}
