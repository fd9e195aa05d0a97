//! Rules for users are those of Redis 7.0.15: random rules, and every command with every kind of
//! right. `redis7-acl.txt` has what a redis-server of that version answers.
//!
//! With `REDIS7=HOST:PORT` of such a server, whose users and data are lost, ten thousand lists of
//! rules are compared with it; with `WRITE_RECORD=1` as well, the record is written anew.

use crate::common::{Client, Cluster, host, text};
use ionian_gateway::Limits;
use ionian_kernel::level::Level;
use ionian_machines::acl::{Category, CommandId};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const RECORD: &str = include_str!("redis7-acl.txt");
const RECORDED: u64 = 150;
const LIVE: u64 = 10_000;

/// Commands on the keys `first` and `other`. Subcommands that only Redis knows, or does not know,
/// are left out: their errors come in another order here.
const COMMANDS: &[&str] = &[
    "append first v",
    "copy first other",
    "dbsize",
    "decr first",
    "decrby first 1",
    "del first other",
    "exists first other",
    "expire first 100",
    "expireat first 9999999999",
    "expiretime first",
    "get first",
    "getdel first",
    "getex first",
    "getrange first 0 1",
    "getset first 1",
    "incr first",
    "incrby first 1",
    "incrbyfloat first 1",
    "keys x*",
    "mget first other",
    "mset first 1 other 2",
    "msetnx first 1 other 2",
    "persist first",
    "pexpire first 100000",
    "pexpireat first 9999999999999",
    "pexpiretime first",
    "psetex first 100000 1",
    "pttl first",
    "randomkey",
    "rename first other",
    "renamenx first other",
    "scan 0",
    "set first 1",
    "set first 1 get",
    "set first 1 nx get",
    "setex first 100 1",
    "setnx first 1",
    "setrange first 0 1",
    "strlen first",
    "substr first 0 1",
    "touch first other",
    "ttl first",
    "type first",
    "memory usage first",
    "memory usage first samples 5",
    "memory help",
    "memory usage",
    "object encoding first",
    "object freq first",
    "object help",
    "object idletime first",
    "object refcount first",
    "object encoding",
    "unlink first other",
    "xadd s:first * f v",
    "xadd s:first maxlen 5 * f v",
    "xdel s:first 1-1",
    "xlen s:first",
    "xrange s:first - +",
    "xrevrange s:first + -",
    "xread streams s:first 0",
    "xread count 1 streams s:first other 0 0",
    "xtrim s:first maxlen 5",
    "xinfo stream s:first",
    "xinfo nothing s:first",
    "xsetid s:first 9-9",
    "flushall",
    "flushdb",
    "ping",
    "echo x",
    "select 0",
    "time",
    "client id",
    "client list",
    "config get maxmemory",
    "info server",
    "acl whoami",
    "acl users",
    "acl genpass",
    "command count",
    "cluster info",
    "slowlog len",
    "latency latest",
    "module list",
    "role",
    "wait 0 0",
    "readonly",
    "watch first",
    "watch first other",
    "unwatch",
    "get",
    "set first",
    "nothing first",
    "mget",
    "auth a b c",
];

/// What a user has besides its name and a password.
const RIGHTS: &[(&str, &str)] = &[
    ("none", "~* -@all +multi +exec +discard"),
    ("nothing", "-@all"),
    ("reads", "+@all %R~*"),
    ("writes", "+@all %W~*"),
    ("first", "+@all ~first ~s:first"),
    ("category", "~* +@read -@fast +@transaction"),
    (
        "selectors",
        "+@transaction (+@read %R~*) (+@write %W~first)",
    ),
];

