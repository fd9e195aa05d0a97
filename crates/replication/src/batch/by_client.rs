//! Answers on their way out of a replica or an unbatcher.

use super::{Answer, Answers};
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::{ClientId, Id, Index, MAX_INSTANCES, Slot};
use ionian_kernel::wire::MAX_ANSWER_BYTES;

/// A client's buffer for answers is kept for the next ones up to this size.
const MAX_IDLE_BYTES: usize = 64 << 10;

/// With this many bytes of answers, no further ones are gathered. Short requests can ask for any
/// number of long answers: those not yet answered are held as requests.
const ANSWERS_BYTES: usize = 4 << 20;

/// Gathers answers, kept apart by client.
#[derive(Debug)]
pub struct AnswersByClient {
    answers: [Vec<u8>; MAX_INSTANCES],
    /// Clients with answers, in the order of their first.
    clients: Vec<ClientId>,
    /// Answers that leave before those above, because no message has room for both.
    earlier: Vec<(ClientId, Vec<u8>)>,
    /// What all answers take.
    bytes: usize,
}

impl Default for AnswersByClient {
    fn default() -> Self {
        AnswersByClient {
            answers: core::array::from_fn(|_| Vec::new()),
            clients: Vec::new(),
            earlier: Vec::new(),
            bytes: 0,
        }
    }
}

impl AnswersByClient {
    /// Adds an answer.
    pub fn push<R: AsRef<[u8]>>(&mut self, answer: &Answer<R>) {
        let answers = &mut self.answers[answer.client.index() as usize];
        if answers.is_empty() {
            self.clients.push(answer.client);
        }
        let before = answers.len();
        answer.put(answers);
        self.bytes += answers.len() - before;
        if answers.len() > MAX_ANSWER_BYTES && before > 0 {
            let last = answers.split_off(before);
            let earlier = core::mem::replace(answers, last);
            self.earlier.push((answer.client, earlier));
        }
    }

    /// Whether they are to leave before there are more.
    pub fn is_full(&self) -> bool {
        self.bytes >= ANSWERS_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Divides a replica's answers by the clients they are for.
    pub fn divide(&mut self, answers: &Answers) -> impl Iterator<Item = (ClientId, Answers)> {
        answers.borrowed().for_each(|answer| self.push(&answer));
        self.drain(answers.from, answers.executed)
    }

    /// Takes out each client's answers, as far as a message has room for them, which replica `from`
    /// gave before it executed slot `executed`.
    pub fn drain(
        &mut self,
        from: Index,
        executed: Slot,
    ) -> impl Iterator<Item = (ClientId, Answers)> {
        let AnswersByClient {
            answers,
            clients,
            earlier,
            bytes,
        } = self;
        *bytes = 0;
        let last = clients.drain(..).map(move |client| {
            let answers = &mut answers[client.index() as usize];
            let bytes = Bytes::copy_from_slice(answers);
            answers.clear();
            answers.shrink_to(MAX_IDLE_BYTES);
            (client, bytes)
        });
        let earlier = earlier.drain(..).map(|(client, it)| (client, it.into()));
        earlier.chain(last).map(move |(client, answers)| {
            let answers = Answers {
                from,
                executed,
                answers,
            };
            (client, answers)
        })
    }

    /// Takes out answers to all clients, as many as one message has room for.
    pub fn take_some(&mut self, from: Index, executed: Slot) -> Answers {
        let mut some = Vec::new();
        if self.earlier.is_empty() {
            some.reserve_exact(self.bytes.min(MAX_ANSWER_BYTES));
            let mut taken = 0;
            for client in &self.clients {
                let answers = &mut self.answers[client.index() as usize];
                if taken > 0 && some.len() + answers.len() > MAX_ANSWER_BYTES {
                    break;
                }
                some.append(answers);
                answers.shrink_to(MAX_IDLE_BYTES);
                taken += 1;
            }
            self.clients.drain(..taken);
        } else {
            some = self.earlier.remove(0).1;
        }
        self.bytes -= some.len();
        Answers {
            from,
            executed,
            answers: Bytes::from(some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Outcome, Purpose};
    use alloc::vec;
    use ionian_kernel::id::SessionId;

    /// What replicas and unbatchers make of answers of any sizes: each in a message that fits, in
    /// the order of its client.
    #[test]
    fn each_answer_leaves_in_a_message_that_can_be_sent() {
        let (mega, most) = (1 << 20, MAX_ANSWER_BYTES);
        for sizes in [
            vec![10, 20, 30],
            vec![most, 1],
            vec![1, most],
            vec![3 * mega, 3 * mega, 7],
            vec![most / 2 + 1; 2],
        ] {
            check(&sizes, 1, false);
            check(&sizes, 2, true);
            check(&sizes, 2, false);
        }
    }

    fn check(sizes: &[usize], clients: u64, by_client: bool) {
        let mut gathered = AnswersByClient::default();
        for (number, size) in (0..).zip(sizes) {
            gathered.push(&Answer {
                client: ClientId((number % clients) as Index),
                purpose: Purpose::Execute(SessionId(1)),
                number,
                outcome: Outcome::Done(vec![7; *size]),
            });
        }
        let mut messages = Vec::new();
        if by_client {
            messages.extend(gathered.drain(0, Slot(1)).map(|it| it.1));
        }
        while !gathered.is_empty() {
            messages.push(gathered.take_some(0, Slot(1)));
        }
        assert!(gathered.bytes == 0 && gathered.earlier.is_empty());
        let mut last = vec![None; clients as usize];
        let mut count = 0;
        for message in &messages {
            assert!(message.answers.len() < MAX_ANSWER_BYTES + 100, "{sizes:?}");
            for answer in message.borrowed() {
                let Outcome::Done(reply) = answer.outcome else {
                    unreachable!()
                };
                assert_eq!(reply.len(), sizes[answer.number as usize]);
                let before = &mut last[answer.client.index() as usize];
                assert!(before.replace(answer.number) < Some(answer.number));
                count += 1;
            }
        }
        assert_eq!(count, sizes.len());
    }
}
