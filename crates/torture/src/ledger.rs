//! The simplest thing that must hold, without regard to order: what a key holds in the end is what
//! was acknowledged, once each, and nothing else but what was left open.
//!
//! The search for an order implies it. It is checked by itself because it says what is lost in a
//! line, and because it owes nothing to that search.

use crate::keys::{Outcome, Record, Retired};
use crate::model::{Action, Kind};
use std::collections::HashMap;

/// Checks the bytes that a key was closed with against its writes.
///
/// # Errors
/// Says what is lost, twice there, or from nowhere.
pub(crate) fn check(retired: &Retired) -> Result<(), String> {
    let bytes = retired.bytes.as_deref();
    match retired.kind {
        Kind::Counter => total(&retired.records, number(bytes)?),
        Kind::List => tags(&retired.records, bytes.unwrap_or_default()),
        // What was overwritten cannot be counted.
        Kind::Register => Ok(()),
    }
}

fn number(bytes: Option<&[u8]>) -> Result<i64, String> {
    let Some(bytes) = bytes else { return Ok(0) };
    let number = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("\"{}\" is no number", bytes.escape_ascii()))
}

/// The counter is the sum of all that was acknowledged, and of some of what was left open.
fn total(records: &[Record], found: i64) -> Result<(), String> {
    let (mut least, mut most, mut acknowledged) = (0, 0, 0);
    for record in records {
        let Action::Add(number) = record.action else {
            continue;
        };
        let number = i64::from(number);
        match record.outcome {
            Outcome::Done(..) => acknowledged += number,
            Outcome::Unknown if number < 0 => least += number,
            Outcome::Unknown => most += number,
            Outcome::Refused => {}
        }
    }
    let (least, most) = (acknowledged + least, acknowledged + most);
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!(
            "the acknowledged additions, and those left open, give {least} to {most}; it is {found}"
        )),
    }
}

/// Every tag is there at most once, those that were acknowledged are, those refused are not.
fn tags(records: &[Record], bytes: &[u8]) -> Result<(), String> {
    let mut times: HashMap<&[u8], u32> = HashMap::new();
    for tag in bytes.split_inclusive(|byte| *byte == b';') {
        *times.entry(tag).or_default() += 1;
    }
    for record in records {
        let Action::Append(number) = record.action else {
            continue;
        };
        let tag = crate::model::tag(number);
        let times = times.remove(tag.as_slice()).unwrap_or(0);
        match (record.outcome, times) {
            (Outcome::Done(..), 0) => {
                return Err(format!("tag {number} was acknowledged and is not there"));
            }
            (Outcome::Refused, 1..) => {
                return Err(format!("tag {number} was refused and is there"));
            }
            (_, 2..) => {
                return Err(format!(
                    "tag {number} was appended once and is there twice or more often"
                ));
            }
            _ => {}
        }
    }
    match times.into_keys().next() {
        None => Ok(()),
        Some(tag) => Err(format!(
            "\"{}\" is there, and no client appended it",
            tag.escape_ascii()
        )),
    }
}
