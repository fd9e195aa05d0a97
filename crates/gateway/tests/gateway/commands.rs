//! What the gateway answers itself, in both protocols.

use crate::common::{Client, Cluster, client, host};
use bytes::Bytes;
use ionian_gateway::Limits;
use ionian_kernel::client::Refusal;

/// Every command of `lines` gets the reply below it.
fn check(pairs: &[(&str, &str)]) {
    let (mut client, mut cluster) = (client(), Cluster::default());
    for (line, reply) in pairs {
        assert_eq!(client.ask(&mut cluster, line), *reply, "{line}");
    }
}

#[test]
fn simple_ones() {
    check(&[
        ("PING", "+PONG\n"),
        ("ping x", "$1\nx\n"),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command\n",
        ),
        ("ECHO x", "$1\nx\n"),
        (
            "ECHO",
            "-ERR wrong number of arguments for 'echo' command\n",
        ),
        ("SELECT 0", "+OK\n"),
        ("SELECT 1", "-ERR DB index is out of range\n"),
        ("SELECT a", "-ERR value is not an integer or out of range\n"),
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?\n",
        ),
        ("AUTH default x", "+OK\n"),
        (
            "AUTH another x",
            "-WRONGPASS invalid username-password pair or user is disabled.\n",
        ),
        (
            "HELLO 3 AUTH another x",
            "-WRONGPASS invalid username-password pair or user is disabled.\n",
        ),
        ("AUTH a b c", "-ERR syntax error\n"),
        ("ROLE", "*3\n$6\nmaster\n:0\n*0\n"),
        ("READONLY\nREADWRITE\nASKING", "+OK\n+OK\n+OK\n"),
        ("IONIAN CHECK", "+OK\n"),
        (
            "IONIAN CHECK now",
            "-ERR wrong number of arguments for 'ionian|check' command\n",
        ),
        (
            "TIME a",
            "-ERR wrong number of arguments for 'time' command\n",
        ),
        ("WAIT 1 10", ":1\n"),
        ("WAIT a 1", "-ERR value is not an integer or out of range\n"),
        (
            "WAIT 1 a",
            "-ERR timeout is not an integer or out of range\n",
        ),
        ("WAIT 1 -1", "-ERR timeout is negative\n"),
        (
            "SUBSCRIBE a",
            "-ERR unknown command 'SUBSCRIBE', with args beginning with: 'a' \n",
        ),
        (
            "DEBUG SLEEP 1",
            "-ERR unknown command 'DEBUG', with args beginning with: 'SLEEP' '1' \n",
        ),
        (
            "IONIAN",
            "-ERR wrong number of arguments for 'ionian' command\n",
        ),
        (
            "IONIAN x",
            "-ERR unknown subcommand 'x'. Try IONIAN HELP.\n",
        ),
        ("IONIAN CONSISTENCY", "$12\nlinearizable\n"),
        (
            "IONIAN CONSISTENCY strong",
            "-ERR the consistency level must be linearizable, sequential or eventual\n",
        ),
        (
            "ionian consistency Eventual\nionian consistency",
            "+OK\n$8\neventual\n",
        ),
    ]);
    let (mut client, mut cluster) = (client(), Cluster::default());
    assert!(client.ask(&mut cluster, "TIME").starts_with("*2\n$10\n"));
    assert!(
        client
            .ask(&mut cluster, "IONIAN HELP")
            .starts_with("*7\n+IONIAN <sub")
    );
}

