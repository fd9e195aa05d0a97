//! The prices of roles, message by message, for the simulator: a role pays for a command when the
//! message arrives that asks it to take part (a proxy leader for gathering the votes and telling
//! the replicas, too).

use super::demand::Kind;
use super::price::Prices;
use ionian_kernel::layout::Address;
use ionian_protocols::mencius::{self, Mencius};
use ionian_protocols::multipaxos::{
    self, MultiPaxos, acceptor, batcher, leader, proxy_leader, read_batcher, replica, unbatcher,
};
use ionian_protocols::spaxos::message::Reference;
use ionian_protocols::spaxos::{self, SPaxos};
use ionian_protocols::unreplicated::{self, Unreplicated, server};
use ionian_replication::batch::{Answers, Batch};
use ionian_sim::performance::Costs;

/// What the messages of one deployment cost. Messages that are not in the way of a command
/// (heartbeats, watermarks) cost nothing here: they are in the demands as measured.
pub(crate) struct MessageCosts {
    prices: Prices,
    /// Reads of an inquiry.
    batch: usize,
}

impl MessageCosts {
    /// Those of the deployment that the prices are of; inquiries of reads are for `batch` reads
    /// each.
    pub(crate) fn new(prices: Prices, batch: usize) -> Self {
        MessageCosts { prices, batch }
    }

    fn us(&self, role: &str, kind: Kind, commands: usize) -> f64 {
        if commands == 0 {
            0.0
        } else {
            self.prices.batch_us(role, kind, commands)
        }
    }
}

/// What is the same in every protocol that has these roles; `to` is the place of the instance among
/// its kind.
impl MessageCosts {
    fn batcher(&self, commands: &Batch) -> f64 {
        self.prices.command_us("batcher", Kind::Write, self.batch) * commands.len() as f64
    }

    fn read_batcher(&self, message: &read_batcher::In) -> f64 {
        match message {
            read_batcher::In::Reads { reads } => {
                self.prices
                    .command_us("read_batcher", Kind::Read, self.batch)
                    * reads.len() as f64
            }
            _ => 0.0,
        }
    }

    fn leader(&self, message: &leader::In) -> f64 {
        match message {
            leader::In::Propose { batch, .. } => self.us("leader", Kind::Write, batch.len()),
            _ => 0.0,
        }
    }

    fn proxy_leader(&self, message: &proxy_leader::In) -> f64 {
        match message {
            proxy_leader::In::Phase2a { value, .. } => {
                self.us("proxy_leader", Kind::Write, self.held(&value.batch))
            }
            _ => 0.0,
        }
    }

    fn acceptor(&self, message: &acceptor::In) -> f64 {
        match message {
            acceptor::In::Phase2a { value, .. } => {
                self.us("acceptor", Kind::Write, self.held(&value.batch))
            }
            acceptor::In::PreRead { .. } => self.us("acceptor", Kind::Read, self.batch),
            _ => 0.0,
        }
    }

    fn replica(&self, to: u8, message: &replica::In) -> f64 {
        match message {
            replica::In::Chosen { value, replier, .. } => {
                let answer = if replier.0 == to {
                    self.us("replica", Kind::Answer, value.batch.len())
                } else {
                    0.0
                };
                self.us("replica", Kind::Execute, value.batch.len()) + answer
            }
            replica::In::Read { reads, .. } => self.us("replica", Kind::Read, reads.len()),
            _ => 0.0,
        }
    }

    fn unbatcher(&self, unbatcher::In::Results { answers }: &unbatcher::In) -> f64 {
        self.unbatched(answers)
    }

    fn unbatched(&self, answers: &Answers) -> f64 {
        self.prices.command_us("unbatcher", Kind::Write, self.batch) * answers.iter().count() as f64
    }

    /// How many commands the log has where it holds this. A reference does not tell: it is taken
    /// for one to a full batch, and costs the same whatever it refers to.
    fn held(&self, held: &Batch) -> usize {
        if Reference::of(held).is_some() {
            self.batch
        } else {
            held.len()
        }
    }
}

