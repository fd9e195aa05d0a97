//! What a node knows about its cluster: the deployment in force, and the membership decided by the
//! log.

use crate::deployment::{Deployment, MAX_TEXT, Node};
use crate::error::{DeploymentError, Place, Problem};
use crate::network::Distance;
use bytes::Bytes;
use ionian_kernel::id::{Epoch, Slot};
use ionian_kernel::layout::{Layout, NodeId};
use ionian_kernel::level::Level;
use ionian_kernel::membership::{Membership, SessionExpiry};
use ionian_kernel::wire::{decode_all, encode_all};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::{Table, Value};

/// A membership with its deployments parsed from TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The [digest](Deployment::digest) of the founding deployment.
    pub founding: u64,
    /// The membership as decided by the log.
    pub membership: Membership,
    /// The deployment in force.
    pub deployment: Deployment,
    /// The deployment after the change in progress; until the change is finished, both are in
    /// force.
    pub next: Option<Deployment>,
}

impl Configuration {
    /// The configuration of a cluster that is founded with `deployment`.
    pub fn founded(deployment: Deployment) -> Self {
        Configuration {
            founding: deployment.digest(),
            membership: Membership::founding(deployment.level),
            deployment,
            next: None,
        }
    }

    /// The configuration of a file, for a cluster that there is and that knows `known`. A file that
    /// states no level may be older than the highest level, so it is one of this cluster if it is
    /// with the cluster's level.
    #[must_use]
    pub fn or_at_level_of(self, known: &Configuration) -> Self {
        let at_its_level = Configuration::founded(Deployment {
            level: known.deployment.level,
            ..self.deployment.clone()
        });
        match self.epoch() == Epoch::default() && at_its_level.founding == known.founding {
            true => at_its_level,
            false => self,
        }
    }

    /// The configuration after the log has decided `membership`.
    ///
    /// # Errors
    /// If one of the texts is not a deployment, or this program does not support its level.
    pub fn advanced(&self, membership: Membership) -> Result<Self, DeploymentError> {
        if !membership.level.is_supported() {
            return Err(Problem::Level {
                level: membership.level,
            }
            .into());
        }
        let deployment = match membership.text.is_empty() {
            true => self.deployment.clone(),
            false => read(&membership.text)?,
        };
        let next = membership.next.as_ref().map(read).transpose()?;
        Ok(Configuration {
            founding: self.founding,
            membership,
            deployment,
            next,
        })
    }

    /// The present epoch of the cluster.
    pub fn epoch(&self) -> Epoch {
        self.membership.epoch
    }

    /// The deployment after the change in progress, or the one in force if no change is in
    /// progress.
    pub fn target(&self) -> &Deployment {
        self.next.as_ref().unwrap_or(&self.deployment)
    }

    /// The text of the deployment in force, which a change names as its starting point.
    ///
    /// # Errors
    /// If the deployment is not well formed.
    pub fn text(&self) -> Result<Bytes, DeploymentError> {
        match self.membership.text.is_empty() {
            true => Ok(Bytes::from(self.deployment.numbered()?.to_text())),
            false => Ok(self.membership.text.clone()),
        }
    }

    /// The members by number, including those that a change in progress adds.
    pub fn nodes(&self) -> BTreeMap<NodeId, &Node> {
        let deployments = self.next.iter().chain([&self.deployment]);
        deployments
            .flat_map(|deployment| deployment.ids().into_iter().zip(&deployment.nodes))
            .collect()
    }

    /// The member with this name.
    pub fn member(&self, name: &str) -> Option<(NodeId, &Node)> {
        self.nodes().into_iter().find(|(_, node)| node.name == name)
    }

    /// The configuration as the layout for a protocol with these roles; see [`Deployment::layout`].
    ///
    /// # Errors
    /// Like `Deployment::layout`.
    pub fn layout(&self, kinds: &[&str]) -> Result<Layout, DeploymentError> {
        let Membership {
            epoch,
            since,
            frontier,
            ..
        } = self.membership;
        let mut layout = self.deployment.layout(kinds)?;
        if let Some(next) = &self.next {
            let next = next.layout(kinds)?;
            // Names are looked up in the layout in force, for nodes of both deployments.
            layout
                .names
                .resize(layout.names.len().max(next.names.len()), String::new());
            for (name, later) in layout
                .names
                .iter_mut()
                .zip(&next.names)
                .filter(|(name, _)| name.is_empty())
            {
                name.clone_from(later);
            }
            layout.next = Some(Box::new(Layout {
                options: layout.options.clone(),
                ..next
            }));
        }
        let founding_expiry = self
            .membership
            .expiry
            .map(|expiry| Duration::from_millis(expiry.founded_ms));
        Ok(Layout {
            epoch,
            since,
            frontier,
            founding_expiry,
            ..layout
        })
    }

