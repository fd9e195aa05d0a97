//! Properties of every text and every deployment.

use ionian_deployment::{Deployment, Placed, PresetOptions, presets, settings};
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn any_preset() -> impl Strategy<Value = Deployment> {
    let names: Vec<_> = presets().map(|(_, preset)| preset.name).collect();
    select(names).prop_map(|name| Deployment::preset(name, &PresetOptions::default()).unwrap())
}

/// Text that is similar enough to a file to pass the first checks.
fn nearly_a_file() -> impl Strategy<Value = String> {
    let pieces = [
        "cluster",
        "protocol",
        "f",
        "quorums",
        "options",
        "node",
        "name",
        "address",
        "roles",
        "gateway",
        "[[",
        "]]",
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "\n",
        "\"",
        "'",
        "#",
        " ",
        "1",
        "-1",
        "99999999999999999999",
        "0x",
        "1.5",
        "true",
        "\"multipaxos\"",
        "\"grid 2x2\"",
        "\"a:1\"",
        "\"acceptor*2\"",
        "ü",
        "\u{0}",
        "1979-05-27",
    ];
    prop::collection::vec(select(pieces.to_vec()), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn parsing_garbage_never_panics(text in any::<String>()) {
        let _ = Deployment::parse(&text);
    }

    #[test]
    fn parsing_nearly_valid_files_never_panics(text in nearly_a_file()) {
        let _ = Deployment::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn parsing_a_damaged_file_never_panics(
        deployment in any_preset(),
        cuts in prop::collection::vec((any::<Index>(), 0..4usize, nearly_a_file()), 1..4),
    ) {
        let mut text: Vec<char> = deployment.to_toml().chars().collect();
        for (at, length, insert) in cuts {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, insert.chars());
        }
        let _ = Deployment::parse(&text.into_iter().collect::<String>()).map_err(|error| error.to_string());
    }

    #[test]
    fn overriding_with_garbage_never_panics(deployment in any_preset(), texts in prop::collection::vec(any::<String>(), 0..4)) {
        let _ = deployment.with_overrides(&texts);
    }

    #[test]
    fn accepted_deployments_survive_writing_and_reading(deployment in any_preset(), values in prop::collection::vec((any::<Index>(), any::<u64>()), 0..9)) {
        let mut deployment = deployment;
        for (setting, value) in values {
            let known: Vec<_> = deployment.settings().collect();
            let setting = setting.get(&known);
            let (low, high) = (*setting.allowed.start(), *setting.allowed.end());
            deployment.options.set(setting.key, low + value % (high - low + 1)).unwrap();
        }
        prop_assume!(deployment.check().is_ok());
        prop_assert_eq!(Deployment::parse(&deployment.to_toml()).unwrap(), deployment);
    }

    #[test]
    fn the_digest_changes_when_a_role_moves(deployment in any_preset(), from in any::<Index>(), role in any::<Index>(), to in any::<Index>()) {
        prop_assume!(deployment.nodes.len() > 1);
        let from = from.index(deployment.nodes.len());
        let to = (from + 1 + to.index(deployment.nodes.len() - 1)) % deployment.nodes.len();
        let mut moved = deployment.clone();
        // A gateway implies a client on its node, so that one cannot move.
        let movable: Vec<_> = (0..moved.nodes[from].roles.len()).filter(|at| moved.nodes[from].roles[*at].role != "client").collect();
        prop_assume!(!movable.is_empty());
        let placed = moved.nodes[from].roles.remove(movable[role.index(movable.len())]);
        moved.nodes[to].roles.push(placed);
        prop_assert_ne!(moved.digest(), deployment.digest());
    }

    #[test]
    fn the_digest_does_not_change_with_comments_and_space(deployment in any_preset(), comments in prop::collection::vec((any::<Index>(), "[ -~]{0,20}"), 1..9)) {
        let mut lines: Vec<String> = deployment.to_toml().lines().map(|line| format!("  {line}\t")).collect();
        for (at, comment) in comments {
            lines.insert(at.index(lines.len() + 1), format!(" # {comment}"));
            lines.insert(at.index(lines.len() + 1), String::new());
        }
        let commented = Deployment::parse(&lines.join("\r\n")).unwrap();
        prop_assert_eq!(commented.digest(), deployment.digest());
        prop_assert_eq!(commented, deployment);
    }
}

#[test]
fn the_digest_covers_what_nodes_must_agree_on_and_nothing_else() {
    let deployment = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
    let with = |overrides: &[&str]| {
        deployment
            .clone()
            .with_overrides(overrides)
            .unwrap()
            .digest()
    };
    for agreed in [
        "cluster=other",
        "level=17",
        "machine=other",
        "f=0",
        "quorums=groups 1",
        "durability=memory",
        "options.session_expiry_s=601",
        "options.window_slots=1",
        "options.heartbeat_ms=99",
        "node.n0.name=other",
        "node.n0.roles=client,leader",
    ] {
        assert_ne!(with(&[agreed]), deployment.digest(), "{agreed}");
    }
    for local in [
        "node.n0.address=elsewhere:1",
        "node.n0.gateway=elsewhere:2",
        "node.n0.gateway=", // its roles name a client: the lane stays
        "options.batch_commands=1",
        "options.session_expiry_s=600",
        "node.n0.roles=unbatcher,replica,acceptor,proxy_leader,leader,read_batcher,batcher",
    ] {
        assert_eq!(with(&[local]), deployment.digest(), "{local}");
    }
    let mut swapped = deployment.clone();
    swapped.nodes.swap(0, 1);
    assert_ne!(
        swapped.digest(),
        deployment.digest(),
        "instances are numbered by the order of the nodes"
    );
}

#[test]
fn both_notations_of_two_instances_have_the_same_digest() {
    let mut twice = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
    let mut starred = twice.clone();
    let placed = |count| Placed::some("acceptor", count);
    twice.nodes[0].roles.push(placed(1));
    twice.nodes[0].roles.push(placed(1));
    starred.nodes[0].roles.push(placed(2));
    assert_eq!(twice.digest(), starred.digest());
}

/// Nodes of different builds compare digests, so a change of the computation is a change of the
/// wire format.
#[test]
fn the_digest_of_a_fixed_deployment_does_not_change() {
    // Durability, level and shared options are stated, so that a new default does not change the
    // digest.
    let stated: Vec<_> = settings("unreplicated")
        .filter(|setting| setting.shared)
        .map(|setting| format!("options.{}=1000", setting.key))
        .collect();
    let deployment = Deployment::preset("unreplicated", &PresetOptions::default()).unwrap();
    let overrides = [
        stated,
        vec![
            "options.heartbeat_ms=100".to_owned(),
            "durability=memory".to_owned(),
            "level=17".to_owned(),
        ],
    ]
    .concat();
    let deployment = deployment.with_overrides(&overrides).unwrap();
    assert_eq!(format!("{:016x}", deployment.digest()), "72edd4df0677b97a");
}