/// A generator of numbers: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn command(&mut self) -> &'static str {
        let all: Vec<_> = CommandId::all()
            .map(CommandId::name)
            .filter(|name| *name != "ionian")
            .collect();
        all[self.below(all.len())]
    }

    /// A rule about commands, keys or channels.
    fn rule(&mut self) -> String {
        let sign = self.one(&["+", "-", "+"]);
        let categories: Vec<_> = Category::all().map(Category::name).collect();
        match self.below(12) {
            0..=2 => format!("{sign}@{}", self.one(&categories)),
            3..=5 => format!("{sign}{}", self.command()),
            6 => self
                .one(&[
                    "+@all",
                    "-@all",
                    "allcommands",
                    "nocommands",
                    "allkeys",
                    "resetkeys",
                    "allchannels",
                    "resetchannels",
                    "~*",
                    "&*",
                    "%RW~*",
                    "%R~*",
                ])
                .to_owned(),
            7 | 8 => {
                let kind = self.one(&["~", "%R~", "%W~", "%RW~", "%r~", "%w~", "%wr~"]);
                let pattern = self.one(&["f*", "first", "s:*", "?irst", "[fo]*", "o*", "", "\\*x"]);
                format!("{kind}{pattern}")
            }
            9 => format!("&{}", self.one(&["a", "b*", ""])),
            10 => format!(
                "{sign}{}|{}",
                self.command(),
                self.one(&["a", "list", "A", "", "x|y"])
            ),
            _ => self
                .one(&[
                    "+",
                    "-",
                    "+@",
                    "%",
                    "%~a",
                    "%R",
                    "%RR~a",
                    "%X~a",
                    "+@nothing",
                    "-nothing",
                    "nonsense",
                    "ON",
                    "+GET",
                    "-@READ",
                    "&",
                    "~",
                    "+get|first",
                    "-get|first",
                    "+select|0",
                    "+xinfo|stream",
                    "-xinfo|stream",
                    "+client|list|x",
                ])
                .to_owned(),
        }
    }

    /// A rule for ACL SETUSER.
    fn user_rule(&mut self) -> String {
        match self.below(14) {
            0 => {
                let rules: Vec<_> = (0..self.below(4)).map(|_| self.rule()).collect();
                match self.below(4) {
                    // As one word, and as several.
                    0 => format!("\"({})\"", rules.join(" ").replace('\\', "\\\\")),
                    _ => format!("({})", rules.join(" ")),
                }
            }
            1 => self
                .one(&[
                    "on",
                    "off",
                    "nopass",
                    "resetpass",
                    "reset",
                    "clearselectors",
                    ">p1",
                    ">p2",
                    "sanitize-payload",
                    "skip-sanitize-payload",
                    "(",
                    ")",
                    "#x",
                    "(on)",
                ])
                .to_owned(),
            2 => {
                let sign = self.one(&["#", "!"]);
                format!("{sign}{}", "0123456789abcdef".repeat(4))
            }
            _ => self.rule(),
        }
    }

    /// The commands of one list of rules.
    fn lines(&mut self) -> Vec<String> {
        let mut lines = vec!["ACL DELUSER u".to_owned()];
        for _ in 0..1 + self.below(2) {
            let rules: Vec<_> = (0..self.below(8)).map(|_| self.user_rule()).collect();
            lines.push(format!("ACL SETUSER u {}", rules.join(" ")));
        }
        lines.push(self.one(&["ACL GETUSER u", "ACL LIST"]).to_owned());
        for _ in 0..3 {
            lines.push(format!("ACL DRYRUN u {}", self.one(COMMANDS)));
        }
        lines
    }
}

/// Which connection sends lines: that of the administrator, or one of a user.
type Step = (bool, String);

/// Every command with every kind of right, alone and in a transaction.
fn every_command() -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, rules) in RIGHTS {
        steps.push((true, format!("ACL SETUSER {name} on >p {rules}")));
        // A pipeline behind AUTH is judged by the rights of that user.
        steps.push((false, format!("AUTH {name} p\nGET first\nSET other 1")));
        for command in COMMANDS {
            steps.push((false, (*command).to_owned()));
            steps.push((false, format!("MULTI\n{command}\nEXEC\nDISCARD")));
        }
    }
    steps
}

/// The reply, as far as it concerns rights: values and errors of execution are left out.
fn shown(reply: &str, whole: bool) -> String {
    let mut shown = String::new();
    for line in reply.lines() {
        match line.as_bytes().first() {
            _ if whole => shown.push_str(&sorted(line)),
            Some(b'-')
                if ["-NOPERM", "-NOAUTH", "-EXECABORT", "-WRONGPASS"]
                    .iter()
                    .any(|code| line.starts_with(code)) =>
            {
                shown.push_str(line)
            }
            _ => continue,
        }
        shown.push('|');
    }
    shown
}

