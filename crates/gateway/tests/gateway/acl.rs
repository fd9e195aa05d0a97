//! Users and their rules, through gateways that share a cluster.

use crate::common::{Client, Cluster, host, request, text};
use ionian_gateway::{Host, Limits};
use ionian_kernel::client::{Operation, Refusal};
use ionian_kernel::level::Level;
use std::rc::Rc;

const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\n";
const NO_AUTH: &str = "-NOAUTH Authentication required.\n";

fn gateway() -> Rc<Host> {
    let host = host(Limits::default());
    host.set_level(Level(18));
    host
}

fn no_command(name: &str) -> String {
    format!("-NOPERM this user has no permissions to run the '{name}' command\n")
}

const NO_KEY: &str =
    "-NOPERM this user has no permissions to access one of the keys used as arguments\n";

#[test]
fn a_cluster_below_the_level_has_one_user_that_may_do_everything() {
    let (mut client, mut cluster) = (Client::new(&host(Limits::default())), Cluster::default());
    let refused = "-ERR users need level 18 of the cluster, which has level 17: raise it with \
                   'ionian upgrade finalize'\n";
    assert_eq!(client.ask(&mut cluster, "ACL SETUSER u on"), refused);
    assert_eq!(client.ask(&mut cluster, "ACL DELUSER u"), refused);
    let list = "*1\n$34\nuser default on nopass ~* &* +@all\n";
    assert_eq!(client.ask(&mut cluster, "ACL LIST"), list);
    assert_eq!(client.ask(&mut cluster, "ACL WHOAMI"), "$7\ndefault\n");
    assert_eq!(client.ask(&mut cluster, "AUTH default any"), "+OK\n");
    assert_eq!(client.ask(&mut cluster, "AUTH u any"), WRONG_PASS);
    assert_eq!(client.operations, []);
}

#[test]
fn a_cluster_that_keeps_its_level_names_the_protocol_and_no_command() {
    let host = host(Limits::default());
    host.set_fixed_level("epaxos");
    let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
    for (line, what) in [
        ("ACL SETUSER u on", "users need"),
        ("CONFIG SET maxmemory 1gb", "maxmemory needs"),
        ("MEMORY USAGE k", "MEMORY USAGE needs"),
    ] {
        let refused = format!(
            "-ERR {what} a protocol that can change the level of its clusters, which epaxos cannot\n"
        );
        assert_eq!(client.ask(&mut cluster, line), refused);
    }
    assert_eq!(client.operations, []);
}

#[test]
fn users_may_do_what_their_rules_say_through_every_gateway() {
    let mut cluster = Cluster::default();
    let (one, other) = (gateway(), gateway());
    let mut admin = Client::new(&one);
    assert_eq!(admin.ask(&mut cluster, "SET a:1 x"), "+OK\n");
    assert_eq!(
        admin.ask(
            &mut cluster,
            "ACL SETUSER u on >secret ~a:* +get +mget +multi +exec +acl|whoami"
        ),
        "+OK\n"
    );
    // The other gateway learns of it when a client logs in.
    let mut user = Client::new(&other);
    assert_eq!(user.ask(&mut cluster, "AUTH u wrong"), WRONG_PASS);
    assert_eq!(user.ask(&mut cluster, "AUTH none secret"), WRONG_PASS);
    assert_eq!(user.ask(&mut cluster, "AUTH u secret"), "+OK\n");
    assert_eq!(user.ask(&mut cluster, "GET a:1"), "$1\nx\n");
    assert_eq!(user.ask(&mut cluster, "ACL WHOAMI"), "$1\nu\n");
    assert_eq!(user.ask(&mut cluster, "SET a:1 y"), no_command("set"));
    assert_eq!(
        user.ask(&mut cluster, "CLIENT LIST"),
        no_command("client|list")
    );
    assert_eq!(user.ask(&mut cluster, "GET b"), NO_KEY);
    assert_eq!(user.ask(&mut cluster, "MGET a:1 b"), NO_KEY);
    // Errors that need no right.
    assert!(
        user.ask(&mut cluster, "FOO")
            .starts_with("-ERR unknown command 'FOO'")
    );
    assert!(
        user.ask(&mut cluster, "GET")
            .starts_with("-ERR wrong number")
    );
    // In a transaction the refusal comes at once, and EXEC fails.
    let lines = "MULTI\nGET a:1\nGET b\nSET a:1 y\nEXEC\nGET a:1";
    let expected = [
        "+OK\n+QUEUED\n",
        NO_KEY,
        &no_command("set"),
        ABORTED,
        "$1\nx\n",
    ]
    .concat();
    assert_eq!(user.ask(&mut cluster, lines), expected);
    assert_eq!(
        user.ask(&mut cluster, "MULTI\nGET a:1\nEXEC"),
        "+OK\n+QUEUED\n*1\n$1\nx\n"
    );
    // What is refused in a pipeline keeps its place.
    let expected = ["$1\nx\n", NO_KEY, "$1\nx\n"].concat();
    assert_eq!(user.ask(&mut cluster, "GET a:1\nGET b\nGET a:1"), expected);
    let log = admin.ask(&mut cluster, "ACL LOG");
    assert_eq!(log, "*0\n", "it is that of each gateway");
    assert_eq!(user.ask(&mut cluster, "QUIT"), "+OK\n");
}

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\n";

