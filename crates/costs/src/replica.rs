//! Drives a replica with the key-value store: is the proxy leaders that tell it what is chosen, the
//! leader, the unbatchers, and the readers.

use crate::cases::Load;
use crate::forge::{Commands, value};
use crate::stage::Stage;
use crate::{Burst, Drive};
use ionian_kernel::id::*;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_protocols::multipaxos::{Message, client, kind, replica, unbatcher};
use ionian_replication::batch::{Answer, Batch, Outcome};
use std::collections::BTreeSet;

/// The heartbeat's default.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(100);

/// What every replica hears, whatever it is asked to do.
struct Others {
    load: Load,
    commands: Commands,
    next_slot: Slot,
}

impl Others {
    /// The sessions of all lanes are open.
    fn new(stage: &mut Stage, load: Load) -> Self {
        let commands = Commands::new(stage.all::<ClientId>(kind::Client).len());
        let mut others = Others {
            load,
            commands,
            next_slot: Slot::ZERO,
        };
        others.choose(stage, others.commands.openings(), ReplicaId(0));
        stage.pass();
        let opened = stage
            .heard()
            .iter()
            .flat_map(opened_sessions)
            .collect::<BTreeSet<_>>();
        assert_eq!(
            opened,
            others.commands.sessions().collect(),
            "the sessions that commands are numbered in"
        );
        others
    }

    fn choose(&mut self, stage: &mut Stage, batch: Batch, replier: ReplicaId) {
        let (slot, value) = (self.next_slot, value(stage.now(), batch));
        stage.say(Message::Replica(replica::In::Chosen {
            slot,
            value,
            replier,
        }));
        self.next_slot = slot.next();
    }

    fn live(&self, stage: &mut Stage) {
        if stage.is_due(unbatcher::ALIVE_EVERY) {
            for from in stage.all(kind::Unbatcher).iter() {
                stage.say(Message::Replica(replica::In::UnbatcherAlive { from }));
            }
        }
        if stage.is_due(HEARTBEAT_EVERY) {
            let (round, executed) = (Round::new(Epoch(0), 1, LeaderId(0)), self.next_slot);
            stage.say(Message::Replica(replica::In::Heartbeat {
                round,
                executed,
                keep: Slot::ZERO,
                time: Timestamp(0),
            }));
        }
    }
}

/// The sessions that answers say are open.
fn opened_sessions(message: &Message) -> Vec<(ClientId, SessionId)> {
    let answers = match message {
        Message::Client(client::In::Answers { answers }) => answers,
        Message::Unbatcher(unbatcher::In::Results { answers }) => answers,
        _ => return Vec::new(),
    };
    let opened = |answer: Answer| match answer.outcome {
        Outcome::Opened(session) => Some((answer.client, session)),
        _ => None,
    };
    answers.iter().filter_map(opened).collect()
}

struct Writes {
    others: Others,
    /// Of this number of slots it answers one.
    share: u64,
}

/// A replica that executes everything and answers its share, as all replicas of a deployment do.
pub(crate) fn drive_share(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let replicas = stage.all::<ReplicaId>(kind::Replica).len() as u64;
    Box::new(Writes {
        others: Others::new(stage, load),
        share: replicas,
    })
}

/// A replica that executes everything and answers all of it.
pub(crate) fn drive_all(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    Box::new(Writes {
        others: Others::new(stage, load),
        share: 1,
    })
}

impl Drive for Writes {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        let Writes { others, share } = self;
        others.live(stage);
        let Load { batch, batches, .. } = others.load;
        for _ in 0..batches {
            let commands = others.commands.writes(batch);
            let replier = ReplicaId((others.next_slot.0 % *share) as u8);
            others.choose(stage, commands, replier);
        }
        Burst {
            commands: batches * batch,
            due: 1,
        }
    }
}

struct Reads(Others);

/// A replica that is read from.
pub(crate) fn drive_reads(stage: &mut Stage, load: Load) -> Box<dyn Drive> {
    let mut others = Others::new(stage, load);
    // There is something in the store.
    let written = others.commands.writes(1000);
    others.choose(stage, written, ReplicaId(0));
    stage.pass();
    Box::new(Reads(others))
}

impl Drive for Reads {
    fn burst(&mut self, stage: &mut Stage) -> Burst {
        let Reads(others) = self;
        others.live(stage);
        let Load { batch, batches, .. } = others.load;
        for _ in 0..batches {
            let (reads, executed) = (others.commands.reads(batch), others.next_slot);
            stage.say(Message::Replica(replica::In::Read { reads, executed }));
        }
        Burst {
            commands: batches * batch,
            due: 1,
        }
    }
}
