//! A compound that the machine has refused because the users have changed since it was judged: the
//! gateway asks for the users, judges it again and sends it again. Its client waits no longer for
//! that than for any reply.

use super::{Connection, Note};
use crate::commands;
use crate::measured::Outcome;
use crate::reply::Context;
use crate::rights::CHANGED;
use crate::transaction::{self, Expected};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use ionian_machines::kv::{self, Command, Compound, Demand};
use std::time::Instant;

/// How often a compound is judged again. Each time the users have changed: an operator who loads
/// many of them does that tens of times a second, and others write meanwhile.
const MOST_TIMES: u32 = 10;

/// The compound.
pub(super) struct Outdated {
    expected: Expected,
    notes: Vec<Note>,
    request: (Operation, Bytes),
    demand: Demand,
    /// How often it was judged again before.
    times: u32,
    /// Since when its client waits.
    asked_at: Instant,
}

impl Connection {
    /// Takes such a refusal.
    pub(super) fn on_outdated(&mut self, expected: Expected, notes: Vec<Note>) {
        let request = self.flight_request.take();
        let (times, asked_at) = (self.judged_again, self.asked_at);
        let Some(request) = request.filter(|_| times < MOST_TIMES) else {
            return self.answer_refused(expected, notes, CHANGED, Outcome::TryagainNo);
        };
        self.outdated = Some(Outdated {
            expected,
            notes,
            request,
            demand: self.demand,
            times,
            asked_at,
        });
        self.fetch_users(ReadLevel::Linearizable);
        self.asked_at = asked_at;
    }

    /// The users could not be learned.
    pub(super) fn give_up_outdated(&mut self, outdated: Outdated, refusal: Refusal) {
        let Outdated {
            expected, notes, ..
        } = outdated;
        // Nothing was executed.
        let refusal = match refusal {
            Refusal::Busy => Refusal::Busy,
            _ => Refusal::Unavailable,
        };
        let text = super::compound::refusal_text(refusal);
        self.answer_refused(expected, notes, text, refusal.into());
    }

    /// Judges the compound by the present users and sends it again, without the commands that are
    /// not allowed.
    pub(super) fn submit_again(&mut self, outdated: Outdated) {
        let Outdated {
            mut expected,
            mut notes,
            request: (operation, mut payload),
            demand,
            times,
            asked_at,
        } = outdated;
        let epoch = self.host.rights.epoch();
        let (host, client) = (&self.host, &self.client);
        let verdict = match &mut expected {
            Expected::Pipeline(commands) => {
                for (command, note) in commands.iter_mut().zip(&mut notes) {
                    if let Err(text) = note.judgement.renew(host, client) {
                        *command = Command::refused(text);
                    }
                }
                let compound = Compound::Pipeline(std::mem::take(commands));
                payload = compound.encode().into();
                if let Compound::Pipeline(all) = compound {
                    *commands = all;
                }
                Ok(())
            }
            Expected::One | Expected::Blocking => {
                let first = notes.first_mut();
                first.map_or(Ok(()), |note| note.judgement.renew(host, client))
            }
            Expected::Transaction(_, judged) => transaction::renew_all(judged, host, client),
            Expected::Versions(keys) => {
                let words = [&[Bytes::from_static(b"watch")], &keys[..]].concat();
                host.judge_words(client, &words)
            }
            Expected::Changed(words) => host.judge_words(client, words),
            Expected::Info(_) | Expected::Check | Expected::Users(_) => Ok(()),
        };
        if let Err(text) = verdict {
            return self.answer_refused(expected, notes, &text, Outcome::Error);
        }
        let request = (operation, kv::judged_at(epoch, &payload));
        self.judged_again = times + 1;
        (self.demand, self.asked_at) = (demand, asked_at);
        self.flight_bytes = request.1.len();
        self.flight_changes = !matches!(operation, Operation::Read(_));
        self.flight_request = Some(request.clone());
        (self.flight, self.flight_notes) = (Some(expected), notes);
        self.request = Some(request);
    }

    /// Answers all commands of a compound that was not executed with the same error.
    pub(super) fn answer_refused(
        &mut self,
        expected: Expected,
        notes: Vec<Note>,
        text: &str,
        outcome: Outcome,
    ) {
        let commands = match expected {
            Expected::Pipeline(commands) => commands.len(),
            Expected::Blocking => {
                self.unblock();
                1
            }
            Expected::Versions(_) => {
                self.transaction.on_versions_refused();
                1
            }
            Expected::Changed(words) => {
                commands::on_change_refused(&self.client, &words, Refusal::Unavailable);
                1
            }
            _ => 1,
        };
        for note in &notes {
            self.host.meter.answered(note.family, outcome);
        }
        let mut context = Context {
            host: &self.host,
            client: &self.client,
            out: self.output.tail(),
        };
        (0..commands).for_each(|_| context.error(text));
    }
}