#[test]
fn nothing_is_executed_by_rules_that_were_revoked_before() {
    let mut cluster = Cluster::default();
    let (one, other) = (gateway(), gateway());
    let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
    admin.ask(&mut cluster, "ACL SETUSER u on >p ~* +@all");
    assert_eq!(user.ask(&mut cluster, "AUTH u p\nSET k v"), "+OK\n+OK\n");
    // The other gateway has sent these before it could know.
    for (lines, expected) in [
        ("SET k w\n", no_command("set")),
        (
            "GET k\nSET k w\nGET k\n",
            ["$1\nv\n", &no_command("set"), "$1\nv\n"].concat(),
        ),
        ("GET k\n", "$1\nv\n".to_owned()),
    ] {
        admin.ask(&mut cluster, "ACL SETUSER u +@all -ttl");
        assert_eq!(user.ask(&mut cluster, "GET k"), "$1\nv\n");
        user.send(lines.replace('\n', "\r\n"));
        admin.ask(&mut cluster, "ACL SETUSER u -set");
        assert_eq!(text(&user.finish(&mut cluster)), expected, "{lines}");
    }
    // A transaction is executed as a whole, or not at all.
    admin.ask(&mut cluster, "ACL SETUSER u +@all");
    // The gateway learns of rights with the next compound.
    assert_eq!(user.ask(&mut cluster, "GET k"), "$1\nv\n");
    assert_eq!(
        user.ask(&mut cluster, "MULTI\nGET k\nSET k w"),
        "+OK\n+QUEUED\n+QUEUED\n"
    );
    user.send("EXEC\r\n");
    admin.ask(&mut cluster, "ACL SETUSER u -set");
    let aborted = "-EXECABORT Transaction discarded because of: NOPERM this user has no \
                   permissions to run the 'set' command\n";
    assert_eq!(text(&user.finish(&mut cluster)), aborted);
    assert_eq!(user.ask(&mut cluster, "GET k"), "$1\nv\n");
    // One that is still allowed is executed, though it was judged before.
    assert_eq!(user.ask(&mut cluster, "MULTI\nGET k"), "+OK\n+QUEUED\n");
    admin.ask(&mut cluster, "ACL SETUSER other on");
    assert_eq!(user.ask(&mut cluster, "EXEC"), "*1\n$1\nv\n");
    // WATCH.
    user.send("WATCH k\r\n");
    admin.ask(&mut cluster, "ACL SETUSER u -watch");
    assert_eq!(text(&user.finish(&mut cluster)), no_command("watch"));
    // XREAD that waits asks again with the rights of then.
    admin.ask(&mut cluster, "ACL SETUSER u +@all");
    user.send("XREAD BLOCK 0 STREAMS s 0\r\n");
    admin.ask(&mut cluster, "ACL SETUSER u -xread");
    assert_eq!(text(&user.finish(&mut cluster)), no_command("xread"));
}

