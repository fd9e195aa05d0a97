//! Who is notified of a decision.

use super::config::Config;
use super::instance::InstanceId;
use super::message::{Choice, Replier};
use super::{Envelope, acceptor, replica};
use ionian_kernel::id::AcceptorSet;

/// The messages that pass on what an instance is decided to be, without the payload to those in
/// `holders`.
pub(super) fn commit(
    config: &Config,
    id: InstanceId,
    choice: &Choice,
    holders: AcceptorSet,
    replier: Replier,
) -> impl Iterator<Item = Envelope> {
    let recorders = config.recorders();
    let parts = [
        (holders, choice.brief()),
        (recorders.without(holders), choice.clone().into()),
    ];
    let parts = parts.into_iter().filter(|(to, _)| !to.is_empty());
    let commits = parts.map(move |(to, learned)| {
        let message = acceptor::In::Commit {
            id,
            learned,
            replier,
        };
        config.to_recorders(to, message)
    });
    let apart = config.replicas_apart();
    let committed = (!apart.is_empty()).then(|| {
        let choice = choice.clone();
        let message = replica::In::Committed {
            id,
            choice,
            replier,
        };
        Envelope::ToReplicas(apart, message)
    });
    commits.chain(committed)
}
