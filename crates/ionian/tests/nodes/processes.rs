//! A typed service of three processes, of which one is killed: what clients saw in what order is
//! that of one counter.
//!
//! A process is this test program once more, in [`one_of_the_processes`]. It answers requests, one
//! a line: `add` with the new value and the receipt, `read` with the value, read by a closure, and
//! `after RECEIPT` likewise.

use crate::common::{Machines, preset};
use ionian::{Client, Context, Machine, ReadLevel, Receipt, Typed, TypedClient};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Long enough for any machine; a test fails by it only if the cluster does not work.
const LIMIT: Duration = Duration::from_secs(120);

/// Which node a process is, and the ports of all.
const NODE: &str = "IONIAN_TEST_NODE";
const PORTS: &str = "IONIAN_TEST_PORTS";

/// Before each answer: the test program writes lines of its own.
const ANSWER: &str = "= ";

const TEST: &str = "processes";

#[derive(Default, Serialize, Deserialize)]
struct Counter(u64);

#[derive(Serialize, Deserialize)]
struct Add;

impl Machine for Counter {
    type Command = Add;
    type Reply = u64;
    type Query = ();
    type Answer = u64;

    fn apply(&mut self, _: &Context, _: Add) -> u64 {
        self.0 += 1;
        self.0
    }
    fn read(&self, _: &Context, (): ()) -> u64 {
        self.0
    }
}

/// Does nothing unless [`Process::start`] has started it. It ends when its input does.
#[test]
fn one_of_the_processes() {
    let (Ok(node), Ok(ports)) = (std::env::var(NODE), std::env::var(PORTS)) else {
        return;
    };
    let ports: Vec<u16> = ports
        .split(',')
        .map(|it| it.parse().expect("a port"))
        .collect();
    let machines = Machines::<Typed<Counter>>::at(TEST, &ports, preset("colocated"));
    let node = machines.start(node.parse().expect("a number"));
    println!("{ANSWER}ready");
    for line in std::io::stdin().lines() {
        let line = line.expect("a request");
        println!("{ANSWER}{}", answer(&line, node.client()));
    }
    node.stop().expect("an orderly stop");
}

fn answer(request: &str, client: Client) -> String {
    let client = TypedClient::<Counter>::new(client);
    let answered = match request.split_once(' ') {
        None if request == "add" => client
            .write_with_receipt_blocking(&Add)
            .map(|(value, receipt)| format!("{value} {}", receipt.position()))
            .map_err(|error| error.to_string()),
        None => client
            .read_with_blocking(ReadLevel::Linearizable, |counter: &Counter| counter.0)
            .map(|value| value.to_string())
            .map_err(|error| error.to_string()),
        Some((_, receipt)) => {
            let receipt = Receipt::at(receipt.parse().expect("a receipt"));
            client
                .read_with_blocking(receipt, |counter: &Counter| counter.0)
                .map(|value| value.to_string())
                .map_err(|error| error.to_string())
        }
    };
    answered.unwrap_or_else(|error| format!("failed {error}"))
}

struct Process {
    child: Child,
    talk: Talk,
}

/// The requests to a process, and its answers.
struct Talk {
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    fn start(machines: &Machines<Typed<Counter>>, node: usize) -> Process {
        let ports: Vec<String> = machines.ports.iter().map(u16::to_string).collect();
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "processes::one_of_the_processes", "--nocapture"])
            .env(NODE, node.to_string())
            .env(PORTS, ports.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let requests = child.stdin.take().expect("its input");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(ANSWER) {
                    // It fails when the test is over.
                    let _ = answer.send(text.to_owned());
                }
            }
        });
        let talk = Talk { requests, answers };
        let process = Process { child, talk };
        assert_eq!(process.talk.answer().as_deref(), Some("ready"));
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Talk {
    /// The next answer; none if the process has ended.
    fn answer(&self) -> Option<String> {
        match self.answers.recv_timeout(LIMIT) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a process does not answer"),
        }
    }

    fn ask(&mut self, request: &str) -> Option<String> {
        writeln!(self.requests, "{request}").ok()?;
        self.answer()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Add,
    Read,
    /// A read after the receipt of an addition with this value.
    After(u64),
}

