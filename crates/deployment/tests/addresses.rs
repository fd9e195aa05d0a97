//! Each pair of addresses of two nodes: one host and port has one owner, whatever kind of address
//! it is, however it is written, and whichever command brings it.

use ionian_deployment::{Configuration, Deployment, Node, Placed, PresetOptions};

/// Hosts that are one, as two writers may have them; whether each machine has it for itself.
const ONE: &[(&str, &str, bool)] = &[
    ("host", "HOST", false),
    ("10.0.0.9", "10.0.0.9", false),
    ("[fe80::9]", "[FE80:0:0:0:0:0:0:9]", false),
    ("10.0.0.9", "[::ffff:10.0.0.9]", false),
    ("127.0.0.1", "127.0.0.1", true),
    ("127.0.0.1", "localhost", true),
    ("LocalHost", "localhost", true),
    ("[::1]", "[0:0:0:0:0:0:0:1]", true),
];

/// Hosts of two sockets of one machine with the same port that do not meet.
const TWO: &[(&str, &str)] = &[
    ("host", "other"),
    ("10.0.0.8", "10.0.0.9"),
    ("127.0.0.1", "127.0.0.2"),
    ("[fe80::9]", "[fe80::8]"),
];

const KINDS: [&str; 4] = ["address", "gateway", "listen", "gateway_listen"];

/// A node at this machine with an address of this kind.
fn node(name: &str, (machine, port): (&str, u16), (kind, text): (&str, &str)) -> Node {
    let mut node = Node {
        name: name.to_owned(),
        address: format!("{machine}:{port}"),
        gateway: Some(format!("{machine}:{}", port + 1)),
        roles: vec![Placed::some("replica", 1)],
        ..Node::default()
    };
    match kind {
        "address" => node.address = text.to_owned(),
        "gateway" => node.gateway = Some(text.to_owned()),
        "listen" => node.listen = Some(text.to_owned()),
        _ => node.gateway_listen = Some(text.to_owned()),
    }
    node
}

/// The deployment with both nodes.
fn both(before: &Deployment, one: &Node, other: &Node) -> Deployment {
    let mut both = before.clone();
    both.nodes.extend([one.clone(), other.clone()]);
    both
}

fn before() -> Deployment {
    let mut before = Deployment::preset("baseline", &PresetOptions::default()).unwrap();
    for (place, node) in before.nodes.iter_mut().enumerate() {
        node.address = format!("elsewhere:{}", 100 + place);
        node.gateway = None;
    }
    before
}

/// A cluster that has both nodes already starts, and each change that is of neither is possible.
fn assert_goes_on_with(one: &Node, other: &Node, what: &str) {
    let founded = Configuration::founded(both(&before(), one, other).numbered().unwrap());
    let stored = Configuration::parse(&founded.to_toml());
    let known = stored.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(known.deployment, founded.deployment, "{what}");
    let now = known.deployment;
    let done = now.tuned(&["heartbeat_ms=7"]).map(drop);
    assert_eq!(done, Ok(()), "{what}");
    let done = now.clone().with_overrides(&["options.batch_bytes=7"]);
    assert_eq!(done.map(drop), Ok(()), "{what}");
    let new = node("new", ("free", 300), ("address", "free:300"));
    for to in [
        now.with_node(new.clone()),
        now.with_replaced("b", new),
        now.without_node("b"),
    ] {
        let done = to.and_then(|to| now.check_change(&to));
        assert_eq!(done, Ok(()), "{what}");
    }
}

/// What each way to such a deployment says: in a file, by flags, by `member add`, `replace` and
/// `apply`.
fn ways(one: &Node, other: &Node) -> [(&'static str, Result<(), String>); 5] {
    let both = both(&before(), one, other);
    let mut before = before();
    before.nodes.push(one.clone());
    let file = Deployment::parse(&both.to_toml()).map(drop);
    let mut flags = before.clone();
    let free = ("free", 200);
    flags
        .nodes
        .push(node(&other.name, free, ("address", "free:200")));
    let texts = [
        ("address", Some(&other.address)),
        ("gateway", other.gateway.as_ref()),
        ("listen", other.listen.as_ref()),
        ("gateway_listen", other.gateway_listen.as_ref()),
    ];
    let texts = texts
        .into_iter()
        .filter_map(|(key, text)| Some((key, text?)));
    let set = texts.map(|(key, text)| format!("node.{}.{key}={text}", other.name));
    let flags = flags.with_overrides(&set.collect::<Vec<_>>()).map(drop);
    let change = |to: Result<Deployment, _>| to.and_then(|to| before.check_change(&to));
    let ways = [
        ("file", file),
        ("flags", flags),
        ("add", change(before.with_node(other.clone()))),
        ("replace", change(before.with_replaced("n0", other.clone()))),
        ("apply", change(both.successor_of(&before))),
    ];
    ways.map(|(way, done)| (way, done.map_err(|error| error.to_string())))
}

#[test]
fn one_address_of_two_nodes_is_refused_with_both_keys_in_every_way() {
    let mut cases = 0;
    for (host, written, is_of_each) in ONE {
        let (text, again) = (format!("{host}:90"), format!("{written}:90"));
        for (kind, of_other) in KINDS.iter().flat_map(|it| KINDS.map(|other| (*it, other))) {
            for machines in [(*host, *written), ("m1", "m2")] {
                let one = node("a", (machines.0, 1), (kind, &text));
                let other = node("b", (machines.1, 3), (of_other, &again));
                let machine = |node: &Node| node.address.rsplit_once(':').unwrap().0.to_owned();
                let here = [host, written].map(|it| (*it).to_owned());
                let is_one_machine =
                    here.contains(&machine(&one)) && here.contains(&machine(&other));
                assert_goes_on_with(&one, &other, &format!("{kind} {text}, {of_other} {again}"));
                let listens = [kind, of_other].map(|it| it.ends_with("listen"));
                for (way, done) in ways(&one, &other) {
                    // A file says where a container listens: another may have the same address.
                    let is_change = !matches!(way, "file" | "flags");
                    let is_refused = match listens {
                        [false, false] => is_one_machine || !is_of_each,
                        _ => is_one_machine && is_change,
                    };
                    let what = format!("{way}: {kind} {text}, {of_other} {again}, {machines:?}");
                    match done {
                        Ok(()) => assert!(!is_refused, "{what}"),
                        Err(error) => {
                            assert!(is_refused, "{what}: {error}");
                            let keys = [format!("node.a.{kind}"), format!("node.b.{of_other}")];
                            let named = keys.map(|key| error.contains(&key));
                            assert_eq!(named, [true; 2], "{what}: {error}");
                        }
                    }
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, ONE.len() * 16 * 2 * 5);
}

#[test]
fn addresses_that_do_not_meet_are_accepted_in_every_way() {
    for (host, other) in TWO {
        for (port, next) in [(90, 90), (90, 91)] {
            let hosts = if port == next {
                (*host, *other)
            } else {
                (*host, *host)
            };
            let (text, again) = (format!("{}:{port}", hosts.0), format!("{}:{next}", hosts.1));
            for (kind, of_other) in KINDS.iter().flat_map(|it| KINDS.map(|other| (*it, other))) {
                let one = node("a", (hosts.0, 1), (kind, &text));
                let other = node("b", (hosts.1, 3), (of_other, &again));
                for (way, done) in ways(&one, &other) {
                    assert_eq!(done, Ok(()), "{way}: {kind} {text}, {of_other} {again}");
                }
            }
        }
    }
}
