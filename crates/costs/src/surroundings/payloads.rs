//! S-Paxos: the roles that handle payloads, which MultiPaxos does not have. They hear of payloads
//! when one of its roles would hear of values, and so its drivers drive them.

use super::Surroundings;
use ionian_kernel::id::*;
use ionian_kernel::layout::Layout;
use ionian_protocols::multipaxos::message::Proposer;
use ionian_protocols::multipaxos::{self, acceptor, proxy_leader};
use ionian_protocols::spaxos::id::{DisseminatorId, StabilizerId};
use ionian_protocols::spaxos::message::{Payload, PayloadId, Reference, Ticket};
use ionian_protocols::spaxos::{self, SPaxos, disseminator, kind, stabilizer};
use ionian_replication::batch::{Batch, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// The payloads of a deployment: its disseminators name one each in turn.
pub(super) struct Payloads {
    disseminators: u64,
    /// The other stabilizer of a write quorum that has the first.
    second: u8,
}

/// As many digits as the random numbers have that disseminators draw.
const LIFE: u64 = 0x5eed_5eed_5eed_5eed;

/// The number of payloads of a disseminator that are not known to be chosen.
const IN_FLIGHT: u64 = 64;

/// A payload is void this number of slots later: 8 windows, as large as they are by default.
const VOID_AFTER: u64 = 8 * 8192;

/// How often disseminators learn how far the log is executed, in payloads: as many are void from
/// the same slot on.
const HEARTBEAT: u64 = 1024;

impl Payloads {
    pub(super) fn new(layout: &Layout) -> Self {
        let second = layout.count(kind::Stabilizer).div_ceil(2) as u8;
        Payloads {
            disseminators: layout.count(kind::Disseminator) as u64,
            second,
        }
    }

    /// What the log holds in place of payload `index`, which is given the slot of this number.
    pub(super) fn reference(&self, index: u64) -> Reference {
        let disseminator = DisseminatorId((index % self.disseminators) as u8);
        let id = PayloadId {
            disseminator,
            life: LIFE,
            number: LIFE + index / self.disseminators,
        };
        // A column of the grid of two rows, or two of three.
        let stored = [StabilizerId(0), StabilizerId(self.second)]
            .into_iter()
            .collect();
        Reference {
            id,
            until: Slot(index - index % HEARTBEAT + VOID_AFTER),
            stored,
        }
    }

    /// Below which number its disseminator proposes nothing more when it proposes this payload.
    pub(super) fn floor(&self, id: PayloadId) -> u64 {
        (id.number - IN_FLIGHT).max(LIFE)
    }
}

/// A stabilizer, in place of an acceptor: when that is to vote for a value it is to store one as a
/// payload, and to hand over an earlier one, which is chosen. So it hands over whatever it stores.
pub(crate) struct Storing {
    payloads: Payloads,
    replicas: Set<ReplicaId>,
}

/// The slots between the storing of a payload and the news that it is chosen.
const CHOSEN_AFTER: u64 = 64;

impl Storing {
    fn store(&self, slot: Slot, round: Round, batch: Batch) -> stabilizer::In {
        let Reference { id, until, .. } = self.payloads.reference(slot.0);
        stabilizer::In::Store {
            floor: self.payloads.floor(id),
            payload: Payload {
                id,
                round,
                until,
                batch,
            },
        }
    }

    fn choose(&self, slot: Slot, value: Value) -> stabilizer::In {
        let value = Value {
            batch: self.payloads.reference(slot.0).batch(),
            ..value
        };
        stabilizer::In::Chosen {
            slot,
            value,
            replier: ReplicaId(0),
            replicas: self.replicas,
        }
    }
}

impl Surroundings for Storing {
    type Protocol = SPaxos;

    fn new(layout: &Layout) -> Self {
        Storing {
            payloads: Payloads::new(layout),
            replicas: layout.all(kind::Replica),
        }
    }

    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(spaxos::Message)) {
        match message {
            multipaxos::Message::Acceptor(acceptor::In::Phase2a {
                slot, round, value, ..
            }) => {
                hear(spaxos::Message::Stabilizer(self.store(
                    slot,
                    round,
                    value.batch.clone(),
                )));
                if let Some(chosen) = slot.0.checked_sub(CHOSEN_AFTER) {
                    hear(spaxos::Message::Stabilizer(
                        self.choose(Slot(chosen), value),
                    ));
                }
            }
            multipaxos::Message::Acceptor(acceptor::In::Heartbeat { kept, .. }) => {
                hear(spaxos::Message::Stabilizer(stabilizer::In::Kept {
                    round: round(),
                    kept,
                }));
            }
            message => unreachable!("no driver says {message:?}"),
        }
    }

    fn hear(&self, _: spaxos::Message) -> Option<multipaxos::Message> {
        None
    }

    fn is_answered(_: &spaxos::Message) -> bool {
        false
    }

    fn answer(&mut self, _: u64, _: spaxos::Message, _: &mut dyn FnMut(spaxos::Message)) {}
}

