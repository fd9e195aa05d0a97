//! Numbers of nodes and instances, and changes of the membership.

use ionian_deployment::{Configuration, Deployment, Node, Placed, PresetOptions};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::NodeId;
use ionian_kernel::level::Level;
use ionian_kernel::membership::{Membership, SessionExpiry};

const KINDS: &[&str] = &["client", "leader", "proxy_leader", "acceptor", "replica"];

/// Founded by a program that knew no levels.
fn baseline() -> Deployment {
    let preset = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
    preset.with_overrides(&["level=17"]).unwrap()
}

fn node(name: &str, port: u16, roles: &[&str]) -> Node {
    let roles = roles.iter().map(|role| Placed::some(role, 1)).collect();
    Node {
        name: name.into(),
        address: format!("127.0.0.1:{port}"),
        roles,
        ..Node::default()
    }
}

/// `name id: roles` of each node.
fn shown(deployment: &Deployment) -> Vec<String> {
    let show = |node: &Node| {
        let roles: Vec<String> = node.roles.iter().map(Placed::to_string).collect();
        format!("{} {}: {}", node.name, node.id.unwrap(), roles.join(" "))
    };
    deployment.nodes.iter().map(show).collect()
}

#[test]
fn unnumbered_instances_get_free_numbers_in_order() {
    let text = baseline()
        .to_toml()
        .replacen("\"acceptor\"", "\"acceptor:1\"", 1)
        .replacen("\"n1\"", "\"n1\"\nid = 0", 1);
    let deployment = Deployment::parse(&text).unwrap();
    assert_eq!(
        shown(&deployment.numbered().unwrap()),
        [
            "n0 1: client:0 leader:0 proxy_leader:0 acceptor:1 replica:0",
            "n1 0: client:1 leader:1 proxy_leader:1 acceptor:0 replica:1",
            "n2 2: client:2 leader:2 proxy_leader:2 acceptor:2 replica:2",
        ]
    );
    assert_eq!(deployment.ids(), [NodeId(1), NodeId(0), NodeId(2)]);
    let layout = deployment.layout(KINDS).unwrap();
    assert_eq!(layout.names, ["n1", "n0", "n2"]);
    assert_eq!(layout.places(3).node_of(0), Some(NodeId(0)));
    assert_ne!(deployment.digest(), baseline().digest());
}

#[test]
fn stating_the_usual_numbers_changes_nothing() {
    let numbered = baseline().numbered().unwrap();
    assert_eq!(Deployment::parse(&numbered.to_toml()).unwrap(), numbered);
    assert_eq!(numbered.digest(), baseline().digest());
    assert_eq!(numbered.numbered().unwrap(), numbered);
}

#[test]
fn a_new_node_and_its_roles_get_unused_numbers() {
    let three = baseline().numbered().unwrap();
    let replaced = three.with_replaced("n1", node("n3", 9, &[])).unwrap();
    assert_eq!(
        shown(&replaced)[2],
        "n3 3: client:3 leader:3 proxy_leader:3 acceptor:3 replica:3"
    );
    assert_eq!(
        shown(&replaced)[..2],
        [&shown(&three)[0][..], &shown(&three)[2][..]]
    );
    // A gap is not filled while higher numbers are free.
    let added = replaced.with_node(node("n4", 10, &["replica"])).unwrap();
    assert_eq!(shown(&added)[3], "n4 4: replica:4");
    let removed = added.without_node("n0").unwrap();
    assert_eq!(shown(&removed), &shown(&added)[1..]);
    assert_eq!(
        removed.layout(KINDS).unwrap().names,
        ["", "", "n2", "n3", "n4"]
    );
}

#[test]
fn numbers_wrap_to_the_lowest_free_one() {
    let mut many = baseline();
    many.nodes[0].roles.push(Placed::one("proxy_leader", 63));
    let added = many
        .with_node(node("n3", 9, &["proxy_leader", "proxy_leader"]))
        .unwrap();
    assert_eq!(shown(&added)[3], "n3 3: proxy_leader:3 proxy_leader:4");
    many.nodes[1].roles.push(Placed::some("proxy_leader", 60));
    let error = many
        .with_node(node("n3", 9, &["proxy_leader"]))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("node.n3.roles = \"proxy_leader\": instance number 65 of this role"),
        "{error}"
    );
}

