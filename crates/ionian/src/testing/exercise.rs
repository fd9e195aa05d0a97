//! Checks a state machine alone, without replication.

use super::Commands;
use super::order::Sequences;
use crate::Timestamp;
use ionian_kernel::random::Random;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps per seed.
const STEPS: u64 = 120;

/// Maximum length of malformed commands in bytes.
const RUBBISH: u64 = 64;

/// A violation of the contract of state machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFault {
    /// The seed that reproduces it.
    pub seed: u64,
    /// The number of steps before it.
    pub step: u64,
    /// A description.
    pub what: String,
}

impl fmt::Display for MachineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)
    }
}

impl std::error::Error for MachineFault {}

/// What an exercise without a fault did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exercised {
    /// How often commands that do not conflict were executed in both orders. With none, nothing is
    /// known about the footprints, for instance because each command touches everything.
    pub commuted: u64,
}

/// Tries the machine with commands of each seed, and with rubbish:
///
/// - two copies that execute the same commands answer the same and have the same snapshot (a map
///   with randomly seeded hashing that is iterated shows here);
/// - a copy that is restored from the other's snapshot, fresh or used, has the same snapshot, and
///   answers the same from then on;
/// - the pieces of a [frozen](crate::StateMachine::freeze) state are the snapshot of that moment,
///   whatever is executed before they are written;
/// - reading changes nothing;
/// - no bytes make it panic, be they a command, a query or a snapshot, and a snapshot that is
///   refused changes nothing;
/// - commands and queries whose [footprints](crate::Footprint::conflicts) do not conflict, two or
///   short sequences of them, can be executed in either order. A table of
///   [dependencies](crate::dependencies) that lacks a pair shows here, and so does a key that is
///   missing in a footprint, if the random commands meet often enough: let them have few keys.
///
/// # Errors
/// The first fault that is found.
pub fn exercise<M: Commands>(seeds: Range<u64>) -> Result<Exercised, MachineFault> {
    let mut done = Exercised::default();
    for seed in seeds {
        done.commuted += Exercise::<M>::new(seed).run()?.commuted;
    }
    Ok(done)
}

struct Exercise<M> {
    seed: u64,
    step: u64,
    done: Exercised,
    random: Random,
    now: Timestamp,
    one: M,
    other: M,
}

impl<M: Commands> Exercise<M> {
    fn new(seed: u64) -> Self {
        let (one, other) = (M::default(), M::default());
        Exercise {
            seed,
            step: 0,
            done: Exercised::default(),
            random: Random::new(seed),
            now: Timestamp(1),
            one,
            other,
        }
    }

    fn run(mut self) -> Result<Exercised, MachineFault> {
        for step in 1..=STEPS {
            self.step = step;
            // Time advances in some steps only.
            self.now = Timestamp(self.now.0 + self.random.below(3) * 1000);
            match self.random.below(14) {
                0..5 => self.write()?,
                5..7 => self.read()?,
                7 => self.rubbish()?,
                8 => self.restore(true)?,
                9 => self.restore(false)?,
                10 => self.freeze()?,
                _ => self.commute()?,
            }
            let (one, other) = (snapshot(&self.one), snapshot(&self.other));
            if one != other {
                let (one, other) = (shown(&one), shown(&other));
                return self.fault(format!(
                    "two copies that did the same have other snapshots: {one} and {other}"
                ));
            }
        }
        Ok(self.done)
    }

    fn fault<T>(&self, what: String) -> Result<T, MachineFault> {
        Err(MachineFault {
            seed: self.seed,
            step: self.step,
            what,
        })
    }

