//! The checks on made-up statuses.

use super::*;
use crate::view::{Answers, Sources};
use ionian_runtime::status::{CertificateStatus, RoleStatus, TlsStatus};
use ionian_runtime::{Published, status_feed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const FINE: [Vec<&str>; 2] = [Vec::new(), Vec::new()];

fn node() -> NodeStatus {
    NodeStatus {
        cluster: "c".into(),
        name: "n0".into(),
        takes_part: true,
        ..NodeStatus::default()
    }
}

/// A client lane.
fn lane(has_session: bool) -> RoleStatus {
    RoleStatus {
        role: "client".into(),
        has_session: Some(has_session),
        ..RoleStatus::default()
    }
}

/// What `/livez` and `/readyz` find `seconds` after the node has published this status, if it has
/// published one; `serves` says whether it sees what clients need.
fn found(status: Option<NodeStatus>, seconds: u64, serves: bool) -> [Vec<&'static str>; 2] {
    let cluster = Arc::new(OnceLock::from("c".to_owned()));
    let sources = Sources {
        status: status_feed().1,
        gateway: watch::channel(None).1,
        tolerance: Box::new(move |_| serves.then_some(0)),
        cluster,
        node: "n0".into(),
        version: "1",
        data: ".".into(),
        audit: None,
    };
    let answers = Answers::default();
    let mut view = View::of(&sources, &answers);
    let at = Instant::now();
    view.now = at + Duration::from_secs(seconds);
    let published = |status| Published {
        at,
        status,
        configuration: None,
    };
    view.published = status.map(|status| Arc::new(published(status)));
    [live(&view), ready(&view)].map(|checks| {
        let failed = checks.into_iter().filter(|check| check.result.is_err());
        failed.map(|check| check.name).collect()
    })
}

#[test]
fn node_that_recovers_lives_and_is_not_ready() {
    for seconds in [0, 3600] {
        assert_eq!(found(None, seconds, true), [vec![], vec!["recovered"]]);
    }
    assert_eq!(found(Some(node()), 0, true), FINE);
}

#[test]
fn node_whose_loop_does_not_turn_neither_lives_nor_is_ready() {
    assert_eq!(found(Some(node()), 10, true), FINE);
    assert_eq!(found(Some(node()), 11, true), [vec!["loop"], vec!["loop"]]);
}

#[test]
fn node_that_catches_up_is_not_ready_if_it_sees_what_clients_need() {
    let with = |current| NodeStatus {
        roles: vec![RoleStatus {
            current: Some(current),
            ..RoleStatus::default()
        }],
        ..node()
    };
    assert_eq!(found(Some(with(true)), 0, true), FINE);
    assert_eq!(
        found(Some(with(false)), 0, true),
        [vec![], vec!["replica_lag"]]
    );
    assert_eq!(found(Some(with(false)), 0, false), FINE);
}

#[test]
fn node_without_a_session_is_ready_only_if_no_node_can_have_one() {
    let with = |open| NodeStatus {
        roles: vec![lane(open)],
        ..node()
    };
    assert_eq!(found(Some(with(false)), 0, true), [vec![], vec!["session"]]);
    assert_eq!(found(Some(with(false)), 0, false), FINE);
    assert_eq!(found(Some(with(true)), 0, true), FINE);
}

#[test]
fn node_with_an_ended_certificate_is_not_ready() {
    let with = |not_after| NodeStatus {
        tls: Some(TlsStatus {
            certificate: CertificateStatus {
                subject: "n0".into(),
                not_after,
                ..CertificateStatus::default()
            },
            ..TlsStatus::default()
        }),
        ..node()
    };
    assert_eq!(found(Some(with(1)), 0, true), [vec![], vec!["certificate"]]);
    assert_eq!(found(Some(with(i64::MAX)), 0, true), FINE);
}

#[test]
fn excluded_checks_do_not_count_and_only_failed_ones_are_named() {
    let checks = [check("one", None), check("two", Some("why".into()))];
    let failed = "[-] two failed: why\nfailed\n".to_owned();
    assert_eq!(verdict(&checks, &[], false), (false, failed));
    let excluded = "[+] one ok\n[ ] two excluded\nok\n".to_owned();
    assert_eq!(verdict(&checks, &["two"], true), (true, excluded));
}
