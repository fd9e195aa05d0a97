//! A key-value store that answers as Redis 7 does: its string commands and those on keys.
//!
//! ```text
//! client's words --parse--> Command --encode--> log --decode--> Op --write/read--> Store, reply
//! ```
//!
//! A command or query of the machine is the encoding of one [`Compound`]; its reply is RESP2, ready to
//! be handed to a client. Where the machine differs from Redis:
//!
//! - There is one database, and strings are the only type; a value holds 64 MiB ([`MAX_VALUE_LEN`]).
//! - GETEX with an expiry that is no integer is refused even if the key is missing.
//! - INCRBYFLOAT refuses hexadecimal numbers, and an infinite one before it looks at the value.
//! - SET with EXAT or PXAT in the past leaves no key behind; with Redis it counts in DBSIZE for a while.
//!   No key is counted here, or listed, after its time.
//! - SCAN meets keys in the order of a fixed hash, and a cursor stays valid across restarts.
//! - EXEC is executed if a watched key was removed and created again exactly as it was, or was missing,
//!   came and went: what the client saw holds again.
//! - RANDOMKEY answers the same key until something changes.

mod codec;
mod command;
mod footprint;
mod glob;
mod hash;
mod long_double;
mod number;
mod parse;
mod read;
mod reply;
mod snapshot;
mod store;
mod table;
mod write;

pub use command::{Command, Compound, MAX_VALUE_LEN};
pub use table::{CommandInfo, command_table, knows};

use codec::Decoded;
use command::Op;
use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::time::Timestamp;
use store::{Key, Store};

/// How many expired keys one command removes besides its own work. More than one, so that a stream of
/// writes with deadlines cannot outrun the removal; and few, so that no command has to wait.
const PURGED_PER_COMMAND: usize = 32;

const MALFORMED: &[u8] = b"ERR malformed command";

/// The key-value store.
#[derive(Default)]
pub struct Kv {
    store: Store,
    /// The time of the last command. It only tells snapshots which keys have expired.
    now: u64,
}

impl StateMachine for Kv {
    fn apply(&mut self, now: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        self.now = now.0;
        self.store.purge(now.0, PURGED_PER_COMMAND);
        let Some(compound) = codec::decode(command) else {
            return reply::error(reply, MALFORMED);
        };
        match &compound {
            Decoded::Pipeline(commands) => self.execute(now.0, commands, reply),
            Decoded::Transaction { watched, commands } if self.unchanged(now.0, watched) => {
                reply::array(reply, commands.len());
                self.execute(now.0, commands, reply);
            }
            Decoded::Transaction { .. } | Decoded::Versions(_) => {
                self.answer(now.0, &compound, reply);
            }
        }
    }

    fn read(&self, now: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        match codec::decode(query) {
            Some(compound) if !compound.is_read() => return Err(NotARead),
            Some(compound) => self.answer(now.0, &compound, reply),
            None => reply::error(reply, MALFORMED),
        }
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot::write(&self.store, self.now, out);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        *self = Kv { store: snapshot::read(snapshot)?, now: 0 };
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        // What cannot be decoded touches nothing.
        if let Some(compound) = codec::decode(command) {
            footprint::of_compound(&compound, footprint);
        }
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.store.next_deadline(now.0).map(Timestamp)
    }
}

impl Kv {
    fn unchanged(&self, now: u64, watched: &[(&[u8], u64)]) -> bool {
        watched.iter().all(|(key, version)| self.store.version(Key::new(key), now) == *version)
    }

    fn execute(&mut self, now: u64, commands: &[Op<&[u8]>], reply: &mut Vec<u8>) {
        for op in commands {
            if op.is_read() {
                read::answer(&self.store, now, op, reply);
            } else {
                write::execute(&mut self.store, now, op, reply);
            }
        }
    }

    /// Answers a compound that is a read, or a transaction that is not executed.
    fn answer(&self, now: u64, compound: &Decoded, reply: &mut Vec<u8>) {
        let answer_all = |commands: &[Op<&[u8]>], reply: &mut Vec<u8>| {
            commands.iter().for_each(|op| read::answer(&self.store, now, op, reply));
        };
        match compound {
            Decoded::Pipeline(commands) => answer_all(commands, reply),
            Decoded::Transaction { watched, .. } if !self.unchanged(now, watched) => {
                reply::null_array(reply);
            }
            Decoded::Transaction { commands, .. } => {
                reply::array(reply, commands.len());
                answer_all(commands, reply);
            }
            Decoded::Versions(keys) => {
                reply::array(reply, keys.len());
                for key in keys {
                    let version = self.store.version(Key::new(key), now);
                    reply::integer(reply, version as i64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_removes_a_few_expired_keys() {
        let mut kv = Kv::default();
        for i in 0..PURGED_PER_COMMAND + 8 {
            kv.store.set(Key::new(format!("k{i}").as_bytes()), b"v", Some(5), 0);
        }
        for left in [PURGED_PER_COMMAND + 8, 8, 0] {
            // At time zero all that is still there counts.
            assert_eq!(kv.store.live_len(0), left);
            kv.apply(Timestamp(5), &Compound::Pipeline(Vec::new()).encode(), &mut Vec::new());
        }
    }
}