#[test]
fn a_command_is_executed_however_often_users_change_up_to_a_bound() {
    for (changes, answer) in [(1, "+OK\n"), (10, "+OK\n"), (11, CHANGED)] {
        let mut cluster = Cluster::default();
        let (one, other) = (gateway(), gateway());
        let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
        admin.ask(&mut cluster, "ACL SETUSER u on nopass ~* +@all");
        assert_eq!(user.ask(&mut cluster, "AUTH u any"), "+OK\n");
        user.send("SET k v\r\n");
        let since = user.connection.in_flight_since();
        for number in 0..changes {
            let line = format!("ACL SETUSER other{number} on");
            assert_eq!(admin.ask(&mut cluster, &line), "+OK\n");
            // It is refused, and the users are learned.
            user.step(&mut cluster);
            let in_flight = user.connection.in_flight_since();
            assert!(in_flight.is_none_or(|at| Some(at) == since), "one deadline");
            user.step(&mut cluster);
        }
        assert_eq!(text(&user.finish(&mut cluster)), answer, "{changes}");
    }
}

#[test]
fn a_user_that_is_off_or_deleted_is_gone() {
    for line in ["ACL SETUSER u off", "ACL DELUSER u"] {
        let mut cluster = Cluster::default();
        let (one, other) = (gateway(), gateway());
        let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
        admin.ask(&mut cluster, "ACL SETUSER u on nopass ~* +@all");
        assert_eq!(user.ask(&mut cluster, "AUTH u any\nSET k v"), "+OK\n+OK\n");
        admin.ask(&mut cluster, line);
        let gone = "-ERR closed: the user of this connection was deleted or switched off\n";
        assert_eq!(user.ask(&mut cluster, "SET k w"), gone);
        assert_eq!(user.ask(&mut cluster, "PING"), gone);
        assert!(user.connection.is_closed());
        assert_eq!(admin.ask(&mut cluster, "GET k"), "$1\nv\n");
        let mut again = Client::new(&other);
        assert_eq!(again.ask(&mut cluster, "AUTH u any"), WRONG_PASS);
    }
}

/// The words of a command that was judged without users are not kept, so that it cannot be judged
/// by a user who may not do everything.
#[test]
fn a_command_that_was_judged_without_users_is_not_executed_if_its_client_may_not_do_all() {
    for (rules, answer) in [("-flushall", CHANGED), ("+@all", "+OK\n")] {
        let mut cluster = Cluster::default();
        let (one, other) = (gateway(), gateway());
        let (mut admin, mut client) = (Client::new(&one), Client::new(&other));
        assert_eq!(client.ask(&mut cluster, "SET k v"), "+OK\n");
        let line = format!("ACL SETUSER default {rules}");
        assert_eq!(admin.ask(&mut cluster, &line), "+OK\n");
        assert_eq!(client.ask(&mut cluster, "SET k w"), answer, "{rules}");
    }
}

#[test]
fn clients_that_did_not_log_in_lose_what_default_may_not_do() {
    let mut cluster = Cluster::default();
    let (one, other) = (gateway(), gateway());
    let (mut admin, mut client) = (Client::new(&one), Client::new(&other));
    assert_eq!(client.ask(&mut cluster, "SET k v"), "+OK\n");
    admin.ask(&mut cluster, "ACL SETUSER boss on >p allkeys allcommands");
    assert_eq!(admin.ask(&mut cluster, "AUTH boss p"), "+OK\n");
    // It is judged without users, and again by those that allow it everything.
    assert_eq!(client.ask(&mut cluster, "GET k"), "$1\nv\n");
    admin.ask(&mut cluster, "ACL SETUSER default resetpass >q");
    assert_eq!(client.ask(&mut cluster, "GET k"), NO_AUTH);
    assert_eq!(client.ask(&mut cluster, "FOO"), UNKNOWN);
    let hello = client.ask(&mut cluster, "HELLO 3");
    assert!(hello.starts_with("-NOAUTH HELLO must be called"), "{hello}");
    assert_eq!(client.ask(&mut cluster, "MULTI"), NO_AUTH);
    let exec = "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.\n";
    assert_eq!(client.ask(&mut cluster, "EXEC"), exec);
    assert_eq!(
        client.ask(&mut cluster, "HELLO 2 AUTH default bad SETNAME n"),
        WRONG_PASS
    );
    assert!(
        client
            .ask(&mut cluster, "HELLO 2 AUTH default q SETNAME n")
            .starts_with("*14\n")
    );
    assert_eq!(client.ask(&mut cluster, "CLIENT GETNAME"), "$1\nn\n");
    assert_eq!(client.ask(&mut cluster, "RESET"), "+RESET\n");
    assert_eq!(client.ask(&mut cluster, "GET k"), NO_AUTH);
    assert_eq!(client.ask(&mut cluster, "AUTH q"), "+OK\n");
    assert_eq!(client.ask(&mut cluster, "GET k"), "$1\nv\n");
    let mut new = Client::new(&gateway());
    assert_eq!(new.ask(&mut cluster, "ECHO x"), NO_AUTH);
}

