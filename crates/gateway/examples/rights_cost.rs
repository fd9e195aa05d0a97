//! What a command pays for its right, counted by callgrind: all that a connection does with SETs
//! that come one by one, from the bytes of the client to its answer, without the cluster. The
//! argument says who sends them:
//!
//! - `unjudged`: a client of a cluster below the level of users, where no right is asked for;
//! - `all-keys`: a user who may use all commands on all keys;
//! - `patterns`: a user with three patterns of keys, of which the last one matches.
//!
//! What another case costs more than `unjudged`, divided by the number of commands that is printed,
//! is what the right costs.
//!
//! ```sh
//! cargo build --release -p ionian-gateway --example rights_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*counted*' \
//!     target/release/examples/rights_cost all-keys
//! ```

use bytes::Bytes;
use ionian_gateway::{Connection, Host, Limits};
use ionian_kernel::client::{Operation, Refusal};
use ionian_kernel::level::Level;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Timestamp;
use ionian_machines::kv::Kv;
use std::process::ExitCode;

const COMMANDS: usize = 10_000;

/// Each case: the level of the cluster, and the rules of the user.
const CASES: [(&str, Level, &str); 3] = [
    ("unjudged", Level(17), ""),
    ("all-keys", Level(18), "~* +@all"),
    ("patterns", Level(18), "~a:* ~b:* ~key:* +@all"),
];

/// Counted with all that it calls.
#[inline(never)]
fn counted_command(connection: &mut Connection, input: Bytes) {
    connection.receive(input);
}

/// Counted with all that it calls.
#[inline(never)]
fn counted_answer(connection: &mut Connection, answer: Result<Bytes, Refusal>) {
    connection.on_reply(None, answer);
    connection.advance();
}

fn execute(machine: &mut Kv, (operation, payload): (Operation, Bytes)) -> Result<Bytes, Refusal> {
    let (mut reply, now) = (Vec::new(), Timestamp(1));
    match operation {
        Operation::Read(_) => {
            let read = machine.read(now, &payload, &mut reply);
            read.map_err(|_| Refusal::NotARead)?;
        }
        _ => machine.apply(now, &payload, &mut reply),
    }
    Ok(reply.into())
}

/// Sends one command, and answers it.
fn ask(connection: &mut Connection, machine: &mut Kv, command: &'static str) {
    counted_command(connection, Bytes::from_static(command.as_bytes()));
    while let Some(request) = connection.take_request() {
        counted_answer(connection, execute(machine, request));
    }
    let answer = connection.output();
    assert!(answer.ends_with(b"+OK\r\n"), "{}", answer.escape_ascii());
    let sent = answer.len();
    connection.on_sent(sent);
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let Some((_, level, rules)) = CASES.iter().find(|(name, ..)| *name == case) else {
        eprintln!(
            "usage: rights_cost {}",
            CASES.map(|(name, ..)| name).join(" | ")
        );
        return ExitCode::from(2);
    };
    let host = Host::new(Limits::default(), Box::new(|_| {}));
    host.set_level(*level);
    let mut connection = Connection::new(&host, "1.2.3.4:5".into(), "6.7.8.9:10".into());
    let mut machine = Kv::default();
    // What is counted of commands depends a little on which ones there were before.
    let before = match rules.is_empty() {
        true => "ACL WHOAMI\r\nAUTH default any\r\n".to_owned(),
        false => format!("ACL SETUSER u on >password {rules}\r\nAUTH u password\r\n"),
    };
    ask(&mut connection, &mut machine, before.leak());
    const SET: &str = "*3\r\n$3\r\nSET\r\n$7\r\nkey:abc\r\n$16\r\n0123456789abcdef\r\n";
    (0..COMMANDS).for_each(|_| ask(&mut connection, &mut machine, SET));
    println!("{COMMANDS}");
    ExitCode::SUCCESS
}
