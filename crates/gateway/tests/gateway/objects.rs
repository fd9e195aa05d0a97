//! OBJECT and MEMORY: some subcommands are answered by the gateway, the others by the machine.

use crate::common::{Client, Cluster, READ, host};
use ionian_gateway::{Host, Limits};
use ionian_kernel::level::Level;
use std::rc::Rc;

fn gateway(level: u16) -> Rc<Host> {
    let host = host(Limits::default());
    host.set_level(Level(level));
    host
}

#[test]
fn what_is_known_of_a_key_is_read_from_the_machine() {
    let (mut client, mut cluster) = (Client::new(&gateway(18)), Cluster::default());
    client.ask(&mut cluster, "SET k 17\nXADD s 0-* f v");
    client.operations.clear();
    for (line, expected) in [
        ("OBJECT ENCODING k", "$3\nint\n"),
        ("object encoding s", "$6\nstream\n"),
        ("OBJECT REFCOUNT k", ":1\n"),
        ("OBJECT ENCODING none", "$-1\n"),
        ("MEMORY USAGE none", "$-1\n"),
        ("MEMORY USAGE k", ":99\n"),
        ("memory usage k samples 0", ":99\n"),
        (
            "OBJECT IDLETIME k",
            "-ERR idle time not tracked: reads of keys are not recorded\n",
        ),
    ] {
        assert_eq!(client.ask(&mut cluster, line), expected, "{line}");
    }
    assert!(client.operations.iter().all(|operation| *operation == READ));
    assert!(client.operations.len() >= 8);
    let transaction = "MULTI\nOBJECT ENCODING k\nMEMORY HELP\nMEMORY USAGE k x\nEXEC";
    let replies = client.ask(&mut cluster, transaction);
    let queued = "+OK\n+QUEUED\n+QUEUED\n+QUEUED\n*3\n$3\nint\n*4\n+MEMORY";
    assert!(
        replies.starts_with(queued) && replies.ends_with("-ERR syntax error\n"),
        "{replies}"
    );
    client.ask(&mut cluster, "HELLO 3");
    assert_eq!(client.ask(&mut cluster, "OBJECT ENCODING none"), "_\n");
    let info = client.ask(&mut cluster, "INFO commandstats");
    assert!(info.contains("cmdstat_object|encoding:calls=4,"), "{info}");
}

#[test]
fn the_gateway_knows_the_other_subcommands() {
    let (mut client, mut cluster) = (Client::new(&gateway(18)), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    assert!(ask("OBJECT HELP").starts_with("*5\n+OBJECT <subcommand>"));
    assert!(ask("MEMORY HELP").starts_with("*4\n+MEMORY <subcommand>"));
    for (line, expected) in [
        ("OBJECT", "wrong number of arguments for 'object' command"),
        (
            "OBJECT HELP x",
            "wrong number of arguments for 'object|help' command",
        ),
        (
            "OBJECT ENCODING",
            "wrong number of arguments for 'object|encoding' command",
        ),
        (
            "MEMORY USAGE",
            "wrong number of arguments for 'memory|usage' command",
        ),
        (
            "MEMORY DOCTOR x",
            "wrong number of arguments for 'memory|doctor' command",
        ),
        ("OBJECT foo", "unknown subcommand 'foo'. Try OBJECT HELP."),
        ("OBJECT foo k", "unknown subcommand 'foo'. Try OBJECT HELP."),
        (
            "object|encoding k",
            "unknown command 'object|encoding', with args beginning with: 'k' ",
        ),
    ] {
        assert_eq!(ask(line), format!("-ERR {expected}\n"));
    }
    assert_eq!(
        ask("COMMAND GETKEYS object encoding k"),
        "*1\n$1\nk\n",
        "of the subcommand"
    );
    assert!(ask("COMMAND GETKEYS object help").starts_with("-ERR The command has no key"));
    assert!(ask("COMMAND INFO object|freq").starts_with("*1\n*10\n$11\nobject|freq\n:3\n"));
    let count = ask("COMMAND COUNT").replace(':', "*");
    assert!(ask("COMMAND").starts_with(&count));
    // As in Redis, the list alone has subcommands too.
    let all = ask("COMMAND LIST");
    let is_command = |line: &&str| !line.starts_with(['*', '$']) && !line.contains('|');
    let commands = all.lines().filter(is_command).count();
    assert_eq!(format!("*{commands}\n"), count);
    assert!(all.contains("\nobject\n") && all.contains("\nobject|freq\n"));
    assert!(ask("ACL DRYRUN default object|encoding k").starts_with("-ERR Command"));
}

#[test]
fn the_doctor_says_whether_commands_are_refused() {
    let (mut client, mut cluster) = (Client::new(&gateway(18)), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    let unlimited = ask("MEMORY DOCTOR");
    assert!(unlimited.contains("There is no limit"), "{unlimited}");
    ask("CONFIG SET maxmemory 1gb");
    let fine = ask("MEMORY DOCTOR");
    assert!(fine.contains("No problem found"), "{fine}");
}

/// A replica of the former release cannot read these commands.
#[test]
fn below_its_level_a_cluster_gets_none_of_these_commands() {
    let (mut client, mut cluster) = (Client::new(&gateway(17)), Cluster::default());
    for line in [
        "OBJECT ENCODING k",
        "OBJECT REFCOUNT k",
        "OBJECT IDLETIME k",
        "OBJECT FREQ k",
        "MEMORY USAGE k",
    ] {
        let name = line.strip_suffix(" k").expect("a key");
        let refused = format!(
            "-ERR {name} needs level 18 of the cluster, which has level 17: raise it with \
             'ionian upgrade finalize'\n"
        );
        assert_eq!(client.ask(&mut cluster, line), refused);
        let transaction = client.ask(&mut cluster, &format!("MULTI\n{line}\nEXEC"));
        let aborted = "-EXECABORT Transaction discarded because of previous errors.\n";
        assert_eq!(transaction, format!("+OK\n{refused}{aborted}"));
    }
    assert_eq!(client.operations, [], "nothing was sent to the cluster");
    // In a pipeline it has its place.
    let pipeline = client.ask(&mut cluster, "SET k 1\nOBJECT FREQ k\nGET k");
    assert!(
        pipeline.starts_with("+OK\n-ERR OBJECT FREQ needs level 18")
            && pipeline.ends_with("\n$1\n1\n"),
        "{pipeline}"
    );
    assert!(
        client
            .ask(&mut cluster, "OBJECT HELP")
            .starts_with("*5\n+OBJECT")
    );
}