const CHANGED: &str = "-TRYAGAIN the rules for users have changed, the command was not executed\n";
const UNKNOWN: &str = "-ERR unknown command 'FOO', with args beginning with: \n";

#[test]
fn passwords_leave_the_gateway_as_hashes_only() {
    let (mut client, mut cluster) = (Client::new(&gateway()), Cluster::default());
    client.ask(&mut cluster, "ECHO x");
    client.send("ACL SETUSER u on >my-secret\r\n");
    let (operation, payload) = client.request.clone().expect("a request");
    assert_eq!(operation, Operation::Write);
    assert!(!payload.windows(9).any(|part| part == b"my-secret"));
    client.finish(&mut cluster);
    let wrong = client.ask(&mut cluster, "ACL SETUSER u <other");
    assert!(
        !wrong.contains("other") && wrong.contains("does not exist"),
        "{wrong}"
    );
    let long = "x".repeat(4097);
    for rule in [">", "<", &format!(">{long}")] {
        let refused = client.ask(&mut cluster, &format!("ACL SETUSER u {rule}"));
        assert_eq!(refused, "-ERR a password has 1 to 4096 bytes\n");
    }
    for line in ["ACL GETUSER u", "ACL LIST", "SLOWLOG GET", "INFO"] {
        assert!(
            !client.ask(&mut cluster, line).contains("my-secret"),
            "{line}"
        );
    }
}

#[test]
fn without_a_quorum_no_client_logs_in_and_eventual_reads_go_on() {
    let mut cluster = Cluster::default();
    let (one, other) = (gateway(), gateway());
    let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
    admin.ask(&mut cluster, "ACL SETUSER u on >p ~* +@all");
    let unavailable =
        "-TRYAGAIN the cluster did not answer in time, the command was not executed\n";
    // A gateway that knows no users asks for them, then for what any replica knows.
    user.send("ECHO x\r\n");
    user.answer(Err(Refusal::Unavailable));
    assert_eq!(text(&user.finish(&mut cluster)), "$1\nx\n");
    // What needs a quorum has waited for it by then. Stale reads are served.
    let mut third = Client::new(&gateway());
    for (setting, command, answer) in [
        ("", "SET k w\r\n", unavailable),
        ("", "GET k\r\n", unavailable),
        ("IONIAN CONSISTENCY EVENTUAL\r\n", "GET k\r\n", "+OK\n$-1\n"),
    ] {
        third.send(format!("{setting}{command}"));
        third.answer(Err(Refusal::Unavailable));
        assert_eq!(text(&third.finish(&mut Cluster::default())), answer);
        third = Client::new(&gateway());
    }
    // That says nothing about passwords: the replica may have executed nothing yet.
    let mut first = Client::new(&gateway());
    for command in ["AUTH u p\r\n", "HELLO 3 AUTH u p\r\n"] {
        first.send(command);
        first.answer(Err(Refusal::Unavailable));
        let answer = text(&first.finish(&mut Cluster::default()));
        assert_eq!(answer, unavailable, "{command}");
    }
    user.send("AUTH u p\r\n");
    user.answer(Err(Refusal::Unavailable));
    assert_eq!(text(&user.take()), unavailable);
    // Of a compound that was judged by earlier users, nothing was executed.
    assert_eq!(user.ask(&mut cluster, "AUTH u p\nSET k v"), "+OK\n+OK\n");
    user.send("SET k w\r\n");
    admin.ask(&mut cluster, "ACL SETUSER u -set");
    assert!(user.step(&mut cluster));
    user.answer(Err(Refusal::Unknown));
    assert_eq!(text(&user.take()), unavailable);
    assert_eq!(user.ask(&mut cluster, "GET k"), "$1\nv\n");
}

