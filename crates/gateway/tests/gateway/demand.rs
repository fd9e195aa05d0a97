//! Hostile compounds of many clients: how much work the gateway has in flight.

use crate::common::{Client, Cluster, host};
use crate::socket::{connect, execute, expect, run};
use bytes::Bytes;
use ionian_gateway::Limits;
use ionian_kernel::client::{Operation, Reply, Request};
use ionian_kernel::id::Slot;
use ionian_kernel::level::Level;
use ionian_kernel::random::Random;
use ionian_machines::kv::{Command, Compound, Demand};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What an adversary would repeat, beside a write.
const HOSTILE: [&str; 10] = [
    "KEYS zzz*",
    "SCAN 0 MATCH *aaaaaaaaaaaaaaab* COUNT 1000",
    "RANDOMKEY",
    "RENAME a b",
    "COPY b a REPLACE",
    "SETRANGE c 67108863 v",
    "XRANGE s - +",
    "XREAD STREAMS s 0",
    "XREVRANGE s + -",
    "FLUSHALL",
];

const CLIENTS: usize = 20;
const ROUNDS: usize = 5;

/// A transaction of a write and some of these, as a client sends it, and what it demands.
fn transaction(random: &mut Random) -> (String, Bytes, Demand) {
    let count = 1 + random.below(90);
    let hostile = (0..count).map(|_| HOSTILE[random.below(HOSTILE.len() as u64) as usize]);
    let lines: Vec<&str> = ["SET a b"].into_iter().chain(hostile).collect();
    let parse = |line: &&str| {
        let words = line
            .split(' ')
            .map(|it| Bytes::copy_from_slice(it.as_bytes()));
        Command::parse(&words.collect::<Vec<_>>()).expect("a command")
    };
    let compound = Compound::Transaction {
        watched: Vec::new(),
        commands: lines.iter().map(parse).collect(),
    };
    let sent = format!("MULTI\r\n{}\r\nEXEC\r\n", lines.join("\r\n"));
    (sent, compound.encode().into(), compound.demand())
}

/// Reads the replies to a transaction of this number of commands.
fn expect_replies(stream: &mut TcpStream, queued: usize) {
    let replies = format!("+OK\r\n{}*-1\r\n", "+QUEUED\r\n".repeat(queued));
    expect(stream, replies.as_bytes());
}

