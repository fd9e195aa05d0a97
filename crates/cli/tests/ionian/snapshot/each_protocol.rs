//! A backup of a running cluster of each protocol, and a cluster that starts from it.

use super::{DISK, assert_has, at, inspect, refused, restore, set};
use crate::cluster::{Cluster, deployment, eventually, works};
use ionian_protocols::registry;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A test with each of these presets.
macro_rules! saved_and_restored {
    ($($test:ident $preset:literal,)*) => {
        const PRESETS: &[&str] = &[$($preset),*];
        $(
            #[test]
            fn $test() {
                is_saved_and_restored($preset);
            }
        )*
    };
}

saved_and_restored! {
    a_restored_multipaxos_cluster_has_all_writes_acknowledged_before_the_save "colocated",
    a_restored_spaxos_cluster_has_all_writes_acknowledged_before_the_save "spaxos",
    a_restored_mencius_cluster_has_all_writes_acknowledged_before_the_save "mencius",
    a_restored_epaxos_cluster_has_all_writes_acknowledged_before_the_save "epaxos",
    a_restored_psmr_cluster_has_all_writes_acknowledged_before_the_save "p-smr",
    a_restored_craq_cluster_has_all_writes_acknowledged_before_the_save "craq",
    a_restored_scalog_cluster_has_all_writes_acknowledged_before_the_save "scalog",
    a_restored_server_has_all_writes_acknowledged_before_the_save "unreplicated",
}

/// `toy` has a test of its own.
#[test]
fn every_protocol_is_saved_and_restored() {
    let tested = PRESETS
        .iter()
        .map(|preset| deployment(preset, &[]).protocol);
    let tested: BTreeSet<String> = tested.collect();
    for name in registry::NAMES.iter().filter(|name| **name != "toy") {
        assert!(tested.contains(*name), "no test restores {name}");
    }
}

fn is_saved_and_restored(preset: &str) {
    let cluster = Cluster::start(preset, DISK, &[]);
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let file = at(&cluster.directory, "saved");
    let last = cluster.gateways().len() - 1;
    let mut client = cluster.client(last);
    let (load, told) = (&acknowledged, &stop);
    let (before, after) = std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0.. {
                set(&mut client, number);
                load.store(number + 1, Ordering::Release);
                if told.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        eventually("there is load", || {
            (acknowledged.load(Ordering::Acquire) > 200).then_some(())
        });
        let before = acknowledged.load(Ordering::Acquire);
        works(&["snapshot", "save", &file, "--data", &cluster.data()]);
        let after = acknowledged.load(Ordering::Acquire);
        stop.store(true, Ordering::Release);
        (before, after)
    });
    let head = inspect(&file);
    let keys = head["keys"].as_u64().unwrap();
    assert!(
        (before..=after + 1).contains(&keys),
        "{keys} keys, {before} to {after} acknowledged"
    );
    assert_eq!(
        (head["cluster"].as_str(), head["complete"].as_bool()),
        (Some("old"), Some(true))
    );
    let again = refused(1, &["snapshot", "save", &file, "--data", &cluster.data()]);
    assert!(again.contains("saved exists: "), "{again}");

    let mut new = restore(preset, &file);
    assert_has(&new, keys);
    set(&mut new.client(last), keys);
    // All data is on disk, and a snapshot of the new cluster can be saved.
    new.stop(Signal::SIGTERM);
    new.start_again(&[]);
    assert_has(&new, keys + 1);
    let second = at(&new.directory, "second");
    works(&["snapshot", "save", &second, "--data", &new.data()]);
    assert_eq!(inspect(&second)["keys"], keys + 1);
}
