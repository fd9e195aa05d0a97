//! What the nodes of one machine take together.

use super::rates::Rates;
use ionian_deployment::Deployment;
use serde::Serialize;

/// Nodes of one machine, as far as their addresses say so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shared {
    /// The host in their addresses.
    pub host: String,
    /// Their names.
    pub nodes: Vec<String>,
    /// How many processors their event loops had.
    pub had: f64,
    /// How many more they waited for.
    pub waited_for: f64,
}

impl Shared {
    /// Those on the machine of this node; `None` if it is the only one there.
    pub(super) fn with(
        node: &str,
        deployment: &Deployment,
        nodes: &[(&str, &Rates)],
    ) -> Option<Self> {
        let host = |name: &str| {
            let place = deployment.place(name).ok()?;
            let (host, _) = deployment.nodes[place].address.rsplit_once(':')?;
            Some(host)
        };
        let own = host(node)?;
        let there = nodes.iter().filter(|(name, _)| host(name) == Some(own));
        let there: Vec<_> = there.collect();
        let loops = there.iter().flat_map(|(_, rates)| &rates.loops);
        (there.len() > 1).then(|| Shared {
            host: own.to_owned(),
            nodes: there.iter().map(|(name, _)| (*name).to_owned()).collect(),
            had: loops.map(|(_, busy)| busy).sum(),
            waited_for: there.iter().map(|(_, rates)| rates.wait).sum(),
        })
    }

    /// In a sentence.
    pub(super) fn text(&self) -> String {
        format!(
            "{} nodes of the cluster are on {}. Together their event loops had {:.1} processors, and \
             waited for {:.1} more. Move some of them to other machines, or give this one more \
             processors.",
            self.nodes.len(),
            self.host,
            self.had,
            self.waited_for
        )
    }
}