#[test]
fn client_commands() {
    check(&[
        (
            "CLIENT",
            "-ERR wrong number of arguments for 'client' command\n",
        ),
        (
            "CLIENT FOO",
            "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\n",
        ),
        ("CLIENT ID", ":1\n"),
        (
            "CLIENT ID x",
            "-ERR wrong number of arguments for 'client|id' command\n",
        ),
        ("CLIENT GETNAME", "$-1\n"),
        (
            "CLIENT SETNAME 'a b'",
            "-ERR Client names cannot contain spaces, newlines or special characters.\n",
        ),
        (
            "CLIENT SETNAME",
            "-ERR wrong number of arguments for 'client|setname' command\n",
        ),
        ("CLIENT SETNAME me\nCLIENT GETNAME", "+OK\n$2\nme\n"),
        ("CLIENT SETNAME ''\nCLIENT GETNAME", "+OK\n$-1\n"),
        (
            "CLIENT SETINFO LIB-NAME lib\nCLIENT SETINFO lib-ver 1.0",
            "+OK\n+OK\n",
        ),
        ("CLIENT SETINFO x y", "-ERR Unrecognized option 'x'\n"),
        (
            "CLIENT SETINFO LIB-VER 'a b'",
            "-ERR lib-ver cannot contain spaces, newlines or special characters.\n",
        ),
        ("CLIENT NO-EVICT off", "+OK\n"),
        (
            "CLIENT NO-EVICT on",
            "-ERR CLIENT NO-EVICT ON is not supported: the gateway must be able to close any client\n",
        ),
        ("CLIENT NO-TOUCH x", "-ERR syntax error\n"),
        ("CLIENT REPLY on", "+OK\n"),
        (
            "CLIENT REPLY off",
            "-ERR CLIENT REPLY OFF and SKIP are not supported\n",
        ),
        ("CLIENT TRACKING off", "+OK\n"),
        (
            "CLIENT TRACKING on",
            "-ERR CLIENT TRACKING ON is supported for RESP3 only, begin with HELLO 3\n",
        ),
        (
            "CLIENT TRACKING on BCAST",
            "-ERR CLIENT TRACKING with BCAST, PREFIX or REDIRECT is not supported\n",
        ),
        (
            "CLIENT TRACKING on OPTIN optout",
            "-ERR You can't use both OPTIN and OPTOUT\n",
        ),
        ("CLIENT GETREDIR", ":-1\n"),
        ("CLIENT LIST ID a", "-ERR Invalid client ID\n"),
        ("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'\n"),
        ("CLIENT LIST TYPE pubsub", "$0\n\n"),
        ("CLIENT LIST ID 7", "$0\n\n"),
        ("CLIENT LIST x", "-ERR syntax error\n"),
    ]);
}

/// The texts of errors are those of Redis 7.0.15 (`clientKillCommand` in its networking.c).
#[test]
fn clients_are_killed_by_what_is_said_of_them() {
    let (host, mut cluster) = (host(Limits::default()), Cluster::default());
    let mut me = Client::new(&host);
    for (words, reply) in [
        (
            "",
            "-ERR wrong number of arguments for 'client|kill' command\n",
        ),
        (" 1.2.3.4:6", "-ERR No such client\n"),
        (" ID 0", "-ERR client-id should be greater than 0\n"),
        (" ID x", "-ERR client-id should be greater than 0\n"),
        (" ID 1 TYPE", "-ERR syntax error\n"),
        (" TYPE foo", "-ERR Unknown client type 'foo'\n"),
        (" USER foo", "-ERR No such user 'foo'\n"),
        (" SKIPME maybe", "-ERR syntax error\n"),
        (" FOO 1", "-ERR syntax error\n"),
        (" ID 99", ":0\n"),
        (" ID 1", ":0\n"),
        (" TYPE pubsub", ":0\n"),
        (" ADDR 1.2.3.4:5", ":0\n"),
    ] {
        let line = format!("CLIENT KILL{words}");
        assert_eq!(me.ask(&mut cluster, &line), reply, "{line}");
    }
    for (words, dies) in [
        ("ID 2", true),
        ("USER default", true),
        ("LADDR 6.7.8.9:10 TYPE normal", true),
        ("ADDR 1.2.3.4:5 SKIPME yes", true),
        ("ID 1 ADDR 1.2.3.4:5", false),
        ("ADDR 1.2.3.4:5 LADDR 6.7.8.9:11", false),
    ] {
        let mut other = Client::new(&host);
        let id = other.ask(&mut cluster, "CLIENT ID");
        let words = words.replace("ID 2", &format!("ID {}", id[1..].trim()));
        // Its command may be executed: it is under way.
        other.send("INCR n\r\n");
        let reply = me.ask(&mut cluster, &format!("CLIENT KILL {words}"));
        assert_eq!(reply, format!(":{}\n", u8::from(dies)), "{words}");
        other.connection.advance();
        assert_eq!(other.connection.is_closed(), dies, "{words}");
        assert!(!me.connection.is_closed(), "{words}");
    }
}

