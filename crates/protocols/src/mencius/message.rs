//! From messages of MultiPaxos to those of Mencius.

use super::stripe::{Stripe, Stripes};
use super::{Envelope, acceptor, leader, proxy_leader, replica};
use crate::multipaxos;
use alloc::collections::BTreeMap;
use ionian_kernel::role::Role;

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

/// Figures that count nothing that stripes would have apart: the highest of them is told. An
/// acceptor is let in again stripe by stripe, and one that is suspected is so in most.
const HIGHEST: &[&str] = &[
    "epoch",
    "promise",
    "round",
    "amnesiac",
    "suspected_acceptors",
];

/// Reports what the roles of all stripes report, as one: the sum of what they count, of all else
/// the highest.
pub(super) fn report_together<'a, R: Role + 'a>(
    stripes: impl Iterator<Item = &'a R>,
    report: &mut dyn FnMut(&'static str, u64),
) {
    let mut figures: BTreeMap<&'static str, u64> = BTreeMap::new();
    for stripe in stripes {
        stripe.status(&mut |name, value| {
            let figure = figures.entry(name).or_default();
            *figure = if HIGHEST.contains(&name) {
                value.max(*figure)
            } else {
                *figure + value
            };
        });
    }
    figures
        .into_iter()
        .for_each(|(name, figure)| report(name, figure));
}
