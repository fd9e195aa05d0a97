//! Around the roles that agree on what is in the log: leader, proxy leader, acceptor.

use super::{Actor, OnStage, Play};
use crate::role::emulated::Part;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::time::{Duration, Instant};
use ionian_protocols::multipaxos::message::{ReaderId, Times};
use ionian_protocols::multipaxos::{
    Envelope, Message, acceptor, client, kind, leader, proxy_leader, read_batcher, replica,
};
use std::sync::Arc;

/// How often acceptors learn what they can forget.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Batchers, or clients, propose; proxy leaders take what the leader hands them; replicas report.
pub(super) fn around_leader(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match kind {
        kind::Client | kind::Batcher if !play.proposes(kind) || index > 0 => Some(Part::alone()),
        kind::Client | kind::Batcher => Some(Part::alone().tick(move |stage| {
            if play.flow.round().is_none() {
                return;
            }
            for _ in 0..play.flow.begin(play.commands.batch) {
                let proposer = play.proposer(play.flow.take_slot());
                let (near, batch) = (Set::EMPTY, play.held.clone());
                let message = leader::In::Propose {
                    proposer,
                    near,
                    batch,
                    again: false,
                };
                stage.send(Envelope::ToLeaders(Set::one(LeaderId(0)), message));
            }
        })),
        kind::ProxyLeader => Some(Part::default().hear(move |_, message| match message {
            Message::ProxyLeader(proxy_leader::In::Phase2a { slot, value, .. }) => {
                play.flow.finish(play.commands_of(&value.batch));
                play.flow.reach(slot.next().0);
                None
            }
            message => Some(message),
        })),
        kind::Replica => Some(reporting_replica(play, ReplicaId(index))),
        _ => None,
    }
}

/// A replica hears in which round the leader leads.
fn noting_round(play: &Play, message: Message) -> Option<Message> {
    match message {
        Message::Replica(replica::In::Heartbeat { round, .. }) => {
            play.flow.set_round(round.0);
            None
        }
        message => Some(message),
    }
}

/// Says that it has executed whatever was handed to proxy leaders.
fn reporting_replica(play: Arc<Play>, from: ReplicaId) -> Actor {
    let (mut reported, heard) = (0, play.clone());
    Part::alone()
        .hear(move |_, message| noting_round(&heard, message))
        .tick(move |stage| {
            let executed = play.flow.executed();
            if let Some(round) = play.flow.round()
                && executed > reported
            {
                reported = executed;
                let (executed, kept, round) = (Slot(executed), Slot(executed), Round(round));
                let message = leader::In::Executed {
                    from,
                    executed,
                    kept,
                    round,
                    times: Times::default(),
                };
                stage.send(Envelope::ToLeaders(Set::one(LeaderId(0)), message));
            }
        })
}

/// A leader hands slots over; acceptors vote; replicas take what is chosen.
pub(super) fn around_proxy_leader(
    play: Arc<Play>,
    Address { kind, index }: Address,
) -> Option<Actor> {
    match (kind, index) {
        (kind::Leader, 0) => Some(Part::default().tick(move |stage| {
            let Some(round) = play.flow.round().map(Round) else {
                return;
            };
            for _ in 0..play.flow.begin(play.commands.batch) {
                let slot = play.flow.take_slot();
                let (value, proposer) = (play.value(stage), play.proposer(slot));
                let replier = ReplicaId((slot % play.count(kind::Replica)) as u8);
                let message = proxy_leader::In::Phase2a {
                    slot: Slot(slot),
                    round,
                    value,
                    proposer,
                    replier,
                };
                stage.send(Envelope::ToProxyLeaders(
                    Set::one(ProxyLeaderId(0)),
                    message,
                ));
            }
        })),
        (kind::Acceptor, _) => Some(Part::default().hear(move |stage, message| match message {
            Message::Acceptor(acceptor::In::Phase2a {
                from, slot, round, ..
            }) => {
                let vote = proxy_leader::In::Phase2b {
                    from: AcceptorId(index),
                    slot,
                    round,
                };
                stage.send(Envelope::ToProxyLeaders(Set::one(from), vote));
                None
            }
            message => Some(message),
        })),
        (kind::Replica, _) => Some(Part::default().hear(move |_, message| match message {
            Message::Replica(replica::In::Chosen { value, .. }) => {
                // All receive it; one counts.
                play.flow.finish(if index == 0 {
                    play.commands_of(&value.batch)
                } else {
                    0
                });
                None
            }
            message => noting_round(&play, message),
        })),
        (kind::Client | kind::Batcher, _) => Some(Part::alone()),
        _ => None,
    }
}

