//! The verdict, compared with a definition of what is served, over drawn states of nodes.

use super::{Made, said};
use crate::protocols::{ServiceNeeds, executors, members};
use crate::status::health::Verdict;
use ionian_deployment::{Configuration, Deployment, Durability, Node, PresetOptions, presets};
use ionian_kernel::id::{Epoch, Members};
use ionian_kernel::random::Random;
use ionian_kernel::service::Enough;
use ionian_runtime::NodeStatus;
use ionian_runtime::status::LeadsStatus;

/// What a node is in, as those see it who know everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has all that it should have.
    Whole,
    /// It runs, and lacks some of what is chosen: it catches up, installs a snapshot, or is sealed.
    Behind,
    /// It has lost its memory, and has got nothing back yet.
    Empty,
    /// It does not run.
    Down,
}

fn draw(random: &mut Random) -> State {
    match random.below(6) {
        0 => State::Down,
        1 => State::Behind,
        2 => State::Empty,
        _ => State::Whole,
    }
}

/// A deployment with the states of its nodes.
struct World {
    needs: ServiceNeeds,
    holders: Vec<&'static str>,
    nodes: Vec<(Node, State)>,
}

impl World {
    fn of(deployment: &Deployment, states: &[State]) -> World {
        let known = Configuration::founded(deployment.clone());
        let nodes = deployment.numbered().unwrap().nodes.into_iter();
        let mut world = World {
            needs: ServiceNeeds::of(&known, Epoch::default()).unwrap(),
            holders: executors(&deployment.protocol).unwrap().collect(),
            nodes: nodes.zip(states.iter().copied()).collect(),
        };
        let lacks = |(node, state): &(Node, State)| {
            let mut roles = node.roles.iter();
            *state == State::Down || roles.any(|it| !world.works(&it.role, *state))
        };
        // A node without state is whole again as soon as it runs.
        let lacking: Vec<bool> = world.nodes.iter().map(lacks).collect();
        for (node, lacks) in world.nodes.iter_mut().zip(lacking) {
            node.1 = if lacks { node.1 } else { State::Whole };
        }
        world
    }

    fn is_whole(&self) -> bool {
        self.nodes.iter().all(|(_, state)| *state == State::Whole)
    }

    fn is_remembered(&self, role: &str) -> bool {
        let memories = self.needs.service.memories.iter();
        let mut kinds = memories.map(|it| self.needs.name(it.by.kind));
        kinds.any(|kind| kind == role)
    }

    /// Whether an instance on a node in this state does what others need of it.
    fn works(&self, role: &str, state: State) -> bool {
        let holds = state == State::Whole || !self.holders.contains(&role);
        let remembers = state != State::Empty || !self.is_remembered(role);
        state != State::Down && holds && remembers
    }

    /// The instances of a role that work while these nodes are gone.
    fn left(&self, role: &str, gone: usize) -> Members {
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.filter(|(place, _)| gone & (1 << place) == 0);
        let nodes = nodes.filter(|(_, (_, state))| self.works(role, *state));
        let placed = nodes.flat_map(|(_, (node, _))| &node.roles);
        members(
            placed
                .filter(|it| it.role == role)
                .filter_map(|it| it.number),
        )
    }

    fn is_met(&self, enough: &Enough, gone: usize) -> bool {
        enough.is_met(self.left(self.needs.name(enough.kind), gone))
    }

    /// Whether clients are served while these nodes are gone, and nothing that was acknowledged.
    fn serves(&self, gone: usize) -> bool {
        let service = &self.needs.service;
        let is_held = self
            .holders
            .iter()
            .any(|role| !self.left(role, gone).is_empty());
        is_held && service.needs.iter().all(|need| self.is_met(&need.by, gone))
    }

    fn remembers(&self, gone: usize) -> bool {
        let mut memories = self.needs.service.memories.iter();
        memories.all(|memory| self.is_met(&memory.by, gone))
    }

    /// How many more nodes may fail, whichever they are; none where clients are not served now.
    fn tolerance(&self) -> Option<usize> {
        let all = self.nodes.len();
        let stands = |count| sets(all, count).all(|gone| self.serves(gone) && self.remembers(gone));
        let broken = (1..=all)
            .find(|count| !stands(*count))
            .expect("no node is left");
        self.serves(0).then_some(broken - 1)
    }
}

/// Every set of `count` of so few nodes that a word has a bit for each: the next larger number with
/// as many ones.
fn sets(all: usize, count: usize) -> impl Iterator<Item = usize> {
    let next = |set: &usize| {
        let lowest = set & set.wrapping_neg();
        let carried = set + lowest;
        Some((((carried ^ set) >> 2) / lowest) | carried)
    };
    let sets = std::iter::successors(Some((1_usize << count) - 1), next);
    sets.take_while(move |set| *set < 1 << all)
}