impl Costs<MultiPaxos> for MessageCosts {
    fn of(&self, to: Address, message: &multipaxos::Message) -> f64 {
        use multipaxos::Message;
        match message {
            Message::Batcher(batcher::In::Commands { commands }) => self.batcher(commands),
            Message::ReadBatcher(message) => self.read_batcher(message),
            Message::Leader(message) => self.leader(message),
            Message::ProxyLeader(message) => self.proxy_leader(message),
            Message::Acceptor(message) => self.acceptor(message),
            Message::Replica(message) => self.replica(to.index, message),
            Message::Unbatcher(message) => self.unbatcher(message),
            _ => 0.0,
        }
    }
}

impl Costs<Mencius> for MessageCosts {
    fn of(&self, to: Address, message: &mencius::Message) -> f64 {
        use mencius::Message;
        match message {
            Message::Batcher(batcher::In::Commands { commands }) => self.batcher(commands),
            Message::ReadBatcher(message) => self.read_batcher(message),
            Message::Leader(mencius::leader::In::InStripe { message, .. }) => self.leader(message),
            Message::ProxyLeader(mencius::proxy_leader::In::InStripe { message, .. }) => {
                self.proxy_leader(message)
            }
            Message::Acceptor(mencius::acceptor::In::InStripe { message, .. }) => {
                self.acceptor(message)
            }
            Message::Acceptor(mencius::acceptor::In::PreRead { .. }) => {
                self.us("acceptor", Kind::Read, self.batch)
            }
            Message::Replica(mencius::replica::In::OfLog { message }) => {
                self.replica(to.index, message)
            }
            Message::Unbatcher(message) => self.unbatcher(message),
            _ => 0.0,
        }
    }
}

impl Costs<SPaxos> for MessageCosts {
    fn of(&self, to: Address, message: &spaxos::Message) -> f64 {
        use spaxos::{Message, disseminator, stabilizer};
        match message {
            Message::Batcher(spaxos::batcher::In::Commands { commands }) => self.batcher(commands),
            Message::ReadBatcher(message) => self.read_batcher(message),
            Message::Disseminator(disseminator::In::Commands { commands: batch })
            | Message::Disseminator(disseminator::In::Disseminate { batch, .. }) => {
                self.prices
                    .command_us("disseminator", Kind::Write, self.batch)
                    * batch.len() as f64
            }
            Message::Stabilizer(stabilizer::In::Store { payload, .. }) => {
                self.us("stabilizer", Kind::Store, payload.batch.len())
            }
            Message::Stabilizer(stabilizer::In::Chosen { .. }) => {
                self.us("stabilizer", Kind::Deliver, self.batch)
            }
            Message::Leader(spaxos::leader::In::Propose { .. }) => {
                self.us("leader", Kind::Write, self.batch)
            }
            Message::ProxyLeader(spaxos::proxy_leader::In::Ordering { message }) => {
                self.proxy_leader(message)
            }
            Message::Acceptor(message) => self.acceptor(message),
            Message::Replica(message) => self.replica(to.index, message),
            Message::Unbatcher(message) => self.unbatcher(message),
            _ => 0.0,
        }
    }
}

impl Costs<Unreplicated> for MessageCosts {
    fn of(&self, _: Address, message: &unreplicated::Message) -> f64 {
        use unreplicated::Message;
        match message {
            Message::Batcher(unreplicated::batcher::In::Commands { commands }) => {
                self.batcher(commands)
            }
            Message::Server(server::In::Execute { batch, .. }) => {
                self.us("server", Kind::Write, batch.len())
            }
            Message::Server(server::In::Read { reads }) => {
                self.us("server", Kind::Read, reads.len())
            }
            Message::Unbatcher(unreplicated::unbatcher::In::Results { answers }) => {
                self.unbatched(answers)
            }
            _ => 0.0,
        }
    }
}
