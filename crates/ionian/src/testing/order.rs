//! Commands in two orders.

use super::Commands;
use super::exercise::{apply, shown, snapshot};
use crate::{Footprint, Timestamp};
use ionian_kernel::random::Random;

/// The most commands of a sequence.
const LONGEST: u64 = 4;

/// What a client sends.
#[derive(Clone)]
enum Sent {
    Command(Vec<u8>),
    Query(Vec<u8>),
}

impl Sent {
    fn bytes(&self) -> &[u8] {
        match self {
            Sent::Command(bytes) | Sent::Query(bytes) => bytes,
        }
    }
}

/// The answers to two sequences.
type Answers = [Vec<Vec<u8>>; 2];

/// Two sequences of which no command conflicts with one of the other.
pub(super) struct Sequences([Vec<Sent>; 2]);

impl Sequences {
    /// Draws two sequences for a machine; none if their footprints leave one of them empty.
    pub(super) fn draw<M: Commands>(machine: &M, random: &mut Random) -> Option<Self> {
        let mut sequence = || -> Vec<(Sent, Footprint)> {
            let count = random.between(1, LONGEST);
            let one = (0..count).map(|_| {
                let sent = match random.once_in(3) {
                    true => Sent::Query(M::random_read(random)),
                    false => Sent::Command(M::random_write(random)),
                };
                let mut footprint = Footprint::default();
                machine.footprint(sent.bytes(), &mut footprint);
                (sent, footprint)
            });
            one.filter(|(_, footprint)| !footprint.timed).collect()
        };
        let (mut one, mut other) = (sequence(), sequence());
        // What touches everything leaves nothing of the other sequence.
        if one.len() > 1 {
            one.retain(|(_, footprint)| !footprint.everything);
        }
        other.retain(|(_, footprint)| !one.iter().any(|(_, it)| it.conflicts(footprint)));
        let sequences = [one, other].map(|sequence| {
            let sent = sequence.into_iter().map(|(sent, _)| sent);
            sent.collect::<Vec<_>>()
        });
        let are_both = sequences.iter().all(|sequence| !sequence.is_empty());
        are_both.then_some(Sequences(sequences))
    }

    /// How it shows in which order the sequences are executed, if it does: with as few commands as
    /// show it.
    pub(super) fn difference<M: Commands>(
        mut self,
        state: &[u8],
        now: Timestamp,
    ) -> Option<String> {
        let mut found = self.compare::<M>(state, now)?;
        for at in 0..2 {
            for command in (0..self.0[at].len()).rev() {
                let mut fewer = Sequences(self.0.clone());
                fewer.0[at].remove(command);
                if let Some(still) = fewer.compare::<M>(state, now) {
                    (self, found) = (fewer, still);
                }
            }
        }
        let [one, other] = self.0.map(|sequence| {
            let all = sequence.iter().map(|sent| shown(sent.bytes()));
            all.collect::<Vec<_>>().join(" then ")
        });
        Some(format!(
            "{one} and {other} do not conflict by their footprints, and their order matters: {found}"
        ))
    }

    /// What differs between the two orders.
    fn compare<M: Commands>(&self, state: &[u8], now: Timestamp) -> Option<String> {
        let one = self.execute::<M>(state, now, [0, 1])?;
        let other = self.execute::<M>(state, now, [1, 0])?;
        let sent = self.0.iter().flatten();
        let mut answers = sent.zip(one.0.iter().flatten().zip(other.0.iter().flatten()));
        if let Some((sent, (one, other))) = answers.find(|(_, (one, other))| one != other) {
            let (sent, one, other) = (shown(sent.bytes()), shown(one), shown(other));
            return Some(format!("the answer to {sent} is {one} or {other}"));
        }
        let (one, other) = (one.1, other.1);
        let equal = one
            .iter()
            .zip(&other)
            .take_while(|(one, other)| one == other);
        let at = equal.count();
        (one != other).then(|| {
            let (one, other) = (shown(&one[at..]), shown(&other[at..]));
            format!("from its byte {at} on, the snapshot is {one} or {other}")
        })
    }

    /// The answers to both sequences and the snapshot after them, if they are executed in this
    /// order; none if the machine refuses the state, which another step reports.
    fn execute<M: Commands>(
        &self,
        state: &[u8],
        now: Timestamp,
        order: [usize; 2],
    ) -> Option<(Answers, Vec<u8>)> {
        let (mut machine, mut answers) = (M::default(), [Vec::new(), Vec::new()]);
        machine.restore(state).ok()?;
        for turn in order {
            let answer = |sent: &Sent| match sent {
                Sent::Command(bytes) => apply(&mut machine, now, bytes),
                Sent::Query(bytes) => {
                    let mut reply = Vec::new();
                    // A query that is refused is a fault that another step reports.
                    let _ = machine.read(now, bytes, &mut reply);
                    reply
                }
            };
            answers[turn] = self.0[turn].iter().map(answer).collect();
        }
        Some((answers, snapshot(&machine)))
    }
}
