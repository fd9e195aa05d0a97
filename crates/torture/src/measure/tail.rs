//! Builds what a node must find again: keys, a snapshot of them stored by every replica, and
//! commands after it.

use super::arguments::{RestartTime, Shape};
use super::bench::Bench;
use super::load::{Keys, Load, ended};
use crate::statuses::executor;
use anyhow::{Result, ensure};

/// Connections, and commands that each sends at once, where many are wanted soon.
const MANY: (u16, u64) = (32, 64);

/// The commands that are sent between two looks at the snapshots.
const STRIDE: u64 = 20_000;

/// Commands without any being stored, after which something must be wrong: by default a snapshot
/// comes after 64 MiB.
const TOO_MANY: u64 = 20_000_000;

/// What was built.
pub(crate) struct Built {
    /// The size of the snapshots in the first node's directory.
    pub(crate) snapshot_bytes: u64,
    /// Commands that are in no snapshot, in the replica that has the fewest of them.
    pub(crate) commands: u64,
}

struct Builder<'a> {
    arguments: &'a RestartTime,
    bench: &'a Bench,
    commands: u64,
    /// The slots, and the commands that had been executed after them.
    history: Vec<(u64, u64)>,
}

/// Builds it.
pub(crate) async fn build(arguments: &RestartTime, bench: &Bench) -> Result<Built> {
    let mut builder = Builder {
        arguments,
        bench,
        commands: 0,
        history: vec![(0, 0)],
    };
    builder.send(Keys::InTurn, arguments.keys, MANY).await?;
    let (all_set, _) = builder.slots().await?;
    eprintln!(
        "{} keys are set, in {all_set} slots; waiting for snapshots of them",
        arguments.keys
    );
    let stored = builder.snapshots_after(all_set).await?;
    let since = builder.commands - builder.commands_at(stored);
    match arguments.shape {
        Shape::Pipelined => {
            ensure!(
                since <= arguments.tail,
                "{since} commands came after the snapshots: --tail must be larger"
            );
            builder
                .send(Keys::AtRandom(arguments.keys), arguments.tail - since, MANY)
                .await?;
        }
        // In addition to the few slots since the snapshot.
        Shape::Single => {
            builder
                .send(Keys::AtRandom(arguments.keys), arguments.tail, (1, 1))
                .await?
        }
    }
    let snapshot_bytes =
        ionian_harness::process::size(&bench.cluster.store(0).join("snapshots"))?.bytes;
    Ok(Built {
        snapshot_bytes,
        commands: builder.commands - builder.commands_at(stored),
    })
}

impl Builder<'_> {
    async fn send(
        &mut self,
        keys: Keys,
        commands: u64,
        (connections, pipeline): (u16, u64),
    ) -> Result<()> {
        let load = Load::new(keys, 0, self.arguments.common.value_bytes, commands);
        ended(
            load.spread(&self.bench.cluster.gateways()?, connections, pipeline)
                .await?,
        )
        .await?;
        ensure!(
            load.refused() == 0,
            "{} commands were refused: the machine is too busy to measure",
            load.refused()
        );
        self.commands += commands;
        let (executed, _) = self.slots().await?;
        self.history.push((executed, self.commands));
        Ok(())
    }

    /// How many slots were executed by some replica, and how many are in the stored snapshot of
    /// every replica.
    async fn slots(&self) -> Result<(u64, u64)> {
        let statuses = self.bench.statuses().await?;
        let executors = || statuses.iter().filter_map(executor);
        let executed = executors().filter_map(|role| role.executed).max();
        let stored = executors().filter_map(|role| role.stored).min();
        Ok((executed.unwrap_or(0), stored.unwrap_or(0)))
    }

    /// Goes on until every replica has stored a snapshot of more slots than these; returns of how
    /// many.
    async fn snapshots_after(&mut self, slots: u64) -> Result<u64> {
        let limit = self.commands + TOO_MANY;
        loop {
            let (_, stored) = self.slots().await?;
            if stored > slots {
                return Ok(stored);
            }
            ensure!(
                self.commands < limit,
                "no snapshot after {TOO_MANY} commands"
            );
            self.send(Keys::AtRandom(self.arguments.keys), STRIDE, MANY)
                .await?;
        }
    }

    /// How many commands were in the first `slots` slots: exact at the ends of strides, and in
    /// between about.
    fn commands_at(&self, slots: u64) -> u64 {
        let after = self.history.partition_point(|(at, _)| *at < slots);
        let Some((slot_after, commands_after)) = self.history.get(after).copied() else {
            return self.commands;
        };
        let Some((slot, commands)) = after.checked_sub(1).map(|before| self.history[before]) else {
            return 0;
        };
        let share = (slots - slot) as f64 / (slot_after - slot).max(1) as f64;
        commands + ((commands_after - commands) as f64 * share) as u64
    }
}
