//! The chain node's connection to the master: a client lane of MultiPaxos, which this node is the
//! application of.
//!
//! Looking at the chain is a linearizable read of the master's log: a read quorum of its acceptors
//! is asked, once for a burst, and one of its replicas. A step is a write.

use super::{ChainNode, branch};
use crate::craq::message::{Chain, Step};
use crate::multipaxos::acceptor::In as ToAcceptor;
use crate::multipaxos::client::{ClientLane, In as ToLane};
use crate::multipaxos::{self, config::Config};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_kernel::protocol::Birth;
use ionian_kernel::role::{Out, Outbox, Role};
use ionian_kernel::time::Instant;
use ionian_kernel::wire::{decode_all, encode_all};

/// What the master is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    /// What the chain is, for reads.
    Inquiry,
    /// What the chain is, for this node.
    Look,
    /// Which nodes count.
    Roster,
    /// To take a step.
    Step,
    /// To change the membership, by this client.
    Change(ClientId),
}

/// The query that asks which nodes count.
const ROSTER: Bytes = Bytes::from_static(&[1]);

/// See the top of this file.
pub(super) struct Link {
    lane: ClientLane,
    outbox: Outbox<multipaxos::Envelope>,
    /// What was asked and is not answered: one of each kind, and a change of each client.
    asked: BTreeMap<Ask, u64>,
    next: u64,
    /// The number of the last question to acceptors.
    inquiry: Option<u64>,
    replies: Vec<Reply>,
}

impl Link {
    pub(super) fn new(config: Arc<Config>, birth: &Birth<'_>) -> Self {
        Link {
            lane: ClientLane::new(config, birth),
            outbox: Outbox::new(birth.keeps_records),
            asked: BTreeMap::new(),
            next: 0,
            inquiry: None,
            replies: Vec::new(),
        }
    }

    /// Calls the lane, and sends on what it sends: to roles of the master, or, as replies, to here.
    fn call(
        &mut self,
        out: &mut Out<'_, ChainNode>,
        act: impl FnOnce(&mut ClientLane, &mut Out<'_, ClientLane>),
    ) {
        act(&mut self.lane, &mut Out::new(&mut self.outbox));
        for envelope in self.outbox.take_sends() {
            if let multipaxos::Envelope::ToAcceptors(_, ToAcceptor::PreRead { inquiry, .. }) =
                &envelope
            {
                self.inquiry = Some(*inquiry);
            }
            match envelope {
                multipaxos::Envelope::ToApplication(_, reply) => self.replies.push(reply),
                // A look at the chain promises nothing. A step may: that this node holds entries.
                envelope @ (multipaxos::Envelope::ToAcceptors(..)
                | multipaxos::Envelope::ToReplicas(..)) => out.send_unfenced(envelope.into()),
                envelope => out.send(envelope.into()),
            }
        }
    }

    pub(super) fn start(&mut self, now: Instant, out: &mut Out<'_, ChainNode>) {
        self.call(out, |lane, out| lane.on_start(now, out));
    }

    pub(super) fn reconfigure(
        &mut self,
        now: Instant,
        config: Arc<Config>,
        out: &mut Out<'_, ChainNode>,
    ) {
        self.call(out, |lane, out| lane.on_reconfigure(now, config, out));
    }

    pub(super) fn on_message(
        &mut self,
        now: Instant,
        message: ToLane,
        out: &mut Out<'_, ChainNode>,
    ) {
        // It has no other application.
        if !matches!(message, ToLane::Submit { .. }) {
            self.call(out, |lane, out| lane.on_message(now, message, out));
        }
    }

    pub(super) fn on_timer(&mut self, now: Instant, out: &mut Out<'_, ChainNode>) {
        if self.next_timer().is_some_and(|at| at <= now) {
            self.call(out, |lane, out| lane.on_timer(now, out));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.lane.next_timer()
    }

    pub(super) fn on_burst_end(&mut self, now: Instant, out: &mut Out<'_, ChainNode>) {
        self.call(out, |lane, out| lane.on_burst_end(now, out));
    }

    /// The number of the last question to acceptors: for traces.
    pub(super) fn inquiry(&self) -> Option<u64> {
        self.inquiry
    }

    pub(super) fn invariants(&self) {
        self.lane.invariants();
    }

    /// Asks what the chain is, or which nodes count, if that is not being asked already. Says
    /// whether it has asked.
    pub(super) fn look(&mut self, now: Instant, ask: Ask, out: &mut Out<'_, ChainNode>) -> bool {
        let operation = Operation::Read(ReadLevel::Linearizable);
        let query = match ask {
            Ask::Roster => ROSTER,
            _ => Bytes::new(),
        };
        self.ask(now, ask, operation, query, out)
    }

    /// Asks for a change of the membership, if none is being asked for by this client. Says whether
    /// it has asked.
    pub(super) fn change(
        &mut self,
        now: Instant,
        client: ClientId,
        change: Bytes,
        out: &mut Out<'_, ChainNode>,
    ) -> bool {
        self.ask(now, Ask::Change(client), Operation::Change, change, out)
    }

    /// Asks for a step, if none is being asked for already.
    pub(super) fn step(&mut self, now: Instant, step: Step, out: &mut Out<'_, ChainNode>) {
        let payload = Bytes::from(encode_all(&step));
        self.ask(now, Ask::Step, Operation::Write, payload, out);
    }

    fn ask(
        &mut self,
        now: Instant,
        ask: Ask,
        operation: Operation,
        payload: Bytes,
        out: &mut Out<'_, ChainNode>,
    ) -> bool {
        if self.asked.contains_key(&ask) {
            return false;
        }
        self.next += 1;
        let token = self.next;
        self.asked.insert(ask, token);
        let request = Request {
            token,
            operation,
            payload,
        };
        let message = ToLane::Submit { request };
        self.call(out, |lane, out| lane.on_message(now, message, out));
        true
    }

    /// The next reply: what it answers, and what the master has answered, if it has.
    fn reply(&mut self) -> Option<(Ask, Option<Bytes>)> {
        while let Some(Reply { token, outcome, .. }) = self.replies.pop() {
            let answered = self.asked.iter().find(|(_, asked)| **asked == token);
            if let Some(ask) = answered.map(|(ask, _)| *ask) {
                self.asked.remove(&ask);
                return Some((ask, outcome.ok()));
            }
        }
        None
    }
}

impl ChainNode {
    /// Acts on what the master has answered.
    pub(super) fn take_replies(&mut self, now: Instant, out: &mut Out<'_, Self>) {
        while let Some((ask, answer)) = self.link.reply() {
            if let Ask::Change(client) = ask {
                self.changed(client, answer);
                continue;
            }
            if ask == Ask::Roster {
                let roster = answer.and_then(|bytes| decode_all(&bytes).ok());
                if let Some(roster) = roster {
                    self.on_roster(now, roster, out);
                }
                continue;
            }
            let chain = answer.and_then(|bytes| decode_all::<Chain>(&bytes).ok());
            let Some(chain) = chain else {
                out.reached(branch::MASTER_SILENT);
                if ask == Ask::Inquiry {
                    self.not_confirmed();
                }
                continue;
            };
            let is_new = self.enter(now, chain.clone(), out);
            match ask {
                Ask::Inquiry => self.confirmed(now, &chain, out),
                Ask::Look => self.looked(now, out),
                Ask::Step | Ask::Roster | Ask::Change(_) => {}
            }
            if is_new && ask == Ask::Step {
                let chain = self.chain.clone();
                out.send(self.to(self.others(), super::In::Chain { chain }));
            }
        }
    }
}
