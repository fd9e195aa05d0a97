//! A service on several machines: named tallies, behind lines of text over TCP.
//!
//! ```text
//! tally NAME --config cluster.toml --data DIR        a node of a new cluster
//! tally NAME --join HOST:PORT      --data DIR        a node that joins a running one
//! ```
//!
//! A client sends lines: `add NAME AMOUNT` answers the new value, `get NAME` the value. Every node
//! serves clients at the `gateway` that the deployment gives it. docs/library.md tells how it is
//! run.

use ionian::{
    Client, Deployment, Footprint, Node, NodeOptions, NotARead, Origin, ReadLevel, RestoreError,
    StateMachine, Timestamp,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

/// The longest line that a client may send.
const MAX_LINE: u64 = 1024;

/// The service: a number for each name.
#[derive(Default)]
struct Tally(BTreeMap<String, i64>);

/// The command in a line.
enum Command<'a> {
    Add(&'a str, i64),
    Get(&'a str),
}

impl<'a> Command<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "error: not a line of text".to_owned())?;
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["add", name, amount] => {
                let amount = amount
                    .parse()
                    .map_err(|_| format!("error: {amount:?} is not a whole number"))?;
                Ok(Command::Add(name, amount))
            }
            ["get", name] => Ok(Command::Get(name)),
            _ => Err("error: unknown command; available: add NAME AMOUNT, get NAME".to_owned()),
        }
    }
}

impl StateMachine for Tally {
    // The bytes may be malformed: the answer to them is an error, not a panic.
    fn apply(&mut self, _now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let answer = match Command::parse(command) {
            Ok(Command::Add(name, amount)) => {
                let value = self.0.entry(name.to_owned()).or_default();
                *value = value.wrapping_add(amount);
                value.to_string()
            }
            Ok(Command::Get(name)) => self.0.get(name).copied().unwrap_or(0).to_string(),
            Err(error) => error,
        };
        reply.extend_from_slice(answer.as_bytes());
    }

    fn read(&self, _now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let Ok(Command::Get(name)) = Command::parse(query) else {
            return Err(NotARead);
        };
        reply.extend_from_slice(
            self.0
                .get(name)
                .copied()
                .unwrap_or(0)
                .to_string()
                .as_bytes(),
        );
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            out.extend_from_slice(format!("{name} {value}\n").as_bytes());
        }
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let wrong = |what: &str| RestoreError(format!("not a snapshot of tallies: {what:?}"));
        let text = std::str::from_utf8(snapshot).map_err(|_| wrong("not a text"))?;
        let mut tallies = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').ok_or_else(|| wrong(line))?;
            tallies.insert(name.to_owned(), value.parse().map_err(|_| wrong(line))?);
        }
        self.0 = tallies;
        Ok(())
    }

    // Additions to different names commute. Mencius uses that.
    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        let hash = |name: &str| {
            name.bytes().fold(0, |hash: u64, byte| {
                hash.wrapping_mul(31).wrapping_add(byte.into())
            })
        };
        match Command::parse(command) {
            Ok(Command::Add(name, _)) => footprint.writes.push(hash(name)),
            Ok(Command::Get(name)) => footprint.reads.push(hash(name)),
            Err(_) => {}
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tally: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, origin, data) = match words[..] {
        [name, "--config", file, "--data", data] => {
            (name, Origin::Founded(Deployment::load(file)?), data)
        }
        [name, "--join", contact, "--data", data] => {
            (name, Origin::Joining(contact.to_owned()), data)
        }
        _ => return Err("usage: tally NAME (--config FILE | --join HOST:PORT) --data DIR".into()),
    };
    let node = Node::start::<Tally>(NodeOptions {
        name: name.to_owned(),
        origin,
        data: data.into(),
        machine: "tally".to_owned(),
        tls: None,
    })?;
    if let Some(address) = node.gateway() {
        let listener = TcpListener::bind(address)
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        println!("ready {name} {address}");
        let client = node.client();
        std::thread::spawn(move || accept(&listener, &client));
    }
    // Killing the program is safe, because acknowledged commands are on disk.
    Ok(node.wait()?)
}

fn accept(listener: &TcpListener, client: &Client) {
    for stream in listener.incoming().flatten() {
        let client = client.clone();
        // One thread per connection is enough for an example. It ends with the connection.
        std::thread::spawn(move || serve(&stream, &client));
    }
}

fn serve(stream: &TcpStream, client: &Client) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            return (&mut &*stream).write_all(b"error: the line is too long\n");
        }
        let answer = match Command::parse(&line) {
            Err(error) => Ok(error.into_bytes().into()),
            Ok(Command::Get(_)) => client.read_blocking(line.clone(), ReadLevel::Linearizable),
            Ok(Command::Add(..)) => client.write_blocking(line.clone()),
        };
        let mut text = match answer {
            Ok(answer) => answer.to_vec(),
            // The text says whether the command may have been executed.
            Err(refusal) => format!("error: {refusal}").into_bytes(),
        };
        text.push(b'\n');
        (&mut &*stream).write_all(&text)?;
    }
}
