//! Deployments that differ only in how many nodes of each group they have: those that grow from one
//! preset.

use anyhow::{Context, Result, ensure};
use ionian_deployment::{CLIENT, Deployment, Durability, Node, Placed, PresetOptions, presets};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::Description;
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_protocols::registry;

/// The largest number of nodes of a plan: what can be run in one process to count its messages.
pub const MAX_NODES: usize = 64;

/// Deployments that grow from one preset.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name of the preset.
    pub name: &'static str,
    /// The name of the protocol.
    pub protocol: &'static str,
    /// How many nodes may fail.
    pub f: usize,
    /// Where nodes store state that must survive a crash.
    pub durability: Durability,
    /// Nodes that are alike.
    pub groups: Vec<Group>,
    /// The smallest valid deployment.
    pub least: Shape,
    preset: Preset,
    options: Option<PresetOptions>,
}

/// Nodes with the same roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their names are this and a number from 0 on.
    pub prefix: String,
    /// The names of their roles.
    pub roles: &'static [&'static str],
    /// Whether they fill the grid of the preset: then only whole columns can be added.
    pub in_grid: bool,
}

/// How many nodes a deployment of a family has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Of each group.
    pub counts: Vec<usize>,
    /// Rows and columns of the grid of acceptors; 0 where there is none.
    pub grid: (usize, usize),
}

impl Group {
    /// Its roles in words, which is what a person calls such a node.
    pub fn title(&self) -> String {
        match self.roles {
            [_, _, _, ..] => format!("every role ({})", self.prefix.trim_end_matches('-')),
            roles => roles.join("+").replace('_', " "),
        }
    }

    /// Whether clients connect to these nodes.
    pub fn has_gateway(&self) -> bool {
        self.roles.contains(&CLIENT)
    }
}

impl Shape {
    /// All nodes.
    pub fn nodes(&self) -> usize {
        self.counts.iter().sum()
    }
}

impl Family {
    /// Those that grow from a preset, for this f.
    ///
    /// # Errors
    /// If there is no such preset, or no deployment of its kind tolerates that number of failures.
    pub fn of(preset: &str, f: usize, durability: Durability) -> Result<Family> {
        let named = presets().find(|(_, known)| known.name == preset);
        let (protocol, preset) = named.with_context(|| format!("no preset {preset:?}"))?;
        let mut family = Family {
            name: preset.name,
            protocol: protocol.name,
            f,
            durability,
            groups: groups(preset),
            least: Shape {
                counts: Vec::new(),
                grid: (0, 0),
            },
            preset: *preset,
            options: None,
        };
        family.least = family.reduced(protocol)?;
        Ok(family)
    }

