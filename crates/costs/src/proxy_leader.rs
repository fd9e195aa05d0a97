//! Drives a proxy leader: is the leader that hands it slots, and the acceptors that vote.

use crate::cases::Load;
use crate::forge::{Commands, value};
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::id::*;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{Message, kind, proxy_leader};

struct Driver {
    load: Load,
    commands: Commands,
    told_of_chosen: usize,
    proxies: u64,
    round: Round,
    next_slot: u64,
    /// Slots handed over in the burst before, which are voted for in this one.
    asked: Vec<Slot>,
}

/// A proxy leader that has followed its leader.
pub(crate) fn drive(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
    let told_of_chosen = stage.told_of_chosen();
    let proxies = stage.all::<ProxyLeaderId>(kind::ProxyLeader).len() as u64;
    let round = Round::new(Epoch(0), 1, LeaderId(0));
    Box::new(Driver {
        load,
        commands,
        told_of_chosen,
        proxies,
        round,
        next_slot: 0,
        asked: Vec::new(),
    })
}

impl Driver {
    /// A write quorum of acceptors votes for a slot: a column of a grid of two rows, or the first
    /// two of three.
    fn vote(&self, stage: &mut Stage, slot: Slot) {
        let acceptors: AcceptorSet = stage.all(kind::Acceptor);
        let quorum = match acceptors.len() {
            3 => [AcceptorId(0), AcceptorId(1)],
            all => [AcceptorId(0), AcceptorId(all as u8 / 2)],
        };
        for from in quorum {
            stage.say(Message::ProxyLeader(proxy_leader::In::Phase2b {
                from,
                slot,
                round: self.round,
            }));
        }
    }
}

impl Drive for Driver {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        let asked = core::mem::take(&mut self.asked);
        for slot in &asked {
            self.vote(stage, *slot);
        }
        let Load { batch, batches, .. } = self.load;
        for _ in 0..batches {
            let slot = Slot(self.next_slot);
            self.next_slot += self.proxies;
            let proposer = match batch {
                1 => Proposer::Client { id: ClientId(0) },
                _ => Proposer::Batcher {
                    id: BatcherId(0),
                    number: slot.0,
                },
            };
            let (value, replier) = (
                value(stage.now(), self.commands.writes(batch)),
                ReplicaId(0),
            );
            let message = proxy_leader::In::Phase2a {
                slot,
                round: self.round,
                value,
                proposer,
                replier,
            };
            stage.say(Message::ProxyLeader(message));
            self.asked.push(slot);
        }
        // Two Phase2a for each slot, and Chosen for each that was voted for.
        Burst {
            commands: batches * batch,
            due: 2 * batches + asked.len() * self.told_of_chosen,
        }
    }
}
