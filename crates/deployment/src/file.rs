//! Reads and writes deployment files.

use crate::deployment::{CLIENT, Deployment, MAX_TEXT, Node};
use crate::error::{DeploymentError, Place, Problem};
use crate::given::Given;
use crate::network::{Link, Network};
use crate::options::range_text;
use crate::quorums;
use crate::words::is_name;
use ionian_kernel::level::Level;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys without a default, and what to write there.
const REQUIRED: &[(&str, &str)] = &[
    ("cluster", "the name of the cluster"),
    ("protocol", "the protocol, such as \"multipaxos\""),
    ("machine", "the state machine, such as \"kv\""),
    ("f", "how many nodes may fail"),
    ("node", "one [[node]] table for each node"),
];
const REQUIRED_OF_NODE: &[(&str, &str)] = &[
    ("name", "the name of the node"),
    ("address", "host:port where other nodes connect"),
];
const REQUIRED_OF_LINK: &[(&str, &str)] = &[("between", "the two sites")];

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_TEXT as u64 + 1)
        .read_to_string(&mut text)?;
    match text.len() <= MAX_TEXT {
        true => Ok(text),
        false => Err(io::Error::other(
            "it is larger than 4 MiB, the limit for deployment files",
        )),
    }
}

impl Deployment {
    /// Reads a text that a program wrote. One without a level is of the first, as in
    /// [`to_text`](Deployment::to_text).
    ///
    /// # Errors
    /// Names what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, DeploymentError> {
        Self::parse_stored(text)?.with_checked_addresses()
    }

    /// As [`parse`](Self::parse), for the deployment of a cluster that there is: an earlier program
    /// may have accepted addresses that [`check`](Self::check) refuses.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_stored(text: &str) -> Result<Self, DeploymentError> {
        Self::parse_or(text, Level::FIRST)
    }

    fn with_checked_addresses(self) -> Result<Self, DeploymentError> {
        self.check_addresses(&[])?;
        Ok(self)
    }

    /// Reads a text without comparing addresses; `level` is that of one that states none.
    fn parse_or(text: &str, level: Level) -> Result<Self, DeploymentError> {
        let document = DeTable::parse(text).map_err(|error| {
            let start = error.span().map(|span| span.start);
            let hint = start.and_then(|start| hint(text, start));
            DeploymentError {
                place: start.map(|start| Place::of(text, start)),
                ..Problem::Syntax(error.message().to_owned() + &hint.unwrap_or_default()).into()
            }
        })?;
        let mut deployment = Deployment {
            level,
            ..Deployment::blank()
        };
        for (key, value) in in_order(document.get_ref()) {
            let read = match (key.get_ref().as_ref(), value.get_ref()) {
                ("options", DeValue::Table(table)) => deployment.read_options(table, text),
                ("network", DeValue::Table(table)) => {
                    read_network(table, text).map(|network| deployment.network = Some(network))
                }
                ("node", DeValue::Array(items))
                    if items.iter().all(|item| item.get_ref().is_table()) =>
                {
                    let tables = items
                        .iter()
                        .filter_map(|item| Some((item.get_ref().as_table()?, item.span())));
                    tables.into_iter().try_for_each(|(table, span)| {
                        let node = read_node(table, deployment.nodes.len(), text);
                        deployment
                            .nodes
                            .push(node.map_err(|error| error.at(Place::of(text, span.start)))?);
                        Ok(())
                    })
                }
                (name, _) => deployment.set(name, Given::Toml(value, text)),
            };
            read.map_err(|error| error.at(Place::of(text, key.span().start)))?;
        }
        require(document.get_ref(), "", REQUIRED)?;
        deployment.check_stored()?;
        Ok(deployment)
    }

    /// Reads the deployment file of an operator. A file that states no level founds a cluster of
    /// the highest one.
    ///
    /// # Errors
    /// If the file cannot be read, and like [`parse`](Deployment::parse); the error names the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, DeploymentError> {
        Self::load_or(path, Level::LATEST)
    }

    /// Reads a deployment file; `level` is that of one that states none: for a cluster that there
    /// is.
    ///
    /// # Errors
    /// Like [`load`](Deployment::load).
    pub fn load_or(path: impl AsRef<Path>, level: Level) -> Result<Self, DeploymentError> {
        let path = path.as_ref();
        let text = read(path).map_err(|error| Problem::Unreadable(error.to_string()).into());
        text.and_then(|text| Deployment::parse_or(&text, level)?.with_checked_addresses())
            .map_err(|error: DeploymentError| DeploymentError {
                file: Some(path.to_owned()),
                ..error
            })
    }

    fn read_options(&mut self, table: &DeTable<'_>, text: &str) -> Result<(), DeploymentError> {
        let (tuned, stated): (Vec<_>, Vec<_>) = in_order(table)
            .into_iter()
            .partition(|(key, _)| key.get_ref() == TUNED);
        for (key, value) in stated {
            let set = self.set_option(key.get_ref(), Given::Toml(value, text));
            set.map_err(|error| error.at(Place::of(text, key.span().start)))?;
        }
        for (key, value) in tuned {
            let set = self.set_tuned(Given::Toml(value, text));
            set.map_err(|error| error.at(Place::of(text, key.span().start)))?;
        }
        Ok(())
    }

    /// The text of a file for this deployment, with comments for a reader who wants to change it.
    pub fn to_toml(&self) -> String {
        self.write(true)
    }

    /// As [`to_toml`](Deployment::to_toml), for the log of a cluster: without the level if it is
    /// the first one. Programs that know no levels do not know the key, and read texts of running
    /// clusters.
    pub fn to_text(&self) -> String {
        self.write(self.level > Level::FIRST)
    }

    fn write(&self, states_level: bool) -> String {
        let Deployment {
            cluster,
            protocol,
            machine,
            f,
            quorums,
            durability,
            level,
            ..
        } = self;
        let quorums = quorums::write(*quorums);
        let head = [
            (
                "cluster",
                quoted(cluster),
                "nodes of other clusters are refused",
            ),
            (
                "protocol",
                quoted(protocol),
                "what the roles below belong to",
            ),
            (
                "machine",
                quoted(machine),
                "the state machine that is replicated",
            ),
            ("f", f.to_string(), "how many nodes may fail"),
            (
                "quorums",
                quoted(&quorums),
                "\"majority\", \"grid RxC\" (rows x columns), \"groups N\" or \"counts R/W\"",
            ),
            (
                "durability",
                quoted(durability.name()),
                "\"disk\", or \"memory\": a node that stops has forgotten",
            ),
        ];
        let level = states_level.then(|| {
            let about = "the level of the new cluster; without it, the highest of the program";
            ("level", level.to_string(), about)
        });
        let mut text = HEADER.to_owned();
        for (key, value, about) in head.into_iter().chain(level) {
            let _ = writeln!(text, "{:<32}# {about}", format!("{key} = {value}"));
        }
        text.push_str(OPTIONS_HEADER);
        for setting in self.settings() {
            let stated = if self.options.stated(setting.key).is_some() {
                ""
            } else {
                "# "
            };
            let line = format!("{stated}{} = {}", setting.key, self.options.value(setting));
            let _ = writeln!(
                text,
                "{line:<32}# {} ({})",
                setting.about,
                range_text(setting)
            );
        }
        let tuned: Vec<_> = self.options.tuned().map(quoted).collect();
        if !tuned.is_empty() {
            let _ = writeln!(text, "{TUNED_HEADER}{TUNED} = [{}]", tuned.join(", "));
        }
        text.push_str(NETWORK_HEADER);
        text += &self
            .network
            .as_ref()
            .map_or_else(|| NETWORK_EXAMPLE.to_owned(), Network::to_toml);
        text.push_str(&NODES_HEADER.replace("CLIENT", CLIENT));
        for node in &self.nodes {
            write_node(&mut text, node);
        }
        text
    }
}

