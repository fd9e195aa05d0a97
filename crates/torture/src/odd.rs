//! Clients that are a burden: one writes large values, one sends pipelines and does not read, one
//! sends halves of commands. Their keys are their own, and only what was acknowledged, or cannot
//! be, is checked.

use crate::client::{Load, refusal};
use crate::gateway::Gateway;
use crate::keys::Ended;
use anyhow::{Context, Result};
use ionian_kernel::random::Random;
use ionian_redis_client::{Reply, bulk};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The largest value: with its key a little less than the 8 MiB of a command.
const LARGEST: u64 = (8 << 20) - 1024;

/// The most commands of a pipeline that is not read.
const PIPELINE: u64 = 4000;

/// One in this number of them asks for a large value.
const LARGE_REPLY: u64 = 64;

/// How long they wait for what they wait for.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the system may take nothing more of what is sent to a gateway that has stopped reading.
const STUCK: Duration = Duration::from_secs(1);

/// What an odd client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Large,
    Deaf,
    Half,
}

/// One client of these, and what it knows of its key.
pub(crate) struct Odd {
    load: Rc<Load>,
    habit: Habit,
    key: String,
    random: Random,
    known: Known,
}

/// What was acknowledged, and what may still happen.
#[derive(Debug, Default)]
struct Known {
    /// Commands sent.
    sent: u64,
    /// The number of the last write that was acknowledged; of a counter, how many were.
    acknowledged: u64,
    /// Writes without an answer, which may take effect at any time.
    open: BTreeSet<u64>,
    /// The last number that a counter told.
    told: u64,
}

/// Sets of one client of each habit.
pub(crate) fn clients(load: &Rc<Load>, sets: u16, seed: u64) -> impl Iterator<Item = Odd> {
    let habits = [Habit::Large, Habit::Deaf, Habit::Half];
    (0..sets)
        .flat_map(move |set| habits.map(|habit| (set, habit)))
        .map(move |(set, habit)| Odd {
            load: load.clone(),
            habit,
            key: format!("{habit:?}-{set}").to_lowercase(),
            random: Random::new(seed.rotate_left(32) ^ (u64::from(set) << 2) ^ habit as u64),
            known: Known::default(),
        })
}

impl Odd {
    /// Works until it has to stop.
    pub(crate) async fn run(mut self) -> Self {
        while !self.load.stop.get() {
            let gateway = {
                let gateways = self.load.gateways.borrow();
                gateways[self.random.below(gateways.len() as u64) as usize].clone()
            };
            // A connection that breaks is nothing special: the next one is to another gateway.
            let done = match self.habit {
                Habit::Large => self.write_large(&gateway).await,
                Habit::Deaf => self.be_deaf(&gateway).await,
                Habit::Half => self.send_half(&gateway).await,
            };
            if let Err(Complaint(text)) = done {
                self.load.complain(format!("key {}: {text}", self.key));
            }
            sleep(Duration::from_millis(self.random.below(600))).await;
        }
        self
    }

    /// Checks what is there when all is over.
    ///
    /// # Errors
    /// When it is not what was acknowledged.
    pub(crate) async fn check(&self, gateway: &Gateway) -> Result<()> {
        let read = async {
            bulk(
                gateway
                    .open()
                    .await?
                    .call(&[b"GET", self.key.as_bytes()])
                    .await?,
            )
        };
        let value = timeout(PATIENCE, read)
            .await
            .with_context(|| format!("{} is not read back", self.key))??;
        let right = match self.habit {
            Habit::Large => self.known.fits(value.as_deref()),
            Habit::Deaf => self.known.counted(value.as_deref()),
            Habit::Half if value.is_some() => {
                Err("a command of which a half was sent was executed".to_owned())
            }
            Habit::Half => Ok(()),
        };
        right.map_err(|wrong| anyhow::anyhow!("key {}: {wrong}", self.key))
    }

