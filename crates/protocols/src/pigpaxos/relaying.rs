//! Which deployments can have relays, and what roles need to know of them.

use super::fanout::Leg;
use super::message::RelayId;
use super::settings::Settings;
use crate::multipaxos::kind;
use alloc::format;
use alloc::vec::Vec;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Layout, LayoutError};
use ionian_kernel::quorum_spec::QuorumSpec;
use ionian_kernel::time::Duration;

/// The relays of a deployment. There are none in most.
#[derive(Clone, Debug)]
pub struct Relaying {
    /// How to use them.
    pub settings: Settings,
    /// A relay that has not answered for this long is passed over.
    pub(super) patience: Duration,
    acceptors: AcceptorSet,
    /// By the number of a relay, the acceptors on its node. One that stands alone is not used.
    beside: Vec<AcceptorSet>,
    relays: Set<RelayId>,
    /// How many votes are enough, where only their number matters.
    enough: Option<usize>,
}

/// In microseconds: a requester waits this long at most. Doubled waits are not longer.
const MAX_PATIENCE: u64 = 60_000_000;

impl Relaying {
    /// Checks the relays of a layout, if it has any.
    ///
    /// # Errors
    /// Says for how many votes a relay may not do without.
    pub(crate) fn new(layout: &Layout) -> Result<Option<Self>, LayoutError> {
        let relays: Set<RelayId> = layout.all(kind::Relay);
        if relays.is_empty() {
            return Ok(None);
        }
        let (settings, acceptors) = (Settings::of(&layout.options), layout.all(kind::Acceptor));
        let mut beside = Vec::new();
        for (relay, node) in layout.places(kind::Relay).iter() {
            let here: AcceptorSet = layout.near(kind::Acceptor, node);
            beside.resize(beside.len().max(usize::from(relay) + 1), AcceptorSet::EMPTY);
            beside[usize::from(relay)] = here;
        }
        // While the members change, quorums of both configurations are needed.
        let enough = match layout.quorums {
            _ if layout.next.is_some() => None,
            QuorumSpec::Majority => Some(acceptors.len() / 2 + 1),
            QuorumSpec::Counts { write, .. } => Some(write),
            QuorumSpec::Grid { .. } | QuorumSpec::Groups { .. } => None,
        };
        let relaying = Relaying {
            settings,
            patience: layout.options.resend_after,
            acceptors,
            beside,
            relays,
            enough,
        };
        relaying.check_slack(layout)?;
        if relaying.settings.fan_out == Some(1) {
            return Err(LayoutError(
                "relay_fan_out = 1 makes a chain of relays, each of which waits for all behind it: 0 \
                 or at least 2 is allowed"
                    .into(),
            ));
        }
        Ok(Some(relaying))
    }

    /// What relays may leave out must leave a write quorum, or each request has to be made twice
    /// (4.1).
    fn check_slack(&self, layout: &Layout) -> Result<(), LayoutError> {
        let (slack, all) = (self.settings.slack, self.acceptors.len());
        if slack == 0 || layout.next.is_some() {
            return Ok(());
        }
        let Some(enough) = self.enough else {
            return Err(LayoutError(format!(
                "relay_slack is {slack}: where acceptors are in a grid or in groups, relays must wait for all (0)"
            )));
        };
        // A proxy leader asks the acceptor of its own node itself.
        let proxies = layout.places(kind::ProxyLeader);
        let apart = proxies
            .iter()
            .any(|(_, node)| layout.near::<AcceptorId>(kind::Acceptor, node).is_empty());
        let own = usize::from(!apart);
        let groups = self.settings.groups.min(all - own).max(1);
        if groups == 1 {
            // Its relay waits for a quorum, whatever the slack.
            return Ok(());
        }
        let sure = own + (all - own).saturating_sub(groups * slack);
        if sure >= enough {
            return Ok(());
        }
        Err(LayoutError(format!(
            "relay_slack is {slack}: {groups} relays that each do without {slack} of their acceptors are sure to have \
             {sure} votes of {all}, and {enough} are needed; at most {} is possible",
            (all - enough) / groups
        )))
    }

    /// All relays.
    pub fn relays(&self) -> Set<RelayId> {
        self.relays
    }

    /// The acceptors that a relay is to ask on behalf of one who waits this long, in microseconds.
    /// A damaged message may say anything.
    pub(super) fn asked(&self, members: AcceptorSet, patience: u64) -> (AcceptorSet, Duration) {
        let patience = Duration::from_micros(patience.min(MAX_PATIENCE));
        (members.and(self.acceptors), patience)
    }

    /// All acceptors.
    pub(super) fn acceptors(&self) -> AcceptorSet {
        self.acceptors
    }

    /// The acceptors on the node of a relay.
    pub(super) fn beside(&self, relay: RelayId) -> AcceptorSet {
        let beside = self.beside.get(usize::from(relay.0));
        beside.copied().unwrap_or_default()
    }

    /// The relays beside any of these acceptors.
    pub(super) fn relays_of(&self, acceptors: AcceptorSet) -> Set<RelayId> {
        let of = |relay: &RelayId| self.beside(*relay).meets(acceptors);
        self.relays.iter().filter(of).collect()
    }

    /// For how many of `members` their relay need not wait, when it is one of `groups` and
    /// `direct` other acceptors are asked without a relay. If it is the only one, it sees all votes
    /// but those, and can answer when they make a quorum (4.3).
    pub(super) fn slack(&self, members: AcceptorSet, groups: usize, direct: usize) -> usize {
        let most = members.len().saturating_sub(1);
        match self.enough {
            None => 0,
            Some(enough) if groups == 1 => {
                (members.len() + direct).saturating_sub(enough).min(most)
            }
            Some(_) => self.settings.slack.min(most),
        }
    }

    /// Takes the slack from these groups if it could cost the quorum, where a whole group does
    /// not answer and `direct` acceptors are asked without a relay. With the slack each request
    /// would have to be made twice.
    pub(super) fn wait_for_all_if_needed(&self, direct: usize, groups: &mut [Leg]) {
        let sure = |leg: &Leg| match leg {
            Leg::Relayed { members, slack, .. } => members.len() - usize::from(*slack),
            Leg::Direct(acceptors) => acceptors.len(),
        };
        let sure: usize = direct + groups.iter().map(sure).sum::<usize>();
        if self.enough.is_none_or(|enough| sure >= enough) {
            return;
        }
        for leg in groups {
            if let Leg::Relayed { slack, .. } = leg {
                *slack = 0;
            }
        }
    }
}