#[test]
fn a_client_that_kills_itself_gets_the_reply_and_nothing_behind_it() {
    for (lines, replies) in [
        ("CLIENT KILL 1.2.3.4:5\nINCR n", "+OK\n"),
        ("INCR n\nCLIENT KILL ID 1 SKIPME no\nINCR n", ":1\n:1\n"),
        (
            "MULTI\nINCR n\nCLIENT KILL ID 1 SKIPME no\nEXEC\nINCR n",
            "+OK\n+QUEUED\n+QUEUED\n*2\n:1\n:1\n",
        ),
    ] {
        let (mut me, mut cluster) = (client(), Cluster::default());
        assert_eq!(me.ask(&mut cluster, lines), replies);
        assert!(me.connection.is_closed(), "{lines}");
    }
}

#[test]
fn client_list_shows_who_is_there() {
    let host = host(Limits::default());
    let mut cluster = Cluster::default();
    let (mut a, b) = (Client::new(&host), Client::new(&host));
    a.ask(
        &mut cluster,
        "CLIENT SETNAME me\nIONIAN CONSISTENCY eventual\nWATCH k l",
    );
    let list = a.ask(&mut cluster, "CLIENT LIST");
    assert!(
        list.contains("id=1 addr=1.2.3.4:5 laddr=6.7.8.9:10 name=me age=0"),
        "{list}"
    );
    assert!(
        list.contains(" watch=2 ") && list.contains("consistency=eventual\nid=2 "),
        "{list}"
    );
    drop(b);
    assert!(!a.ask(&mut cluster, "CLIENT LIST").contains("id=2"));
    assert!(
        a.ask(&mut cluster, "MULTI\nGET a\nCLIENT INFO\nEXEC")
            .contains("id=1 ")
    );
    assert!(a.ask(&mut cluster, "CLIENT LIST ID 1 5").contains("id=1 "));
}

#[test]
fn hello() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    let tail = "$2\nid\n:1\n$4\nmode\n$10\nstandalone\n$4\nrole\n$6\nmaster\n$7\nmodules\n*0\n";
    let head = "$6\nserver\n$5\nredis\n$7\nversion\n$6\n7.0.15\n$5\nproto\n";
    assert_eq!(ask("HELLO"), format!("*14\n{head}:2\n{tail}"));
    assert_eq!(ask("HELLO 4"), "-NOPROTO unsupported protocol version\n");
    assert_eq!(
        ask("HELLO a"),
        "-ERR Protocol version is not an integer or out of range\n"
    );
    assert_eq!(
        ask("HELLO 3 foo"),
        "-ERR Syntax error in HELLO option 'foo'\n"
    );
    assert!(ask("HELLO 3 AUTH a b").starts_with("-WRONGPASS"));
    assert!(ask("HELLO 2 AUTH default b").starts_with("*14\n"));
    assert_eq!(
        ask("HELLO 3 SETNAME 'a b'"),
        "-ERR Client names cannot contain spaces, newlines or special characters.\n"
    );
    // What failed has changed nothing.
    assert_eq!(ask("CLIENT GETNAME"), "$-1\n");
    assert_eq!(
        ask("HELLO 3 SETNAME me\nCLIENT GETNAME"),
        format!("%7\n{head}:3\n{tail}$2\nme\n")
    );
    assert_eq!(ask("RESET\nCLIENT GETNAME"), "+RESET\n$-1\n");
    assert_eq!(ask("HELLO 3\nCLIENT GETNAME").lines().last(), Some("_"));
    assert!(ask("INFO replication").starts_with("=53\ntxt:# Replication\nrole:master\n"));
    assert_eq!(ask("CONFIG GET save"), "%1\n$4\nsave\n$0\n\n");
}

