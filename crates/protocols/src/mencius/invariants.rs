//! What must hold over all roles at once, at every moment of every run: MultiPaxos's facts in every
//! stripe, and what skipping adds to them.

use super::acceptor::Acceptor;
use super::config::Config;
use super::leader::Leader;
use super::replica::Replica;
use super::stripe::{Stripe, StripePosition};
use super::{Instance, Mencius};
use crate::multipaxos;
use crate::multipaxos::invariants::{Ledger, is_write_quorum};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_kernel::small_map::SmallMap;
use ionian_replication::batch::Value;
use ionian_replication::slot_map::SlotMap;

/// What was seen so far in one run.
pub struct Invariants {
    /// The latest configuration.
    config: Arc<Config>,
    /// What a stripe knows of every configuration that some node has ever had: acceptors and their
    /// quorums are the same in all stripes.
    configs: SmallMap<Epoch, Arc<multipaxos::config::Config>>,
    ledger: Ledger,
    /// The votes of each acceptor that were looked at in each stripe, in its present life.
    seen: BTreeMap<(Address, Stripe), Seen>,
}

/// Votes that were looked at.
#[derive(Default)]
struct Seen {
    /// How many were cast by then.
    cast: u64,
    /// The round of the last in each position.
    rounds: SlotMap<Round>,
}

impl protocol::Invariants<Mencius> for Invariants {
    fn new(config: &Arc<Config>) -> Self {
        Invariants {
            config: config.clone(),
            configs: of_any_stripe(config).into_iter().collect(),
            ledger: Ledger::default(),
            seen: BTreeMap::new(),
        }
    }

    fn reconfigured(&mut self, config: &Arc<Config>) {
        if config.layout().epoch > self.config.layout().epoch {
            self.config = config.clone();
        }
        self.configs.extend(of_any_stripe(config));
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor),
            Instance::Replica(replica) => self.check_replica(address, replica),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        if self.seen.keys().any(|(known, _)| *known == address) {
            self.seen.retain(|(known, _), _| *known != address);
            self.ledger.acceptor_crashed(AcceptorId(address.index));
        }
        self.ledger.crashed(address);
    }

    /// Each leader leads its own stripe, and another leads that of a leader that is down.
    fn awaited(&self, instances: &[(Address, &Instance)]) -> Option<String> {
        let leaders = || {
            instances.iter().filter_map(|(_, instance)| match instance {
                Instance::Leader(leader) => Some(leader),
                _ => None,
            })
        };
        self.config.stripes.iter().find_map(|stripe| {
            let leads = |leader: &Leader| {
                leader
                    .stripes()
                    .any(|(led, role)| led == stripe && role.is_leading())
            };
            match leaders().find(|leader| leader.home() == Some(stripe)) {
                Some(home) => {
                    (!leads(home)).then(|| format!("{stripe:?} is not led by its own leader"))
                }
                None => (!leaders().any(leads)).then(|| format!("{stripe:?} is led by none")),
            }
        })
    }
}

impl Invariants {
    /// Looks at the votes of an acceptor that were not looked at yet.
    fn check_acceptor(&mut self, address: Address, acceptor: &Acceptor) -> Result<(), String> {
        for (stripe, acceptor) in acceptor.stripes() {
            let seen = self.seen.entry((address, stripe)).or_default();
            if core::mem::replace(&mut seen.cast, acceptor.votes_cast()) == acceptor.votes_cast()
                && seen.cast > 0
            {
                continue;
            }
            for (position, vote) in acceptor.votes() {
                if seen.rounds.insert(position, vote.round) != Some(vote.round) {
                    let slot = self
                        .config
                        .stripes
                        .slot(stripe, StripePosition::of_part(position));
                    let enough = |round, voters| is_write_quorum(&self.configs, round, voters);
                    self.ledger
                        .check_vote(AcceptorId(address.index), slot, vote, enough)?;
                }
            }
        }
        Ok(())
    }

    /// Replicas execute what was chosen: what a write quorum voted for in one round, or a noop
    /// where a leader skipped: "because all other servers can only propose no-op, when the
    /// coordinator proposes no-op, any server learns that no-op has been chosen" (Mencius 4.2). No
    /// leader may skip a slot in which a write quorum stands for another value, and none may do so
    /// later.
    fn check_replica(&mut self, address: Address, replica: &Replica) -> Result<(), String> {
        let Invariants {
            configs, ledger, ..
        } = self;
        let chooses = |round, voters| is_write_quorum(configs, round, voters);
        ledger.check_replica(address, replica.core(), |votes, slot, value| {
            let is_chosen = |(round, voted, voters): &(Round, &Value, _)| {
                *voted == value && chooses(*round, *voters)
            };
            let last = votes.in_slot(slot).filter(is_chosen).last();
            let by_votes = last.map(|(round, voted, _)| (voted.clone(), Some(round)));
            let is_other = |(round, voted, voters)| voted != value && chooses(round, voters);
            let may_be_skipped =
                || *value == Value::default() && !votes.standing_in(slot).any(is_other);
            by_votes.or_else(|| may_be_skipped().then(|| (Value::default(), None)))
        })
    }
}

fn of_any_stripe(config: &Config) -> [(Epoch, Arc<multipaxos::config::Config>); 1] {
    [(config.layout().epoch, config.of(Stripe(0)).clone())]
}
