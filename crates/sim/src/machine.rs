//! The service that simulations replicate: a few keys, each holding a list of numbers.

use crate::model::{Call, Model, Specification, Want};
use bytes::Bytes;
use ionian_kernel::client::{Operation, ReadLevel};
use ionian_kernel::machine::{Footprint, NotARead, RestoreError, StateMachine};
use ionian_kernel::random::Random;
use ionian_kernel::time::Timestamp;
use ionian_kernel::wire::{decode_all, encode_all};
use ionian_kernel::{wire_enum, wire_struct};
use std::collections::BTreeMap;
use std::fmt;

/// What is done to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Tells the list.
    Get,
    /// Makes `value` the whole list.
    Set {
        /// The only number of the new list.
        value: u64,
    },
    /// Adds `token` at the end.
    Append {
        /// The number added.
        token: u64,
    },
    /// If the list ends in `old`, makes `new` the whole list.
    Cas {
        /// The number that must be last.
        old: u64,
        /// The only number of the new list.
        new: u64,
    },
    /// Takes the key away.
    Delete,
    /// Not a command: the machine must say so and live on. Carries this many bytes of rubbish.
    Rubbish {
        /// How many.
        bytes: u32,
    },
}

wire_enum! { Deed {
    0 => Get, 1 => Set { value }, 2 => Append { token }, 3 => Cas { old, new }, 4 => Delete, 5 => Rubbish { bytes },
} }

/// One command of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Different for every command of a run, so that no two are the same bytes.
    pub id: u64,
    /// The key.
    pub key: u64,
    /// What is done to it.
    pub deed: Deed,
}

wire_struct! { Command { id, key, deed } }

/// What the machine answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Deed::Get`]: the list, if the key is there.
    List(Option<Vec<u64>>),
    /// To [`Deed::Set`].
    Done,
    /// To [`Deed::Append`]: how long the list is now.
    Length(u64),
    /// To [`Deed::Cas`]: whether the list ended in the old number. To [`Deed::Delete`]: whether the
    /// key was there.
    Was(bool),
    /// To bytes that are no command.
    Malformed,
}

wire_enum! { Answer { 0 => List(list), 1 => Done, 2 => Length(length), 3 => Was(was), 4 => Malformed } }

/// The key under which everything that is no command is filed: it touches none.
const NO_KEY: u64 = u64::MAX;

/// The replicated machine: each key's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimMachine {
    lists: BTreeMap<u64, Vec<u64>>,
}

fn parse(command: &[u8]) -> Option<Command> {
    let command: Command = decode_all(&Bytes::copy_from_slice(command)).ok()?;
    (!matches!(command.deed, Deed::Rubbish { .. })).then_some(command)
}

impl StateMachine for SimMachine {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let answer = match parse(command) {
            None => Answer::Malformed,
            Some(command) => {
                let mut list = self.lists.remove(&command.key);
                let answer = carry_out(&mut list, &command.deed);
                if let Some(list) = list {
                    self.lists.insert(command.key, list);
                }
                answer
            }
        };
        reply.extend(encode_all(&answer));
    }

    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let answer = match parse(query) {
            Some(Command { key, deed: Deed::Get, .. }) => Answer::List(self.lists.get(&key).cloned()),
            Some(_) => return Err(NotARead),
            None => Answer::Malformed,
        };
        reply.extend(encode_all(&answer));
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let lists: Vec<(u64, Vec<u64>)> = self.lists.iter().map(|(key, list)| (*key, list.clone())).collect();
        out.extend(encode_all(&lists));
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let lists: Vec<(u64, Vec<u64>)> =
            decode_all(&Bytes::copy_from_slice(snapshot)).map_err(|error| RestoreError(error.to_string()))?;
        self.lists = lists.into_iter().collect();
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match parse(command) {
            Some(Command { key, deed: Deed::Get, .. }) => footprint.reads.push(key),
            Some(Command { key, .. }) => footprint.writes.push(key),
            None => {}
        }
    }
}

fn carry_out(list: &mut Option<Vec<u64>>, deed: &Deed) -> Answer {
    match deed {
        Deed::Get => Answer::List(list.clone()),
        Deed::Set { value } => {
            *list = Some(vec![*value]);
            Answer::Done
        }
        Deed::Append { token } => {
            let list = list.get_or_insert_default();
            list.push(*token);
            Answer::Length(list.len() as u64)
        }
        Deed::Cas { old, new } => {
            let hit = list.as_ref().is_some_and(|list| list.last() == Some(old));
            if hit {
                *list = Some(vec![*new]);
            }
            Answer::Was(hit)
        }
        Deed::Delete => Answer::Was(list.take().is_some()),
        Deed::Rubbish { .. } => Answer::Malformed,
    }
}