#[test]
fn info_and_config() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    let all = ask("INFO");
    for part in [
        "# Server\nredis_version:7.0.15\n",
        "\n\n# Clients\nconnected_clients:1\nmaxclients:10000\n",
        "loading:0\n",
        "\n\n# Stats\n",
        "\n\n# Replication\nrole:master\nprotocol:multipaxos\n",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert_eq!(ask("INFO everything").lines().count(), all.lines().count());
    assert_eq!(
        ask("INFO replication"),
        "$49\n# Replication\nrole:master\nprotocol:multipaxos\n\n"
    );
    assert_eq!(ask("INFO nothing"), "$0\n\n");
    assert_eq!(ask("CONFIG GET save"), "*2\n$4\nsave\n$0\n\n");
    assert_eq!(ask("CONFIG GET APPEND*"), "*2\n$10\nappendonly\n$2\nno\n");
    assert_eq!(ask("CONFIG GET databases"), "*2\n$9\ndatabases\n$1\n1\n");
    assert_eq!(ask("MODULE LIST"), "*0\n");
    assert!(ask("MEMORY STATS").starts_with("*6\n$14\npeak.allocated\n:"));
    assert!(ask("MEMORY PURGE").starts_with("-ERR unknown subcommand"));
    assert!(ask("CONFIG GET max*y save").starts_with("*6\n$9\nmaxmemory\n$1\n0\n$16\n"));
    assert_eq!(
        ask("CONFIG GET"),
        "-ERR wrong number of arguments for 'config|get' command\n"
    );
    assert_eq!(
        ask("CONFIG FOO"),
        "-ERR unknown subcommand 'FOO'. Try CONFIG HELP.\n"
    );
    for line in ["SET a b", "RESETSTAT", "REWRITE"] {
        assert!(
            ask(&format!("CONFIG {line}"))
                .ends_with("Ionian is configured by its deployment file and flags\n")
        );
    }
}

#[test]
fn command() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let mut ask = |line: &str| client.ask(&mut cluster, line);
    let count = ask("COMMAND COUNT");
    let count = count.trim_start_matches(':').trim_end();
    assert!(ask("COMMAND").starts_with(&format!("*{count}\n*10\n")));
    assert_eq!(
        ask("COMMAND INFO get nope"),
        "*2\n*10\n$3\nget\n:2\n*2\n+readonly\n+fast\n:1\n:1\n:1\n*3\n+@read\n+@string\n+@fast\n*0\n*0\n*0\n$-1\n"
    );
    assert_eq!(ask("COMMAND GETKEYS GET a"), "*1\n$1\na\n");
    assert_eq!(ask("COMMAND GETKEYS MSET a 1 b 2"), "*2\n$1\na\n$1\nb\n");
    assert_eq!(ask("COMMAND GETKEYS WATCH a b"), "*2\n$1\na\n$1\nb\n");
    assert_eq!(
        ask("COMMAND GETKEYS MSET a"),
        "-ERR Invalid number of arguments specified for command\n"
    );
    assert_eq!(
        ask("COMMAND GETKEYS PING x"),
        "-ERR The command has no key arguments\n"
    );
    assert_eq!(
        ask("COMMAND GETKEYS foo a"),
        "-ERR Invalid command specified\n"
    );
    assert_eq!(ask("COMMAND LIST FILTERBY PATTERN ech*"), "*1\n$4\necho\n");
    assert_eq!(ask("COMMAND LIST FILTERBY MODULE x"), "*0\n");
    assert_eq!(
        ask("COMMAND DOCS get"),
        "-ERR unknown subcommand 'DOCS'. Try COMMAND HELP.\n"
    );
    assert_eq!(
        ask("COMMAND FOO"),
        "-ERR unknown subcommand 'FOO'. Try COMMAND HELP.\n"
    );
}