    /// Writes a large value and reads it back.
    async fn write_large(&mut self, gateway: &Gateway) -> Result<(), Complaint> {
        let Some(mut connection) = self.load.open(gateway).await else {
            return Ok(());
        };
        self.known.sent += 1;
        let number = self.known.sent;
        let bytes = large(number);
        let wrote = timeout(
            PATIENCE,
            connection.call(&[b"SET", self.key.as_bytes(), &bytes]),
        )
        .await;
        match wrote {
            Ok(Ok(Reply::SimpleString(_))) => {
                self.known.acknowledged = number;
                let mut counts = self.load.counts.borrow_mut();
                counts.large_writes += 1;
                counts.large_bytes += bytes.len() as u64;
            }
            Ok(Ok(frame)) => {
                if ended(&frame)? == Ended::Unknown {
                    self.known.open.insert(number);
                }
                return Ok(());
            }
            Ok(Err(_)) | Err(_) => {
                self.known.open.insert(number);
                return Ok(());
            }
        }
        match timeout(PATIENCE, connection.call(&[b"GET", self.key.as_bytes()])).await {
            Ok(Ok(Reply::BulkString(value))) => self.known.fits(Some(&value)).map_err(Complaint),
            Ok(Ok(Reply::Null)) => self.known.fits(None).map_err(Complaint),
            Ok(Ok(frame)) => ended(&frame).map(drop),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Sends a pipeline, reads nothing for a while, and then as much as comes.
    async fn be_deaf(&mut self, gateway: &Gateway) -> Result<(), Complaint> {
        let Some(mut connection) = self.load.open(gateway).await else {
            return Ok(());
        };
        let count = self.random.between(50, PIPELINE);
        let asks_for_large: Vec<bool> = (0..count)
            .map(|_| self.random.below(LARGE_REPLY) == 0)
            .collect();
        for large in &asks_for_large {
            match large {
                true => connection.push(&[b"GET", b"large-0"]),
                false => connection.push(&[b"INCR", self.key.as_bytes()]),
            }
        }
        let first = self.known.sent + 1;
        self.known.sent += count;
        self.known.open.extend(
            (first..)
                .zip(&asks_for_large)
                .filter(|(_, large)| !**large)
                .map(|(number, _)| number),
        );
        let _ = timeout(STUCK, connection.flush()).await;
        self.load.counts.borrow_mut().deaf_pipelines += 1;
        sleep(Duration::from_millis(self.random.between(100, 3000))).await;
        for (number, large) in (first..).zip(asks_for_large) {
            let Ok(Ok(frame)) = timeout(STUCK, connection.reply()).await else {
                return Ok(());
            };
            if matches!(&frame, Reply::Error(text) if text.starts_with("ERR closed: ")) {
                return Ok(());
            }
            self.load.counts.borrow_mut().deaf_replies += 1;
            match (large, &frame) {
                (false, Reply::Integer(told)) => {
                    self.known.count(number, *told).map_err(Complaint)?
                }
                (true, Reply::BulkString(_) | Reply::Null) => {}
                _ if ended(&frame)? == Ended::Refused => drop(self.known.open.remove(&number)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends the beginning of a command, and leaves after a while.
    async fn send_half(&mut self, gateway: &Gateway) -> Result<(), Complaint> {
        let Some(mut connection) = self.load.open(gateway).await else {
            return Ok(());
        };
        let most = 1 << self.random.between(1, 23);
        let part = vec![b'h'; self.random.below(most) as usize];
        let key = &self.key;
        let head = format!(
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${LARGEST}\r\n",
            key.len()
        );
        connection.push_raw(head.as_bytes());
        connection.push_raw(&part[..part.len().min(LARGEST as usize - 1)]);
        let _ = timeout(STUCK, connection.flush()).await;
        self.load.counts.borrow_mut().half_commands += 1;
        sleep(Duration::from_millis(self.random.below(3000))).await;
        Ok(())
    }
}

/// What no gateway may do.
struct Complaint(String);

/// How a command ended that got no answer.
fn ended(frame: &Reply) -> Result<Ended, Complaint> {
    match frame {
        Reply::Error(text) if text.starts_with("ERR closed: ") => Ok(Ended::Unknown),
        Reply::Error(text) => refusal(text).map_err(Complaint),
        other => Err(Complaint(format!(
            "no reply to this command: {:.80}",
            format!("{other:?}")
        ))),
    }
}

/// The large value of this number, which decides its length: small ones are as frequent as large
/// ones.
fn large(number: u64) -> Vec<u8> {
    let dice = Random::new(number).between(13, 23);
    let length = Random::new(number)
        .between(1 << (dice - 1), 1 << dice)
        .min(LARGEST);
    let mut bytes = format!("{number}:").into_bytes();
    bytes.resize(length as usize, b'a' + (number % 26) as u8);
    bytes
}

impl Known {
    /// Whether a read may tell this.
    fn fits(&self, value: Option<&[u8]>) -> Result<(), String> {
        let Some(value) = value else {
            return if self.acknowledged == 0 {
                Ok(())
            } else {
                Err(format!("value {} is lost", self.acknowledged))
            };
        };
        let head = value.split(|byte| *byte == b':').next().unwrap_or_default();
        let number = std::str::from_utf8(&head[..head.len().min(20)])
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        match number {
            Some(number) if large(number) != value => {
                Err(format!("value {number} was read and is not as written"))
            }
            Some(number) if number == self.acknowledged || self.open.contains(&number) => Ok(()),
            Some(number) => Err(format!(
                "value {number} was read, and {} was acknowledged",
                self.acknowledged
            )),
            None => Err(format!(
                "{} bytes were read that no client wrote",
                value.len()
            )),
        }
    }

    /// Takes the reply to the increment of this number.
    fn count(&mut self, number: u64, told: i64) -> Result<(), String> {
        let least = self.acknowledged.max(self.told) + 1;
        let most = self.acknowledged + self.open.len() as u64;
        self.open.remove(&number);
        self.acknowledged += 1;
        self.told = told.try_into().unwrap_or_default();
        match (least..=most).contains(&self.told) {
            true => Ok(()),
            false => Err(format!(
                "increment {number} told {told}, and can tell {least} to {most} only"
            )),
        }
    }

    /// Whether the counter may hold this in the end.
    fn counted(&self, value: Option<&[u8]>) -> Result<(), String> {
        let told = value.map_or(Some(0), |value| {
            std::str::from_utf8(value).ok()?.parse().ok()
        });
        let (least, most) = (
            self.acknowledged.max(self.told),
            self.acknowledged + self.open.len() as u64,
        );
        match told {
            Some(told) if (least..=most).contains(&told) => Ok(()),
            _ => Err(format!(
                "{told:?} is counted, and can be {least} to {most} only"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_value_is_the_last_acknowledged_one_or_an_open_one() {
        let mut known = Known::default();
        assert_eq!(known.fits(None), Ok(()));
        known.acknowledged = 4;
        known.open.insert(3);
        assert!(known.fits(None).unwrap_err().contains("lost"));
        assert_eq!(known.fits(Some(&large(4))), Ok(()));
        assert_eq!(known.fits(Some(&large(3))), Ok(()));
        assert!(known.fits(Some(&large(2))).is_err());
        let mut torn = large(4);
        *torn.last_mut().unwrap() ^= 1;
        assert!(
            known
                .fits(Some(&torn))
                .unwrap_err()
                .contains("not as written")
        );
        assert!(known.fits(Some(b"rubbish")).is_err());
        assert!((1..200).all(|number| (4000..=LARGEST).contains(&(large(number).len() as u64))));
    }

    #[test]
    fn increments_that_are_not_read_are_counted_once_each() {
        let mut known = Known {
            open: (1..=5).collect(),
            ..Known::default()
        };
        assert_eq!(known.count(1, 1), Ok(()));
        assert_eq!(
            known.count(2, 3),
            Ok(()),
            "one without a reply came between"
        );
        assert!(known.counted(Some(b"2")).is_err(), "3 was told");
        assert_eq!(known.counted(Some(b"5")), Ok(()));
        assert!(known.counted(Some(b"6")).is_err(), "executed twice");
        assert!(known.count(3, 3).is_err(), "told before");
    }
}
