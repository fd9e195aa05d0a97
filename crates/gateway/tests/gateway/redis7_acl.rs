//! Rules for users are those of Redis 7.0.15: random rules, and every command with every kind of
//! right, also while there is no memory. `redis7-acl.txt` has what a redis-server of that version
//! answers; `WRITE_RECORD=1` writes it anew.
//!
//! If a redis-server 7.0 is installed, it is asked as well, for more random rules: [`LIVE`] lists,
//! or as many as `REDIS7_LISTS` says.

use crate::common::{Client, Cluster, host, text};
use crate::redis7_commands::{OURS_ALONE, commands};
use crate::redis7_server::Theirs;
use ionian_gateway::Limits;
use ionian_kernel::level::Level;
use ionian_machines::acl::{Category, CommandId};
use std::fmt::Write as _;

const RECORD: &str = include_str!("redis7-acl.txt");
const RECORDED: u64 = 150;
const LIVE: u64 = 3000;

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
            lines.push(format!("ACL DRYRUN u {}", self.one(&commands())));
        }
        lines
    }
}

/// Which connection sends lines: that of the administrator, or one of a user.
pub(crate) type Step = (bool, String);

/// Every command with every kind of right, alone and in a transaction.
fn every_command() -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, rules) in RIGHTS {
        steps.push((true, format!("ACL SETUSER {name} on >p {rules}")));
        // A pipeline behind AUTH is judged by the rights of that user.
        steps.push((false, format!("AUTH {name} p\nGET first\nSET other 1")));
        for command in commands() {
            steps.push((false, command.to_owned()));
            steps.push((false, format!("MULTI\n{command}\nEXEC\nDISCARD")));
        }
    }
    steps
}

/// The reply, as far as it concerns rights: values and errors of execution are left out, and what
/// follows from these in a transaction.
fn shown(reply: &str, whole: bool) -> String {
    let is_refused = |line: &str| {
        let of_rights = ["-NOPERM", "-NOAUTH", "-WRONGPASS"];
        of_rights.iter().any(|code| line.starts_with(code))
    };
    let refused = reply.lines().any(is_refused);
    let mut shown = String::new();
    for line in reply.lines() {
        if whole {
            shown.push_str(&sorted(line));
        } else if is_refused(line) || refused && line.starts_with("-EXECABORT") {
            shown.push_str(line);
        } else {
            continue;
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

/// How many random lists the server is asked for.
fn lists() -> u64 {
    let lists = std::env::var("REDIS7_LISTS");
    lists.map_or(LIVE, |lists| {
        lists.parse().expect("REDIS7_LISTS is a number")
    })
}

#[test]
fn rules_have_the_answers_of_a_redis_server() {
    let Some(mut theirs) = Theirs::new() else {
        return;
    };
    if std::env::var_os("WRITE_RECORD").is_some() {
        let mut record = String::new();
        for (step, whole) in steps(RECORDED) {
            writeln!(record, "{}", shown(&theirs.ask(&step), whole)).expect("a string");
        }
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/redis7-acl.txt");
        return std::fs::write(file, record).expect("to write the record");
    }
    let (mut ours, mut differ) = (Ours::new(), 0);
    for (step, whole) in steps(lists()) {
        let expected = shown(&theirs.ask(&step), whole);
        let reply = shown(&ours.ask(&step), whole);
        if reply != expected {
            differ += 1;
            println!("{}\n  ours:   {reply}\n  Redis:  {expected}", step.1);
        }
    }
    assert_eq!(differ, 0);
}

/// The steps that exhaust the memory, whatever was deleted before.
fn exhaust() -> [Step; 2] {
    let fill = "CONFIG SET maxmemory 0\nSET filler 0123456789";
    [fill, "CONFIG SET maxmemory 1"].map(|lines| (true, lines.to_owned()))
}

/// What a reply says of rights, and of memory if the step is one command: Redis queues nothing in
/// a transaction while it has no memory.
fn refusals(step: &Step, reply: &str) -> String {
    let is_one = !step.1.contains('\n');
    let is_shown = |line: &&str| {
        let of_rights = ["-NOPERM", "-NOAUTH", "-WRONGPASS"];
        of_rights.iter().any(|code| line.starts_with(code)) || is_one && line.starts_with("-OOM")
    };
    reply.lines().filter(is_shown).collect::<Vec<_>>().join("|")
}

/// While there is no memory, each command asks for the same rights as before, and first: what is
/// refused for a lack of memory, or is answered, was allowed.
#[test]
fn rights_are_asked_for_first_while_memory_is_exhausted() {
    let (mut before, mut full, mut theirs) = (Ours::new(), Ours::new(), Theirs::new());
    let (mut refused, mut without_memory) = (0, 0);
    for step in every_command() {
        for step in exhaust() {
            assert!(full.ask(&step).ends_with("+OK\n"));
            theirs.iter_mut().for_each(|theirs| drop(theirs.ask(&step)));
        }
        let reply = full.ask(&step);
        let (shown, text) = (refusals(&step, &reply), &step.1);
        let expected = refusals(&step, &before.ask(&step));
        without_memory += usize::from(shown.starts_with("-OOM"));
        if !shown.starts_with("-OOM") {
            assert_eq!(shown, expected, "{text}");
        }
        if !shown.is_empty() && !text.contains('\n') {
            assert_eq!(shown + "\n", reply, "{text}: nothing else");
            refused += 1;
        } else if text.starts_with("MULTI") && shown.contains("-NOPERM") {
            let aborted = reply.contains("-EXECABORT") && !reply.contains("OOM");
            assert!(aborted, "{text}: {reply}");
        }
        if let Some(theirs) = &mut theirs {
            assert_eq!(
                refusals(&step, &reply),
                refusals(&step, &theirs.ask(&step)),
                "{text}"
            );
        }
    }
    assert!(
        refused > 500 && without_memory > 20,
        "{refused} {without_memory}"
    );
}

/// The commands that Redis does not have.
#[test]
fn commands_of_ours_alone_need_a_right_too() {
    for exhausted in [false, true] {
        let mut ours = Ours::new();
        ours.ask(&(
            true,
            "ACL SETUSER u on >p ~* &* +@all -ionian -client".to_owned(),
        ));
        ours.ask(&(false, "AUTH u p".to_owned()));
        for step in exhaust().iter().filter(|_| exhausted) {
            assert!(ours.ask(step).ends_with("+OK\n"));
        }
        for command in OURS_ALONE {
            let name = command.split(' ').next().unwrap_or_default();
            let refused =
                format!("-NOPERM this user has no permissions to run the '{name}' command\n");
            assert_eq!(
                ours.ask(&(false, (*command).to_owned())),
                refused,
                "{command}"
            );
        }
    }
}
