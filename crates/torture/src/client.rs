//! The clients. Each has one connection at a time, and records its requests and replies. If its
//! connection breaks, or no reply arrives for too long, it connects to another gateway.

use crate::gateway::Gateway;
use crate::judge::Judge;
use crate::keys::{Ended, Keys, Ticket, name};
use crate::model::{Action, Answer, Kind, State, read, tag, value};
use crate::report::Counts;
use anyhow::{Result, bail};
use ionian_kernel::random::Random;
use ionian_redis_client::Reply;
use ionian_redis_client::asynchronous::Connection;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The pause before a client tries the next gateway, or the same one after a refusal.
const PAUSE: Duration = Duration::from_millis(20);

/// The average number of rounds after which every third client makes a new connection. The others
/// keep theirs as long as they can.
const ROUNDS: u64 = 500;

/// What all clients share.
pub(crate) struct Load {
    pub(crate) keys: RefCell<Keys>,
    /// Taken when nothing is left to judge.
    pub(crate) judge: RefCell<Option<Judge>>,
    pub(crate) counts: Rc<RefCell<Counts>>,
    pub(crate) gateways: Rc<RefCell<Vec<Gateway>>>,
    pub(crate) stop: Cell<bool>,
    /// A reply that no gateway may send.
    pub(crate) complaint: RefCell<Option<String>>,
    /// What failed first in a run without faults.
    pub(crate) first_failure: RefCell<Option<String>>,
}

/// One client.
pub(crate) struct Client {
    pub(crate) load: Rc<Load>,
    pub(crate) id: u16,
    /// Maximum number of requests in flight.
    pub(crate) depth: usize,
    /// How long it waits for replies. Some clients are less patient than the cluster, so that it
    /// executes their requests after they have disconnected.
    pub(crate) patience: Duration,
    pub(crate) random: Random,
}

impl Client {
    /// Works until it must stop. Every request that it has started has then ended.
    pub(crate) async fn run(mut self) {
        let mut gateway = usize::from(self.id);
        while !self.load.stop.get() {
            let address = {
                let gateways = self.load.gateways.borrow();
                gateways[gateway % gateways.len()].clone()
            };
            if let Some(mut connection) = self.load.open(&address).await {
                while !self.load.stop.get()
                    && self.round(&mut connection).await.is_ok()
                    && !(self.id.is_multiple_of(3) && self.random.once_in(ROUNDS))
                {}
            }
            gateway += 1;
            sleep(PAUSE).await;
        }
    }

    /// Sends some requests and waits for their replies.
    async fn round(&mut self, connection: &mut Connection) -> Result<()> {
        let count = if self.depth == 1 {
            1
        } else {
            self.random.between(1, self.depth as u64)
        };
        let mut asked: VecDeque<Ticket> = VecDeque::new();
        for _ in 0..count {
            asked.push_back(self.load.keys.borrow_mut().begin(self.id, &mut self.random));
        }
        // Only a client that waits for each reply can base a write on what it has read.
        let exchanges = self.depth == 1
            && self.random.once_in(2)
            && self.load.keys.borrow().may_exchange(&asked[0]);
        let replies = async {
            match exchanges {
                true => self.load.exchange(self.id, connection, &mut asked).await,
                false => self.load.answers(connection, &mut asked).await,
            }
        };
        let begun = Instant::now();
        let result = timeout(self.patience, replies)
            .await
            .unwrap_or_else(|late| Err(late.into()));
        self.load
            .counts
            .borrow_mut()
            .answered_after(begun.elapsed());
        for ticket in asked {
            self.load.complete(&ticket, Ended::Unknown, None);
            let error = result.as_ref().err().map(ToString::to_string);
            self.load.failed(&error.unwrap_or_default());
        }
        result
    }
}