/// What a client has seen, and when it asked and had the answer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    kind: Kind,
    asked: Instant,
    answered: Instant,
    value: u64,
}

#[derive(Default)]
struct History {
    seen: Mutex<Vec<Seen>>,
    answered: AtomicU64,
    /// How many additions may have been executed without an answer.
    unknown: AtomicU64,
}

impl History {
    /// Asks a process until it has answered so often, or has ended.
    fn ask(&self, talk: &mut Talk, times: u64) {
        let (mut own, mut receipt) = (0, "0".to_owned());
        let (mut done, began) = (0, Instant::now());
        for turn in 0.. {
            if done == times {
                return;
            }
            assert!(began.elapsed() < LIMIT, "no answers");
            let (kind, request) = match turn % 3 {
                0 => (Kind::Add, "add".to_owned()),
                1 => (Kind::Read, "read".to_owned()),
                _ => (Kind::After(own), format!("after {receipt}")),
            };
            let asked = Instant::now();
            let answer = talk.ask(&request);
            let answered = Instant::now();
            let words = answer.iter().flat_map(|it| it.split(' '));
            let words: Vec<&str> = words.collect();
            let value = words.first().and_then(|it| it.parse().ok());
            if let Some(value) = value {
                if kind == Kind::Add {
                    (own, receipt) = (value, words[1].to_owned());
                }
                self.seen.lock().expect("no panic").push(Seen {
                    kind,
                    asked,
                    answered,
                    value,
                });
                self.answered.fetch_add(1, Ordering::Relaxed);
                done += 1;
            } else if kind == Kind::Add {
                self.unknown.fetch_add(1, Ordering::Relaxed);
            }
            if answer.is_none() {
                return;
            }
        }
    }

    /// Waits until there are at least this number of answers.
    fn has(&self, answers: u64) {
        let began = Instant::now();
        while self.answered.load(Ordering::Relaxed) < answers {
            assert!(began.elapsed() < LIMIT, "no answers");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn check(&self) {
        let seen = self.seen.lock().expect("no panic");
        for later in seen.iter() {
            let must = seen.iter().filter(|it| it.answered < later.asked);
            let before = must.map(|it| it.value).max().unwrap_or(0);
            let holds = match later.kind {
                Kind::Add => later.value > before,
                Kind::Read => later.value >= before,
                Kind::After(own) => later.value >= own,
            };
            assert!(holds, "{later:?} came after {before}");
        }
        let added = seen.iter().filter(|it| it.kind == Kind::Add);
        let values: Vec<u64> = added.map(|it| it.value).collect();
        let different: BTreeSet<u64> = values.iter().copied().collect();
        assert_eq!(
            different.len(),
            values.len(),
            "two additions gave one value"
        );
        let count = values.len() as u64;
        let most = count + self.unknown.load(Ordering::Relaxed);
        let highest = seen.iter().map(|it| it.value).max().unwrap_or(0);
        assert!(
            (count..=most).contains(&highest),
            "{highest}: {count} to {most}"
        );
    }
}

#[test]
fn the_history_is_that_of_one_counter_though_a_process_is_killed() {
    let machines = Machines::<Typed<Counter>>::new(TEST, preset("colocated"));
    let mut processes: Vec<Process> = (0..3).map(|at| Process::start(&machines, at)).collect();
    let history = History::default();
    let (first, others) = processes.split_first_mut().expect("three");
    std::thread::scope(|scope| {
        let Process { child, talk } = &mut *first;
        scope.spawn(|| history.ask(talk, u64::MAX));
        for other in &mut *others {
            scope.spawn(|| history.ask(&mut other.talk, 500));
        }
        history.has(300);
        child.kill().expect("it runs");
    });
    first.child.wait().expect("it has ended");
    *first = Process::start(&machines, 0);
    std::thread::scope(|scope| {
        for process in &mut processes {
            scope.spawn(|| history.ask(&mut process.talk, 200));
        }
    });
    history.check();
}
