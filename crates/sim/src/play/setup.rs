//! What a play is performed on, if its text says so itself.

use super::PlayError;
use super::command::parse_node;
use crate::roles::Simulated;
use crate::scenario::{Durability, Scenario};
use crate::variations::Numbers;
use ionian_kernel::layout::{Layout, NodeId, Options, numbered};
use ionian_kernel::level::Level;
use ionian_kernel::protocol::Description;
use ionian_kernel::quorum_spec::QuorumSpec;

/// What the first lines of a play say of its cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The protocol.
    pub protocol: String,
    /// The settings that differ from their defaults, by their keys in deployment files.
    pub settings: Vec<(String, u64)>,
    nodes: Vec<Nodes>,
    /// The nodes that each other layout replaces.
    layouts: Vec<Vec<NodeId>>,
    f: usize,
    quorums: QuorumSpec,
    durability: Durability,
    /// The level that the cluster is founded with.
    level: Level,
}

/// This number of nodes, each with one instance of these roles.
#[derive(Clone, Debug)]
struct Nodes {
    count: u16,
    roles: Vec<String>,
}

/// Stands for all roles of a protocol.
const ALL: &str = "all";

/// What the lines about the cluster begin with, after the first one.
const LINES: [&str; 7] = [
    "nodes",
    "layout",
    "tolerates",
    "quorums",
    "set",
    "durability",
    "level",
];

impl Setup {
    /// Reads a line; `None` when it is not one of these.
    pub(super) fn read(setup: &mut Option<Setup>, text: &str) -> Option<Result<(), String>> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let ["protocol", name] = words[..] {
            let (nodes, layouts, settings) = (Vec::new(), Vec::new(), Vec::new());
            *setup = Some(Setup {
                protocol: name.to_owned(),
                settings,
                nodes,
                layouts,
                f: 1,
                quorums: QuorumSpec::Majority,
                durability: Durability::Disk,
                level: Level::LATEST,
            });
            return Some(Ok(()));
        }
        let first = words.first().filter(|first| LINES.contains(first))?;
        Some(match setup {
            None => Err(format!(
                "{first} comes after the line that names the protocol"
            )),
            Some(setup) => setup.add(&words),
        })
    }

    fn add(&mut self, words: &[&str]) -> Result<(), String> {
        let number = |text: &str| {
            let number = text.parse::<u16>();
            number.map_err(|_| format!("{text:?} is not a number of at most {}", u16::MAX))
        };
        match *words {
            ["nodes", count, ref roles @ ..] if !roles.is_empty() => self.nodes.push(Nodes {
                count: number(count)?,
                roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            }),
            ["layout", place, "replaces", ref nodes @ ..] if !nodes.is_empty() => {
                if usize::from(number(place)?) != self.layouts.len() + 1 {
                    return Err(format!("the next layout is {}", self.layouts.len() + 1));
                }
                let nodes = nodes.iter().map(|node| {
                    let number = u16::try_from(parse_node(node)?);
                    number.map(NodeId).map_err(|error| error.to_string())
                });
                self.layouts.push(nodes.collect::<Result<_, String>>()?);
            }
            ["tolerates", f] => self.f = number(f)?.into(),
            ["quorums", "grid", shape] => {
                let (rows, columns) = shape
                    .split_once('x')
                    .ok_or_else(|| format!("{shape:?} is not a grid such as 2x3"))?;
                self.quorums = QuorumSpec::Grid {
                    rows: number(rows)?.into(),
                    columns: number(columns)?.into(),
                };
            }
            ["set", setting] => {
                let (key, value) = setting
                    .split_once('=')
                    .ok_or_else(|| format!("{setting:?} is not a setting such as key=1"))?;
                let value = value.parse();
                let value = value.map_err(|_| format!("{setting:?} has no whole number"))?;
                self.settings.push((key.to_owned(), value));
            }
            ["level", level] => self.level = Level(number(level)?),
            ["durability", "disk"] => self.durability = Durability::Disk,
            ["durability", "memory"] => self.durability = Durability::Memory { returns: false },
            ["durability", "amnesia"] => self.durability = Durability::Memory { returns: true },
            _ => {
                return Err(format!(
                    "{:?} is not understood; allowed are nodes N ROLE..., layout N replaces NODE..., \
                     tolerates N, quorums grid RxC, set KEY=VALUE, level N, durability disk, memory or amnesia",
                    words.join(" ")
                ));
            }
        }
        Ok(())
    }

    /// The cluster that the play says, with these options: what [`settings`](Setup::settings) are
    /// in the kernel's types.
    ///
    /// # Errors
    /// If the protocol has no such role.
    pub fn scenario(&self, protocol: Simulated, options: Options) -> Result<Scenario, PlayError> {
        let Description {
            name,
            kinds,
            executes_before_stable,
            ..
        } = protocol.description();
        let mut places = vec![Vec::new(); kinds.len()];
        let mut next = (0..).map(NodeId);
        for Nodes { count, roles } in &self.nodes {
            let unknown = roles
                .iter()
                .find(|role| *role != ALL && !kinds.contains(&role.as_str()));
            if let Some(unknown) = unknown {
                let message = format!(
                    "{name} has no role {unknown:?}; its roles are {}",
                    kinds.join(", ")
                );
                return Err(PlayError { line: 0, message });
            }
            for node in next.by_ref().take(usize::from(*count)) {
                for (kind, places) in kinds.iter().zip(&mut places) {
                    if roles.iter().any(|role| role == ALL || role == kind) {
                        places.push(node);
                    }
                }
            }
        }
        let layout = Layout {
            f: self.f,
            quorums: self.quorums,
            instances: numbered(places),
            options,
            founding_level: self.level,
            ..Layout::default()
        };
        let mut numbers = Numbers::new(&layout);
        let changes = self.layouts.iter().map(|replaced| {
            let mut replaced = replaced.iter();
            replaced.try_fold(layout.clone(), |layout, node| {
                let known = layout.nodes().contains(node);
                let unknown = || format!("a layout replaces n{}, which has no roles", node.0);
                let replaced = known.then(|| numbers.replace(&layout, *node));
                replaced.ok_or_else(unknown)
            })
        });
        let changes = changes.collect::<Result<_, _>>();
        let changes = changes.map_err(|message| PlayError { line: 0, message })?;
        Ok(Scenario {
            changes,
            durability: self.durability,
            stable_log: !executes_before_stable,
            ..Scenario::new(*name, layout)
        })
    }
}
