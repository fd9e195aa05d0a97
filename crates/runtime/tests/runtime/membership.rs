//! Changes of the membership of a cluster whose nodes are threads: which nodes follow, which learn
//! it later, and which come back.

use crate::membership_nodes::{Directory, Nodes, eventually};
use ionian_deployment::{Deployment, Placed};
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_runtime::admin::change::Response;
use ionian_runtime::{Durability, NodeError};

/// A node fails and is replaced while clients write. It starts again and learns that it is not a
/// member any more.
fn replace_under_load(durability: Durability, dead: &str, loops: u64) {
    let directory = Directory::new();
    let mut nodes = Nodes::start_with(&directory, durability, loops);
    let others: Vec<&str> = ["n0", "n1", "n2"]
        .into_iter()
        .filter(|name| *name != dead)
        .collect();
    let writer = nodes.writer(others[0]);
    writer.go_on(20);
    nodes.kill(dead);
    let new = nodes.new_node("n3", &[]);
    let epoch = nodes.change(others[1], |from| from.with_replaced(dead, new.clone()));
    assert_eq!(epoch, 1);
    nodes.join("n3", others[0]);
    nodes.wait_for_epoch(2, &[others[0], others[1], "n3"]);
    writer.go_on(20);
    let last = writer.finish();
    assert!(
        last.contains(&nodes.read("n3")),
        "the new node's own lane sees everything"
    );

    // It knows only the founding deployment.
    nodes.start_again(dead);
    nodes.ends_by_itself(dead);
    match nodes.settings(dead) {
        Err(NodeError::Removed { name, epoch: 2 }) => assert_eq!(name, dead),
        other => panic!("{other:?}"),
    }

    // All nodes start again with the founding deployment, and know the later one.
    for name in [others[0], others[1], "n3"] {
        nodes.stop(name);
    }
    for name in [others[0], others[1], "n3"] {
        nodes.start_again(name);
    }
    nodes.wait_for_epoch(2, &[others[0], others[1], "n3"]);
    if durability == Durability::Disk {
        assert!(last.contains(&nodes.read(others[1])));
    }
}

#[test]
fn failed_node_is_replaced_under_load_and_all_data_survives_a_restart() {
    replace_under_load(Durability::Disk, "n1", 1);
}

#[test]
fn failed_node_is_replaced_in_a_cluster_of_nodes_with_three_event_loops() {
    replace_under_load(Durability::Disk, "n1", 3);
}

/// Peers do not mistake the new node for the old one without its data.
#[test]
fn name_of_a_node_that_left_can_be_used_again() {
    let directory = Directory::new();
    let mut nodes = Nodes::start(&directory, Durability::Disk);
    for (epoch, directory_of) in [(2, "once"), (6, "again")] {
        let new = nodes.new_node("n3", &["acceptor", "replica"]);
        nodes.change("n0", |from| from.with_node(new.clone()));
        nodes.join_in("n3", "n1", directory_of);
        nodes.wait_for_epoch(epoch, &["n0", "n1", "n2", "n3"]);
        nodes.change("n2", |from| from.without_node("n3"));
        nodes.ends_by_itself("n3");
        nodes.wait_for_epoch(epoch + 2, &["n0", "n1", "n2"]);
    }
    nodes.write("n1", "well");
}

/// Those that leave may alone know that the change is finished: they wait for the new ones.
#[test]
fn all_nodes_are_replaced_and_the_new_ones_crash_at_once() {
    let (old, new) = (["n0", "n1", "n2"], ["n3", "n4", "n5"]);
    let directory = Directory::new();
    let mut nodes = Nodes::start(&directory, Durability::Disk);
    nodes.write("n0", "last");
    let added = new.map(|name| nodes.new_node(name, &[]));
    nodes.change("n0", |from| {
        let mut replaced = old.iter().zip(&added);
        replaced.try_fold(from.clone(), |to, (name, node)| {
            to.with_replaced(name, node.clone())
        })
    });
    for name in new {
        nodes.join(name, "n0");
    }
    for name in old {
        nodes.ends_by_itself(name);
    }
    for name in new {
        nodes.kill(name);
    }
    for name in new {
        nodes.start_again(name);
    }
    nodes.wait_for_epoch(2, &new);
    eventually("it is read", || nodes.read("n4") == "last");
}

/// The first node dials no other node, and no other node dials it any more: it has to ask.
#[test]
fn first_node_is_replaced_with_durability_memory() {
    replace_under_load(Durability::Memory, "n0", 1);
}

