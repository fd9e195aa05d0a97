//! Streams of real processes: producers and subscribers at all gateways while nodes are killed.

use crate::cluster::{Cluster, eventually};
use crate::resp::{Client, Reply};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A client that goes to another gateway when its own is gone.
struct Roamer {
    ports: Vec<u16>,
    at: usize,
    client: Option<Client>,
}

impl Roamer {
    fn new(ports: &[u16], at: usize) -> Roamer {
        Roamer {
            ports: ports.to_vec(),
            at,
            client: None,
        }
    }

    /// The reply; none if the connection broke, so that no reply will come.
    fn call(&mut self, words: &[&str]) -> Option<Reply> {
        let client = self.client.take();
        let mut client = client.unwrap_or_else(|| {
            eventually("a gateway takes clients", || {
                self.at += 1;
                Client::try_connect(self.ports[self.at % self.ports.len()]).ok()
            })
        });
        let reply = client.call(words).ok()?;
        self.client = Some(client);
        Some(reply)
    }
}

/// Appends `NAME.0`, `NAME.1`, ... until it is stopped; returns the position of each entry that was
/// acknowledged.
fn produce(
    mut client: Roamer,
    name: usize,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
) -> BTreeMap<String, String> {
    let mut acknowledged = BTreeMap::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let value = format!("{name}.{number}");
        match client.call(&["XADD", "log", "0-*", "e", &value]) {
            Some(Reply::Bulk(Some(id))) => {
                acknowledged.insert(value, id);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Some(Reply::Error(error)) => assert!(error.starts_with("TRYAGAIN"), "{error}"),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    acknowledged
}

/// The parts of an array.
fn array(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(parts) => parts,
        other => panic!("not an array: {other:?}"),
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(Some(text)) => text.clone(),
        other => panic!("not a string: {other:?}"),
    }
}

/// Subscribes from the beginning, until it has read the entry `end`; returns IDs and values.
fn subscribe(mut client: Roamer) -> Vec<(String, String)> {
    let (mut seen, mut last) = (Vec::<(String, String)>::new(), "0-0".to_owned());
    let words = |last: &str| {
        let words = "XREAD COUNT 100 BLOCK 1000 STREAMS log".split(' ');
        words
            .map(str::to_owned)
            .chain([last.to_owned()])
            .collect::<Vec<_>>()
    };
    loop {
        let words = words(&last);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let streams = match client.call(&words) {
            None | Some(Reply::Bulk(None)) => continue,
            Some(Reply::Error(error)) => {
                assert!(error.starts_with("TRYAGAIN"), "{error}");
                continue;
            }
            Some(reply) => array(reply),
        };
        for entry in array(array(streams[0].clone())[1].clone()) {
            let entry = array(entry);
            let value = text(&array(entry[1].clone())[1]);
            last = text(&entry[0]);
            seen.push((last.clone(), value));
            // It may be there once more, if its first append was not answered.
            if seen.last().is_some_and(|(_, value)| value == "end") {
                return seen;
            }
        }
    }
}

fn subscribers_agree(preset: &str, victims: &[&str]) {
    let cluster = Cluster::start(preset, &[], &[]);
    let ports = cluster.gateways();
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let producers: Vec<JoinHandle<_>> = (0..3)
        .map(|name| {
            let (client, stop, count) = (Roamer::new(&ports, name), stop.clone(), count.clone());
            std::thread::spawn(move || produce(client, name, stop, count))
        })
        .collect();
    let subscribers = [0, 1].map(|at| {
        let client = Roamer::new(&ports, at);
        std::thread::spawn(move || subscribe(client))
    });
    let go_on = || {
        let goal = count.load(Ordering::Relaxed) + 60;
        eventually("entries are appended", || {
            (count.load(Ordering::Relaxed) >= goal).then_some(())
        });
    };
    for victim in victims {
        let nodes = &cluster.deployment.nodes;
        let place = nodes.iter().position(|node| node.name == *victim);
        let place = place.expect("there is such a node");
        let before = cluster.pid(place);
        go_on();
        cluster.signal(place, Signal::SIGKILL);
        go_on();
        eventually("the node restarts", || {
            cluster.pid(place).filter(|pid| Some(*pid) != before)
        });
    }
    go_on();
    stop.store(true, Ordering::Relaxed);
    let acknowledged = producers
        .into_iter()
        .map(|it| it.join().expect("no surprise"));
    let acknowledged: Vec<_> = acknowledged.flatten().collect();
    let mut last = Roamer::new(&ports, 0);
    eventually("the end is appended", || {
        match last.call(&["XADD", "log", "0-*", "e", "end"]) {
            Some(Reply::Bulk(Some(_))) => Some(()),
            _ => None,
        }
    });
    let [one, other] = subscribers.map(|it| it.join().expect("no surprise"));
    assert_eq!(one, other, "{preset}");
    let dense = (1..=one.len()).map(|number| format!("0-{number}"));
    assert!(one.iter().map(|(id, _)| id.clone()).eq(dense), "{preset}");
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, value) in &one {
        places.entry(value).or_default().push(id);
    }
    assert!(
        places.values().all(|ids| ids.len() == 1),
        "{preset}: an entry is there twice"
    );
    for (value, id) in &acknowledged {
        assert_eq!(
            places.get(&value[..]),
            Some(&vec![&id[..]]),
            "{preset}: {value}"
        );
    }
}

#[test]
fn subscribers_see_each_acknowledged_append_once_while_nodes_are_killed() {
    subscribers_agree("colocated", &["n0", "n1", "n2"]);
}

#[test]
fn subscribers_of_scalog_see_each_acknowledged_append_once_while_nodes_are_killed() {
    subscribers_agree(
        "scalog",
        &["server-0", "replica-0", "gateway-0", "leader-0"],
    );
}

/// Not only when the gateway asks again for a client that has waited long.
#[test]
fn a_subscriber_is_woken_by_an_append_at_another_gateway() {
    let cluster = Cluster::start("colocated", &["durability=memory"], &[]);
    let (mut writer, mut watcher) = (cluster.client(1), cluster.client(0));
    let mut last = "$".to_owned();
    eventually("a subscriber is woken", || {
        let mut reader = cluster.client(0);
        let after = last.clone();
        let reader = std::thread::spawn(move || {
            reader.call(&["XREAD", "BLOCK", "0", "STREAMS", "log", &after])
        });
        eventually("it waits", || {
            let info = text(&watcher.call(&["INFO", "clients"]).ok()?);
            info.contains("blocked_clients:1").then_some(())
        });
        last = text(&writer.call(&["XADD", "log", "0-*", "e", "v"]).ok()?);
        reader.join().expect("no surprise").expect("a reply");
        let info = text(&watcher.call(&["INFO", "stats"]).ok()?);
        (!info.contains("woken_clients:0")).then_some(())
    });
}
