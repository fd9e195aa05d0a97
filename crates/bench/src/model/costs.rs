//! The prices of roles, message by message, for the simulator: a role pays for a command when the message arrives
//! that asks it to take part (a proxy leader for gathering the votes and telling the replicas, too).

use super::demand::Kind;
use super::price::Prices;
use ionian_kernel::layout::Address;
use ionian_protocols::multipaxos::{self, MultiPaxos, acceptor, batcher, leader, proxy_leader, read_batcher, replica};
use ionian_protocols::unreplicated::{self, Unreplicated, server};
use ionian_sim::performance::Costs;

/// What the messages of one deployment cost. Messages that are not in the way of a command (heartbeats, watermarks)
/// cost nothing here: they are in the demands as measured.
pub(crate) struct MessageCosts {
    prices: Prices,
    /// Reads of an inquiry.
    batch: usize,
}

impl MessageCosts {
    /// Those of the deployment that the prices are of; inquiries of reads are for `batch` reads each.
    pub(crate) fn new(prices: Prices, batch: usize) -> Self {
        MessageCosts { prices, batch }
    }

    fn us(&self, role: &str, kind: Kind, commands: usize) -> f64 {
        if commands == 0 { 0.0 } else { self.prices.batch_us(role, kind, commands) }
    }
}

impl Costs<MultiPaxos> for MessageCosts {
    fn of(&self, to: Address, message: &multipaxos::Message) -> f64 {
        use multipaxos::Message;
        match message {
            Message::Batcher(batcher::In::Commands { commands }) => {
                self.prices.command_us("batcher", Kind::Write, self.batch) * commands.len() as f64
            }
            Message::ReadBatcher(read_batcher::In::Reads { reads }) => {
                self.prices.command_us("read_batcher", Kind::Read, self.batch) * reads.len() as f64
            }
            Message::Leader(leader::In::Propose { batch, .. }) => self.us("leader", Kind::Write, batch.len()),
            Message::ProxyLeader(proxy_leader::In::Phase2a { value, .. }) => {
                self.us("proxy_leader", Kind::Write, value.batch.len())
            }
            Message::Acceptor(acceptor::In::Phase2a { value, .. }) => {
                self.us("acceptor", Kind::Write, value.batch.len())
            }
            Message::Acceptor(acceptor::In::PreRead { .. }) => self.us("acceptor", Kind::Read, self.batch),
            Message::Replica(replica::In::Chosen { value, replier, .. }) => {
                let answer =
                    if replier.0 == to.index { self.us("replica", Kind::Answer, value.batch.len()) } else { 0.0 };
                self.us("replica", Kind::Execute, value.batch.len()) + answer
            }
            Message::Replica(replica::In::Read { reads, .. }) => self.us("replica", Kind::Read, reads.len()),
            Message::Unbatcher(multipaxos::unbatcher::In::Results { answers }) => {
                self.prices.command_us("unbatcher", Kind::Write, self.batch) * answers.iter().count() as f64
            }
            _ => 0.0,
        }
    }
}

impl Costs<Unreplicated> for MessageCosts {
    fn of(&self, _: Address, message: &unreplicated::Message) -> f64 {
        use unreplicated::Message;
        match message {
            Message::Batcher(unreplicated::batcher::In::Commands { commands }) => {
                self.prices.command_us("batcher", Kind::Write, self.batch) * commands.len() as f64
            }
            Message::Server(server::In::Execute { batch, .. }) => self.us("server", Kind::Write, batch.len()),
            Message::Server(server::In::Read { reads }) => self.us("server", Kind::Read, reads.len()),
            Message::Unbatcher(unreplicated::unbatcher::In::Results { answers }) => {
                self.prices.command_us("unbatcher", Kind::Write, self.batch) * answers.iter().count() as f64
            }
            _ => 0.0,
        }
    }
}