/// Clients of [`SimMachine`] that collide on few keys.
pub struct Lists {
    keys: u64,
    next_id: u64,
    /// The last number written to each key, for a compare-and-set that has a chance.
    last: BTreeMap<u64, u64>,
    /// Some requests carry up to so many bytes.
    large: Option<u32>,
}

impl Lists {
    /// Clients that use this many keys.
    pub fn new(keys: u64) -> Self {
        Lists { keys: keys.max(1), next_id: 1, last: BTreeMap::new(), large: None }
    }

    /// The same clients; some of their requests carry up to so many bytes, if that is said.
    #[must_use]
    pub fn with_large(self, large: Option<u32>) -> Self {
        Lists { large, ..self }
    }

    fn call(&mut self, operation: Operation, key: u64, deed: Deed) -> Call<Command> {
        let rubbish = match deed {
            Deed::Rubbish { bytes } => bytes as usize,
            _ => 0,
        };
        if let Deed::Set { value } | Deed::Append { token: value } | Deed::Cas { new: value, .. } = deed {
            self.last.insert(key, value);
        }
        let action = Command { id: self.next_id, key, deed };
        self.next_id += 1;
        let mut payload = encode_all(&action);
        payload.resize(payload.len() + rubbish, 0xee);
        Call { operation, payload: Bytes::from(payload), action }
    }

    fn write(&mut self, random: &mut Random) -> Call<Command> {
        if let Some(most) = self.large.filter(|_| random.once_in(5)) {
            return self.call(Operation::Write, 0, Deed::Rubbish { bytes: random.below(most.into()) as u32 });
        }
        let (key, fresh) = (random.below(self.keys), self.next_id);
        let deed = match random.below(40) {
            0..10 => Deed::Set { value: fresh },
            10..28 => Deed::Append { token: fresh },
            28..34 => Deed::Cas { old: self.last.get(&key).copied().unwrap_or(0), new: fresh },
            34..36 => Deed::Delete,
            36..39 => Deed::Get,
            _ => Deed::Rubbish { bytes: random.below(600) as u32 },
        };
        self.call(Operation::Write, key, deed)
    }

    fn read(&mut self, random: &mut Random, level: ReadLevel) -> Call<Command> {
        let key = random.below(self.keys);
        self.call(Operation::Read(level), key, Deed::Get)
    }
}

impl Specification for Lists {
    type Action = Command;
    type Answer = Answer;
    type State = Option<Vec<u64>>;

    fn key(action: &Command) -> u64 {
        match action.deed {
            Deed::Rubbish { .. } => NO_KEY,
            _ => action.key,
        }
    }

    fn is_read(action: &Command) -> bool {
        action.deed == Deed::Get
    }

    fn apply(state: &mut Option<Vec<u64>>, action: &Command) -> Answer {
        carry_out(state, &action.deed)
    }
}

impl Model for Lists {
    fn next(&mut self, random: &mut Random, want: Want) -> Call<Command> {
        match want {
            Want::Write => self.write(random),
            Want::Read(level) => self.read(random, level),
            // Now and then a write is sent as a read, which must be refused (b3).
            Want::Any(level) if random.once_in(60) => {
                let (key, value) = (random.below(self.keys), self.next_id);
                self.call(Operation::Read(level), key, Deed::Append { token: value })
            }
            Want::Any(level) if random.once_in(2) => self.read(random, level),
            Want::Any(_) => self.write(random),
        }
    }

