//! Plays: texts that script one exact scenario. Nothing happens unless the text says so: a message
//! stays in flight until it is delivered or dropped, a disk never syncs, and time does not advance.
//! A node that receives something works until it is idle.
//!
//! ```text
//! # Comments and empty lines are for people.
//! protocol NAME                     the protocol of the cluster, where the play names its cluster
//! nodes 3 all                       3 nodes, with one instance of all roles on each
//! nodes 2 ROLE ROLE                 2 nodes more, with one instance of these roles on each
//! layout 1 replaces n0 n1           another layout: two new nodes have the roles of these
//! tolerates 2                       how many nodes may fail; default 1
//! quorums grid 2x3                  default majorities
//! set KEY=VALUE                     a setting of deployment files
//! level 17                          the level that the cluster is founded with; default the latest
//! durability memory                 what survives a crash: disk, memory or amnesia; default disk
//! submit c0 append x 1              a request on client lane 0
//! deliver server::Execute n1->n0    the oldest such message; the link can be left out, `*` is any name or node
//! deliver all client::Answer        all of them that are in flight now
//! drop server::Execute              like deliver, but the message is lost
//! repeat server::Execute            like deliver, but a copy stays in flight
//! cut server::Execute n1->n0        such messages are lost from now on, when they are sent
//! heal                              no messages are cut any more
//! sync n0                           everything appended on n0 so far is on disk
//! wait 20ms                         time advances and nothing happens
//! timer n0                          time advances to n0's next timer, which fires
//! crash n0                          the node loses its memory, and all records that are not synced
//! crash n0 keeping all              the same, but all records happen to have reached the disk
//! restart n0
//! change c0 to 1                    lane 0 asks for a change to layout 1; 0 is the first one
//! abandon c0                        lane 0 asks to abandon the change in progress
//! run until quiet                   delivers and syncs everything until all is quiet; no timers
//! run for 300ms                     the same with timers
//! expect reply c0 length 1          the next reply of lane 0 that no command has expected yet
//! expect no reply c0
//! expect epoch n0 2                 n0 knows of the membership of epoch 2, and of no later one
//! > n0 appends 1                    the expected trace of the command above: these lines are compared
//! > n0 synced 1                     with all that it did, and may be omitted
//! ```
//!
//! A message `membership`, from a node that has learned of a change, brings that and nothing else.
//! For the requests see [`Lists::parse`].

mod changing;
mod command;
mod setup;
mod stage;

pub use setup::Setup;

use crate::machine::Lists;
use crate::roles::Simulated;
use crate::run::catching;
use crate::scenario::Scenario;
use command::{Command, parse_command};
use stage::Stage;
use std::fmt;

/// A parsed play.
#[derive(Clone, Debug)]
pub struct Play {
    setup: Option<Setup>,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    number: usize,
    text: String,
    /// None for a comment.
    command: Option<Command>,
    expected: Vec<String>,
}

/// What happens to the traces of a play's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traces {
    /// The expected ones are compared with the actual ones.
    Compare,
    /// All actual ones are written.
    Record,
    /// The actual ones replace the expected ones.
    Rewrite,
}

/// An error in a play, or a difference between the run and the play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for PlayError {}

impl Play {
    /// Parses a play.
    ///
    /// # Errors
    /// Names the wrong line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Play, PlayError> {
        let (mut lines, mut setup) = (Vec::<Line>::new(), None);
        for (number, text) in (1..).zip(text.lines()) {
            let trimmed = text.trim();
            if let Some(expected) = trimmed.strip_prefix('>') {
                match lines.last_mut().filter(|line| line.command.is_some()) {
                    Some(line) => line.expected.push(expected.trim().to_owned()),
                    None => {
                        return Err(PlayError {
                            line: number,
                            message: "there is no command above".into(),
                        });
                    }
                }
                continue;
            }
            let quiet = trimmed.is_empty() || trimmed.starts_with('#');
            let command = match Setup::read(&mut setup, trimmed).filter(|_| !quiet) {
                Some(read) => read.map(|()| None),
                None if quiet => Ok(None),
                None => parse_command(trimmed).map(Some),
            };
            let command = command.map_err(|message| PlayError {
                line: number,
                message,
            })?;
            lines.push(Line {
                number,
                text: text.trim_end().to_owned(),
                command,
                expected: Vec::new(),
            });
        }
        Ok(Play { setup, lines })
    }

    /// The cluster that the play names.
    pub fn setup(&self) -> Option<&Setup> {
        self.setup.as_ref()
    }

    /// Runs the play on the scenario's layout, and compares the traces with the expected ones.
    ///
    /// # Errors
    /// Names the first line whose outcome differs.
    pub fn run(
        &self,
        protocol: Simulated,
        scenario: &Scenario,
        model: Lists,
    ) -> Result<(), PlayError> {
        self.perform(protocol, scenario, model, Traces::Compare)
            .map(|_| ())
    }

    /// Runs the play and returns its text with the actual trace below each command.
    ///
    /// # Errors
    /// Like [`run`](Play::run), except for differences between traces.
    pub fn record(
        &self,
        protocol: Simulated,
        scenario: &Scenario,
        model: Lists,
    ) -> Result<String, PlayError> {
        self.perform(protocol, scenario, model, Traces::Record)
    }

    /// Runs the play and returns its text with the actual trace in place of each expected one.
    /// Expected replies stay: the play claims them.
    ///
    /// # Errors
    /// Like [`run`](Play::run), except for differences between traces.
    pub fn rewrite(
        &self,
        protocol: Simulated,
        scenario: &Scenario,
        model: Lists,
    ) -> Result<String, PlayError> {
        self.perform(protocol, scenario, model, Traces::Rewrite)
    }

    fn perform(
        &self,
        protocol: Simulated,
        scenario: &Scenario,
        model: Lists,
        traces: Traces,
    ) -> Result<String, PlayError> {
        let mut text = String::new();
        let mut stage = catching(|| Stage::new(protocol, scenario, model))
            .and_then(|stage| stage)
            .map_err(|message| PlayError { line: 0, message })?;
        for line in &self.lines {
            text += &format!("{}\n", line.text);
            let Some(command) = &line.command else {
                continue;
            };
            let done = catching(|| stage.perform(command))
                .and_then(|done| done)
                .and_then(|()| stage.check());
            done.map_err(|message| PlayError {
                line: line.number,
                message,
            })?;
            let happened = std::mem::take(&mut stage.trace);
            let expects = !line.expected.is_empty();
            if traces == Traces::Compare && expects && happened != line.expected {
                let message = format!(
                    "expected\n  {}\nbut\n  {}",
                    line.expected.join("\n  "),
                    happened.join("\n  ")
                );
                return Err(PlayError {
                    line: line.number,
                    message,
                });
            }
            if traces == Traces::Record || expects {
                happened
                    .iter()
                    .for_each(|happened| text += &format!("> {happened}\n"));
            }
        }
        Ok(text)
    }
}
