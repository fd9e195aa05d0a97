//! How what a role asks gets to acceptors in a deployment with relays: a proxy leader's requests, a
//! leader's, a reader's.

use super::fanout::{Fanout, Leg};
use super::message::RelayId;
use crate::multipaxos::config::Config;
use crate::multipaxos::kind;
use crate::parts::proxy_leader::Ask;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ionian_kernel::id::AcceptorSet;
use ionian_kernel::layout::NodeId;
use ionian_kernel::time::Instant;

/// See the top of this file.
pub(crate) struct Routes {
    config: Arc<Config>,
    node: NodeId,
    /// The acceptors of this node.
    near: AcceptorSet,
    fanout: Fanout,
    /// The messages of one request, between two requests.
    legs: Vec<Leg>,
}

impl Routes {
    /// Those of a role on `node`.
    pub(crate) fn new(config: &Arc<Config>, node: NodeId, seed: u64) -> Self {
        Routes {
            config: config.clone(),
            node,
            near: config.near(kind::Acceptor, node),
            fanout: Fanout::new(seed),
            legs: Vec::new(),
        }
    }

    /// Those of a role on `node`, if the deployment has relays: as they were, as far as they hold.
    pub(crate) fn follow(
        routes: &mut Option<Box<Routes>>,
        config: &Arc<Config>,
        (node, seed): (NodeId, u64),
    ) {
        if config.relaying().is_none() {
            *routes = None;
            return;
        }
        let routes = routes.get_or_insert_with(|| Box::new(Routes::new(config, node, seed)));
        routes.reconfigure(config);
    }

    /// The membership has changed, or an option.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.near = config.near(kind::Acceptor, self.node);
        self.config = config.clone();
        self.clear();
    }

    /// The acceptors of this node.
    pub(crate) fn near(&self) -> AcceptorSet {
        self.near
    }

    /// Divides a request to acceptors into messages; see [`Fanout::split`]. The vector is to be
    /// [put back](Self::put_back).
    pub(crate) fn divide(
        &mut self,
        now: Instant,
        ask: Ask,
        mut reached: impl FnMut(&'static str),
    ) -> Vec<Leg> {
        let mut legs = core::mem::take(&mut self.legs);
        legs.clear();
        match self.config.relaying() {
            None => legs.push(Leg::Direct(ask.to)),
            Some(relaying) => {
                let to = (ask, self.near);
                self.fanout
                    .split(now, to, relaying, &mut reached, &mut legs);
            }
        }
        legs
    }

    /// Its room is used again.
    pub(crate) fn put_back(&mut self, legs: Vec<Leg>) {
        self.legs = legs;
    }

    /// A relay was given a request that it answers.
    pub(crate) fn asked(&mut self, relay: RelayId, now: Instant) {
        self.fanout.asked(relay, now);
    }

    /// A relay has answered; see [`Fanout::heard`].
    pub(crate) fn heard(&mut self, now: Instant, from: RelayId, told: (AcceptorSet, AcceptorSet)) {
        if let Some(relaying) = self.config.relaying() {
            self.fanout.heard(now, from, told, relaying);
        }
    }

    /// Answers to what was asked before do not come any more.
    pub(crate) fn clear(&mut self) {
        self.fanout.clear();
    }

    /// See [`Fanout::on_timer`].
    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.fanout.on_timer(now);
    }

    /// How many relays are on the gray list.
    pub(crate) fn suspects(&self) -> usize {
        self.fanout.suspects()
    }
}
