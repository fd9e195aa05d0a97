//! One way in for every setting, by key, whether a file or a flag states it.

use crate::deployment::{Deployment, Durability, MAX_F, MAX_NODES, Node, Placed};
use crate::endpoint::{self, Endpoint};
use crate::error::{DeploymentError, Place, Problem};
use crate::options::{allowed_text, named};
use crate::quorums;
use ionian_kernel::id::MAX_INSTANCES;
use ionian_protocols::registry::NAMES;
use std::str::FromStr;
use toml::Spanned;
use toml::de::DeValue;

pub(crate) const KEYS: &[&str] = &[
    "cluster",
    "protocol",
    "machine",
    "f",
    "quorums",
    "durability",
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
const NAME: &str = "1 to 64 letters, digits, '-' and '_' in quotes";
const ROLES: &str = "a list of roles, such as [\"leader\", \"acceptor*2\", \"replica:5\"], with 1 to 64 of each, \
    numbered 0 to 63";

/// A value as somebody gave it.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// In a file, with the text of the file.
    Toml(&'a Spanned<DeValue<'a>>, &'a str),
    /// With a flag, unquoted.
    Flag(&'a str),
}

impl<'a> Given<'a> {
    fn text(self) -> Option<&'a str> {
        match self {
            Given::Flag(text) => Some(text),
            Given::Toml(value, _) => value.get_ref().as_str(),
        }
    }

    fn number(self) -> Option<u64> {
        match self {
            Given::Flag(text) => digits(text),
            Given::Toml(value, _) => {
                let integer = value.get_ref().as_integer()?;
                u64::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
        }
    }

    /// The items of a list; in a flag they are separated by commas.
    pub(crate) fn items(self) -> Option<Vec<Given<'a>>> {
        match self {
            Given::Flag("") => Some(Vec::new()),
            Given::Flag(text) => Some(text.split(',').map(Given::Flag).collect()),
            Given::Toml(value, source) => Some(
                value
                    .get_ref()
                    .as_array()?
                    .iter()
                    .map(|item| Given::Toml(item, source))
                    .collect(),
            ),
        }
    }

    /// The error that `key` may not have this value.
    pub(crate) fn wrong(self, key: &str, allowed: impl Into<String>) -> DeploymentError {
        let (value, place) = match self {
            Given::Flag(text) if digits(text).is_some() => (text.to_owned(), None),
            Given::Flag(text) => (format!("{text:?}"), None),
            Given::Toml(value, source) => {
                let written = source.get(value.span()).unwrap_or_default();
                (
                    written.to_owned(),
                    Some(Place::of(source, value.span().start)),
                )
            }
        };
        let problem = Problem::Value {
            key: key.to_owned(),
            value: shortened(&value),
            allowed: allowed.into(),
        };
        DeploymentError {
            place,
            ..problem.into()
        }
    }

    pub(crate) fn name(self, key: &str) -> Result<String, DeploymentError> {
        let name = self.text().filter(|name| is_name(name));
        name.map(str::to_owned).ok_or_else(|| self.wrong(key, NAME))
    }

    fn number_up_to(self, key: &str, limit: usize) -> Result<usize, DeploymentError> {
        let number = self
            .number()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| *number <= limit);
        number.ok_or_else(|| self.wrong(key, format!("a whole number from 0 to {limit}")))
    }

    pub(crate) fn number_between(
        self,
        key: &str,
        least: usize,
        most: usize,
    ) -> Result<u64, DeploymentError> {
        let number = self
            .number()
            .filter(|number| (least as u64..=most as u64).contains(number));
        number.ok_or_else(|| self.wrong(key, format!("a whole number from {least} to {most}")))
    }

    fn endpoint(self, key: &str) -> Result<(&'a str, Endpoint<'a>), DeploymentError> {
        let parsed = self
            .text()
            .and_then(|text| Some((text, Endpoint::parse(text)?)));
        parsed.ok_or_else(|| self.wrong(key, endpoint::ALLOWED))
    }

    fn placed(self, key: &str) -> Result<Placed, DeploymentError> {
        self.text()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.wrong(key, ROLES))
    }
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
                number(digits).map(|number| Placed::one(role, number as u8)),
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
    /// Nothing stated yet.
    pub(crate) fn blank() -> Self {
        Deployment {
            cluster: String::new(),
            protocol: String::new(),
            machine: String::new(),
            f: 0,
            quorums: Default::default(),
            durability: Durability::default(),
            options: Default::default(),
            network: None,
            nodes: Vec::new(),
        }
    }

    /// The same with some settings replaced, each given as `key=value`: `f=2`,
    /// `options.batch_commands=10`, `network.delay_ms=50`, `node.n0.roles=leader,acceptor*2`.
    /// `node.n0.gateway=` takes the gateway away, `node.n0.site=` the site, and `network=` the
    /// table.
    ///
    /// # Errors
    /// As for a file.
    pub fn with_overrides<S: AsRef<str>>(
        mut self,
        overrides: &[S],
    ) -> Result<Self, DeploymentError> {
        for text in overrides {
            let text = text.as_ref();
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| Problem::NotAnOverride(text.to_owned()))?;
            self.set_path(key.trim(), Given::Flag(value.trim()))?;
        }
        self.check()?;
        Ok(self)
    }

    fn set_path(&mut self, path: &str, given: Given<'_>) -> Result<(), DeploymentError> {
        if let Some(key) = path.strip_prefix("options.") {
            return self.set_option(key, given);
        }
        if let Some(key) = path.strip_prefix("network.") {
            return self.network.get_or_insert_default().set(key, given);
        }
        // Names of nodes hold no dots.
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

    /// Sets one of the keys outside of all tables.
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
            // Reached when the file or a flag gives these a value that is not a table.
            "options" => return Err(given.wrong(key, "a table, begun with [options]")),
            "network" if matches!(given, Given::Flag("")) => self.network = None,
            "network" => return Err(given.wrong(key, "a table, begun with [network]")),
            "node" => return Err(given.wrong(key, "tables, each begun with [[node]]")),
            _ => {
                return Err(Problem::UnknownKey {
                    key: shortened(key),
                    known: KEYS.join(", "),
                }
                .into());
            }
        }
        Ok(())
    }

    /// Takes note of which options were changed while the cluster ran.
    pub(crate) fn set_tuned(&mut self, given: Given<'_>) -> Result<(), DeploymentError> {
        let keys = given.items().unwrap_or_default();
        keys.into_iter().try_for_each(|key| match key.text() {
            Some(text) => self.options.mark_tuned(text),
            None => Err(key.wrong("options.tuned", "a list of keys of options")),
        })
    }

    /// Sets one of the keys of `[options]`.
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
    /// A node as flags describe it, its roles separated by commas.
    ///
    /// # Errors
    /// As for a file.
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

    /// Sets one of the keys of a `[[node]]`; errors call the node `owner`.
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
                    .map(|item| item.placed(&path))
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

/// A number in digits alone: no sign, no spaces.
pub(crate) fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A name that is safe in paths, flags and log lines.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// A choice, in words.
pub(crate) fn one_of(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(" or ")
}

/// What fits into a line of a message.
pub(crate) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
