//! Who plays what around the unreplicated server.

use super::commands::Commands;
use super::emulated::{Part, Stage};
use super::flow::Flow;
use super::work::Work;
use ionian_kernel::layout::{Address, Layout};
use ionian_kernel::time::Instant;
use ionian_protocols::unreplicated::{
    Envelope, Message, SERVER, Unreplicated, client, kind, server, unbatcher,
};
use ionian_replication::batch::{Batch, Outcome};
use std::sync::Arc;
use std::time::Duration;

/// How often the session is asked for until it is open.
const OPEN_EVERY: Duration = Duration::from_millis(300);

/// What all parts know.
pub(crate) struct Play {
    pub(crate) layout: Arc<Layout>,
    pub(crate) flow: Flow,
    pub(crate) commands: Commands,
    pub(crate) work: Work,
}

/// Who stands at this address while the server is measured.
pub(crate) fn cast(
    play: &Arc<Play>,
    Address { kind, index }: Address,
) -> Option<Part<Unreplicated>> {
    let batched = play.layout.count(kind::Batcher) > 0;
    let sends = index == 0
        && match play.work {
            // Reads never go by way of a batcher.
            Work::Read => kind == kind::Client,
            _ => kind == if batched { kind::Batcher } else { kind::Client },
        };
    let counting = play.clone();
    let part = Part::alone().hear(move |_, message| {
        if let Message::Client(client::In::Answers { answers })
        | Message::Unbatcher(unbatcher::In::Results { answers }) = message
        {
            for answer in answers.iter() {
                match answer.outcome {
                    Outcome::Opened(_) => counting.flow.set_round(1),
                    // What sets every key before reads begin counts for nothing.
                    _ if !is_filled(&counting) => {
                        counting.flow.take_slot();
                    }
                    _ => counting.flow.finish(1),
                }
            }
        }
        None
    });
    Some(if sends {
        sending(play.clone(), part)
    } else {
        part
    })
}

/// Batches that set every key once, before they are read.
fn filling(play: &Play) -> u64 {
    if play.work == Work::Read {
        play.commands.keys().div_ceil(play.commands.batch)
    } else {
        0
    }
}

/// Each answer to one of those takes a slot.
fn is_filled(play: &Play) -> bool {
    play.flow.slots_taken() >= filling(play) * play.commands.batch
}

fn execute(stage: &mut Stage<'_, Unreplicated>, batch: Batch) {
    stage.send(Envelope::ToServers(
        SERVER,
        server::In::Execute { from: None, batch },
    ));
}

fn sending(play: Arc<Play>, part: Part<Unreplicated>) -> Part<Unreplicated> {
    let (mut open_at, mut filled, mut number) = (Instant::ZERO, false, 0);
    part.tick(move |stage| {
        if play.flow.round().is_none() {
            // The first may come before the connection stands. Only the first session that is
            // opened is used.
            if open_at <= stage.now {
                open_at = stage.now + OPEN_EVERY;
                execute(stage, Commands::open(0));
            }
            return;
        }
        if !std::mem::replace(&mut filled, true) {
            (0..filling(&play)).for_each(|number| execute(stage, play.commands.writes(number)));
        }
        if !is_filled(&play) {
            return;
        }
        for _ in 0..play.flow.begin(play.commands.batch) {
            if play.work == Work::Read {
                let reads = play.commands.reads(number, play.commands.batch);
                stage.send(Envelope::ToServers(SERVER, server::In::Read { reads }));
            } else {
                execute(stage, play.commands.writes(number));
            }
            number += 1;
        }
    })
}