    /// The text of the file for this configuration.
    pub fn to_toml(&self) -> String {
        let Membership {
            epoch,
            since,
            frontier,
            next,
            expiry,
            level,
            ..
        } = &self.membership;
        let text = self.text().unwrap_or_default();
        let string =
            |bytes: &Bytes| Value::from(String::from_utf8_lossy(bytes).as_ref()).to_string();
        // Programs that know no levels ignore keys that they do not know, and must not go on above
        // the first level: they do not find the epoch.
        let (head, key) = match *level > Level::FIRST {
            true => (format!("level = {level}\n"), EPOCH_OF_LEVEL),
            false => (String::new(), EPOCH),
        };
        let mut file = format!(
            "{HEADER}{head}founding = \"{:016x}\"\n{key} = {}\nsince = {}\nfrontier = {}\ntext = {}\n",
            self.founding,
            epoch.0,
            since.0,
            frontier.0,
            string(&text)
        );
        if let Some(next) = next {
            file.push_str(&format!("next = {}\n", string(next)));
        }
        if let Some(SessionExpiry { founded_ms, now_ms }) = expiry {
            file.push_str(&format!("session_expiry_ms = [{founded_ms}, {now_ms}]\n"));
        }
        file
    }

    /// Reads the output of [`to_toml`](Configuration::to_toml).
    ///
    /// # Errors
    /// Names what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, DeploymentError> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| DeploymentError {
                place: error.span().map(|span| Place::of(text, span.start)),
                ..Problem::Syntax(error.message().to_owned()).into()
            })?;
        let wrong = |key: &str, allowed: &str| -> DeploymentError {
            Problem::Missing {
                key: key.to_owned(),
                allowed: allowed.to_owned(),
            }
            .into()
        };
        let string = |key: &str| table.get(key).and_then(Value::as_str);
        let epoch = |key: &str| {
            let number = table
                .get(key)
                .and_then(Value::as_integer)
                .and_then(|number| u32::try_from(number).ok());
            let epoch =
                number.and_then(|number| decode_all(&Bytes::from(encode_all(&Epoch(number)))).ok());
            epoch.ok_or_else(|| wrong(key, "the number of an epoch"))
        };
        let founding = string("founding").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let founding = founding.ok_or_else(|| {
            wrong(
                "founding",
                "the digest of a deployment, 16 hexadecimal digits",
            )
        })?;
        let level = match table.get("level") {
            None => Level::FIRST,
            Some(value) => {
                let number = value
                    .as_integer()
                    .and_then(|level| u16::try_from(level).ok());
                Level(number.ok_or_else(|| wrong("level", "the number of a level"))?)
            }
        };
        if !level.is_supported() {
            return Err(Problem::Level { level }.into());
        }
        let key = match level > Level::FIRST {
            true => EPOCH_OF_LEVEL,
            false => EPOCH,
        };
        let (number, since) = (epoch(key)?, epoch("since")?);
        let frontier = table
            .get("frontier")
            .and_then(Value::as_integer)
            .and_then(|slot| u64::try_from(slot).ok());
        let frontier = Slot(frontier.ok_or_else(|| wrong("frontier", "the number of a slot"))?);
        let now = Bytes::from(
            string("text")
                .ok_or_else(|| wrong("text", "the text of a deployment"))?
                .to_owned(),
        );
        let next = string("next").map(|next| Bytes::from(next.to_owned()));
        let deployment = read(&now)?;
        let text = if number == Epoch::default() {
            Bytes::new()
        } else {
            now
        };
        let known = Configuration {
            founding,
            membership: Membership::default(),
            deployment,
            next: None,
        };
        let expiry = match table.get("session_expiry_ms") {
            None => None,
            Some(value) => Some(
                read_expiry(value)
                    .ok_or_else(|| wrong("session_expiry_ms", "two numbers of milliseconds"))?,
            ),
        };
        known.advanced(Membership {
            epoch: number,
            since,
            frontier,
            text,
            next,
            expiry,
            level,
        })
    }
}

/// The key of the epoch at the first level, and at later ones.
const EPOCH: &str = "epoch";
const EPOCH_OF_LEVEL: &str = "epoch_of_level";

const HEADER: &str = "\
# The membership of a cluster as its log has decided it: `founding` names the deployment that the cluster began
# with, `epoch` counts the steps since, below slot `frontier` nothing is asked of acceptors any more, `text` is the deployment in force and `next`, while a change is under way,
# the one that it leads to; `session_expiry_ms` is what it was at first and what it is now, once that was changed. Written by the
# node; `ionian member`, `ionian options` and `ionian upgrade` change it.

";

fn read_expiry(value: &Value) -> Option<SessionExpiry> {
    let number = |value: &Value| u64::try_from(value.as_integer()?).ok();
    let [founded, now] = value.as_array()?.as_slice() else {
        return None;
    };
    Some(SessionExpiry {
        founded_ms: number(founded)?,
        now_ms: number(now)?,
    })
}

fn read(text: &Bytes) -> Result<Deployment, DeploymentError> {
    if text.len() > MAX_TEXT {
        return Err(Problem::Unreadable(
            "it is larger than 4 MiB, the limit for deployment files".into(),
        )
        .into());
    }
    let text = str::from_utf8(text).map_err(|error| Problem::Syntax(error.to_string()))?;
    Deployment::parse_stored(text)
}

impl Configuration {
    /// The simulated distance from a node to each node at another site, as far as the deployment
    /// defines it.
    pub fn distances(&self, from: NodeId) -> BTreeMap<NodeId, Distance> {
        let Some(network) = &self.target().network else {
            return BTreeMap::new();
        };
        let nodes = self.nodes();
        let here = nodes.get(&from).and_then(|node| node.site.as_deref());
        let to = |there: Option<&str>| {
            Some(network.distance(here?, there.filter(|there| here != Some(there))?))
        };
        nodes
            .iter()
            .filter_map(|(node, there)| Some((*node, to(there.site.as_deref())?)))
            .collect()
    }
}
