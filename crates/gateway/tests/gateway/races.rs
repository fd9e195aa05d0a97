//! Users whose rights change through one gateway while they work through another, with replies so
//! large that parts of pipelines are sent again: what was taken away before is not used.

use crate::common::{Client, Cluster, host, text};
use ionian_gateway::Limits;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::level::Level;
use proptest::prelude::*;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// The user sends these commands.
    Send(Vec<usize>),
    /// The cluster answers the user's request in flight, if there is one.
    Step,
    /// The administrator sends this change, and it is acknowledged.
    Change(usize),
    /// Another client of the user's gateway sends a command, so that the gateway learns the users.
    Learn,
    /// The user takes its replies.
    Take,
    /// The user connects again and logs in.
    Connect,
}

const COMMANDS: &[&str] = &[
    "GET big",
    "GET big",
    "GET big",
    "GET big",
    "GET small",
    "GET secret",
    "GET secret",
    "APPEND secret 1",
    "SET small x",
    "MULTI",
    "EXEC",
    "XREAD BLOCK 1 STREAMS secret 0",
    "CLIENT LIST",
    "WATCH secret",
];

/// The changes: what the user may do with the key `secret` afterwards, and whether those who have
/// logged in before are still users.
const CHANGES: &[(&str, bool, bool)] = &[
    ("ACL SETUSER u resetkeys ~big ~small", false, true),
    ("ACL SETUSER u ~secret", true, true),
    ("ACL SETUSER another on", true, true),
    ("ACL DELUSER u", false, false),
    ("ACL SETUSER u off", false, false),
    (
        "ACL SETUSER u on nopass ~big ~small ~secret +@all",
        true,
        true,
    ),
];

fn events() -> impl Strategy<Value = Vec<Event>> {
    // Those after the first nine end a pipeline: they wait until nothing is in flight.
    let command = prop_oneof![19 => 0..9usize, 1 => 9..COMMANDS.len()];
    let commands = proptest::collection::vec(command, 1..16);
    let event = prop_oneof![
        4 => commands.prop_map(Event::Send),
        6 => Just(Event::Step),
        3 => (0..CHANGES.len()).prop_map(Event::Change),
        2 => Just(Event::Learn),
        6 => Just(Event::Take),
        1 => Just(Event::Connect),
    ];
    proptest::collection::vec(event, 1..40)
}

/// A client of the user, with what the model knows of it.
struct User {
    client: Client,
    /// Which user of this name it has logged in as: they are numbered as they are made, and as they
    /// are switched off. None if it has not, and may do everything as `default`.
    number: Option<u32>,
}

/// The cluster, and what the user may do in it.
struct World {
    cluster: Cluster,
    may_use_secret: bool,
    is_on: bool,
    number: u32,
}

impl World {
    fn connect(&mut self, gateway: &std::rc::Rc<ionian_gateway::Host>) -> User {
        let mut client = Client::new(gateway);
        let answer = client.ask(&mut self.cluster, "AUTH u any");
        User {
            client,
            number: (answer == "+OK\n").then_some(self.number),
        }
    }

    fn secret(&mut self) -> Vec<u8> {
        let words = [&b"get"[..], b"secret"].map(bytes::Bytes::from_static);
        let get = ionian_machines::kv::Command::parse(&words).unwrap();
        let compound = ionian_machines::kv::Compound::Pipeline(vec![get]);
        let level = Operation::Read(ReadLevel::Linearizable);
        self.cluster
            .execute(level, &compound.encode_at(0))
            .unwrap()
            .to_vec()
    }