impl Load {
    /// Sends all requests at once and reads the replies.
    async fn answers(
        &self,
        connection: &mut Connection,
        asked: &mut VecDeque<Ticket>,
    ) -> Result<()> {
        asked.iter().for_each(|ticket| push(connection, ticket));
        connection.flush().await?;
        let mut refused = false;
        while let Some(ticket) = asked.front() {
            let frame = connection.reply().await?;
            refused |= self.take(ticket, &frame)? != Took::Answer;
            asked.pop_front();
        }
        if refused {
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Reads a register, and writes it if it has not changed.
    async fn exchange(
        &self,
        client: u16,
        connection: &mut Connection,
        asked: &mut VecDeque<Ticket>,
    ) -> Result<()> {
        let read_first = asked.front().expect("one was asked");
        let key = name(read_first.key);
        // WATCH must see the value of GET, or EXEC must have no effect: an overwritten value never
        // returns.
        connection.push(&[b"WATCH", key.as_bytes()]);
        connection.push(&[b"GET", key.as_bytes()]);
        connection.flush().await?;
        let watched = connection.reply().await?;
        let frame = connection.reply().await?;
        let took = self.take(read_first, &frame)?;
        let read_first = asked.pop_front().expect("it was there");
        let (Reply::SimpleString(_), Took::Answer) = (watched, took) else {
            bail!("refused, and what is watched is forgotten with the connection");
        };
        let seen = state(Kind::Register, &frame).expect("it was taken as an answer");
        asked.push_back(self.keys.borrow_mut().exchange(client, &read_first, seen));
        let ticket = &asked[0];
        let Action::Exchange { new, .. } = ticket.action else {
            unreachable!("that is what was asked")
        };
        connection.push(&[b"MULTI"]);
        connection.push(&[b"SET", key.as_bytes(), &value(new)]);
        connection.push(&[b"EXEC"]);
        connection.flush().await?;
        connection.reply().await?;
        connection.reply().await?;
        let frame = connection.reply().await?;
        self.take(ticket, &frame)?;
        asked.pop_front();
        Ok(())
    }

    /// Records a reply.
    fn take(&self, ticket: &Ticket, frame: &Reply) -> Result<Took> {
        match interpret(ticket, frame) {
            Ok(ended) => {
                if let Reply::Error(text) = frame {
                    self.failed(text);
                }
                let bytes = match frame {
                    Reply::BulkString(bytes) => Some(bytes.as_ref()),
                    _ => None,
                };
                self.complete(ticket, ended, bytes);
                Ok(if matches!(ended, Ended::Answered(_)) {
                    Took::Answer
                } else {
                    Took::Refusal
                })
            }
            Err(complaint) => {
                let key = name(ticket.key);
                self.complain(format!("{} of key {key}: {complaint}", ticket.action));
                bail!("a reply that no gateway may give")
            }
        }
    }

    /// Connects to a gateway.
    pub(crate) async fn open(&self, gateway: &Gateway) -> Option<Connection> {
        match gateway.open().await {
            Ok(connection) => {
                self.counts.borrow_mut().connections += 1;
                Some(connection)
            }
            Err(error) => {
                self.failed(&format!("no connection to {gateway}: {error}"));
                None
            }
        }
    }

    /// Counts a command that was not executed, or has no reply, and a connection that was not made.
    fn failed(&self, why: &str) {
        if let Some(failed) = &mut self.counts.borrow_mut().failed {
            *failed += 1;
            let mut first = self.first_failure.borrow_mut();
            first.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Reports a reply that no gateway may send, which ends the run.
    pub(crate) fn complain(&self, complaint: String) {
        self.complaint.borrow_mut().get_or_insert(complaint);
        self.stop.set(true);
    }

    /// The number of violations so far.
    pub(crate) fn violations(&self) -> u64 {
        self.judge.borrow().as_ref().map_or(0, Judge::found)
    }

    pub(crate) fn complete(&self, ticket: &Ticket, ended: Ended, bytes: Option<&[u8]>) {
        self.counts
            .borrow_mut()
            .operation(ticket.action != Action::Get, ended);
        let retired = self.keys.borrow_mut().complete(ticket, ended, bytes);
        if let (Some(retired), Some(judge)) = (retired, &*self.judge.borrow()) {
            judge.hand_over(retired);
        }
    }
}

/// Whether a reply was an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Took {
    Answer,
    Refusal,
}

/// Sends a request. An exchange consists of several requests and is not sent here.
fn push(connection: &mut Connection, ticket: &Ticket) {
    let name = name(ticket.key);
    let key = name.as_bytes();
    match ticket.action {
        Action::Get => connection.push(&[b"GET", key]),
        Action::Set(number) => connection.push(&[b"SET", key, &value(number)]),
        Action::SetIfAbsent(number) => connection.push(&[b"SETNX", key, &value(number)]),
        Action::Swap(number) => connection.push(&[b"GETSET", key, &value(number)]),
        Action::Add(1) => connection.push(&[b"INCR", key]),
        Action::Add(number @ 0..) => {
            connection.push(&[b"INCRBY", key, number.to_string().as_bytes()])
        }
        Action::Add(number) => {
            connection.push(&[b"DECRBY", key, number.unsigned_abs().to_string().as_bytes()])
        }
        Action::Append(number) => connection.push(&[b"APPEND", key, &tag(number)]),
        Action::Exchange { .. } => unreachable!("an exchange begins with a read"),
    }
}

/// The state in a reply to GET.
fn state(kind: Kind, frame: &Reply) -> Result<State, String> {
    match frame {
        Reply::BulkString(bytes) => read(kind, Some(bytes)),
        Reply::Null => Ok(State::Absent),
        other => Err(format!("no reply to this command: {other:?}")),
    }
}

/// Interprets a reply.
///
/// # Errors
/// If no gateway may send it.
fn interpret(ticket: &Ticket, frame: &Reply) -> Result<Ended, String> {
    let answer = match (ticket.action, frame) {
        (_, Reply::Error(text)) => return refusal(text),
        (Action::Get | Action::Swap(_), _) => Answer::Holds(state(ticket.kind, frame)?),
        (Action::Set(_), Reply::SimpleString(ok)) if ok == "OK" => Answer::Done,
        (Action::SetIfAbsent(_), Reply::Integer(was @ 0..=1)) => Answer::Was(*was == 1),
        (Action::Add(_), Reply::Integer(number)) => Answer::Number(*number),
        (Action::Append(_), Reply::Integer(length @ 0..)) => Answer::Length(*length as u32),
        (Action::Exchange { .. }, Reply::Array(replies)) if replies.len() == 1 => Answer::Was(true),
        // The watched key had changed, perhaps before it was read: the command had no effect and
        // shows nothing.
        (Action::Exchange { .. }, Reply::Null) => return Ok(Ended::Refused),
        (_, other) => return Err(format!("no reply to this command: {other:?}")),
    };
    Ok(Ended::Answered(answer))
}

/// Interprets an error; see docs/gateway.md.
pub(crate) fn refusal(text: &str) -> Result<Ended, String> {
    match text.split(' ').next() {
        Some("BUSY") => Ok(Ended::Refused),
        Some("TRYAGAIN") if text.ends_with("was not executed") => Ok(Ended::Refused),
        Some("TRYAGAIN") if text.ends_with("may or may not have been executed") => {
            Ok(Ended::Unknown)
        }
        _ => Err(format!("an error that is not expected: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(action: Action, frame: &Reply) -> Result<Ended, String> {
        let mut keys = Keys::new(20);
        let mut random = Random::new(1);
        let ticket = loop {
            let mut ticket = keys.begin(0, &mut random);
            let fits = match action {
                Action::Add(_) => ticket.kind == Kind::Counter,
                Action::Append(_) => ticket.kind == Kind::List,
                _ => ticket.kind == Kind::Register,
            };
            if fits {
                ticket.action = action;
                break ticket;
            }
        };
        interpret(&ticket, frame)
    }

    #[test]
    fn replies_are_answers_refusals_or_leave_it_open() {
        let answered = |answer| Ok(Ended::Answered(answer));
        let error = |text: &'static str| Reply::Error(text.into());
        assert_eq!(
            ask(Action::Add(1), &Reply::Integer(-4)),
            answered(Answer::Number(-4))
        );
        let bytes = Reply::BulkString(value(9).into());
        assert_eq!(
            ask(Action::Swap(10), &bytes),
            answered(Answer::Holds(State::Value(9)))
        );
        assert_eq!(
            ask(Action::Get, &Reply::Null),
            answered(Answer::Holds(State::Absent))
        );
        let busy = error(
            "BUSY Ionian is overloaded: too much in flight, the command was not executed, try again later",
        );
        assert_eq!(ask(Action::Append(1), &busy), Ok(Ended::Refused));
        let open = error(
            "TRYAGAIN the cluster did not answer in time, the command may or may not have been executed",
        );
        assert_eq!(ask(Action::Set(1), &open), Ok(Ended::Unknown));
        let not =
            error("TRYAGAIN the cluster did not answer in time, the command was not executed");
        assert_eq!(ask(Action::Set(1), &not), Ok(Ended::Refused));
        assert!(
            ask(Action::Set(1), &error("ERR syntax error"))
                .unwrap_err()
                .contains("syntax error")
        );
        assert!(ask(Action::Add(1), &Reply::Null).is_err());
        assert!(
            ask(Action::Get, &Reply::BulkString("rubbish".into()))
                .unwrap_err()
                .contains("no client wrote")
        );
    }
}
