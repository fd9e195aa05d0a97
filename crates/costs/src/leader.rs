//! Drives a leader: is its electorate, then proposes to it and tells it what has been executed.

use crate::cases::Load;
use crate::forge::Commands;
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::id::*;
use ionian_kernel::time::Timestamp;
use ionian_protocols::multipaxos::message::{Proposer, Times, Votes};
use ionian_protocols::multipaxos::{Message, acceptor, kind, leader, proxy_leader};

/// As often as a replica says how far it is.
const REPORT_SLOTS: u64 = 64;

struct Driver {
    load: Load,
    commands: Commands,
    round: Round,
    proposed: u64,
    reported: u64,
}

/// A leader that leads.
pub(crate) fn drive(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
    Box::new(Driver {
        load,
        commands,
        round: elect(stage),
        proposed: 0,
        reported: 0,
    })
}

/// Answers its questions until it leads.
fn elect(stage: &mut Stage) -> Round {
    let acceptors: AcceptorSet = stage.all(kind::Acceptor);
    let mut round = Round(0);
    for message in stage.heard() {
        if let Message::Acceptor(acceptor::In::PreVote { .. }) = message {
            for from in acceptors.iter() {
                stage.say(Message::Leader(leader::In::PreVoteReply {
                    from,
                    gone: true,
                    promise: Round(0),
                }));
            }
        }
    }
    stage.pass();
    for message in stage.heard() {
        if let Message::Acceptor(acceptor::In::Phase1a {
            round: asked,
            start,
            end,
            ..
        }) = message
        {
            round = asked;
            let votes = Votes {
                start,
                end,
                next: Slot::MAX,
                votes: Vec::new(),
                forgotten: Slot::ZERO,
                watermark: Slot::ZERO,
            };
            for from in acceptors.iter() {
                stage.say(Message::Leader(leader::In::Phase1b {
                    from,
                    round,
                    votes: votes.clone(),
                    clock: Timestamp(0),
                }));
            }
        }
    }
    stage.pass();
    assert!(round > Round(0), "the leader has not asked for promises");
    round
}

impl Drive for Driver {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        if stage.is_due(proxy_leader::ALIVE_EVERY) {
            for from in stage.all(kind::ProxyLeader).iter() {
                stage.say(Message::Leader(leader::In::ProxyAlive { from }));
            }
        }
        for _ in 0..self.load.batches {
            let proposer = match self.load.batch {
                1 => Proposer::Client { id: ClientId(0) },
                _ => Proposer::Batcher {
                    id: BatcherId(0),
                    number: self.proposed,
                },
            };
            let batch = self.commands.writes(self.load.batch);
            stage.say(Message::Leader(leader::In::Propose {
                proposer,
                near: Set::EMPTY,
                batch,
                again: false,
            }));
            self.proposed += 1;
        }
        if self.proposed >= self.reported + 2 * REPORT_SLOTS {
            self.reported += REPORT_SLOTS;
            let (executed, round) = (Slot(self.reported), self.round);
            for from in stage.all(kind::Replica).iter() {
                stage.say(Message::Leader(leader::In::Executed {
                    from,
                    executed,
                    kept: executed,
                    round,
                    times: Times::default(),
                }));
            }
        }
        Burst {
            commands: self.load.batches * self.load.batch,
            due: self.load.batches,
        }
    }
}