    /// Executes the user's request in flight, which must respect the rights of now.
    fn step(&mut self, user: &mut User) -> Result<bool, TestCaseError> {
        let Some((operation, payload)) = user.client.request.clone() else {
            return Ok(false);
        };
        let before = self.secret();
        let reply = self.cluster.execute(operation, &payload);
        let is_user = user.number == Some(self.number) && self.is_on;
        if user.number.is_some() && !(is_user && self.may_use_secret) {
            prop_assert_eq!(
                &before,
                &self.secret(),
                "a right that was taken away changes data"
            );
            let reply = reply.as_ref().expect("a reply of the machine");
            let shown = reply.windows(7).any(|bytes| bytes == b"private");
            prop_assert!(!shown, "a right that was taken away shows data");
        }
        user.client.answer(reply);
        Ok(true)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_right_that_was_taken_away_is_used(
        events in events(),
        compound_commands in 2usize..8,
    ) {
        let limits = || Limits { compound_commands, ..Limits::default() };
        let [one, other] = [host(limits()), host(limits())];
        one.set_level(Level(18));
        other.set_level(Level(18));
        let mut world = World {
            cluster: Cluster::default(),
            may_use_secret: true,
            is_on: true,
            number: 0,
        };
        let mut admin = Client::new(&one);
        admin.ask(&mut world.cluster, CHANGES[5].0);
        admin.ask(&mut world.cluster, "SETRANGE big 700000 x\nSET secret private");
        let mut user = world.connect(&other);
        let mut neighbour = Client::new(&other);
        for event in events {
            match event {
                Event::Send(commands) => {
                    let lines = commands.iter().map(|&at| format!("{}\r\n", COMMANDS[at]));
                    user.client.send(lines.collect::<String>());
                }
                Event::Step => drop(world.step(&mut user)?),
                Event::Change(change) => {
                    let (line, may_use_secret, stays) = CHANGES[change];
                    // Only the last one of these makes the user.
                    let exists = world.is_on || change == 5 || line.contains("another");
                    if !exists {
                        continue;
                    }
                    admin.ask(&mut world.cluster, line);
                    if !line.contains("another") {
                        world.may_use_secret = may_use_secret;
                        world.number += u32::from(!stays && world.is_on);
                        world.is_on = stays;
                    }
                }
                Event::Learn => drop(neighbour.ask(&mut world.cluster, "DBSIZE")),
                Event::Take => drop(user.client.take()),
                Event::Connect => user = world.connect(&other),
            }
        }
        while world.step(&mut user)? || !user.client.take().is_empty() {}
    }
}

#[test]
fn commands_behind_a_part_that_is_sent_again_are_judged_again() {
    let [one, other] = [host(Limits::default()), host(Limits::default())];
    one.set_level(Level(18));
    other.set_level(Level(18));
    let mut cluster = Cluster::default();
    let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
    admin.ask(&mut cluster, "ACL SETUSER u on nopass ~big ~secret +@all");
    admin.ask(&mut cluster, "SETRANGE big 700000 x\nSET secret private");
    user.ask(&mut cluster, "AUTH u any");
    user.send("GET big\r\nGET big\r\nGET big\r\n");
    user.send("GET secret\r\n");
    admin.ask(&mut cluster, "ACL SETUSER u resetkeys ~big");
    let replies = text(&user.finish(&mut cluster));
    assert!(replies.ends_with(
        "-NOPERM this user has no permissions to access one of the keys used as arguments\n"
    ));
}

#[test]
fn a_user_that_is_made_again_or_switched_on_again_has_lost_its_connections() {
    for line in ["ACL DELUSER u", "ACL SETUSER u off"] {
        let [one, other] = [host(Limits::default()), host(Limits::default())];
        one.set_level(Level(18));
        other.set_level(Level(18));
        let mut cluster = Cluster::default();
        let (mut admin, mut user) = (Client::new(&one), Client::new(&other));
        let make = "ACL SETUSER u on nopass ~* +@all";
        admin.ask(&mut cluster, make);
        assert_eq!(user.ask(&mut cluster, "AUTH u any\nSET k v"), "+OK\n+OK\n");
        // The other gateway learns of both changes at once.
        admin.ask(&mut cluster, &format!("{line}\n{make}"));
        let gone = "-ERR closed: the user of this connection was deleted or switched off\n";
        assert_eq!(user.ask(&mut cluster, "SET k w"), gone);
        let mut again = Client::new(&other);
        assert_eq!(again.ask(&mut cluster, "AUTH u any\nGET k"), "+OK\n$1\nv\n");
        // What changes a user that stays on closes nothing.
        admin.ask(&mut cluster, "ACL SETUSER u -del");
        assert_eq!(again.ask(&mut cluster, "GET k"), "$1\nv\n");
    }
}
