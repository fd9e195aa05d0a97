//! What messages cost, as a file: measured once on some machine, used for every plan.

use crate::demand::{By, SystemCalls};
use crate::line::Line;
use anyhow::{Context, Result, ensure};
use ionian_kernel::client::ReadLevel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The prices that come with Ionian.
const SHIPPED: &str = include_str!("demands.json");

/// The largest file of prices in bytes.
pub const MAX_TEXT: usize = 4 << 20;

/// The largest price in microseconds: a second.
const MAX_US: f64 = 1e6;

/// What messages, system calls and connections of clients cost, in microseconds of processor time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Where and how it was measured.
    pub measured: Provenance,
    /// Writes to connections between nodes, and reads from them.
    pub system_calls: SystemCalls,
    /// What a gateway spends on a command, beside its client lane: connections, parsing, replies,
    /// wake-ups. Over the reciprocal of the pipeline: `unit_us` is for each request.
    pub gateway: Line,
    /// Messages, by preset.
    pub presets: BTreeMap<String, Vec<Costs>>,
}

/// Where and how prices were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The day, `YYYY-MM-DD`.
    pub date: String,
    /// The machine: processors, memory, system.
    pub machine: String,
    /// The version of Ionian.
    pub version: String,
    /// The command that measured.
    pub command: String,
}

/// What messages cost in a preset under commands of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The commands.
    pub commands: Commands,
    /// Their size.
    pub corner: Corner,
    /// Messages, by name.
    pub messages: BTreeMap<String, Price>,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Commands {
    /// SET.
    Writes,
    /// GET, linearizable.
    LinearizableReads,
    /// GET, sequential.
    SequentialReads,
    /// GET, eventual.
    EventualReads,
}

/// Sizes at which prices are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corner {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Commands in a request, as a connection pipelines them.
    pub pipeline: usize,
}

/// What one message costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// What its cost depends on.
    pub by: By,
    /// By how much.
    pub cost: Line,
}

impl Corner {
    /// Small values, without pipelines.
    pub const SMALL: Corner = Corner {
        value_bytes: 16,
        pipeline: 1,
    };
    /// Large values.
    pub const LARGE: Corner = Corner {
        value_bytes: 1024,
        pipeline: 1,
    };
    /// Long pipelines.
    pub const PIPELINED: Corner = Corner {
        value_bytes: 16,
        pipeline: 16,
    };
    /// All of them. What lies between and beyond is on the lines through them.
    pub const ALL: [Corner; 3] = [Corner::SMALL, Corner::LARGE, Corner::PIPELINED];
}

impl Commands {
    /// All kinds.
    pub const ALL: [Commands; 4] = [
        Commands::Writes,
        Commands::LinearizableReads,
        Commands::SequentialReads,
        Commands::EventualReads,
    ];

    /// Reads of this level.
    pub fn reads(level: ReadLevel) -> Self {
        match level {
            ReadLevel::Linearizable => Commands::LinearizableReads,
            ReadLevel::Sequential => Commands::SequentialReads,
            ReadLevel::Eventual => Commands::EventualReads,
        }
    }

    /// The share of reads among the commands of a load of them, and the level of these.
    pub fn share_of_reads(self) -> (f64, ReadLevel) {
        match self {
            Commands::Writes => (0.0, ReadLevel::Linearizable),
            Commands::LinearizableReads => (1.0, ReadLevel::Linearizable),
            Commands::SequentialReads => (1.0, ReadLevel::Sequential),
            Commands::EventualReads => (1.0, ReadLevel::Eventual),
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Commands::Writes => "writes",
            Commands::LinearizableReads => "linearizable reads",
            Commands::SequentialReads => "sequential reads",
            Commands::EventualReads => "eventual reads",
        }
    }
}

impl Prices {
    /// Those that come with Ionian.
    ///
    /// # Errors
    /// If they are damaged, which a test excludes.
    pub fn shipped() -> Result<Self> {
        Prices::parse(SHIPPED)
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// Names what is not as it must be.
    pub fn parse(text: &str) -> Result<Self> {
        ensure!(
            text.len() <= MAX_TEXT,
            "{} bytes of demands; at most {MAX_TEXT} are allowed",
            text.len()
        );
        let prices: Prices =
            serde_json::from_str(text).context("not a file that `ionian bench demands` writes")?;
        prices.check()?;
        Ok(prices)
    }

    fn check(&self) -> Result<()> {
        let SystemCalls { write, read } = self.system_calls;
        for (name, line) in [("write", write), ("read", read)] {
            check_line(line).with_context(|| format!("system_calls.{name}"))?;
        }
        check_line(self.gateway).context("gateway")?;
        for (preset, costs) in &self.presets {
            for commands in Commands::ALL {
                for corner in Corner::ALL {
                    ensure!(
                        costs_of(costs, commands, corner).is_some(),
                        "presets.{preset}: no costs of {} with values of {} bytes and a pipeline of {}",
                        commands.name(),
                        corner.value_bytes,
                        corner.pipeline
                    );
                }
            }
            let messages = costs.iter().flat_map(|costs| &costs.messages);
            for (name, price) in messages {
                check_line(price.cost).with_context(|| format!("presets.{preset}, {name}"))?;
            }
        }
        Ok(())
    }

    /// What messages cost in a preset; `None` if that was not measured.
    pub fn of(&self, preset: &str, commands: Commands, corner: Corner) -> Option<&Costs> {
        costs_of(self.presets.get(preset)?, commands, corner)
    }

    /// Everything costs this many times as much.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        let SystemCalls { write, read } = &mut self.system_calls;
        let messages = self.presets.values_mut().flatten();
        let messages = messages.flat_map(|costs| costs.messages.values_mut());
        let lines = messages.map(|price| &mut price.cost);
        for line in lines.chain([write, read, &mut self.gateway]) {
            *line = line.times(factor);
        }
        self
    }
}

fn costs_of(costs: &[Costs], commands: Commands, corner: Corner) -> Option<&Costs> {
    let mut all = costs.iter();
    all.find(|costs| costs.commands == commands && costs.corner == corner)
}

fn check_line(line: Line) -> Result<()> {
    for us in [line.fixed_us, line.unit_us] {
        ensure!(
            (0.0..=MAX_US).contains(&us),
            "{us} us: must be 0 to {MAX_US:.0}"
        );
    }
    Ok(())
}
