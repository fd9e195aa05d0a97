//! Changes of members whose new nodes do not answer, or not at once, while one of the others fails:
//! the cluster serves, and the change can be abandoned, or is finished when they answer.

use super::shapes::{self, AMNESIA};
use ionian_kernel::id::Index;
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::protocol::Transition;
use ionian_sim::machine::Lists;
use ionian_sim::play::Play;
use ionian_sim::{Durability, Scenario, Simulated, variations};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What becomes of the new nodes.
#[derive(Clone, Copy, Debug)]
enum Newcomers {
    /// They never answer: they have wrong addresses, or are not started.
    Never,
    /// One of them answers.
    One,
    /// They answer after a while.
    Late,
    /// They are started this number of milliseconds before they crash, and come back.
    Crash(u32),
}

const ALL: [Newcomers; 6] = [
    Newcomers::Never,
    Newcomers::One,
    Newcomers::Late,
    Newcomers::Crash(1),
    Newcomers::Crash(60),
    Newcomers::Crash(400),
];

/// A change, and the node of the old members that fails.
struct Case {
    new: Vec<NodeId>,
    failed: NodeId,
    /// Lanes on members that stay up, before the change and after it: the same, if there is one.
    lane: Index,
    after: Index,
}

impl Case {
    fn play(&self, newcomers: Newcomers) -> String {
        let Case {
            new,
            failed,
            lane,
            after,
        } = self;
        let mut play = format!(
            "run for 2s\nsubmit c{lane} append x 1\nrun for 1s\nexpect reply c{lane} length 1\n"
        );
        let each = |nodes: &[NodeId], command: &str| {
            let lines = nodes.iter().map(|node| format!("{command} n{}\n", node.0));
            lines.collect::<String>()
        };
        play += &match newcomers {
            Newcomers::One => each(&new[1..], "crash"),
            Newcomers::Never | Newcomers::Late => each(new, "crash"),
            Newcomers::Crash(_) => String::new(),
        };
        let ms = match newcomers {
            Newcomers::Crash(ms) => ms,
            _ => 1000,
        };
        write!(play, "change c{lane} to 1\nrun for {ms}ms\n").expect("a text");
        if matches!(newcomers, Newcomers::Crash(_)) {
            play += &each(new, "crash");
        }
        write!(play, "crash n{}\nrun for 3s\n", failed.0).expect("a text");
        match newcomers {
            Newcomers::Never | Newcomers::One => write!(
                play,
                "expect reply c{lane} epoch 1 begins\nsubmit c{lane} append x 2\nrun for 4s\n\
                 expect reply c{lane} length 2\nabandon c{lane}\nrun for 4s\n\
                 expect reply c{lane} epoch 2 begins\nsubmit c{lane} append x 3\nrun for 2s\n\
                 expect reply c{lane} length 3\n"
            ),
            Newcomers::Late | Newcomers::Crash(_) => {
                play += &each(new, "restart");
                write!(
                    play,
                    "run for 8s\nexpect reply c{lane} epoch 1 begins\nexpect epoch n{} 2\n\
                     submit c{after} append x 2\nrun for 4s\nexpect reply c{after} length 2\n",
                    new[0].0
                )
            }
        }
        .expect("a text");
        play
    }
}

/// Of all nodes with the same roles the first and the last.
fn representatives(layout: &Layout) -> BTreeSet<NodeId> {
    let mut alike: BTreeMap<Vec<u8>, Vec<NodeId>> = BTreeMap::new();
    for node in layout.nodes() {
        let kinds = layout.on_node(node).into_iter().map(|role| role.kind);
        alike.entry(kinds.collect()).or_default().push(node);
    }
    let ends = |nodes: &Vec<NodeId>| [nodes[0], nodes[nodes.len() - 1]];
    alike.values().flat_map(ends).collect()
}

fn cases(from: &Layout, to: &Layout) -> Vec<Case> {
    let new: Vec<NodeId> = to.nodes().difference(&from.nodes()).copied().collect();
    let case = |failed: NodeId| {
        let lanes = |of: &Layout| -> BTreeSet<Index> {
            let places = of.places(0);
            let up = places.iter().filter(|(_, node)| *node != failed);
            up.map(|(lane, _)| lane).collect()
        };
        let (before, after) = (lanes(from), lanes(to));
        let stays = before.intersection(&after).next();
        Some(Case {
            new: new.clone(),
            failed,
            lane: *stays.or(before.first())?,
            after: *stays.or(after.first())?,
        })
    };
    representatives(from).into_iter().filter_map(case).collect()
}

/// What is tried with each durability: without disks a new node that crashes has lost its memory,
/// which is a second failure.
fn tried(durability: Durability) -> &'static [Newcomers] {
    match durability {
        Durability::Disk => &ALL,
        _ => &[Newcomers::Never, Newcomers::Late],
    }
}

pub(crate) fn absent_newcomers_take_nothing_away(protocol: Simulated) {
    let mut failures = Vec::new();
    let mut count = 0;
    let shape = shapes::smallest(protocol);
    let from = &shape.layout;
    let joint = |to: &Layout| {
        matches!(
            protocol.protocol().transition(from, to),
            Ok(Transition::Joint)
        )
    };
    for to in variations(protocol, from).into_iter().filter(joint) {
        for (durability, case) in [Durability::Disk, AMNESIA]
            .into_iter()
            .flat_map(|it| cases(from, &to).into_iter().map(move |case| (it, case)))
        {
            let scenario = Scenario {
                changes: vec![to.clone()],
                durability,
                ..shape.clone()
            };
            let one_of_one = |it: &Newcomers| matches!(it, Newcomers::One) && case.new.len() < 2;
            for newcomers in tried(durability).iter().filter(|it| !one_of_one(it)) {
                let play = Play::parse(&case.play(*newcomers)).expect("a play");
                count += 1;
                if let Err(error) = play.run(protocol, &scenario, Lists::new(3)) {
                    let (failed, new) = (case.failed, &case.new);
                    failures.push(format!(
                        "{durability:?}, {failed:?} fails, {new:?} join, {newcomers:?}: {error}"
                    ));
                }
            }
        }
    }
    println!("{count} plays");
    let some = failures.iter().take(20).cloned().collect::<Vec<_>>();
    assert!(
        failures.is_empty(),
        "{} of {count}:\n{}",
        failures.len(),
        some.join("\n")
    );
}