/// Every reply is one whole frame of its protocol, as an independent decoder sees it.
#[test]
fn replies_are_well_formed() {
    let lines = [
        "PING",
        "ECHO x",
        "COMMAND",
        "COMMAND DOCS",
        "COMMAND LIST",
        "COMMAND HELP",
        "CLIENT LIST",
        "CLIENT INFO",
        "CLIENT HELP",
        "CLIENT GETNAME",
        "INFO",
        "CONFIG GET *",
        "CONFIG HELP",
        "TIME",
        "HELLO",
        "IONIAN HELP",
        "\"\\r\\n\" \"\\r\\n\"",
        "CLIENT \"\\r\\n\"",
        "MGET a b",
        "COMMAND INFO a get",
        "SELECT x",
        "WATCH a",
    ];
    let (mut client, mut cluster) = (client(), Cluster::default());
    for line in lines {
        client.send(format!("{line}\r\n"));
        let reply = Bytes::from(client.finish(&mut cluster));
        let (_, len) = redis_protocol::resp2::decode::decode_bytes(&reply)
            .unwrap()
            .unwrap();
        assert_eq!(len, reply.len(), "{line}");
    }
    client.ask(&mut cluster, "HELLO 3");
    for line in lines {
        client.send(format!("{line}\r\n"));
        let reply = Bytes::from(client.finish(&mut cluster));
        let (_, len) = redis_protocol::resp3::decode::complete::decode_bytes(&reply)
            .unwrap()
            .unwrap();
        assert_eq!(len, reply.len(), "{line}");
    }
}

/// A client that caches has to forget what it has read, once it has it, and only what it wants
/// to hear of.
#[test]
fn what_is_tracked_is_invalidated_after_it_was_read() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let mut ask = |lines: &str| client.ask(&mut cluster, lines);
    let push = |keys: &[&str]| {
        let keys: String = keys
            .iter()
            .map(|key| format!("${}\n{key}\n", key.len()))
            .collect::<Vec<_>>()
            .concat();
        format!(
            ">2\n$10\ninvalidate\n*{}\n{keys}",
            keys.matches('$').count()
        )
    };
    assert!(ask("HELLO 3\nMSET a 1 b 2").ends_with("+OK\n"));
    assert_eq!(ask("CLIENT TRACKING on\nCLIENT GETREDIR"), "+OK\n:0\n");
    assert_eq!(ask("GET a"), format!("$1\n1\n{}", push(&["a"])));
    assert_eq!(
        ask("MGET a b"),
        format!("*2\n$1\n1\n$1\n2\n{}", push(&["a", "b"]))
    );
    assert_eq!(ask("SET a 1\nPING"), "+OK\n+PONG\n");
    assert_eq!(ask("CLIENT TRACKING on OPTIN\nGET a"), "+OK\n$1\n1\n");
    let replies = ask("CLIENT CACHING YES\nMULTI\nPTTL a\nGET a\nEXEC\nGET a");
    let exec = "+OK\n+OK\n+QUEUED\n+QUEUED\n*2\n:-1\n$1\n1\n";
    assert_eq!(replies, format!("{exec}{}$1\n1\n", push(&["a", "a"])));
    assert_eq!(
        ask("CLIENT CACHING YES\nGET b\nGET a"),
        format!("+OK\n$1\n2\n$1\n1\n{}", push(&["b"]))
    );
    assert_eq!(
        ask("CLIENT TRACKING on OPTOUT\nCLIENT CACHING NO\nGET a"),
        "+OK\n+OK\n$1\n1\n"
    );
    assert_eq!(ask("CLIENT TRACKING off\nGET a"), "+OK\n$1\n1\n");
    assert!(ask("CLIENT CACHING YES").starts_with("-ERR CLIENT CACHING can be called only when"));
}