    /// With these addresses and this name of the cluster.
    #[must_use]
    pub fn with_addresses(mut self, options: PresetOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The deployment of a shape, on one machine until its addresses are changed.
    ///
    /// # Errors
    /// If it is not a valid deployment.
    pub fn deployment(&self, shape: &Shape) -> Result<Deployment> {
        let options = self.options.clone().unwrap_or_default();
        let mut deployment = Deployment::preset(self.name, &options)?;
        deployment.f = self.f;
        deployment.durability = self.durability;
        if let QuorumSpec::Grid { .. } = self.preset.quorums {
            let (rows, columns) = shape.grid;
            deployment.quorums = QuorumSpec::Grid { rows, columns };
        }
        deployment.nodes = self.nodes(shape, &options);
        deployment.check()?;
        validate(&deployment)?;
        Ok(deployment)
    }

    fn nodes(&self, shape: &Shape, options: &PresetOptions) -> Vec<Node> {
        let mut gateways = u32::from(options.first_gateway_port)..;
        let named = self.groups.iter().zip(&shape.counts);
        let named = named.flat_map(|(group, count)| {
            (0..*count).map(move |number| (group, format!("{}{number}", group.prefix)))
        });
        let node = |(port, (group, name)): (u32, (&Group, String))| Node {
            name,
            address: format!("{}:{port}", options.host),
            gateway: group.has_gateway().then(|| {
                let port = gateways.next().unwrap_or_default();
                format!("{}:{port}", options.gateway_host)
            }),
            roles: group.roles.iter().map(|it| Placed::some(it, 1)).collect(),
            ..Node::default()
        };
        let ports = u32::from(options.first_node_port)..;
        ports.zip(named).map(node).collect()
    }

    /// Whether a shape is a deployment that survives f failures.
    pub fn is_valid(&self, shape: &Shape) -> bool {
        shape.nodes() <= MAX_NODES
            && shape.counts.iter().all(|count| *count > self.f)
            && self.deployment(shape).is_ok()
    }

    /// With `more` nodes of a group, or as many columns of the grid; `None` if that is not valid.
    pub fn grown(&self, shape: &Shape, group: usize, more: usize) -> Option<Shape> {
        self.resized(shape, group, |count| Some(count + more))
    }

    /// With one node of a group less, or one column; `None` if that is not valid.
    pub fn shrunk(&self, shape: &Shape, group: usize) -> Option<Shape> {
        self.resized(shape, group, |count| count.checked_sub(1))
    }

    /// With another number of nodes of a group, or of columns of the grid.
    fn resized(
        &self,
        shape: &Shape,
        group: usize,
        to: impl FnOnce(usize) -> Option<usize>,
    ) -> Option<Shape> {
        let mut resized = shape.clone();
        if self.groups[group].in_grid {
            let (rows, columns) = &mut resized.grid;
            *columns = to(*columns)?;
            let nodes = *rows * *columns;
            for (count, group) in resized.counts.iter_mut().zip(&self.groups) {
                if group.in_grid {
                    *count = nodes;
                }
            }
        } else {
            resized.counts[group] = to(resized.counts[group])?;
        }
        self.is_valid(&resized).then_some(resized)
    }

    /// The smallest valid deployment: that of the preset with enough of everything for f failures,
    /// less all that it can do without.
    fn reduced(&mut self, protocol: &Description) -> Result<Shape> {
        let enough = 2 * self.f + 1;
        let grid = match self.preset.quorums {
            QuorumSpec::Grid { .. } => (self.f + 1, self.f + 1),
            _ => (0, 0),
        };
        let mut counts = counts(&self.preset, &self.groups);
        if let QuorumSpec::Grid { rows, columns } = self.preset.quorums {
            // In the preset, the groups of a grid are those that cannot have a node less.
            let shape = Shape {
                counts: counts.clone(),
                grid: (rows, columns),
            };
            let of_preset = Family {
                f: self.preset.f,
                ..self.clone()
            };
            for (group, count) in counts.iter().enumerate() {
                self.groups[group].in_grid = *count == rows * columns
                    && of_preset.shrunk(&shape, group).is_none()
                    && of_preset.grown(&shape, group, 1).is_none();
            }
        }
        for (count, group) in counts.iter_mut().zip(&self.groups) {
            *count = match group.in_grid {
                true => grid.0 * grid.1,
                false => (*count).max(enough),
            };
        }
        let mut shape = Shape { counts, grid };
        ensure!(
            self.is_valid(&shape),
            "no deployment of {} like the preset {} survives {} failures",
            protocol.name,
            self.name,
            self.f
        );
        for group in 0..self.groups.len() {
            while let Some(less) = self.shrunk(&shape, group) {
                shape = less;
            }
        }
        Ok(shape)
    }
}

/// The groups of a preset: nodes with the same roles, whatever their names.
fn groups(preset: &Preset) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for nodes in preset.nodes {
        if groups.iter().any(|known| known.roles == nodes.roles) {
            continue;
        }
        let mut same = preset.nodes.iter().filter(|it| it.roles == nodes.roles);
        let prefix = match same.nth(1) {
            // `acceptor-0-` and `acceptor-1-` are rows of one grid.
            Some(_) => {
                let digits = |c: char| c.is_ascii_digit() || c == '-';
                format!("{}-", nodes.prefix.trim_end_matches(digits))
            }
            None => nodes.prefix.to_owned(),
        };
        groups.push(Group {
            prefix,
            roles: nodes.roles,
            in_grid: false,
        });
    }
    groups
}

fn counts(preset: &Preset, groups: &[Group]) -> Vec<usize> {
    let count = |group: &Group| {
        let same = preset.nodes.iter().filter(|it| it.roles == group.roles);
        same.map(|it| it.count).sum()
    };
    groups.iter().map(count).collect()
}

/// Checks a deployment by the rules of its protocol.
///
/// # Errors
/// Names the rule that it breaks.
pub(crate) fn validate(deployment: &Deployment) -> Result<()> {
    let protocol = registry::protocol(&deployment.protocol);
    let protocol = protocol
        .with_context(|| format!("protocol = {:?}: does not exist", deployment.protocol))?;
    Ok(protocol.configure(deployment.layout(protocol.description().kinds)?)?)
}
