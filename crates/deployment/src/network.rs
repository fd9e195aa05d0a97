//! The `[network]` table: simulated distances between sites, for tests and demonstrations. The
//! sender delays messages to nodes at other sites, and limits their rate.

use crate::deployment::Deployment;
use crate::error::{DeploymentError, Problem};
use crate::given::Given;
use crate::words::shortened;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

pub(crate) const NETWORK_KEYS: &[&str] = &["delay_ms", "mbps", "link"];
pub(crate) const LINK_KEYS: &[&str] = &["between", "delay_ms", "mbps"];
/// A larger delay is certainly a mistake.
const MAX_DELAY_MS: usize = 60_000;
const MAX_MBPS: usize = 100_000;
const BETWEEN: &str = "two different sites, such as [\"A\", \"B\"]";

/// The network between nodes of different sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// One-way delay in milliseconds.
    pub delay_ms: u64,
    /// Rate from one node to another in megabits per second; unlimited if it is not set.
    pub mbps: Option<u64>,
    /// Pairs of sites with other values, in both directions.
    pub links: Vec<Link>,
}

/// The values between two sites; values that are not set are those between all other sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The sites, in either order.
    pub between: [String; 2],
    /// As [`Network::delay_ms`].
    pub delay_ms: Option<u64>,
    /// As [`Network::mbps`].
    pub mbps: Option<u64>,
}

/// The network between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// One-way delay.
    pub delay: Duration,
    /// Rate in bytes per second; unlimited if `None`.
    pub bytes_per_second: Option<u64>,
}

impl Network {
    /// The network between two sites.
    pub fn distance(&self, from: &str, to: &str) -> Distance {
        let joins = |link: &&Link| {
            [[from, to], [to, from]].contains(&[&*link.between[0], &*link.between[1]])
        };
        let link = self.links.iter().find(joins);
        let delay_ms = link.and_then(|link| link.delay_ms).unwrap_or(self.delay_ms);
        let mbps = link.and_then(|link| link.mbps).or(self.mbps);
        Distance {
            delay: Duration::from_millis(delay_ms),
            bytes_per_second: mbps.map(|mbps| mbps * 125_000),
        }
    }

    /// Sets one of the keys of `[network]`.
    pub(crate) fn set(&mut self, key: &str, given: Given<'_>) -> Result<(), DeploymentError> {
        let path = format!("network.{key}");
        match key {
            "delay_ms" => self.delay_ms = given.number_between(&path, 0, MAX_DELAY_MS)?,
            "mbps" => self.mbps = Some(given.number_between(&path, 1, MAX_MBPS)?),
            "link" => return Err(given.wrong(&path, "tables, each begun with [[network.link]]")),
            _ => {
                return Err(Problem::UnknownKey {
                    key: shortened(&path),
                    known: NETWORK_KEYS.join(", "),
                }
                .into());
            }
        }
        Ok(())
    }

    /// The table as text.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "[network]\n{:<32}# one way, 0 to {MAX_DELAY_MS}",
            format!("delay_ms = {}", self.delay_ms)
        );
        if let Some(mbps) = self.mbps {
            let _ = writeln!(
                text,
                "{:<32}# from a node to another, 1 to {MAX_MBPS}",
                format!("mbps = {mbps}")
            );
        }
        for Link {
            between: [one, other],
            delay_ms,
            mbps,
        } in &self.links
        {
            let _ = writeln!(
                text,
                "\n[[network.link]]\nbetween = [\"{one}\", \"{other}\"]"
            );
            for (key, value) in [("delay_ms", delay_ms), ("mbps", mbps)] {
                let _ = value.map_or(Ok(()), |value| writeln!(text, "{key} = {value}"));
            }
        }
        text
    }
}

impl Link {
    /// Sets one of the keys of a `[[network.link]]`, which errors call `owner`.
    pub(crate) fn set(
        &mut self,
        owner: &str,
        key: &str,
        given: Given<'_>,
    ) -> Result<(), DeploymentError> {
        let path = format!("{owner}.{key}");
        match key {
            "between" => {
                let sites = given
                    .items()
                    .filter(|items| items.len() == 2)
                    .ok_or_else(|| given.wrong(&path, BETWEEN))?;
                self.between = [sites[0].name(&path)?, sites[1].name(&path)?];
                if self.between[0] == self.between[1] {
                    return Err(given.wrong(&path, BETWEEN));
                }
            }
            "delay_ms" => self.delay_ms = Some(given.number_between(&path, 0, MAX_DELAY_MS)?),
            "mbps" => self.mbps = Some(given.number_between(&path, 1, MAX_MBPS)?),
            _ => {
                return Err(Problem::UnknownKey {
                    key: shortened(&path),
                    known: LINK_KEYS.join(", "),
                }
                .into());
            }
        }
        Ok(())
    }
}

