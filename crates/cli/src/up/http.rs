//! Where the nodes of `ionian up` serve the dashboard, metrics and health.

use crate::address::listen;
use ionian_deployment::{Node, PresetOptions};
use ionian_kernel::layout::NodeId;
use std::net::{Ipv4Addr, SocketAddr};

/// How far the ports are from those of the gateways: 9400 beside 7379.
const ABOVE_GATEWAYS: u16 = 2021;

/// Where the first node serves, and what happens if an address is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Http {
    /// The others use the next ports, by their numbers.
    first: SocketAddr,
    /// Whether a node runs without, if its address is taken.
    pub(crate) is_optional: bool,
}

impl Http {
    /// At the address of the flag.
    pub(crate) fn at(first: SocketAddr) -> Self {
        Http {
            first,
            is_optional: false,
        }
    }

    /// Without the flag: on this machine only, at ports that follow from the gateways'.
    ///
    /// # Errors
    /// Why there is none, if a port is taken or does not exist.
    pub(crate) fn beside_gateways(nodes: &[(NodeId, &Node)]) -> Result<Self, String> {
        let gateways = nodes.iter().filter_map(|(_, node)| node.gateway.as_deref());
        let ports = gateways.filter_map(|text| text.rsplit_once(':')?.1.parse::<u16>().ok());
        let lowest = ports
            .min()
            .unwrap_or(PresetOptions::default().first_gateway_port);
        let first = lowest.checked_add(ABOVE_GATEWAYS);
        let first =
            first.ok_or_else(|| format!("there is no port {ABOVE_GATEWAYS} above {lowest}"))?;
        let http = Http {
            first: SocketAddr::from((Ipv4Addr::LOCALHOST, first)),
            is_optional: true,
        };
        http.check(nodes)?;
        Ok(http)
    }

    /// Checks that the nodes can serve.
    ///
    /// # Errors
    /// Names the first port that is taken.
    pub(crate) fn check(self, nodes: &[(NodeId, &Node)]) -> Result<(), String> {
        let addresses = nodes.iter().filter_map(|(id, _)| self.of(*id));
        for address in addresses {
            listen(address).map_err(|error| format!("port {}: {error}", address.port()))?;
        }
        Ok(())
    }

    /// The address of the node with this number. A node whose port would be too high has none.
    pub(crate) fn of(self, id: NodeId) -> Option<SocketAddr> {
        let port = self.first.port().checked_add(id.0)?;
        Some(SocketAddr::new(self.first.ip(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_deployment::Deployment;

    #[test]
    fn ports_follow_from_the_gateways_and_a_taken_one_is_named() {
        // A port that the system chooses is free.
        let own = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let taken = own.local_addr().unwrap().port();
        let deployment = Deployment::preset("colocated", &PresetOptions::default()).unwrap();
        let mut second = deployment.nodes[1].clone();
        second.gateway = Some(format!("127.0.0.1:{}", taken - ABOVE_GATEWAYS - 1));
        let refused = Http::beside_gateways(&[(NodeId(1), &second)]).unwrap_err();
        assert!(refused.starts_with(&format!("port {taken}: ")), "{refused}");

        let mut high = deployment.nodes[0].clone();
        high.gateway = Some("127.0.0.1:64000".into());
        let refused = Http::beside_gateways(&[(NodeId(0), &high)]).unwrap_err();
        assert_eq!(refused, "there is no port 2021 above 64000");

        let http = Http::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 65_534)));
        let ports = [0, 1, 2].map(|id| http.of(NodeId(id)).map(|it| it.port()));
        assert_eq!(ports, [Some(65_534), Some(65_535), None]);
    }
}