#[test]
fn a_client_that_has_to_log_in_has_limits_of_its_own() {
    let (host, mut cluster) = (gateway(), Cluster::default());
    let mut admin = Client::new(&host);
    let words = |count: usize, len: usize| {
        let word = "x".repeat(len);
        request(&vec![word.as_bytes(); count])
    };
    let setup = "ACL SETUSER u on >p +@all\nAUTH u p\nACL SETUSER default off";
    assert_eq!(admin.ask(&mut cluster, setup), "+OK\n+OK\n+OK\n");
    for (bytes, what) in [
        (words(11, 1), "unauthenticated multibulk length"),
        (words(1, (16 << 10) + 1), "unauthenticated bulk length"),
    ] {
        admin.send(&bytes);
        let reply = text(&admin.finish(&mut cluster));
        assert!(reply.starts_with("-ERR unknown command"), "{reply}");
        let mut client = Client::new(&host);
        assert_eq!(client.ask(&mut cluster, "PING"), NO_AUTH);
        client.send(&bytes);
        let expected = format!("-ERR Protocol error: {what}\n");
        assert_eq!(text(&client.finish(&mut cluster)), expected);
        assert!(client.connection.is_closed());
    }
}

#[test]
fn acl_log_counts_what_was_refused() {
    let (mut client, mut cluster) = (Client::new(&gateway()), Cluster::default());
    client.ask(&mut cluster, "ACL SETUSER u on >p ~a +get +acl|log +multi");
    client.ask(&mut cluster, "AUTH u p");
    client.ask(
        &mut cluster,
        "GET b\nGET b\nSET a b\nAUTH u q\nMULTI\nGET c",
    );
    let log = client.ask(&mut cluster, "DISCARD\nRESET\nACL LOG 4");
    let fields: Vec<&str> = log
        .lines()
        .filter(|line| !line.starts_with(['$', '*', '+']))
        .collect();
    for (at, (count, reason, context, object, user)) in [
        (":1", "command", "multi", "discard", "u"),
        (":1", "key", "multi", "c", "u"),
        (":1", "auth", "toplevel", "u", "u"),
        (":1", "command", "toplevel", "set", "u"),
    ]
    .into_iter()
    .enumerate()
    {
        let entry = &fields[1 + at * 14..][..10];
        let expected = [
            "count", count, "reason", reason, "context", context, "object", object,
        ];
        assert_eq!(entry[..8], expected);
        assert_eq!(entry[9], user);
    }
    assert!(client.ask(&mut cluster, "ACL LOG").contains(":2\n"));
    assert!(
        client
            .ask(&mut cluster, "INFO stats")
            .contains("acl_access_denied_key:3")
    );
    assert_eq!(
        client.ask(&mut cluster, "ACL LOG RESET\nACL LOG"),
        "+OK\n*0\n"
    );
}

/// One entry for each key that was refused, of which the last 128 are kept; the objects are bounded
/// as well.
#[test]
fn acl_log_keeps_the_last_128_kinds_of_refusals() {
    let (mut client, mut cluster) = (Client::new(&gateway()), Cluster::default());
    client.ask(&mut cluster, "ACL SETUSER u on >p ~a +get +acl|log");
    client.ask(&mut cluster, "AUTH u p");
    let mut objects = |client: &mut Client, count: usize| {
        let log = client.ask(&mut cluster, &format!("ACL LOG {count}"));
        let mut lines = log.lines();
        let mut objects = Vec::new();
        while lines.by_ref().any(|line| line == "object") {
            objects.push(lines.nth(1).expect("a value").to_owned());
        }
        objects
    };
    let mut others = Cluster::default();
    for number in 0..140 {
        assert_eq!(client.ask(&mut others, &format!("GET k{number}")), NO_KEY);
        let kept = objects(&mut client, 1000);
        assert_eq!(kept.len(), 128.min(number + 1), "{number}");
        assert_eq!(kept[0], format!("k{number}"));
    }
    let expected: Vec<_> = (12..140).rev().map(|number| format!("k{number}")).collect();
    assert_eq!(objects(&mut client, 128), expected);
    // One that is counted already takes the place of none.
    client.ask(&mut others, "GET k12");
    let kept = objects(&mut client, 1000);
    assert_eq!((kept.len(), &*kept[0], &*kept[127]), (128, "k12", "k13"));
    client.ask(&mut others, &format!("GET {}", "x".repeat(10_000)));
    let kept = objects(&mut client, 1000);
    assert_eq!((kept.len(), kept[0].len()), (128, 256));
}