    /// Calls the machine; a panic is a fault.
    fn call<T>(
        &self,
        doing: &str,
        bytes: &[u8],
        work: impl FnOnce() -> T,
    ) -> Result<T, MachineFault> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => Ok(done),
            Err(_) => self.fault(format!("it panics when it {doing} {}", shown(bytes))),
        }
    }

    fn write(&mut self) -> Result<(), MachineFault> {
        let command = M::random_write(&mut self.random);
        self.execute(&command)
    }

    fn execute(&mut self, command: &[u8]) -> Result<(), MachineFault> {
        let now = self.now;
        // Taken out, so that a fault can describe the rest.
        let (mut one, mut other) = (
            std::mem::take(&mut self.one),
            std::mem::take(&mut self.other),
        );
        let answers = self.call("executes", command, || {
            (
                apply(&mut one, now, command),
                apply(&mut other, now, command),
            )
        })?;
        (self.one, self.other) = (one, other);
        if answers.0 != answers.1 {
            let (command, one, other) = (shown(command), shown(&answers.0), shown(&answers.1));
            return self.fault(format!(
                "two copies in the same state answer {command} differently: {one} and {other}"
            ));
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), MachineFault> {
        let query = M::random_read(&mut self.random);
        self.ask(&query, true)
    }

    fn ask(&mut self, query: &[u8], must_be_a_read: bool) -> Result<(), MachineFault> {
        let before = snapshot(&self.one);
        let asked = |machine: &M| {
            let mut reply = Vec::new();
            machine.read(self.now, query, &mut reply).map(|()| reply)
        };
        let answers = self.call("answers the query", query, || {
            (asked(&self.one), asked(&self.other))
        })?;
        let shown_query = shown(query);
        if snapshot(&self.one) != before {
            return self.fault(format!("reading {shown_query} changes the state"));
        }
        if answers.0 != answers.1 {
            return self.fault(format!(
                "two copies in the same state answer the query {shown_query} differently"
            ));
        }
        if must_be_a_read && answers.0.is_err() {
            return self.fault(format!(
                "Commands::random_read made {shown_query}, and the machine says that it is not a read"
            ));
        }
        Ok(())
    }

    fn rubbish(&mut self) -> Result<(), MachineFault> {
        let length = self.random.below(RUBBISH);
        let rubbish: Vec<u8> = (0..length).map(|_| self.random.any() as u8).collect();
        self.ask(&rubbish, false)?;
        self.execute(&rubbish)?;
        let before = snapshot(&self.one);
        let mut restored = M::default();
        let same = restored.restore(&before);
        if let Err(error) = same {
            return self.fault(format!(
                "it refuses its own snapshot {}: {error}",
                shown(&before)
            ));
        }
        let before = snapshot(&restored);
        let refused = self.call("restores", &rubbish, || restored.restore(&rubbish).is_err())?;
        if refused && snapshot(&restored) != before {
            return self.fault(format!(
                "it refuses the snapshot {}, and its state is another now",
                shown(&rubbish)
            ));
        }
        Ok(())
    }

    /// Replaces the second copy by one restored from the first.
    fn restore(&mut self, is_fresh: bool) -> Result<(), MachineFault> {
        let taken = snapshot(&self.one);
        let mut restored = M::default();
        if !is_fresh {
            for _ in 0..self.random.below(5) {
                let command = M::random_write(&mut self.random);
                self.call("executes", &command, || {
                    apply(&mut restored, self.now, &command)
                })?;
            }
        }
        if let Err(error) = self.call("restores", &taken, || restored.restore(&taken))? {
            return self.fault(format!(
                "it refuses its own snapshot {}: {error}",
                shown(&taken)
            ));
        }
        let again = snapshot(&restored);
        if again != taken {
            let (kind, taken, again) = (
                if is_fresh { "fresh" } else { "used" },
                shown(&taken),
                shown(&again),
            );
            return self.fault(format!(
                "a {kind} copy that was restored from {taken} has the snapshot {again}"
            ));
        }
        // It must also answer the same from now on, which shows what the snapshot lacks.
        self.other = restored;
        Ok(())
    }

    fn freeze(&mut self) -> Result<(), MachineFault> {
        let (taken, mut frozen) = (snapshot(&self.one), self.one.freeze());
        let mut written = Vec::new();
        let mut goes_on = true;
        while goes_on {
            goes_on = frozen.write_some(&mut written);
            self.write()?;
        }
        if written != taken {
            let (taken, written) = (shown(&taken), shown(&written));
            return self.fault(format!(
                "the pieces of a frozen state are {written}, its snapshot was {taken}"
            ));
        }
        Ok(())
    }

    /// Executes what does not conflict in both orders.
    fn commute(&mut self) -> Result<(), MachineFault> {
        let state = snapshot(&self.one);
        let Some(sequences) = Sequences::draw(&self.one, &mut self.random) else {
            return Ok(());
        };
        self.done.commuted += 1;
        match sequences.difference::<M>(&state, self.now) {
            Some(what) => self.fault(what),
            None => Ok(()),
        }
    }
}

pub(super) fn apply<M: Commands>(machine: &mut M, now: Timestamp, command: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    machine.apply(now, command, &mut reply);
    reply
}

pub(super) fn snapshot<M: Commands>(machine: &M) -> Vec<u8> {
    let mut taken = Vec::new();
    machine.snapshot(&mut taken);
    taken
}

/// The first bytes as text.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 80;
    let more = if bytes.len() > MOST { "..." } else { "" };
    format!(
        "\"{}\"{more}",
        bytes[..bytes.len().min(MOST)].escape_ascii()
    )
}