/// Single commands in the order of their names: that of Redis differs from process to process.
fn sorted(line: &str) -> String {
    let line = line.replace('(', "( ").replace(')', " )");
    let mut words: Vec<&str> = line.split(' ').collect();
    for part in words.split_mut(|word| word.contains(['(', ')'])) {
        let is_single = |word: &&str| {
            word.starts_with(['+', '-']) && !word[1..].starts_with('@') && word.len() > 1
        };
        let places: Vec<usize> = (0..part.len()).filter(|at| is_single(&part[*at])).collect();
        let mut single: Vec<&str> = places.iter().map(|at| part[*at]).collect();
        single.sort_unstable();
        places
            .iter()
            .zip(single)
            .for_each(|(at, word)| part[*at] = word);
    }
    words.join(" ")
}

/// A cluster with one gateway, and its two clients.
struct Ours(Cluster, Client, Client);

impl Ours {
    fn new() -> Ours {
        let host = host(Limits::default());
        host.set_level(Level(18));
        Ours(Cluster::default(), Client::new(&host), Client::new(&host))
    }

    fn ask(&mut self, (by_admin, lines): &Step) -> String {
        let client = if *by_admin { &mut self.1 } else { &mut self.2 };
        client.send(lines.replace('\n', "\r\n") + "\r\n");
        text(&client.finish(&mut self.0))
    }
}

/// A redis-server, and two connections to it.
struct Theirs([TcpStream; 2], u64);

impl Theirs {
    fn new(address: &str) -> Theirs {
        let connect = || {
            let stream = TcpStream::connect(address).expect("a redis-server");
            let limit = Some(Duration::from_secs(10));
            stream.set_read_timeout(limit).expect("a timeout");
            stream
        };
        let mut theirs = Theirs([connect(), connect()], 0);
        let names: Vec<_> = RIGHTS.iter().map(|(name, _)| *name).collect();
        let delete = format!("FLUSHALL\nACL DELUSER u {}", names.join(" "));
        theirs.ask(&(true, delete));
        theirs
    }

    fn ask(&mut self, (by_admin, lines): &Step) -> String {
        self.1 += 1;
        let stream = &mut self.0[usize::from(!by_admin)];
        // An unknown command has an answer whatever the rights are.
        let (end, lines) = (format!("end-{}", self.1), lines.replace('\n', "\r\n"));
        let request = format!("{lines}\r\n{end}\r\n");
        stream.write_all(request.as_bytes()).expect("to write");
        let mut reply = Vec::new();
        let mark = format!("-ERR unknown command '{end}', with args beginning with: \r\n");
        while !reply.ends_with(mark.as_bytes()) {
            let mut some = [0; 4096];
            let read = stream.read(&mut some).expect("an answer");
            assert!(read > 0, "the server has closed the connection");
            reply.extend_from_slice(&some[..read]);
        }
        reply.truncate(reply.len() - mark.len());
        text(&reply)
    }
}

/// The steps of the record: those of rules are compared as a whole.
fn steps(lists: u64) -> Vec<(Step, bool)> {
    let rules = (0..lists).flat_map(|seed| Random(seed).lines());
    let rules = rules.map(|line| ((true, line), true));
    let every = every_command().into_iter().map(|step| (step, false));
    rules.chain(every).collect()
}

#[test]
fn rules_have_the_answers_of_redis_7() {
    let mut ours = Ours::new();
    let mut record = RECORD.lines();
    for (step, whole) in steps(RECORDED) {
        let expected = record.next().expect("an answer; write the record anew");
        let reply = shown(&ours.ask(&step), whole);
        assert_eq!(reply, expected, "{}", step.1);
    }
    assert_eq!(record.next(), None);
}

#[test]
fn rules_have_the_answers_of_a_redis_server() {
    let Ok(address) = std::env::var("REDIS7") else {
        return;
    };
    let mut theirs = Theirs::new(&address);
    if std::env::var_os("WRITE_RECORD").is_some() {
        let mut record = String::new();
        for (step, whole) in steps(RECORDED) {
            writeln!(record, "{}", shown(&theirs.ask(&step), whole)).expect("a string");
        }
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/redis7-acl.txt");
        return std::fs::write(file, record).expect("to write the record");
    }
    let mut ours = Ours::new();
    let mut differ = 0;
    for (step, whole) in steps(LIVE) {
        let expected = shown(&theirs.ask(&step), whole);
        let reply = shown(&ours.ask(&step), whole);
        if reply != expected {
            differ += 1;
            println!("{}\n  ours:   {reply}\n  Redis:  {expected}", step.1);
        }
    }
    assert_eq!(differ, 0);
}
