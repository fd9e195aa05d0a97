//! `ionian upgrade revert`: lowers the level, so that the former release can be put back.

use crate::cluster::{Cluster, eventually, fails, works};
use crate::failures::Writer;
use crate::resp::{Client, Reply};
use nix::sys::signal::Signal;

fn command<'a>(command: &'a str, data: &'a str) -> [&'a str; 4] {
    ["upgrade", command, "--data", data]
}

/// What the membership file of a node says of the level.
fn level_on_disk(cluster: &Cluster, node: &str) -> Option<String> {
    let file = cluster
        .directory
        .path(&format!("data/nodes/{node}/membership.toml"));
    let text = std::fs::read_to_string(file).expect("it has one");
    let level = |line: &&str| line.starts_with("level =");
    text.lines().find(level).map(str::to_owned)
}

/// Has a command carried out that needs a level of which the gateway may hear later than operators.
fn ok(client: &mut Client, words: &[&str]) {
    eventually("the gateway knows the level", || match client.call(words) {
        Ok(Reply::Status(_)) => Some(()),
        Ok(Reply::Error(error)) if error.contains("level 18") => None,
        other => panic!("{words:?}: {other:?}"),
    });
}

#[test]
fn a_level_is_lowered_under_load_unless_the_state_needs_it() {
    for preset in ["colocated", "mencius"] {
        let mut cluster = Cluster::start(preset, &["level=17"], &[]);
        let data = cluster.data();
        let writer = Writer::start(cluster.gateways()[0], "k");
        writer.go_on(50);
        works(&command("finalize", &data));
        assert_eq!(level_on_disk(&cluster, "n1").as_deref(), Some("level = 18"));
        let mut client = cluster.client(1);
        ok(&mut client, &["CONFIG", "SET", "maxmemory", "100mb"]);
        let refusal = "do not know what this cluster has: a limit of memory (maxmemory)";
        fails(&command("revert", &data), 1, refusal);
        ok(&mut client, &["CONFIG", "SET", "maxmemory", "0"]);
        writer.go_on(50);
        let said = works(&command("revert", &data));
        assert!(said.contains(": level 17\n"), "{preset}: {said}");
        assert!(said.ends_with("one node after the other\n"), "{said}");
        for node in ["n0", "n1", "n2"] {
            assert_eq!(level_on_disk(&cluster, node), None, "{preset}");
        }
        let said = works(&command("revert", &data));
        assert!(said.contains("the lowest that this"), "{preset}: {said}");
        assert!(said.ends_with("one node after the other\n"), "{said}");
        writer.go_on(50);
        // What a node needs after a crash is of the lower level too.
        let keys = writer.finish();
        cluster.kill_all();
        cluster.start_again(&[]);
        let said = works(&command("status", &data));
        assert!(said.contains("level 17, epoch 2\n"), "{preset}: {said}");
        let mut client = cluster.client(1);
        for key in &keys {
            assert_eq!(client.get(key).as_ref(), Some(key), "{preset}");
        }
        works(&command("finalize", &data));
        ok(&mut client, &["ACL", "SETUSER", "ann"]);
        assert_eq!(
            client.call(&["ACL", "DELUSER", "ann"]).unwrap(),
            Reply::Integer(1)
        );
        // A gateway may still know of them.
        fails(&command("revert", &data), 1, "users, or had some");
        cluster.stop(Signal::SIGTERM);
    }
}

#[test]
fn a_level_is_not_lowered_below_that_of_the_founding() {
    let mut cluster = Cluster::start("colocated", &[], &[]);
    let founded = "the cluster was founded at level 18";
    fails(&command("revert", &cluster.data()), 1, founded);
    cluster.stop(Signal::SIGTERM);
    // Programs of level 17 could not read the deployment.
    let overrides = ["level=17", "options.slow_ms=20"];
    let mut cluster = Cluster::start("colocated", &overrides, &[]);
    works(&command("finalize", &cluster.data()));
    let unknown = "programs of level 17 do not know options.slow_ms";
    fails(&command("revert", &cluster.data()), 1, unknown);
    cluster.stop(Signal::SIGTERM);
}

/// A gateway that refuses users because of the level, `status`, and the commands that raise it.
#[test]
fn gateways_and_operators_name_the_same_level_in_every_protocol() {
    let presets = [
        "colocated",
        "mencius",
        "spaxos",
        "epaxos",
        "unreplicated",
        "p-smr",
        "craq",
        "scalog",
    ];
    for (preset, level) in presets.iter().flat_map(|it| [(*it, 17), (*it, 18)]) {
        if preset == "craq" && level == 17 {
            continue;
        }
        let mut cluster = Cluster::start(preset, &[&format!("level={level}")], &[]);
        let data = cluster.data();
        assert_eq!(cluster.status()["level"], level, "{preset}");
        let shown = works(&command("status", &data));
        assert!(
            shown.contains(&format!(": level {level}, ")),
            "{preset}: {shown}"
        );
        let answer = cluster.client(0).call(&["ACL", "SETUSER", "u"]).unwrap();
        let is_raised = shown.contains("finalize` raises the level to 18");
        match answer {
            Reply::Status(_) => assert_eq!((level, is_raised), (18, false), "{preset}"),
            Reply::Error(why) if why.contains("finalize") => {
                let says = format!("which has level {level}: ");
                assert!(is_raised && why.contains(&says), "{preset}: {why}; {shown}");
                works(&command("finalize", &data));
            }
            Reply::Error(why) => {
                let protocol = &cluster.deployment.protocol;
                let says = format!(
                    "ERR users need a protocol that can change the level of its clusters, which {protocol} "
                );
                assert!(
                    why.starts_with(&says) && !is_raised,
                    "{preset}: {why}; {shown}"
                );
                let stays = shown.contains("the level stays 17: ");
                assert_eq!(stays, level == 17, "{preset}: {shown}");
            }
            other => panic!("{preset}: {other:?}"),
        }
        cluster.stop(Signal::SIGTERM);
    }
}