    fn parse(&mut self, text: &str) -> Result<Call<Command>, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word:?} is no number"));
        let (operation, deed) = match words[..] {
            ["get", _] => (Operation::Write, Deed::Get),
            ["read", _] => (Operation::Read(ReadLevel::Linearizable), Deed::Get),
            ["read-sequential", _] => (Operation::Read(ReadLevel::Sequential), Deed::Get),
            ["read-eventual", _] => (Operation::Read(ReadLevel::Eventual), Deed::Get),
            ["set", _, value] => (Operation::Write, Deed::Set { value: number(value)? }),
            ["append", _, token] => (Operation::Write, Deed::Append { token: number(token)? }),
            ["cas", _, old, new] => (Operation::Write, Deed::Cas { old: number(old)?, new: number(new)? }),
            ["delete", _] => (Operation::Write, Deed::Delete),
            _ => {
                return Err(format!(
                    "{text:?} is no command; known are: get K, read K, read-sequential K, read-eventual K, \
                     set K V, append K T, cas K OLD NEW, delete K"
                ));
            }
        };
        let key = match words[1].as_bytes() {
            [letter @ b'a'..=b'z'] => u64::from(letter - b'a'),
            _ => return Err(format!("{:?} is no key: keys are the letters a to z", words[1])),
        };
        Ok(self.call(operation, key, deed))
    }

    fn interpret(&self, action: &Command, reply: &[u8]) -> Result<Answer, String> {
        decode_all(&Bytes::copy_from_slice(reply))
            .map_err(|error| format!("the reply to {action} is malformed: {error}"))
    }

    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(SimMachine::default())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match u8::try_from(self.key) {
            Ok(key @ 0..26) => char::from(b'a' + key).to_string(),
            _ => self.key.to_string(),
        };
        match &self.deed {
            Deed::Get => write!(f, "get {key}"),
            Deed::Set { value } => write!(f, "set {key} {value}"),
            Deed::Append { token } => write!(f, "append {key} {token}"),
            Deed::Cas { old, new } => write!(f, "cas {key} {old} {new}"),
            Deed::Delete => write!(f, "delete {key}"),
            Deed::Rubbish { bytes } => write!(f, "rubbish of {bytes} bytes"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::List(None) => f.write_str("nothing"),
            Answer::List(Some(list)) => write!(f, "{list:?}"),
            Answer::Done => f.write_str("ok"),
            Answer::Length(length) => write!(f, "length {length}"),
            Answer::Was(was) => write!(f, "{was}"),
            Answer::Malformed => f.write_str("malformed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(machine: &mut SimMachine, lists: &mut Lists, text: &str) -> String {
        let call = lists.parse(text).unwrap();
        let mut reply = Vec::new();
        match call.operation {
            Operation::Write | Operation::Change => machine.apply(Timestamp(0), &call.payload, &mut reply),
            Operation::Read(_) => machine.read(Timestamp(0), &call.payload, &mut reply).unwrap(),
        }
        lists.interpret(&call.action, &reply).unwrap().to_string()
    }

    #[test]
    fn commands_do_what_they_say() {
        let (mut machine, mut lists) = (SimMachine::default(), Lists::new(2));
        let script = [
            ("get x", "nothing"),
            ("append x 7", "length 1"),
            ("append x 8", "length 2"),
            ("read x", "[7, 8]"),
            ("cas x 7 9", "false"),
            ("cas x 8 9", "true"),
            ("get x", "[9]"),
            ("set y 1", "ok"),
            ("delete x", "true"),
            ("delete x", "false"),
            ("read y", "[1]"),
        ];
        for (command, answer) in script {
            assert_eq!(ask(&mut machine, &mut lists, command), answer, "{command}");
        }
    }

    #[test]
    fn writes_are_no_reads_and_bad_lines_are_explained() {
        let mut lists = Lists::new(1);
        let call = lists.parse("set x 1").unwrap();
        assert_eq!(SimMachine::default().read(Timestamp(0), &call.payload, &mut Vec::new()), Err(NotARead));
        assert!(lists.parse("set x").unwrap_err().contains("known are"));
        assert!(lists.parse("set xx 1").unwrap_err().contains("letters a to z"));
        assert!(lists.parse("set x y").unwrap_err().contains("no number"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_and_snapshots_hold_all(commands in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                (0..3u64, 0..9u64).prop_map(|(key, token)| encode_all(&Command { id: token, key, deed: Deed::Append { token } })),
            ], 0..30)) {
            let mut machine = SimMachine::default();
            for command in &commands {
                let mut reply = Vec::new();
                machine.apply(Timestamp(0), command, &mut reply);
                prop_assert!(decode_all::<Answer>(&Bytes::from(reply)).is_ok());
            }
            let (mut picture, mut again, mut other) = (Vec::new(), Vec::new(), SimMachine::default());
            machine.snapshot(&mut picture);
            other.restore(&picture).unwrap();
            other.snapshot(&mut again);
            prop_assert_eq!(picture, again);
            prop_assert_eq!(machine, other);
        }
    }
}
