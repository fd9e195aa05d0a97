//! From messages of MultiPaxos to those of Mencius.

use super::stripe::{Stripe, Stripes};
use super::{Envelope, acceptor, leader, proxy_leader, replica};
use crate::multipaxos;

/// What stands here for an envelope of MultiPaxos in a stripe. Replicas are told of slots of the
/// log.
pub fn striped(stripes: Stripes, stripe: Stripe, envelope: multipaxos::Envelope) -> Envelope {
    use multipaxos::Envelope as Theirs;
    use multipaxos::replica::In::Chosen;
    match envelope {
        Theirs::ToClients(clients, message) => Envelope::ToClients(clients, message),
        Theirs::ToBatchers(batchers, message) => Envelope::ToBatchers(batchers, message),
        Theirs::ToReadBatchers(batchers, message) => Envelope::ToReadBatchers(batchers, message),
        Theirs::ToLeaders(leaders, message) => {
            Envelope::ToLeaders(leaders, leader::In::InStripe { stripe, message })
        }
        Theirs::ToProxyLeaders(proxies, message) => {
            Envelope::ToProxyLeaders(proxies, proxy_leader::In::InStripe { stripe, message })
        }
        Theirs::ToAcceptors(acceptors, multipaxos::acceptor::In::PreRead { from, inquiry }) => {
            Envelope::ToAcceptors(acceptors, acceptor::In::PreRead { from, inquiry })
        }
        Theirs::ToAcceptors(acceptors, message) => {
            Envelope::ToAcceptors(acceptors, acceptor::In::InStripe { stripe, message })
        }
        Theirs::ToReplicas(
            replicas,
            Chosen {
                slot: position,
                value,
                replier,
            },
        ) => {
            let message = Chosen {
                slot: stripes.slot(stripe, position),
                value,
                replier,
            };
            Envelope::ToReplicas(replicas, replica::In::OfLog { message })
        }
        Theirs::ToReplicas(replicas, message) => {
            Envelope::ToReplicas(replicas, replica::In::OfLog { message })
        }
        Theirs::ToUnbatchers(unbatchers, message) => Envelope::ToUnbatchers(unbatchers, message),
        Theirs::ToApplication(lane, reply) => Envelope::ToApplication(lane, reply),
    }
}