/// Proxy leaders ask for votes; the leader says now and then what can be forgotten.
pub(super) fn around_acceptor(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    match (kind, index) {
        (kind::Leader, 0) => {
            let mut heartbeat_at = Instant::ZERO;
            Some(Part::default().tick(move |stage| {
                let Some(round) = play.flow.round().map(Round) else {
                    return;
                };
                if heartbeat_at <= stage.now {
                    heartbeat_at = stage.now + HEARTBEAT;
                    // Nothing below is under way: parts take slots in order, and no more than the
                    // window at once.
                    let under_way = 16 * play.flow.window();
                    let kept = Slot(play.flow.slots_taken().saturating_sub(under_way));
                    let message = acceptor::In::Heartbeat { round, kept };
                    stage.send(Envelope::ToAcceptors(Set::one(AcceptorId(0)), message));
                }
            }))
        }
        (kind::ProxyLeader, _) => {
            let asker = play.clone();
            let ask = move |stage: &mut OnStage<'_>| {
                let Some(round) = asker.flow.round() else {
                    return;
                };
                for _ in 0..asker.flow.begin(asker.commands.batch) {
                    let (from, slot) = (ProxyLeaderId(index), Slot(asker.flow.take_slot()));
                    let value = asker.value(stage);
                    let message = acceptor::In::Phase2a {
                        from,
                        slot,
                        round: Round(round),
                        value,
                    };
                    stage.send(Envelope::ToAcceptors(Set::one(AcceptorId(0)), message));
                }
            };
            let again = ask.clone();
            Some(
                Part::default()
                    .tick(ask)
                    .hear(move |stage, message| match message {
                        Message::ProxyLeader(proxy_leader::In::Phase2b { .. }) => {
                            play.flow.finish(play.commands.batch);
                            again(stage);
                            None
                        }
                        message => Some(message),
                    }),
            )
        }
        (kind::Replica, _) => {
            Some(Part::default().hear(move |_, message| noting_round(&play, message)))
        }
        (kind::Client | kind::Batcher, _) => Some(Part::alone()),
        _ => None,
    }
}

/// Readers ask an acceptor for its watermark.
pub(super) fn asking_acceptor(play: Arc<Play>, Address { kind, index }: Address) -> Option<Actor> {
    let from = match kind {
        kind::Client => ReaderId::Client {
            id: ClientId(index),
        },
        kind::ReadBatcher => ReaderId::ReadBatcher {
            id: ReadBatcherId(index),
        },
        _ => return None,
    };
    if !play.asks(kind) {
        return Some(Part::alone());
    }
    let asker = play.clone();
    let ask = move |stage: &mut OnStage<'_>| {
        for inquiry in 0..asker.flow.begin(asker.commands.batch) {
            let message = acceptor::In::PreRead { from, inquiry };
            stage.send(Envelope::ToAcceptors(Set::one(AcceptorId(0)), message));
        }
    };
    let again = ask.clone();
    Some(Part::alone().tick(ask).hear(move |stage, message| {
        if let Message::Client(client::In::PreReadAck { .. })
        | Message::ReadBatcher(read_batcher::In::PreReadAck { .. }) = message
        {
            play.flow.finish(play.commands.batch);
            again(stage);
        }
        None
    }))
}