/// Clients that look for several addresses.
#[test]
fn a_gateway_names_itself_as_the_master_of_all_slots() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let id = client
        .ask(&mut cluster, "CLUSTER MYID")
        .lines()
        .nth(1)
        .expect("an id")
        .to_owned();
    assert_eq!(id.len(), 40);
    let slots = client.ask(&mut cluster, "CLUSTER SLOTS");
    assert_eq!(
        slots,
        format!("*1\n*3\n:0\n:16383\n*4\n$7\n6.7.8.9\n:10\n$40\n{id}\n*0\n")
    );
    let nodes = client.ask(&mut cluster, "CLUSTER NODES");
    assert!(
        nodes.ends_with(&format!(
            "{id} 6.7.8.9:10@0 myself,master - 0 0 1 connected 0-16383\n\n"
        )),
        "{nodes}"
    );
    assert!(
        client
            .ask(&mut cluster, "CLUSTER SHARDS")
            .contains("$4\nrole\n$6\nmaster\n")
    );
    assert!(
        client
            .ask(&mut cluster, "CLUSTER INFO")
            .contains("cluster_state:ok\ncluster_slots_assigned:16384\n")
    );
    assert_eq!(client.ask(&mut cluster, "CLUSTER KEYSLOT foo"), ":12182\n");
    assert!(
        client
            .ask(&mut cluster, "CLUSTER FAILOVER")
            .starts_with("-ERR unknown subcommand 'FAILOVER'")
    );
}

#[test]
fn info_tells_what_happened() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.ask(
        &mut cluster,
        "SET a 1\nSET b x\nGET a\nINCR b\nGET\nINCR a 2\nINCRBY a x\nnonsense\nEXEC\nPING",
    );
    client.ask(&mut cluster, "MULTI\nINCR b\nEXEC");
    let info = client.ask(&mut cluster, "INFO");
    for line in [
        "# Server",
        "# Clients",
        "# Memory",
        "# Stats",
        "# Replication",
        "# CPU",
        "# Commandstats",
        "# Errorstats",
        "# Latencystats",
        "# Cluster",
        "# Keyspace",
        "cluster_enabled:0",
        "db0:keys=2,expires=0,avg_ttl=0",
        "errorstat_ERR:count=6",
        "blocked_clients:0",
    ] {
        assert!(
            info.lines().any(|it| it == line),
            "{line} is not in\n{info}"
        );
    }
    let stats = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:")));
        let fields = line
            .unwrap_or_else(|| panic!("{name} is not in\n{info}"))
            .split(',');
        fields
            .filter_map(|field| field.split_once('=')?.1.parse::<f64>().ok())
            .collect::<Vec<_>>()
    };
    // Calls, rejected and failed ones.
    for (name, calls, rejected, failed) in [
        ("set", 2.0, 0.0, 0.0),
        ("get", 1.0, 1.0, 0.0),
        ("incr", 1.0, 1.0, 1.0),
    ] {
        let found = stats(name);
        assert_eq!(
            (found[0], found[3], found[4]),
            (calls, rejected, failed),
            "{name}"
        );
    }
    let memory = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .expect("a field");
    assert!(memory.parse::<u64>().unwrap() > 1 << 20);
    assert_eq!(
        client.ask(&mut cluster, "INFO keyspace"),
        "$44\n# Keyspace\ndb0:keys=2,expires=0,avg_ttl=0\n\n"
    );
    assert!(
        !client
            .ask(&mut cluster, "INFO server clients")
            .contains("Keyspace")
    );
    // Where no replica answers, the rest is reported.
    client.send("INFO\r\n");
    client.answer(Err(Refusal::Unavailable));
    let info = String::from_utf8(client.take()).unwrap();
    assert!(
        info.contains("# Keyspace") && !info.contains("db0"),
        "{info}"
    );
    // The check of the quorum says what PING does not.
    client.send("IONIAN CHECK\r\nPING\r\n");
    client.answer(Err(Refusal::Unavailable));
    assert!(client.take().starts_with(b"-TRYAGAIN"));
    let line = client.ask(&mut cluster, "SET a 1\nCLIENT INFO");
    for field in [
        " idle=0 ",
        " cmd=client ",
        " qbuf=",
        " omem=",
        " tot-mem=",
        " multi-mem=0 ",
    ] {
        assert!(line.contains(field), "{field} is not in {line}");
    }
}