/// A disseminator, in place of a proxy leader: when that is to get a value chosen it is to get one
/// stored, and hears from stabilizers what that hears from acceptors. What it proposes is chosen in
/// the burst after.
pub(crate) struct Disseminating {
    proxies: usize,
    /// The number of its first payload, which it has drawn.
    life: Option<u64>,
    /// The payloads, counted from 0, that each stabilizer has stored since it last said so.
    stored: BTreeMap<StabilizerId, Range<u64>>,
    /// Those that were proposed in the burst before.
    proposed: Range<u64>,
    begun: bool,
}

/// The leader's.
fn round() -> Round {
    Round::new(Epoch(0), 1, LeaderId(0))
}

impl Disseminating {
    /// Once a burst, as peers do: proxy leaders say what is chosen, each its share, and stabilizers
    /// what they store.
    fn tell(&mut self, hear: &mut dyn FnMut(disseminator::In)) {
        let stored = core::mem::take(&mut self.stored);
        let Some(stable) = stored.values().next().cloned() else {
            return;
        };
        let life = self.life.expect("what is stored has a name");
        let chosen: Vec<u64> = core::mem::replace(&mut self.proposed, stable).collect();
        for chosen in chosen.chunks(chosen.len().div_ceil(self.proxies).max(1)) {
            let numbers = chosen.iter().map(|index| life + index).collect();
            hear(disseminator::In::Chosen {
                numbers,
                below: Slot(self.proposed.start),
            });
        }
        for (from, indexes) in stored {
            let tickets = indexes.map(|index| {
                let id = PayloadId {
                    disseminator: DisseminatorId(0),
                    life,
                    number: life + index,
                };
                Ticket {
                    id,
                    until: Slot(VOID_AFTER),
                    round: round(),
                    floor: life + self.proposed.start,
                }
            });
            hear(disseminator::In::Stored {
                from,
                tickets: tickets.collect(),
                lives: Vec::new(),
            });
        }
    }

    fn disseminator_hears(
        &mut self,
        message: proxy_leader::In,
        hear: &mut dyn FnMut(disseminator::In),
    ) {
        match message {
            proxy_leader::In::Phase2a {
                value, proposer, ..
            } => {
                if !self.begun {
                    self.begun = true;
                    hear(disseminator::In::Progress {
                        round: round(),
                        executed: Slot::ZERO,
                    });
                }
                self.tell(hear);
                let batch = value.batch;
                hear(match proposer {
                    Proposer::Batcher { id, number } => disseminator::In::Disseminate {
                        from: id,
                        number,
                        batch,
                    },
                    _ => disseminator::In::Commands { commands: batch },
                });
            }
            proxy_leader::In::Phase2b { from, .. } => {
                let before = self.proposed.end;
                self.stored
                    .entry(StabilizerId(from.0))
                    .or_insert(before..before)
                    .end += 1;
            }
            message => unreachable!("no driver says {message:?}"),
        }
    }
}

impl Surroundings for Disseminating {
    type Protocol = SPaxos;

    fn new(layout: &Layout) -> Self {
        let proxies = layout.count(kind::ProxyLeader);
        Disseminating {
            proxies,
            life: None,
            stored: BTreeMap::new(),
            proposed: 0..0,
            begun: false,
        }
    }

    /// The leader, to which it proposes.
    fn told_of_chosen(_: usize) -> usize {
        1
    }

    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(spaxos::Message)) {
        let multipaxos::Message::ProxyLeader(message) = message else {
            unreachable!("no driver says {message:?}")
        };
        self.disseminator_hears(message, &mut |message| {
            hear(spaxos::Message::Disseminator(message))
        });
    }

    fn hear(&self, _: spaxos::Message) -> Option<multipaxos::Message> {
        None
    }

    /// Its first payload, which the others know by name.
    fn is_answered(message: &spaxos::Message) -> bool {
        let spaxos::Message::Stabilizer(stabilizer::In::Store { payload, .. }) = message else {
            return false;
        };
        payload.id.number == payload.id.life
    }

    fn answer(&mut self, _: u64, message: spaxos::Message, _: &mut dyn FnMut(spaxos::Message)) {
        if let spaxos::Message::Stabilizer(stabilizer::In::Store { payload, .. }) = message {
            self.life = Some(payload.id.life);
        }
    }
}