/// The lines of a list, each as the command that makes its user.
fn as_commands(list: &str) -> Vec<String> {
    let users = list.lines().filter_map(|line| line.strip_prefix("user "));
    users
        .map(|user| {
            let (name, rules) = user.split_once(' ').expect("it has rules");
            // It has no effect, and `reset` adds it, as in Redis.
            let rules = rules.replace(" sanitize-payload", "");
            format!("ACL SETUSER {name} reset {rules}")
        })
        .collect()
}

#[test]
fn what_a_list_says_makes_the_same_users_elsewhere() {
    let (mut cluster, mut elsewhere) = (Cluster::default(), Cluster::default());
    let mut client = Client::new(&gateway());
    for rules in [
        "admin on >one >two ~* &* +@all",
        "off ~a:* %R~b:* %W~c:* &c:* +@all -@dangerous -acl|setuser",
        "parts on nopass ~x +get (~y:* +set -config +config|get) (%R~z -@all +mget)",
        "limited on quota:commands=5 quota:bytes=1mb quota:flight=20kb quota:connections=3",
        "bare",
        "default on nopass sanitize-payload ~* resetchannels +@all -flushall",
    ] {
        let made = client.ask(&mut cluster, &format!("ACL SETUSER {rules}"));
        assert_eq!(made, "+OK\n", "{rules}");
    }
    let list = client.ask(&mut cluster, "ACL LIST");
    let commands = as_commands(&list);
    assert_eq!(commands.len(), 6);
    let mut client = Client::new(&gateway());
    // What is there is replaced.
    let before = "ACL SETUSER parts on >other ~other (~other +@all) quota:commands=9";
    assert_eq!(client.ask(&mut elsewhere, before), "+OK\n");
    for command in &commands {
        assert_eq!(client.ask(&mut elsewhere, command), "+OK\n", "{command}");
    }
    let list = client.ask(&mut elsewhere, "ACL LIST");
    assert_eq!(as_commands(&list), commands);
}

/// Commands that the gateway answers itself, and that show what other clients do.
const PRIVILEGED: &[&str] = &[
    "CLIENT LIST",
    "CLIENT KILL ID 100",
    "SLOWLOG GET",
    "CONFIG GET maxmemory",
    "ACL LOG",
    "INFO server",
    "MULTI\nINFO server\nEXEC",
];

#[test]
fn privileged_commands_of_a_gateway_follow_the_rules_of_now() {
    for line in PRIVILEGED {
        let [one, other] = [gateway(), gateway()];
        let mut cluster = Cluster::default();
        let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
        admin.ask(&mut cluster, "ACL SETUSER u on nopass ~* +@all");
        assert_eq!(user.ask(&mut cluster, "AUTH u any"), "+OK\n");
        let before = user.ask(&mut cluster, line);
        assert!(!before.contains("NOPERM"), "{line}: {before}");
        // The other gateway is not used meanwhile, so it has not learned of this.
        admin.ask(&mut cluster, "ACL SETUSER u -@admin -@dangerous");
        let after = user.ask(&mut cluster, line);
        assert!(after.contains("NOPERM"), "{line}: {after}");
        if line.starts_with("MULTI") {
            continue;
        }
        // Without a quorum they are refused.
        user.send(format!("{}\r\n", line.replace('\n', "\r\n")));
        user.answer(Err(Refusal::Unavailable));
        let refused = text(&user.take());
        assert!(refused.contains("-TRYAGAIN"), "{line}: {refused}");
    }
}