/// What the line at this byte of a text that is no TOML was meant to be, if that can be guessed.
fn hint(text: &str, at: usize) -> Option<String> {
    let (before, after) = (text.get(..at)?, text.get(at..)?);
    let (head, tail) = (before.lines().last()?, after.lines().next().unwrap_or(""));
    let head = if before.ends_with('\n') { "" } else { head };
    let line = format!("{head}{tail}");
    if line.trim_start().starts_with("[node]") {
        return Some("; each node has a table of its own, begun with [[node]]".to_owned());
    }
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next()?.trim();
    let is_value = value.starts_with(['"', '\'', '[', '{']) || value.parse::<f64>().is_ok();
    let is_bare = !value.is_empty() && !is_value;
    is_bare.then(|| format!("; text is in quotes: {} = {value:?}", key.trim()))
}

const HEADER: &str = "\
# A deployment of Ionian: which nodes there are, and which roles of the protocol live on each. Every
# node is started with the same file. `ionian config check FILE` says what is wrong with one.

";

const OPTIONS_HEADER: &str = "
# What can be tuned; commented out is the default. Keys of times end with their unit.
[options]
";

/// The key that lists the options that a running cluster has changed.
const TUNED: &str = "tuned";
const TUNED_HEADER: &str = "\
# Changed while the cluster ran (`ionian options set`): these count on every node, whatever its own file says.
";

