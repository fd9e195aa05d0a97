//! Sets a setting by its key, from a file or a flag.

use crate::deployment::{Deployment, Durability, MAX_F, MAX_NODES, Node, Placed};
use crate::error::{DeploymentError, Problem};
use crate::given::Given;
use crate::options::{all, allowed_text, named};
use crate::quorums;
use crate::words::{digits, is_name, one_of, shortened};
use ionian_kernel::id::{Index, MAX_INSTANCES};
use ionian_kernel::level::Level;
use ionian_protocols::registry::NAMES;
use std::str::FromStr;

pub(crate) const KEYS: &[&str] = &[
    "cluster",
    "protocol",
    "machine",
    "f",
    "quorums",
    "durability",
    "level",
    "options",
    "network",
    "node",
];
pub(crate) const NODE_KEYS: &[&str] = &[
    "name",
    "id",
    "address",
    "listen",
    "gateway",
    "gateway_listen",
    "site",
    "roles",
];
const ROLES: &str = "a list of roles, such as [\"leader\", \"acceptor*2\", \"replica:5\"], with 1 to 64 of each, \
    numbered 0 to 63";

/// The keys that [`Deployment::with_overrides`] replaces, with those of these nodes and of the
/// options of any protocol.
pub fn keys(nodes: &[String]) -> Vec<String> {
    let tables = ["options", "network", "node"];
    let own = KEYS.iter().filter(|key| !tables.contains(key));
    let of_nodes = nodes.iter().flat_map(|node| {
        let keys = NODE_KEYS.iter().filter(|key| !["name", "id"].contains(key));
        keys.map(move |key| format!("node.{node}.{key}"))
    });
    let network = ["network.delay_ms", "network.mbps"].map(String::from);
    let options = all().map(|it| format!("options.{}", it.key));
    let own = own.map(|key| (*key).to_owned());
    own.chain(options).chain(network).chain(of_nodes).collect()
}

fn placed(given: Given<'_>, key: &str) -> Result<Placed, DeploymentError> {
    let parsed = given.text().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| given.wrong(key, ROLES))
}

impl FromStr for Placed {
    /// What is allowed.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| digits(text).filter(|number| *number < MAX_INSTANCES as u64);
        let count =
            |text: &str| digits(text).filter(|count| (1..=MAX_INSTANCES as u64).contains(count));
        let (role, placed) = match (text.split_once(':'), text.split_once('*')) {
            (Some((role, digits)), _) => (
                role,
                number(digits).map(|number| Placed::one(role, number as Index)),
            ),
            (None, Some((role, digits))) => (
                role,
                count(digits).map(|count| Placed::some(role, count as usize)),
            ),
            (None, None) => (text, Some(Placed::some(text, 1))),
        };
        placed.filter(|_| is_name(role)).ok_or(ROLES)
    }
}

impl Deployment {
    /// A deployment without values.
    pub(crate) fn blank() -> Self {
        Deployment {
            cluster: String::new(),
            protocol: String::new(),
            machine: String::new(),
            f: 0,
            quorums: Default::default(),
            durability: Durability::default(),
            level: Level::FIRST,
            options: Default::default(),
            network: None,
            nodes: Vec::new(),
        }
    }

