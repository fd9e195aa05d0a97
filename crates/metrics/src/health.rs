//! The checks behind `/livez` and `/readyz`.
//!
//! Neither depends on a quorum: a supervisor that restarts a node because others are down makes
//! things worse. `/healthz/cluster` answers the other question, whether the cluster serves.

use crate::certificates::now;
use crate::roles;
use crate::view::View;
use ionian_runtime::NodeStatus;

/// A loop that has not published for longer than this is stuck.
const STUCK_AFTER: f64 = 10.0;

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// What is wrong, if anything.
    pub(crate) result: Result<(), String>,
}

fn check(name: &'static str, failure: Option<String>) -> Check {
    Check {
        name,
        result: failure.map_or(Ok(()), Err),
    }
}

/// Whether the process works: restart it if not. A node that recovers has no loop yet, and works.
pub(crate) fn live(view: &View<'_>) -> Vec<Check> {
    vec![loop_turns(view)]
}

/// Whether this node would serve if the cluster can.
pub(crate) fn ready(view: &View<'_>) -> Vec<Check> {
    let status = view.published.as_ref().map(|published| &published.status);
    let recovered = match status {
        Some(_) => None,
        None => Some(format!("the node is {}", view.state())),
    };
    let part = status.filter(|status| !status.takes_part).map(|_| {
        "a new data directory: the node waits for a majority of the other nodes".to_owned()
    });
    let drains = status
        .and_then(|status| status.drains)
        .map(|left| format!("the node drains and accepts no clients; {left}"));
    vec![
        loop_turns(view),
        check("recovered", recovered),
        check("takes_part", part),
        check("not_draining", drains),
        check("replica_lag", lagging(view)),
        check("session", without_session(view)),
        check("certificate", status.and_then(ended)),
    ]
}

/// A client lane without a session, if the node sees what it needs to get one: without a quorum no
/// node gets one, and a node is as ready as before.
fn without_session(view: &View<'_>) -> Option<String> {
    let roles = &view.published.as_ref()?.status.roles;
    let lane = roles.iter().find(|role| role.has_session == Some(false))?;
    view.tolerance()?;
    let (name, index) = (&lane.role, lane.index);
    Some(format!(
        "{name} {index} has no session yet, which its clients need"
    ))
}

/// A certificate that has ended, so that other nodes refuse the node.
fn ended(status: &NodeStatus) -> Option<String> {
    let tls = status.tls.as_ref()?;
    let own = &tls.certificate;
    (own.not_after <= now()?).then(|| {
        format!(
            "the certificate {} has ended, and other nodes refuse it: renew it",
            own.subject
        )
    })
}

fn loop_turns(view: &View<'_>) -> Check {
    let stuck = view.age().filter(|age| *age > STUCK_AFTER).map(|age| {
        format!("the event loop has not turned for {age:.0} s; the limit is {STUCK_AFTER} s")
    });
    check("loop", stuck)
}

/// The instance that is too far behind, if there is one: it does not hold what is chosen, though
/// the node sees what the cluster needs, or another such delay, and it would need a snapshot.
fn lagging(view: &View<'_>) -> Option<String> {
    let published = view.published.as_ref()?;
    let roles = &published.status.roles;
    let behind = roles.iter().find(|role| role.current == Some(false));
    if let Some(role) = behind.filter(|_| view.tolerance().is_some()) {
        let (name, index) = (&role.role, role.index);
        return Some(format!("{name} {index} does not hold yet what is chosen"));
    }
    let options = published
        .configuration
        .as_ref()?
        .deployment
        .options
        .options();
    let limit = options.retained_slots as u64 / 2;
    roles.iter().find_map(|role| {
        let lag = roles::lag(role).filter(|lag| *lag >= limit)?;
        let (name, index) = (&role.role, role.index);
        Some(format!(
            "{name} {index} is {lag} slots behind; the limit is {limit}"
        ))
    })
}

/// The verdict of some checks as text, and whether all pass. Checks in `excluded` do not count.
pub(crate) fn verdict(checks: &[Check], excluded: &[&str], verbose: bool) -> (bool, String) {
    let counts = |check: &&Check| !excluded.contains(&check.name);
    let fails = |check: &&Check| check.result.is_err();
    let passes = !checks.iter().filter(counts).any(|check| fails(&check));
    let mut text = String::new();
    for check in checks {
        let line = match &check.result {
            _ if !counts(&check) => format!("[ ] {} excluded\n", check.name),
            Ok(()) => format!("[+] {} ok\n", check.name),
            Err(why) => format!("[-] {} failed: {why}\n", check.name),
        };
        if verbose || (fails(&check) && counts(&check)) {
            text += &line;
        }
    }
    text += if passes { "ok\n" } else { "failed\n" };
    (passes, text)
}

#[cfg(test)]
mod tests;