#[test]
fn a_file_keeps_the_numbers_of_unchanged_instances() {
    let before = baseline().with_replaced("n0", node("n3", 9, &[])).unwrap();
    // A hand-written file without numbers, in another order, with one more acceptor on n2 and no
    // leader there.
    let mut file = baseline();
    file.nodes.remove(0);
    file.nodes.insert(
        0,
        node(
            "n3",
            9,
            &["client", "leader", "proxy_leader", "acceptor", "replica"],
        ),
    );
    file.nodes[2].roles.push(Placed::some("acceptor", 1));
    file.nodes[2].roles.retain(|placed| placed.role != "leader");
    assert_eq!(
        shown(&file.successor_of(&before).unwrap()),
        [
            "n3 3: client:3 leader:3 proxy_leader:3 acceptor:3 replica:3",
            "n1 1: client:1 leader:1 proxy_leader:1 acceptor:1 replica:1",
            "n2 2: client:2 proxy_leader:2 acceptor:2 replica:2 acceptor:4",
        ]
    );
}

#[test]
fn impossible_changes_are_refused() {
    let before = baseline().numbered().unwrap();
    let refused = |edit: &dyn Fn(&mut Deployment)| {
        let mut to = before.clone();
        edit(&mut to);
        before.check_change(&to).unwrap_err().to_string()
    };
    assert_eq!(refused(&|_| {}), "no change: the deployment is the same");
    assert_eq!(
        refused(&|to| to.cluster = "other".into()),
        "cluster = \"other\": must be \"ionian\" as in the running cluster: it is fixed for the life of a cluster"
    );
    for (edit, key) in [
        (
            (|to| to.protocol = "unreplicated".into()) as fn(&mut Deployment),
            "protocol",
        ),
        (|to| to.machine = "other".into(), "machine"),
        (
            |to| to.durability = ionian_deployment::Durability::Memory,
            "durability",
        ),
        (
            |to| to.options.set("heartbeat_ms", 99).unwrap(),
            "options.heartbeat_ms",
        ),
        (
            |to| to.options.set("batch_commands", 99).unwrap(),
            "options.batch_commands",
        ),
        (|to| to.nodes[1].id = Some(9), "node.n1.id"),
        (
            |to| to.nodes[1].address = "127.0.0.1:9".into(),
            "node.n1.address",
        ),
        (|to| to.nodes[1].gateway = None, "node.n1.gateway"),
        (|to| to.nodes[1].name = "n9".into(), "node.n9.id"),
    ] {
        let error = refused(&edit);
        assert!(error.starts_with(&format!("{key} = ")), "{error}");
    }
    let taken = before
        .with_node(node("n1", 9, &["replica"]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        taken,
        "n1 is already a member: choose a name that no member has"
    );
    let other = before.with_replaced("n7", node("n1", 9, &[])).unwrap_err();
    assert_eq!(other.to_string(), taken, "before other mistakes");
    let unknown = before
        .with_replaced("n7", node("n8", 9, &[]))
        .unwrap_err()
        .to_string();
    assert_eq!(unknown, "unknown node \"n7\"; available: n0, n1, n2");
    assert!(
        before
            .with_node(node("n3", 9, &[]))
            .unwrap_err()
            .to_string()
            .starts_with("node.n3.roles = []")
    );
    before
        .check_change(&before.with_node(node("n3", 9, &["replica"])).unwrap())
        .unwrap();
    let mut to = before.clone();
    to.f = 0;
    before.check_change(&to).unwrap();
}

#[test]
fn no_more_than_f_new_nodes_have_an_address_of_a_node_that_leaves() {
    let behind = &[
        "node.n1.listen=127.0.0.1:91",
        "node.n1.gateway=127.0.0.1:92",
        "node.n1.gateway_listen=127.0.0.1:93",
        "node.n2.listen=0.0.0.0:94",
    ];
    let before = baseline().with_overrides(behind).unwrap();
    let replaced = |old: &str, new: Node| before.with_replaced(old, new).unwrap();
    let check = |old: &str, new: Node| before.check_change(&replaced(old, new));
    let address = before.nodes[1].address.clone();
    let held = [
        address.as_str(),
        "127.0.0.1:91",
        "127.0.0.1:92",
        "127.0.0.1:93",
    ];
    for text in held {
        let gateway = || Some("127.0.0.1:8".to_owned());
        let cases = [
            Node {
                address: text.into(),
                ..node("n3", 9, &[])
            },
            Node {
                gateway: Some(text.into()),
                ..node("n3", 9, &[])
            },
            Node {
                listen: Some(text.into()),
                ..node("n3", 9, &[])
            },
            Node {
                gateway: gateway(),
                gateway_listen: Some(text.into()),
                ..node("n3", 9, &[])
            },
        ];
        for new in cases {
            check("n1", new.clone()).unwrap();
            let one = replaced("n1", new);
            let names = [("n3".to_owned(), "n1".to_owned())];
            assert_eq!(before.successions(&one), names.into());
            let second = Node {
                address: before.nodes[0].address.clone(),
                ..node("n4", 10, &[])
            };
            let two = one.with_replaced("n0", second).unwrap();
            assert_eq!(
                before.check_change(&two).unwrap_err().to_string(),
                format!(
                    "node.n4.address = {:?}: it is node.n0.address, and free when that node has stopped; at most f = 1 \
                     new nodes may have addresses of at most f nodes that leave in the same change",
                    before.nodes[0].address
                )
            );
        }
    }
    // One new node that waits for two to stop.
    let of_both = Node {
        address: before.nodes[1].address.clone(),
        gateway: Some(before.nodes[0].address.clone()),
        ..node("n3", 9, &[])
    };
    let both = replaced("n0", node("n4", 10, &[])).with_replaced("n1", of_both);
    let said = before.check_change(&both.unwrap()).unwrap_err().to_string();
    assert!(said.contains("at most f = 1 new nodes may have"), "{said}");
    // Another machine with the same local addresses, and a container beside the old one.
    let elsewhere = Node {
        address: "10.0.0.4:91".into(),
        listen: Some("127.0.0.1:91".into()),
        ..node("n3", 9, &[])
    };
    check("n1", elsewhere).unwrap();
    let beside = Node {
        listen: Some("0.0.0.0:94".into()),
        ..node("n3", 9, &[])
    };
    check("n2", beside).unwrap();
    // The node with the listening address stays.
    let listens = Node {
        listen: Some("127.0.0.1:91".into()),
        ..node("n3", 9, &[])
    };
    let stays = replaced("n2", listens.clone());
    assert_eq!(before.successions(&stays), [].into());
    assert_eq!(
        check("n2", listens).unwrap_err().to_string(),
        "node.n3.listen = \"127.0.0.1:91\": already used by node.n1.listen"
    );
}

#[test]
fn a_number_cannot_be_stated_twice() {
    let mut twice = baseline();
    twice.nodes[0].roles.push(Placed::one("acceptor", 2));
    twice.nodes[2].roles.push(Placed::one("acceptor", 2));
    let error = twice.numbered().unwrap_err().to_string();
    assert_eq!(
        error,
        "node.n2.roles = \"acceptor:2\": already used by node.n0.roles; a new node leaves out `id` and role numbers"
    );
    let mut twice = baseline();
    (twice.nodes[0].id, twice.nodes[1].id) = (Some(5), Some(5));
    assert_eq!(
        twice.check().unwrap_err().to_string(),
        "node.n1.id = \"5\": already used by node.n0.id; a new node leaves out `id` and role numbers"
    );
}

#[test]
fn a_configuration_survives_being_written_and_read() {
    let founded = Configuration::founded(baseline());
    let read = Configuration::parse(&founded.to_toml()).unwrap();
    assert_eq!(
        (read.founding, read.epoch(), &read.next),
        (founded.founding, Epoch(0), &None)
    );
    assert_eq!(read.deployment, baseline().numbered().unwrap());
    assert_eq!(read.membership, Membership::default());

    let to = baseline().with_replaced("n1", node("n3", 9, &[])).unwrap();
    let changing = Membership {
        epoch: Epoch(1),
        text: founded.text().unwrap(),
        next: Some(to.to_toml().into()),
        ..Membership::default()
    };
    let changing = founded.advanced(changing).unwrap();
    assert_eq!(Configuration::parse(&changing.to_toml()).unwrap(), changing);
    assert_eq!(
        changing.nodes().into_keys().collect::<Vec<_>>(),
        [0, 1, 2, 3].map(NodeId)
    );
    assert_eq!(changing.member("n3").unwrap().0, NodeId(3));
    let layout = changing.layout(KINDS).unwrap();
    assert_eq!(
        (layout.epoch, layout.names.len(), layout.count(3)),
        (Epoch(1), 4, 4)
    );
    assert_eq!(layout.name(NodeId(3)), "n3");
}

#[test]
fn a_damaged_configuration_is_refused_with_a_reason() {
    let text = Configuration::founded(baseline()).to_toml();
    let refused = |from: &str, to: &str| {
        Configuration::parse(&text.replace(from, to))
            .unwrap_err()
            .to_string()
    };
    assert!(refused("founding", "found").starts_with("founding is missing"));
    assert!(refused("epoch = 0", "epoch = -1").starts_with("epoch is missing"));
    assert!(refused("epoch = 0", "epoch = 4294967295").starts_with("epoch is missing"));
    assert!(refused("f = 1 ", "f = 99 ").contains("f = 99: must be"));
    assert!(refused("text = ", "text ").contains("not TOML"));
}

#[test]
fn tuning_changes_options_of_all_nodes_and_nothing_else() {
    let founded = baseline()
        .with_overrides(&["options.batch_commands=10"])
        .unwrap();
    let tuned = founded
        .tuned(&["heartbeat_ms=50", "options.batch_commands=20"])
        .unwrap();
    assert!(founded.check_tuning(&tuned).is_ok());
    assert_eq!(
        tuned.options.tuned().collect::<Vec<_>>(),
        ["batch_commands", "heartbeat_ms"]
    );
    assert_eq!(
        Deployment::parse(&tuned.to_toml()).unwrap(),
        tuned,
        "it is written and read"
    );
    // With the same value as before it still counts as changed: a node's own file no longer
    // overrides it.
    assert!(
        founded
            .check_tuning(&founded.tuned(&["heartbeat_ms=100"]).unwrap())
            .is_ok()
    );
    let refused = |settings: &[&str]| founded.tuned(settings).unwrap_err().to_string();
    assert!(refused(&["heartbeat=50"]).contains("unknown key options.heartbeat"));
    assert!(refused(&["heartbeat_ms"]).contains("must be key=value"));
    assert!(refused(&["heartbeat_ms=0"]).contains("a whole number from 1 to"));
    assert!(refused(&["heartbeat_ms=300"]).contains("at least twice options.heartbeat_ms"));
    assert!(
        refused(&["patience_ms=100"])
            .contains("Restart one node after the other with --set options.patience_ms")
    );
    assert_eq!(
        founded.check_tuning(&founded).unwrap_err().to_string(),
        "no change: the deployment is the same"
    );
    let moved = tuned.clone().with_overrides(&["f=0"]).unwrap();
    assert!(
        founded
            .check_tuning(&moved)
            .unwrap_err()
            .to_string()
            .contains("cannot change together")
    );
    assert!(
        founded
            .check_change(&tuned)
            .unwrap_err()
            .to_string()
            .contains("use `ionian options set`")
    );
    // Editing the file for other members does not undo the change.
    let mut edited = founded.clone();
    edited.options = Deployment::parse(&tuned.to_toml().replace("tuned = ", "# tuned = "))
        .unwrap()
        .options;
    assert_eq!(edited.successor_of(&tuned).unwrap().options, tuned.options);
}

#[test]
fn options_are_tuned_together_in_any_order() {
    let founded = baseline();
    let both = ["heartbeat_ms=500", "election_timeout_ms=1500"];
    let tuned = founded.tuned(&both).unwrap();
    assert_eq!(tuned, founded.tuned(&[both[1], both[0]]).unwrap());
    let values = both.map(|text| text.split_once('=').unwrap().0);
    assert_eq!(
        values.map(|key| tuned.options.stated(key)),
        [Some(500), Some(1500)]
    );
    // And back, which a check after each step allows in the other order only.
    let back = ["election_timeout_ms=200", "heartbeat_ms=50"];
    assert_eq!(
        tuned.tuned(&back).unwrap(),
        tuned.tuned(&[back[1], back[0]]).unwrap()
    );
    let refused = |settings: &[&str]| founded.tuned(settings).unwrap_err().to_string();
    for order in [
        ["heartbeat_ms=500", "election_timeout_ms=900"],
        ["election_timeout_ms=900", "heartbeat_ms=500"],
    ] {
        assert_eq!(
            refused(&order),
            "options.election_timeout_ms = 900: must be at least twice options.heartbeat_ms = 500"
        );
    }
    assert_eq!(
        refused(&["heartbeat_ms=50", "options.heartbeat_ms = 60"]),
        "options.heartbeat_ms=50 and options.heartbeat_ms=60: an option can be given once"
    );
}

#[test]
fn tuned_options_override_the_nodes_file() {
    let mut known = baseline().tuned(&["batch_commands=20"]).unwrap();
    known.take_local(
        &baseline()
            .with_overrides(&["options.batch_commands=7", "options.batch_bytes=9"])
            .unwrap(),
    );
    assert_eq!(
        (
            known.options.stated("batch_commands"),
            known.options.stated("batch_bytes")
        ),
        (Some(20), Some(9))
    );
}

#[test]
fn a_configuration_stores_the_founding_session_expiry() {
    let founded = Configuration::founded(baseline());
    let text = baseline()
        .tuned(&["session_expiry_s=30"])
        .unwrap()
        .to_toml()
        .into();
    let expiry = Some(SessionExpiry {
        founded_ms: 600_000,
        now_ms: 30_000,
    });
    let tuned = founded
        .advanced(Membership {
            epoch: Epoch(1),
            text,
            expiry,
            ..Membership::default()
        })
        .unwrap();
    assert_eq!(Configuration::parse(&tuned.to_toml()).unwrap(), tuned);
    let layout = tuned.layout(KINDS).unwrap();
    assert_eq!(
        (
            layout.options.session_expiry.as_secs(),
            layout.founding_expiry().as_secs()
        ),
        (30, 600)
    );
    let refused = tuned.to_toml().replace("[600000, 30000]", "[600000]");
    assert!(
        Configuration::parse(&refused)
            .unwrap_err()
            .to_string()
            .starts_with("session_expiry_ms is missing")
    );
}

/// An operator who writes a file by hand wants what the program can do. Where there is a cluster,
/// the same file is one of its level.
#[test]
fn a_file_without_a_level_founds_a_cluster_of_the_highest() {
    let file = std::env::temp_dir().join(format!("ionian-level-{}.toml", std::process::id()));
    std::fs::write(&file, baseline().to_text()).unwrap();
    let [new, old] =
        [Level::LATEST, Level::FIRST].map(|level| Deployment::load_or(&file, level).unwrap());
    assert_eq!(
        (Deployment::load(&file).unwrap(), &old),
        (new.clone(), &baseline())
    );
    std::fs::remove_file(&file).unwrap();
    assert_eq!(new.level, Level::LATEST);
    let [new, old] = [new, old].map(Configuration::founded);
    assert_eq!(new.clone().or_at_level_of(&old), old);
    let mut other = baseline();
    other.f = 0;
    let other = Configuration::founded(other);
    assert_eq!(new.clone().or_at_level_of(&other), new);
}

/// The file of a cluster says its level, so that every node begins with it, and programs that do
/// not know the level refuse the file. Those of the first level read texts without the key.
#[test]
fn a_cluster_is_founded_with_the_level_of_its_file() {
    let first = baseline();
    let latest = first.clone().with_overrides(&["level=18"]).unwrap();
    assert!(!first.to_text().contains("\nlevel"), "{}", first.to_text());
    assert!(first.to_toml().contains("\nlevel = 17"));
    assert_ne!(first.digest(), latest.digest());
    for (deployment, level) in [(&first, 17), (&latest, 18)] {
        let founded = Configuration::founded(deployment.clone());
        for text in [deployment.to_toml(), deployment.to_text()] {
            assert_eq!(Deployment::parse(&text).unwrap(), *deployment);
        }
        assert_eq!(founded.membership.level, Level(level));
        assert_eq!(founded.layout(KINDS).unwrap().founding_level, Level(level));
        assert_eq!(
            Configuration::parse(&founded.to_toml()).unwrap().membership,
            founded.membership
        );
    }
    let error = first.check_change(&latest).unwrap_err().to_string();
    assert!(
        error.starts_with("level = 18: must be 17 as in the running cluster"),
        "{error}"
    );
    for (wrong, allowed) in [
        ("16", "from 17 to 18"),
        ("19", "from 17 to 18"),
        ("x", "from 17"),
    ] {
        let error = first
            .clone()
            .with_overrides(&[format!("level={wrong}")])
            .unwrap_err();
        assert!(error.to_string().contains(allowed), "{error}");
    }
    let preset = Deployment::preset("epaxos", &PresetOptions::default()).unwrap();
    assert_eq!(preset.level, Level::LATEST);
}
