//! What a leader says of itself, passed on.

use super::Relay;
use crate::multipaxos::{Envelope, acceptor, kind, leader, replica};
use crate::pigpaxos::message::Beat;
use ionian_kernel::id::*;
use ionian_kernel::role::Out;

impl Relay {
    /// Passes on what a leader says, and tells the leader that it lives.
    pub(super) fn on_heartbeat(&self, from: LeaderId, beat: Beat, out: &mut Out<'_, Self>) {
        let config = &self.config;
        let Beat {
            leaders,
            acceptors,
            replicas,
            round,
            executed,
            kept,
            keep,
            time,
        } = beat;
        let leaders = leaders.and(config.leaders());
        let message = leader::In::Heartbeat { round };
        out.send(Envelope::ToLeaders(leaders, message));
        let acceptors = acceptors.and(config.all(kind::Acceptor));
        let message = acceptor::In::Heartbeat { round, kept };
        out.send(Envelope::ToAcceptors(acceptors, message));
        let replicas = replicas.and(config.replicas());
        let message = replica::In::Heartbeat {
            round,
            executed,
            keep,
            time,
        };
        out.send(Envelope::ToReplicas(replicas, message));
        let to = Set::one(from).and(config.leaders());
        let lives = leader::In::Relayed { from: self.id };
        out.send(Envelope::ToLeaders(to, lives));
    }
}