/// What the nodes of such a world report.
fn made(deployment: &Deployment, world: &World) -> Made {
    let mut made = Made::of(Configuration::founded(deployment.clone()));
    let hub = world.needs.hub();
    let parts = world.needs.service.parts.len() as u64;
    let mut leads = parts;
    for (place, (_, state)) in world.nodes.iter().enumerate() {
        if *state == State::Down {
            made.gone(place);
            continue;
        }
        for role in &mut made.status(place).roles {
            let name = role.role.as_str();
            let holds = world.holders.contains(&name);
            role.current = holds.then_some(*state == State::Whole);
            let remembers = *state != State::Empty;
            role.remembers = world.is_remembered(name).then_some(remembers);
            if name == hub && parts > 0 {
                let (own, others) = (leads > 0, leads.saturating_sub(1));
                leads = 0;
                role.leads = Some(LeadsStatus {
                    own,
                    others,
                    elections: 0,
                });
            }
        }
    }
    made
}

fn deployments() -> impl Iterator<Item = Deployment> {
    let preset = |name| Deployment::preset(name, &PresetOptions::default()).unwrap();
    let all = presets().map(move |(_, it)| preset(it.name));
    all.filter(|it| it.nodes.len() < 25)
}

#[test]
fn the_tolerance_counts_nodes_by_the_state_that_they_hold() {
    let mut random = Random::new(0);
    let mut verdicts = [0; 3];
    for mut deployment in deployments() {
        let turns = if deployment.nodes.len() < 10 { 40 } else { 6 };
        for turn in 0..turns {
            deployment.durability = [Durability::Memory, Durability::Disk][turn % 2];
            let whole = vec![State::Whole; deployment.nodes.len()];
            let drawn = whole.iter().map(|_| draw(&mut random)).collect();
            let states: Vec<State> = if turn < 2 { whole } else { drawn };
            let world = World::of(&deployment, &states);
            let (verdict, tolerance, texts) = said(&made(&deployment, &world));
            let name = (&deployment.protocol, deployment.durability.name(), &states);
            assert_eq!(tolerance, world.tolerance(), "{name:?}: {texts:?}");
            let is_whole = world.is_whole();
            assert_eq!(verdict == Verdict::Healthy, is_whole, "{name:?}: {texts:?}");
            verdicts[verdict as usize] += 1;
        }
    }
    assert!(verdicts.iter().all(|count| *count > 10), "{verdicts:?}");
}

/// Another shard is whole, so writes go on; what this one holds is lost with its second server.
#[test]
fn the_last_server_that_remembers_a_shard_may_not_fail() {
    let mut made = Made::new("scalog-compartmentalized");
    assert_eq!(said(&made).1, Some(1));
    let mut nodes = made.cluster.nodes.iter();
    let hosts = |status: &NodeStatus| status.roles.iter().any(|it| it.role == "server");
    let server = nodes.position(|node| node.status.as_ref().is_some_and(hosts));
    made.gone(server.expect("a server"));
    let (_, tolerance, texts) = said(&made);
    let last = texts.last().map(String::as_str);
    let expected = (Some(0), Some("no further node with server may fail"));
    assert_eq!((tolerance, last), expected, "{texts:?}");
}

#[test]
fn a_cluster_that_answers_no_request_does_not_serve_and_a_quiet_one_is_healthy() {
    let verdict = |waits: [Option<u64>; 3]| {
        let mut made = Made::new("colocated");
        for (node, waits) in waits.into_iter().enumerate() {
            made.set(node, "client", |it| it.unanswered_ms = waits);
        }
        let (verdict, _, texts) = said(&made);
        (verdict, texts.len())
    };
    assert_eq!(verdict([None; 3]), (Verdict::Healthy, 0));
    assert_eq!(verdict([Some(3000), Some(1), None]), (Verdict::Healthy, 0));
    assert_eq!(verdict([Some(3001), Some(1), None]), (Verdict::Degraded, 1));
    assert_eq!(
        verdict([Some(3001), Some(9000), None]),
        (Verdict::NotServing, 2)
    );
}

#[test]
fn slots_that_no_node_has_are_named() {
    for (preset, replica) in [("colocated", "replica"), ("craq", "master")] {
        let mut made = Made::new(preset);
        for node in 0..3 {
            made.set(node, replica, |it| {
                (it.current, it.executed) = (Some(false), Some(400 + node as u64));
            });
            made.set(node, "acceptor", |it| {
                it.metrics.insert("forgotten".into(), 402);
            });
        }
        assert!(
            said(&made)
                .2
                .iter()
                .all(|it| !it.contains("for want of slots"))
        );
        made.gone(2);
        let (verdict, _, texts) = said(&made);
        assert_eq!(verdict, Verdict::NotServing, "{preset}");
        let text = format!(
            "anything, for want of slots 401 to 401: each acceptor has dropped them, and no {replica} that answers has \
             executed them. They come back with n2, or with a snapshot of a {replica} that was damaged or deleted"
        );
        assert_eq!(texts[0], text);
    }
}