/// The node answers hostile compounds only when plain ones have been served, one at a time.
#[test]
fn hostile_compounds_of_many_clients_wait_for_each_other_and_plain_ones_for_none() {
    let mut random = Random::new(3);
    let draw = |_| -> Vec<_> { (0..ROUNDS).map(|_| transaction(&mut random)).collect() };
    let all: Vec<Vec<_>> = (0..CLIENTS).map(draw).collect();
    let sent = all.iter().flatten();
    let demands: HashMap<Bytes, u64> = sent.map(|it| (it.1.clone(), it.2.work)).collect();
    let most = Arc::new(Mutex::new(0));
    let seen = most.clone();
    let (mut held, mut plain) = (Vec::<Request>::new(), 0);
    let node = Box::new(move |cluster: &mut Cluster, requests: Vec<Request>| {
        let (hostile, others): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|it| demands.contains_key(&it.payload));
        held.extend(hostile);
        let work: u64 = held.iter().map(|it| demands[&it.payload]).sum();
        let mut most = seen.lock().expect("no panic");
        *most = work.max(*most);
        plain += others.len();
        let mut replies: Vec<Reply> = others.iter().map(|it| execute(cluster, it)).collect();
        if plain >= 3 && !held.is_empty() {
            plain = 0;
            replies.push(Reply {
                token: held.remove(0).token,
                command: None,
                seen: Slot::ZERO,
                outcome: Ok(Bytes::from_static(b"*-1\r\n")),
            });
        }
        replies
    });
    run(Limits::default(), node, move |address| {
        let left = Arc::new(AtomicUsize::new(CLIENTS));
        for rounds in all {
            let left = left.clone();
            std::thread::spawn(move || {
                let mut stream = connect(address);
                for (sent, ..) in rounds {
                    stream.write_all(sent.as_bytes()).expect("it is accepted");
                    expect_replies(&mut stream, sent.matches("\r\n").count() - 2);
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut plain = connect(address);
        while left.load(Ordering::Relaxed) > 0 {
            plain.write_all(b"SET k v\r\nGET k\r\n").unwrap();
            expect(&mut plain, b"+OK\r\n$1\r\nv\r\n");
        }
    });
    let most = *most.lock().expect("no panic");
    assert!(most <= 2 * Demand::MOST_WORK, "{most}");
    assert!(most > Demand::MOST_WORK, "{most}: more than one at a time");
}

#[test]
fn a_compound_that_waits_too_long_was_not_executed_and_the_client_goes_on() {
    let limits = Limits {
        deadline: Duration::from_millis(200),
        ..Limits::default()
    };
    let node = Box::new(|cluster: &mut Cluster, requests: Vec<Request>| {
        let plain = requests.iter().filter(|it| it.payload.len() < 30);
        plain.map(|it| execute(cluster, it)).collect()
    });
    run(limits, node, |address| {
        let hostile = "MULTI\r\nSET a b\r\nKEYS zzzzzzzzzzzzzzzzzzzzzzzzzzzzz*\r\nEXEC\r\n";
        let mut clients: Vec<_> = (0..3).map(|_| connect(address)).collect();
        for client in &mut clients {
            client.write_all(hostile.as_bytes()).unwrap();
            expect(client, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
        }
        let answers = clients.iter_mut().map(|client| {
            let mut answer = vec![0; 200];
            let length = client.read(&mut answer).expect("an error");
            String::from_utf8_lossy(&answer[..length]).into_owned()
        });
        let answers: Vec<_> = answers.collect();
        let waited = answers.iter().filter(|it| it.contains("was not executed"));
        assert_eq!(waited.count(), 1, "{answers:?}");
        for client in &mut clients {
            client.write_all(b"GET k\r\n").unwrap();
            expect(client, b"$-1\r\n");
        }
    });
}

#[test]
fn a_compound_that_is_judged_again_demands_what_it_did() {
    let host = host(Limits::default());
    host.set_level(Level(18));
    let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
    assert_eq!(client.ask(&mut cluster, "ACL SETUSER u on"), "+OK\n");
    client.send("MULTI\r\nSET a b\r\nKEYS zzz*\r\nEXEC\r\n");
    while client.connection.demand().work == 0 {
        assert!(client.step(&mut cluster), "it asks for the users");
    }
    let change = Compound::SetUser {
        name: "other".into(),
        rules: vec!["on".into()],
    };
    let changed = cluster.execute(Operation::Write, &change.encode_at(1));
    changed.expect("it is executed");
    let mut demands = Vec::new();
    while client.request.is_some() {
        demands.push(client.connection.demand().work);
        client.step(&mut cluster);
    }
    // The question for the users demands nothing.
    assert_eq!(demands, [Demand::MOST_WORK, 0, Demand::MOST_WORK]);
}

#[test]
fn what_reads_or_writes_its_own_keys_demands_little() {
    let demand = |line: &str| {
        let words = line
            .split(' ')
            .map(|it| Bytes::copy_from_slice(it.as_bytes()));
        let command = Command::parse(&words.collect::<Vec<_>>()).expect("a command");
        Compound::Pipeline(vec![command]).demand().work
    };
    for line in [
        "GET k",
        "SET k v",
        "APPEND k v",
        "SETRANGE k 100 v",
        "XADD s * f v",
        "XADD s MAXLEN 1000 * f v",
        "XRANGE s - +",
        "XREAD STREAMS s 0",
        "DBSIZE",
    ] {
        assert!(demand(line) < 10, "{line}");
    }
}
