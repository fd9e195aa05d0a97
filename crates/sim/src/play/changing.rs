//! Changes of the membership in a play: the operator's requests, and how nodes learn of changes.
//!
//! As in a run (`crate::membership`), every message carries the sender's membership, a sender with
//! an old one gets a notice, and a node stores what it has learned before it acts on it.

use super::stage::{Parcel, Stage};
use bytes::Bytes;
use ionian_kernel::client::Refusal;
use ionian_kernel::id::{ClientId, Epoch, Members};
use ionian_kernel::membership::{Membership, verdict};

/// The name of the message with which a node tells another its membership.
const NOTICE: &str = "membership";

impl Stage {
    /// The operator asks for a change to another of the scenario's layouts, or with `None` to
    /// abandon the change in progress, as the lane's node sees the cluster.
    pub(super) fn change(&mut self, lane: ClientId, to: Option<u8>) -> Result<(), String> {
        let node = self.home(lane)?;
        let membership = self.nodes[node].membership.clone();
        let request = match to {
            Some(to) => self.configurations.change(&membership, to)?,
            None => self.configurations.abandon(&membership),
        };
        self.note(match to {
            Some(to) => format!("c{} asks for a change to layout {to}", lane.0),
            None => format!("c{} asks to abandon the change", lane.0),
        });
        self.ask(lane, request)
    }

    pub(super) fn expect_epoch(&self, node: usize, epoch: u32) -> Result<(), String> {
        let known = self.nodes[node].membership.epoch;
        match known == Epoch(epoch) {
            true => Ok(()),
            false => Err(format!("n{node} is in epoch {}", known.0)),
        }
    }

    /// A node learns of a membership.
    pub(super) fn adopt(&mut self, node: usize, membership: &Membership) -> Result<(), String> {
        if membership.epoch <= self.nodes[node].membership.epoch {
            return Ok(());
        }
        let layout = self.configurations.of(membership)?;
        self.note(format!("n{node} enters epoch {}", membership.epoch.0));
        self.nodes[node].membership = membership.clone();
        self.reconfigure(node, layout);
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            self.notify(node, to);
        }
        Ok(())
    }

    fn notify(&mut self, from: usize, to: usize) {
        self.post(Parcel {
            name: NOTICE,
            from,
            to,
            members: Members::EMPTY,
            bytes: Bytes::new(),
            news: self.nodes[from].membership.clone(),
        });
    }

    /// The membership that came with a message; its sender gets a notice if it has an old one.
    pub(super) fn exchange_news(
        &mut self,
        from: usize,
        to: usize,
        news: &Membership,
    ) -> Result<(), String> {
        if self.nodes[to].membership.epoch > news.epoch {
            self.notify(to, from);
        }
        self.adopt(to, news)
    }
}

/// What the operator learns of a request.
pub(super) fn answer(outcome: &Result<Bytes, Refusal>) -> String {
    match outcome {
        Err(refusal) => format!("{refusal:?}"),
        Ok(bytes) => match verdict(bytes) {
            Ok(verdict) => verdict.to_string(),
            Err(error) => error.to_string(),
        },
    }
}