    /// The same deployment with some settings replaced, each given as `key=value`: `f=2`,
    /// `options.batch_commands=10`, `network.delay_ms=50`, `node.n0.roles=leader,acceptor*2`.
    /// `node.n0.gateway=` removes the gateway, `node.n0.site=` the site, and `network=` the table.
    ///
    /// # Errors
    /// Like for a file.
    pub fn with_overrides<S: AsRef<str>>(
        mut self,
        overrides: &[S],
    ) -> Result<Self, DeploymentError> {
        let before = self.nodes.clone();
        for text in overrides {
            let text = text.as_ref();
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| Problem::NotAnOverride(shortened(text)))?;
            self.set_path(key.trim(), Given::Flag(value.trim()))?;
        }
        self.check_stored()?;
        self.check_addresses(&before)?;
        Ok(self)
    }

    fn set_path(&mut self, path: &str, given: Given<'_>) -> Result<(), DeploymentError> {
        if let Some(key) = path.strip_prefix("options.") {
            return self.set_option(key, given);
        }
        if let Some(key) = path.strip_prefix("network.") {
            return self.network.get_or_insert_default().set(key, given);
        }
        // Node names contain no dots.
        match path
            .strip_prefix("node.")
            .and_then(|path| path.split_once('.'))
        {
            Some((name, key)) => {
                let place = self.place(name)?;
                let owner = format!("node.{name}");
                self.nodes[place].set(&owner, key, given)
            }
            None => self.set(path, given),
        }
    }

    /// Sets a key outside of all tables.
    pub(crate) fn set(&mut self, key: &str, given: Given<'_>) -> Result<(), DeploymentError> {
        match key {
            "cluster" => self.cluster = given.name(key)?,
            "protocol" => {
                let known = given.text().filter(|name| NAMES.contains(name));
                self.protocol = known
                    .ok_or_else(|| given.wrong(key, one_of(NAMES)))?
                    .to_owned();
            }
            "machine" => self.machine = given.name(key)?,
            "f" => self.f = given.number_up_to(key, MAX_F)?,
            "quorums" => {
                let parsed = given.text().and_then(quorums::parse);
                self.quorums = parsed.ok_or_else(|| given.wrong(key, quorums::ALLOWED))?;
            }
            "durability" => {
                let all = Durability::ALL;
                let found = all
                    .into_iter()
                    .find(|durability| given.text() == Some(durability.name()));
                self.durability =
                    found.ok_or_else(|| given.wrong(key, one_of(&all.map(Durability::name))))?;
            }
            "level" => {
                let [least, most] = [Level::OLDEST, Level::LATEST].map(|it| usize::from(it.0));
                self.level = Level(given.number_between(key, least, most)? as u16);
            }
            // Only if the value in the file or flag is not a table.
            "options" => return Err(given.wrong(key, "a table, begun with [options]")),
            "network" if matches!(given, Given::Flag("")) => self.network = None,
            "network" => return Err(given.wrong(key, "a table, begun with [network]")),
            "node" => return Err(given.wrong(key, "tables, each begun with [[node]]")),
            _ => {
                return Err(Problem::UnknownKey {
                    key: if key.is_empty() {
                        "\"\"".to_owned()
                    } else {
                        shortened(key)
                    },
                    known: KEYS.join(", "),
                }
                .into());
            }
        }
        Ok(())
    }

    /// Records which options the running cluster has changed.
    pub(crate) fn set_tuned(&mut self, given: Given<'_>) -> Result<(), DeploymentError> {
        let keys = given.items().unwrap_or_default();
        keys.into_iter().try_for_each(|key| match key.text() {
            Some(text) => self.options.mark_tuned(text),
            None => Err(key.wrong("options.tuned", "a list of keys of options")),
        })
    }

    /// Sets a key of `[options]`.
    pub(crate) fn set_option(
        &mut self,
        key: &str,
        given: Given<'_>,
    ) -> Result<(), DeploymentError> {
        let setting = named(key, &self.protocol)?;
        let number = given
            .number()
            .filter(|number| setting.allowed.contains(number));
        let number =
            number.ok_or_else(|| given.wrong(&format!("options.{key}"), allowed_text(setting)))?;
        self.options.set(key, number)
    }
}

impl Node {
    /// A node from the arguments of a command, with its roles separated by commas.
    ///
    /// # Errors
    /// Like for a file.
    pub fn described(
        name: &str,
        address: &str,
        gateway: Option<&str>,
        roles: &str,
    ) -> Result<Self, DeploymentError> {
        let mut node = Node::default();
        let owner = format!("node.{name}");
        let settings = [
            ("name", Some(name)),
            ("address", Some(address)),
            ("gateway", gateway),
            ("roles", Some(roles)),
        ];
        for (key, value) in settings {
            value.map_or(Ok(()), |value| node.set(&owner, key, Given::Flag(value)))?;
        }
        Ok(node)
    }

    /// Sets a key of a `[[node]]`, which errors call `owner`.
    pub(crate) fn set(
        &mut self,
        owner: &str,
        key: &str,
        given: Given<'_>,
    ) -> Result<(), DeploymentError> {
        let path = format!("{owner}.{key}");
        match key {
            "name" => self.name = given.name(&path)?,
            "id" => self.id = Some(given.number_up_to(&path, MAX_NODES - 1)? as u16),
            "address" => {
                let (text, endpoint) = given.endpoint(&path)?;
                if endpoint.is_wildcard() {
                    return Err(given.wrong(
                        &path,
                        "an address that other nodes can connect to, not a wildcard",
                    ));
                }
                self.address = text.to_owned();
            }
            "listen" if matches!(given, Given::Flag("")) => self.listen = None,
            "listen" => self.listen = Some(given.endpoint(&path)?.0.to_owned()),
            "gateway_listen" if matches!(given, Given::Flag("")) => self.gateway_listen = None,
            "gateway_listen" => self.gateway_listen = Some(given.endpoint(&path)?.0.to_owned()),
            "gateway" if matches!(given, Given::Flag("")) => self.gateway = None,
            "gateway" => self.gateway = Some(given.endpoint(&path)?.0.to_owned()),
            "site" if matches!(given, Given::Flag("")) => self.site = None,
            "site" => self.site = Some(given.name(&path)?),
            "roles" => {
                let items = given.items().ok_or_else(|| given.wrong(&path, ROLES))?;
                self.roles = items
                    .into_iter()
                    .map(|item| placed(item, &path))
                    .collect::<Result<_, _>>()?;
            }
            _ => {
                return Err(Problem::UnknownKey {
                    key: shortened(&path),
                    known: NODE_KEYS.join(", "),
                }
                .into());
            }
        }
        Ok(())
    }
}