impl Deployment {
    /// Why the `[network]` table has no effect, if it has none: it needs nodes at two sites.
    pub fn idle_network(&self) -> Option<String> {
        self.network
            .as_ref()
            .filter(|network| **network != Network::default())?;
        match self.sites()[..] {
            [] => Some(
                "[network] has no effect: no node has a site, so none is far from another. Say where each is \
                 (node.NAME.site)"
                    .to_owned(),
            ),
            [site] => Some(format!(
                "[network] has no effect: it is about what goes from one site to another, and every node that has a \
                 site is at {site}"
            )),
            _ => None,
        }
    }

    /// The sites of the nodes.
    fn sites(&self) -> Vec<&str> {
        let mut sites: Vec<&str> = self
            .nodes
            .iter()
            .filter_map(|node| node.site.as_deref())
            .collect();
        sites.sort_unstable();
        sites.dedup();
        sites
    }

    /// The same deployment with each node at its own site, named A, B, C and so on, and this delay
    /// between any two sites.
    pub fn apart(mut self, delay_ms: u64) -> Self {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let letter = char::from(b'A' + (index % 26) as u8);
            let round = index / 26;
            node.site = Some(if round == 0 {
                letter.to_string()
            } else {
                format!("{letter}{round}")
            });
        }
        self.network = Some(Network {
            delay_ms,
            ..Network::default()
        });
        self
    }

    /// Checks that every link connects sites of nodes, and that no two links connect the same
    /// sites.
    pub(crate) fn check_network(&self) -> Result<(), DeploymentError> {
        let links = self
            .network
            .iter()
            .flat_map(|network| &network.links)
            .enumerate();
        let key = |index| format!("network.link[{index}].between");
        let known = self.sites();
        let mut taken = BTreeMap::new();
        for (index, link) in links {
            let mut sites = link.between.each_ref().map(String::as_str);
            if let Some(missing) = sites.iter().find(|site| !known.contains(site)) {
                let allowed = match known.is_empty() {
                    true => "sites of nodes, and no node has a site".to_owned(),
                    false => format!("sites of nodes, which are {}", known.join(", ")),
                };
                return Err(Problem::Value {
                    key: key(index),
                    value: format!("{missing:?}"),
                    allowed,
                }
                .into());
            }
            sites.sort_unstable();
            if let Some(by) = taken.insert(sites, index) {
                return Err(Problem::Taken {
                    key: key(index),
                    value: sites.join(", "),
                    by: key(by),
                }
                .into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::preset::PresetOptions;
    use ionian_kernel::layout::NodeId;

    fn ms(delay: u64, bytes_per_second: Option<u64>) -> Distance {
        Distance {
            delay: Duration::from_millis(delay),
            bytes_per_second,
        }
    }

    #[test]
    fn a_link_says_what_is_different_about_it_in_either_direction() {
        let link = |between: [&str; 2], delay_ms, mbps| Link {
            between: between.map(str::to_owned),
            delay_ms,
            mbps,
        };
        let links = vec![
            link(["A", "B"], Some(80), None),
            link(["C", "A"], None, Some(1)),
        ];
        let network = Network {
            delay_ms: 50,
            mbps: Some(20),
            links,
        };
        assert_eq!(
            (network.distance("A", "B"), network.distance("B", "A")),
            (ms(80, Some(2_500_000)), ms(80, Some(2_500_000)))
        );
        assert_eq!(
            (network.distance("A", "C"), network.distance("C", "B")),
            (ms(50, Some(125_000)), ms(50, Some(2_500_000)))
        );
    }

    #[test]
    fn a_network_without_two_sites_says_that_it_has_no_effect() {
        let preset = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
        let said = |sites: &[&str]| preset.clone().with_overrides(sites).unwrap().idle_network();
        assert_eq!(said(&[]), None, "nothing is stated");
        assert!(
            said(&["network.delay_ms=50"])
                .unwrap()
                .contains("no node has a site")
        );
        assert!(
            said(&["network.mbps=5", "node.n0.site=A"])
                .unwrap()
                .ends_with("every node that has a site is at A")
        );
        assert_eq!(
            said(&["network.delay_ms=50", "node.n0.site=A", "node.n1.site=B"]),
            None
        );
        assert_eq!(
            said(&["network.delay_ms=0", "node.n0.site=A"]),
            None,
            "it asks for nothing"
        );
    }

    #[test]
    fn only_what_goes_to_another_site_is_delayed() {
        let sites = ["network.delay_ms=7", "node.n0.site=A", "node.n1.site=B"];
        let preset = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
        let known = Configuration::founded(preset.with_overrides(&sites).unwrap());
        assert_eq!(
            known.distances(NodeId(0)),
            BTreeMap::from([(NodeId(1), ms(7, None))])
        );
        assert_eq!(
            known.distances(NodeId(2)),
            BTreeMap::new(),
            "it has no site"
        );
        let apart = known
            .deployment
            .with_overrides(&["node.n1.site=A"])
            .unwrap();
        assert_eq!(
            Configuration::founded(apart).distances(NodeId(0)),
            BTreeMap::new(),
            "one site"
        );
    }
}
