//! Changes that `ionian member` refuses.

use super::{done, local, member, refused};
use crate::cluster::{Cluster, Directory, free_port, run};

#[test]
fn impossible_changes_are_refused_with_a_reason() {
    let cluster = Cluster::start("baseline", &[], &[]);
    let address = local(free_port());
    let taken = cluster.deployment.nodes[2].address.clone();
    let leaves = cluster.deployment.nodes[1].address.clone();
    let cases: &[(&[&str], &str)] = &[
        (
            &["remove", "n7"],
            "unknown node \"n7\"; available: n0, n1, n2",
        ),
        (&["remove", "n2"], "there must be at least 2f+1 = 3"),
        (
            &["replace", "n7", "n8", "--address", &address],
            "unknown node \"n7\"",
        ),
        (
            &["replace", "n1", "n2", "--address", &address],
            "n2 is already a member: choose a name that no member has",
        ),
        (
            &["add", "n1", "--address", &address, "--roles", "replica"],
            "n1 is already a member: choose a name that no member has",
        ),
        (
            &["add", "n3", "--address", &taken, "--roles", "replica"],
            "already used by node.n2.address",
        ),
        (
            &[
                "replace",
                "n1",
                "n3",
                "--address",
                &leaves,
                "--gateway",
                &address,
            ],
            "node n1 runs, and n3 is to have its address. Stop n1 first",
        ),
        (
            &["add", "n3", "--address", &address],
            "node.n3.roles = []: must be a list with at least one role",
        ),
        (
            &["add", "n3", "--address", &address, "--roles", "mixer"],
            "must be roles of multipaxos",
        ),
        (
            &[
                "add",
                "n3",
                "--address",
                &address,
                "--roles",
                "acceptor",
                "--quorums",
                "grid 3x3",
            ],
            "a 3x3 grid holds 9",
        ),
    ];
    for (arguments, reason) in cases {
        let (code, said) = refused(&member(&cluster, arguments));
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    let bad: &[&[&str]] = &[
        &["add", "n3", "--roles", "replica"],
        &["add", "n3", "--address", "nowhere", "--roles", "replica"],
        &["add", "n 3", "--address", &address, "--roles", "replica"],
        &["add", "n3", "--address", &address, "--roles", "replica*0"],
        &[
            "add",
            "n3",
            "--address",
            &address,
            "--roles",
            "replica",
            "--quorums",
            "most",
        ],
        &["exchange", "n1"],
    ];
    for arguments in bad {
        let (code, said) = refused(&member(&cluster, arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
    }
    // A file for another cluster, and one that would move a node.
    let file = cluster.directory.path("next.toml");
    let apply = |edit: &dyn Fn(String) -> String| {
        std::fs::write(&file, edit(done(&member(&cluster, &["list", "--toml"])))).unwrap();
        refused(&member(&cluster, &["apply", file.to_str().unwrap()]))
    };
    let (code, said) = apply(&|text| text.replace("\"ionian\"", "\"other\""));
    assert_eq!(code, Some(1));
    assert!(
        said.contains("cluster = \"other\": must be \"ionian\" as in the running cluster"),
        "{said}"
    );
    let (_, said) = apply(&|text| text.replace(&taken, &address));
    assert!(
        said.contains("to move a node, replace it by a node of another name"),
        "{said}"
    );
    let (_, said) = apply(&|text| {
        text.replace("name = \"n1\"", "name = \"n9\"")
            .replace(&leaves, &address)
    });
    assert!(
        said.contains("a new node leaves out `id` and role numbers"),
        "{said}"
    );
    // None of this changed anything, and the present deployment as a file changes nothing.
    std::fs::write(&file, done(&member(&cluster, &["list", "--toml"]))).unwrap();
    let said = done(&member(&cluster, &["apply", file.to_str().unwrap()]));
    assert_eq!(
        said,
        "no change: the cluster has this configuration already (epoch 0)\n"
    );
}

#[test]
fn a_stopped_cluster_cannot_be_changed() {
    let directory = Directory::new();
    let file = directory.path("d.toml");
    let deployment = crate::cluster::deployment("baseline", &[]);
    std::fs::write(&file, deployment.to_toml()).unwrap();
    let (code, said) = refused(&run(&[
        "member",
        "remove",
        "n1",
        "--config",
        file.to_str().unwrap(),
    ]));
    assert_eq!(code, Some(1));
    assert!(
        said.starts_with("ionian: no node of the cluster answers: n0 at"),
        "{said}"
    );
    for node in &deployment.nodes {
        let named = said.matches(&node.address).count();
        assert_eq!(named, 1, "{} is named {named} times: {said}", node.address);
    }
}

/// If the protocol cannot change members, the error says so, and does not mention other faults of
/// the plan.
#[track_caller]
fn members_stay_what_they_are(preset: &str, reason: &str) {
    let cluster = Cluster::start(preset, &[], &[]);
    let old = cluster.deployment.nodes[0].name.as_str();
    let other = cluster.directory.path("other.toml");
    let text = cluster.deployment.to_toml();
    // An unsuitable deployment, and the one in force.
    std::fs::write(
        &other,
        text.replace("f = 0", "f = 1").replace("f = 1", "f = 2"),
    )
    .unwrap();
    let same = cluster.directory.path("given.toml");
    let address = local(free_port());
    for arguments in [
        &["add", "new", "--address", &address, "--roles", "replica"][..],
        &["remove", old],
        // With and without a gateway.
        &["replace", old, "new", "--address", &address],
        &["replace", "unknown", "new", "--address", &address],
        &["apply", other.to_str().unwrap()],
        &["apply", same.to_str().unwrap()],
    ] {
        let (code, said) = refused(&member(&cluster, arguments));
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(
            said.starts_with("ionian: this cannot be done: ") && said.contains(reason),
            "{arguments:?}: {said}"
        );
    }
    cluster.client(0).set("k", "v");
}

#[test]
fn a_mencius_cluster_keeps_its_number_of_leaders() {
    let cluster = Cluster::start("mencius-batched", &[], &[]);
    let address = local(free_port());
    for (arguments, leaders) in [
        (
            &["add", "new", "--address", &address, "--roles", "leader"][..],
            4,
        ),
        (&["remove", "leader-1"], 2),
    ] {
        let (code, said) = refused(&member(&cluster, arguments));
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        let reason = format!("there are 3, and there would be {leaders}");
        assert!(said.contains(&reason), "{arguments:?}: {said}");
    }
}

#[test]
fn the_members_of_an_unreplicated_cluster_cannot_change() {
    members_stay_what_they_are(
        "unreplicated",
        "an unreplicated cluster cannot be changed while it runs",
    );
}

#[test]
fn the_members_of_a_cluster_of_p_smr_cannot_change() {
    members_stay_what_they_are(
        "p-smr",
        "a cluster of P-SMR cannot be changed while it runs",
    );
}

#[test]
fn the_number_of_chain_nodes_stays() {
    let cluster = Cluster::start("craq", &[], &[]);
    let address = local(free_port());
    let add = ["add", "n3", "--address", &address, "--roles", "chain_node"];
    let (code, said) = refused(&member(&cluster, &add));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("the chain has 3 nodes and f=1, and would have 4 and f=1"),
        "{said}"
    );
}

#[test]
fn the_members_of_an_epaxos_cluster_cannot_change() {
    members_stay_what_they_are(
        "epaxos",
        "the members and options of an epaxos cluster cannot be changed while it runs",
    );
}