#[test]
fn acceptors_become_a_grid_and_replicas_change_under_load() {
    let directory = Directory::new();
    let mut nodes = Nodes::start(&directory, Durability::Disk);
    let writer = nodes.writer("n0");
    writer.go_on(20);
    let fourth = nodes.new_node("n3", &["acceptor"]);
    let grid = QuorumSpec::Grid {
        rows: 2,
        columns: 2,
    };
    nodes.change("n1", |from| {
        Ok(Deployment {
            quorums: grid,
            ..from.with_node(fourth.clone())?
        })
    });
    nodes.join("n3", "n2");
    nodes.wait_for_epoch(2, &["n0", "n1", "n2", "n3"]);
    writer.go_on(20);

    // Replicas are added by a file, on present nodes and on a new one.
    let fifth = nodes.new_node("n4", &["replica", "proxy_leader"]);
    nodes.change("n0", |from| {
        let mut file = from.clone();
        file.nodes[3].roles.push(Placed::some("replica", 1));
        file.nodes.push(fifth.clone());
        file.successor_of(from)
    });
    nodes.join("n4", "n0");
    nodes.wait_for_epoch(4, &["n0", "n1", "n2", "n3", "n4"]);
    assert_eq!(nodes.roles("n3"), ["acceptor 3", "replica 3"]);
    writer.go_on(20);

    // A node without a client lane cannot submit a change; others can.
    let known = nodes.known("n3");
    let change = nodes.begin(&known, &known.deployment.without_node("n4").unwrap());
    let response = nodes.request_once("n3", &change);
    assert!(
        matches!(&response, Response::Undecided(why) if why.contains("no client lane")),
        "{response:?}"
    );
    nodes.change("n1", |from| from.without_node("n4"));
    nodes.ends_by_itself("n4");
    nodes.wait_for_epoch(6, &["n0", "n1", "n2", "n3"]);
    // Roles without state change at once.
    let epoch = nodes.change("n2", |from| {
        let mut to = from.clone();
        to.nodes[3].roles.push(Placed::some("proxy_leader", 2));
        to.successor_of(from)
    });
    assert_eq!(epoch, 7);
    nodes.wait_for_epoch(7, &["n0", "n1", "n2", "n3"]);
    assert_eq!(
        nodes.roles("n3"),
        [
            "acceptor 3",
            "replica 3",
            "proxy_leader 3",
            "proxy_leader 4"
        ]
    );
    writer.go_on(20);
    let last = writer.finish();
    for name in ["n0", "n1", "n2", "n3"] {
        nodes.stop(name);
    }
    for name in ["n0", "n1", "n2", "n3"] {
        nodes.start_again(name);
    }
    nodes.wait_for_epoch(7, &["n0", "n1", "n2", "n3"]);
    assert!(last.contains(&nodes.read("n2")));
}

#[test]
fn change_to_a_node_that_never_starts_can_be_abandoned() {
    let directory = Directory::new();
    let nodes = Nodes::start(&directory, Durability::Disk);
    let new = nodes.new_node("n3", &[]);
    nodes.change("n0", |from| from.with_replaced("n2", new.clone()));
    nodes.wait_for_epoch(1, &["n0", "n1", "n2"]);
    nodes.write("n1", "while it waits");
    let second = nodes.new_node("n4", &["acceptor"]);
    let refused = nodes
        .try_change("n1", |from| from.with_node(second.clone()))
        .unwrap_err();
    assert_eq!(
        refused,
        "another change is under way, in epoch 1: it must be finished or abandoned first"
    );
    assert!(nodes.known("n1").next.is_some());
    nodes.abandon("n1");
    nodes.wait_for_epoch(2, &["n0", "n1", "n2"]);
    assert_eq!(
        nodes.known("n0").deployment,
        nodes.founding.numbered().unwrap()
    );
    assert_eq!(nodes.read("n2"), "while it waits");
}

#[test]
fn node_refuses_impossible_changes_with_the_reason() {
    let directory = Directory::new();
    let nodes = Nodes::start(&directory, Durability::Disk);
    let new = nodes.new_node("n3", &[]);
    let known = nodes.known("n0");
    let to = known.deployment.with_replaced("n2", new).unwrap();
    let honest = nodes.begin(&known, &to);
    let refused = |spoil: &dyn Fn(&mut ionian_kernel::membership::Change)| {
        let mut change = honest.clone();
        spoil(&mut change);
        match nodes.request("n0", &change) {
            Response::Refused(reason) => reason,
            other => panic!("{other:?}"),
        }
    };
    use ionian_kernel::membership::Change::{Begin, Finish};
    let set = |edit: fn(
        &mut ionian_kernel::id::Epoch,
        &mut bytes::Bytes,
        &mut bytes::Bytes,
        &mut bool,
    )| {
        move |change: &mut ionian_kernel::membership::Change| {
            if let Begin {
                base,
                from,
                to,
                joint,
            } = change
            {
                edit(base, from, to, joint);
            }
        }
    };
    assert!(
        refused(&set(|_, _, _, joint| *joint = false))
            .contains("a way that the protocol does not allow")
    );
    assert!(refused(&set(|_, _, to, _| *to = "f = 1".into())).contains("cluster is missing"));
    assert!(refused(&set(|_, from, _, _| *from = "?".into())).contains("not TOML"));
    assert!(
        refused(&set(|_, from, to, _| *from = to.clone()))
            .contains("another deployment than the one in force")
    );
    assert!(
        refused(&|change| *change = Finish {
            epoch: Default::default(),
            frontier: Default::default()
        })
        .contains("finished by the leader")
    );
    // Another node may know more, and this one will later.
    let mut ahead = honest.clone();
    set(|base, _, _, _| base.0 = 9)(&mut ahead);
    let response = nodes.request_once("n0", &ahead);
    assert!(
        matches!(&response, Response::Undecided(why) if why.contains("does not know epoch 9")),
        "{response:?}"
    );
    let below = known.deployment.without_node("n2").unwrap();
    let refused = nodes.try_change("n0", |_| Ok(below.clone())).unwrap_err();
    assert!(
        refused.contains("there must be at least 2f+1 = 3"),
        "{refused}"
    );
    // None of the refused changes has had an effect.
    assert_eq!(nodes.known("n1").epoch().0, 0);
    nodes.write("n1", "well");
    eventually("it is read", || nodes.read("n2") == "well");
}
