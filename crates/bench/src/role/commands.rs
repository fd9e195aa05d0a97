//! The commands that the bench forges: SETs and GETs of the key-value store, as a gateway would
//! send them.

use crate::payload::payload;
use bytes::Bytes;
use ionian_kernel::id::{ClientId, SessionId, Slot};
use ionian_replication::batch::{
    Answer, Answers, AnswersByClient, Batch, BatchBuilder, Command, Outcome, Purpose,
};

/// Payloads made beforehand, one of each kind for each key.
pub(crate) struct Commands {
    writes: Vec<Bytes>,
    reads: Vec<Bytes>,
    /// How many client lanes the commands are of.
    lanes: u64,
    /// How many commands of a lane may be unanswered.
    window: u64,
    /// Commands in a batch.
    pub(crate) batch: u64,
}

impl Commands {
    pub(crate) fn new(keys: u64, value_bytes: usize, lanes: u64, batch: u64, window: u64) -> Self {
        let value = Bytes::from(vec![b'v'; value_bytes]);
        let made = |words: &[Bytes]| Bytes::from(payload(words));
        let key = |key: u64| Bytes::from(format!("key:{key:012}"));
        Commands {
            writes: (0..keys)
                .map(|k| made(&[Bytes::from_static(b"SET"), key(k), value.clone()]))
                .collect(),
            reads: (0..keys)
                .map(|k| made(&[Bytes::from_static(b"GET"), key(k)]))
                .collect(),
            lanes,
            window,
            batch,
        }
    }

    pub(crate) fn keys(&self) -> u64 {
        self.writes.len() as u64
    }

    pub(crate) fn lanes(&self) -> u64 {
        self.lanes
    }

    /// Keys in an order that looks like none, the same in each run.
    fn scatter(&self, number: u64) -> usize {
        (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize % self.writes.len()
    }

    /// A lane opens its session: it must be the first that the lane has chosen, in the order of the
    /// lanes.
    pub(crate) fn open(lane: u64) -> Batch {
        let client = ClientId(lane as u8);
        Batch::one(&Command {
            client,
            purpose: Purpose::Open,
            number: lane,
            floor: 0,
            payload: Bytes::new(),
        })
    }

    /// The write that is number `number` of all; sessions are those that [`open`](Self::open)
    /// opened first.
    fn write(&self, number: u64) -> Command {
        let payload = self.payload(number);
        let (lane, number) = (number % self.lanes, number / self.lanes);
        Command {
            client: ClientId(lane as u8),
            purpose: Purpose::Execute(SessionId(lane + 1)),
            number,
            // Those before it are answered, for no more are under way.
            floor: number.saturating_sub(self.window / self.lanes + self.batch),
            payload,
        }
    }

    /// What is written by the write that is number `number` of all. The first ones set every key
    /// once.
    pub(crate) fn payload(&self, number: u64) -> Bytes {
        match number < self.keys() {
            true => self.writes[number as usize].clone(),
            false => self.writes[self.scatter(number)].clone(),
        }
    }

    /// The batch that is number `number` of all. The first ones set every key once.
    pub(crate) fn writes(&self, number: u64) -> Batch {
        let first = number * self.batch;
        gather((first..first + self.batch).map(|number| self.write(number)))
    }

    /// As a client sends them to a batcher: this number of writes at once.
    pub(crate) fn gathered(&self, count: u64) -> Batch {
        gather((0..count).map(|number| self.write(number)))
    }

    /// A batch of reads, in all of `count`.
    pub(crate) fn reads(&self, number: u64, count: u64) -> Batch {
        gather(
            (number * count..(number + 1) * count).map(|number| Command {
                client: ClientId((number % self.lanes) as u8),
                purpose: Purpose::Read,
                number,
                floor: 0,
                payload: self.reads[self.scatter(number)].clone(),
            }),
        )
    }

    /// A replica's answers to a batch of writes.
    pub(crate) fn answers(&self) -> Answers {
        let mut answers = AnswersByClient::default();
        for number in 0..self.batch {
            let Command {
                client,
                purpose,
                number,
                ..
            } = self.write(number);
            let outcome = Outcome::Done(Bytes::from_static(b"+OK\r\n"));
            answers.push(&Answer {
                client,
                purpose,
                number,
                outcome,
            });
        }
        answers.take_all(0, Slot(1))
    }
}

fn gather(commands: impl Iterator<Item = Command>) -> Batch {
    let mut builder = BatchBuilder::default();
    commands.for_each(|command| builder.push(&command));
    builder.take()
}
