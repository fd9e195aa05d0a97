//! The test kit for typed machines.

use super::Commands;
use crate::typed::{Asked, Machine, Typed, asked, command, query};
use ionian_kernel::random::Random;

/// A typed machine and what its clients send: with it, [`Typed`] machines are [`Commands`] for
/// [`exercise`](super::exercise) and [`Simulation`](super::Simulation). One in 32 commands is
/// bytes that are no command.
pub trait TypedCommands: Machine {
    /// A command that clients send.
    fn random_command(random: &mut Random) -> Self::Command;

    /// A query that clients send.
    fn random_query(random: &mut Random) -> Self::Query;

    /// The part of the state that a command is about: see [`Commands::part`].
    fn part_of_command(command: &Self::Command) -> u64 {
        let _ = command;
        0
    }

    /// The part of the state that a query is about.
    fn part_of_query(query: &Self::Query) -> u64 {
        let _ = query;
        0
    }
}

const ENCODED: &str = "a command that the test kit makes can be encoded";

impl<M: TypedCommands> Commands for Typed<M> {
    fn random_write(random: &mut Random) -> Vec<u8> {
        let mut sent = command(&M::random_command(random)).expect(ENCODED).to_vec();
        if random.below(32) == 0 {
            sent.truncate(random.below(sent.len() as u64) as usize);
        }
        sent
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        query(&M::random_query(random)).expect(ENCODED).to_vec()
    }

    fn part(sent: &[u8]) -> u64 {
        match asked::<M>(sent) {
            Some(Asked::Command(command)) => M::part_of_command(&command),
            Some(Asked::Query(query)) => M::part_of_query(&query),
            None => 0,
        }
    }
}