const NETWORK_HEADER: &str = "
# For tests and demonstrations: what goes to a node of another site is on its way for so long, and megabits
# per second get through. A [[network.link]] says what is different between two sites.
";

const NETWORK_EXAMPLE: &str = "\
# [network]
# delay_ms = 50
# mbps = 20
# [[network.link]]
# between = [\"A\", \"B\"]
# delay_ms = 80
";

const NODES_HEADER: &str = "
# One table for each node, which is one operating system process:
#   name     unique in the file; letters, digits, '-' and '_'
#   address  host:port where other nodes find it; a host name is resolved when it is used
#   gateway  host:port where it serves Redis clients, if it does; brings one \"CLIENT\" with it
#   listen, gateway_listen
#            host:port that it listens on in place of these two: behind address translation, in a container
#   site     where it is, for [network]; a node without one is near every other
#   roles    what lives there; \"acceptor*2\" is two of them, \"acceptor:3\" is the one with this number
#   id       the node's number
# Nodes and instances keep their numbers when the membership changes. Those not stated are the lowest that
# are free, in the order of the file. Acceptors fill a grid row by row, in the order of their numbers.
";

fn write_node(text: &mut String, node: &Node) {
    let _ = writeln!(text, "\n[[node]]\nname = {}", quoted(&node.name));
    if let Some(id) = node.id {
        let _ = writeln!(text, "id = {id}");
    }
    let _ = writeln!(text, "address = {}", quoted(&node.address));
    for (key, place) in [
        ("listen", &node.listen),
        ("gateway", &node.gateway),
        ("gateway_listen", &node.gateway_listen),
    ] {
        if let Some(place) = place {
            let _ = writeln!(text, "{key} = {}", quoted(place));
        }
    }
    if let Some(site) = &node.site {
        let _ = writeln!(text, "site = {}", quoted(site));
    }
    let roles: Vec<_> = node
        .roles
        .iter()
        .map(|placed| quoted(&placed.to_string()))
        .collect();
    let _ = writeln!(text, "roles = [{}]", roles.join(", "));
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn read_node(table: &DeTable<'_>, index: usize, text: &str) -> Result<Node, DeploymentError> {
    let name = table
        .get("name")
        .and_then(|name| name.get_ref().as_str())
        .filter(|name| is_name(name));
    let owner = name.map_or_else(|| format!("node[{index}]"), |name| format!("node.{name}"));
    let mut node = Node::default();
    for (key, value) in in_order(table) {
        let set = node.set(&owner, key.get_ref(), Given::Toml(value, text));
        set.map_err(|error| error.at(Place::of(text, key.span().start)))?;
    }
    require(table, &format!("{owner}."), REQUIRED_OF_NODE)?;
    Ok(node)
}

fn read_network(table: &DeTable<'_>, text: &str) -> Result<Network, DeploymentError> {
    let mut network = Network::default();
    for (key, value) in in_order(table) {
        let at = |error: DeploymentError| error.at(Place::of(text, key.span().start));
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("link", DeValue::Array(items))
                if items.iter().all(|item| item.get_ref().is_table()) =>
            {
                for item in items.iter() {
                    let place = Place::of(text, item.span().start);
                    let Some(table) = item.get_ref().as_table() else {
                        continue;
                    };
                    let link = read_link(table, network.links.len(), text)
                        .map_err(|error| error.at(place))?;
                    network.links.push(link);
                }
            }
            (name, _) => network.set(name, Given::Toml(value, text)).map_err(at)?,
        }
    }
    Ok(network)
}

fn read_link(table: &DeTable<'_>, index: usize, text: &str) -> Result<Link, DeploymentError> {
    let owner = format!("network.link[{index}]");
    let mut link = Link::default();
    for (key, value) in in_order(table) {
        let set = link.set(&owner, key.get_ref(), Given::Toml(value, text));
        set.map_err(|error| error.at(Place::of(text, key.span().start)))?;
    }
    require(table, &format!("{owner}."), REQUIRED_OF_LINK)?;
    Ok(link)
}

/// The entries in the order of the text, so that the first mistake is reported.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn require(table: &DeTable<'_>, owner: &str, keys: &[(&str, &str)]) -> Result<(), DeploymentError> {
    match keys.iter().find(|(key, _)| !table.contains_key(*key)) {
        None => Ok(()),
        Some((key, allowed)) => Err(Problem::Missing {
            key: format!("{owner}{key}"),
            allowed: (*allowed).to_owned(),
        }
        .into()),
    }
}
