//! What a node has noted for traces: one JSON document, and the request to note more.

use super::contact::Contact;
use super::query::{QueryError, ask, connect};
use crate::traces::{CommandName, NodeNotes, SlotName, Wanted};
use crate::transport::hello::{self, AdminRequest, HANDSHAKE_LIMIT, HandshakeError};
use crate::transport::stream::NodeStream;
use ionian_kernel::wire::{Reader, Wire, WireError};
use ionian_kernel::wire_struct;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The largest document that a query takes in.
const MAX_DOCUMENT: u64 = 16 << 20;

/// How long a node records at most, until it is asked again.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// The most commands that a request may name.
pub const MOST_COMMANDS: usize = 128;

/// The most slots that a request may name.
pub const MOST_SLOTS: usize = 512;

/// A request to note messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// One in this number of commands; with 1 all. Zero is taken for 1.
    pub one_in: u64,
    /// For how long from now: at most [`LONGEST`].
    pub lasting: Duration,
}

/// A request for notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceRequest {
    /// One in this number of commands, if the node is to record.
    pub(crate) one_in: Option<u64>,
    /// For how long, in milliseconds.
    pub(crate) for_ms: u64,
    /// The events that are wanted.
    pub(crate) wanted: Wanted,
}

/// Slots come last, and only if there are any: programs before them ask for none, and refuse them.
impl Wire for TraceRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        self.one_in.encode(out);
        self.for_ms.encode(out);
        self.wanted.commands.encode(out);
        if !self.wanted.slots.is_empty() {
            self.wanted.slots.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(TraceRequest {
            one_in: Wire::decode(reader)?,
            for_ms: Wire::decode(reader)?,
            wanted: Wanted {
                commands: Wire::decode(reader)?,
                slots: match reader.remaining() {
                    0 => Vec::new(),
                    _ => Wire::decode(reader)?,
                },
            },
        })
    }
}

wire_struct! { SlotName { log, slot } }
wire_struct! { CommandName { lane, sessionless, number } }

/// Asks a node to record, if it is to, and for the events about these that it has noted so far: at
/// most [`MOST_COMMANDS`] commands and [`MOST_SLOTS`] slots.
///
/// # Errors
/// If the node cannot be reached or does not answer within `limit`, or if the answer is no such
/// document.
pub async fn query_notes(
    contact: impl Into<Contact>,
    record: Option<Record>,
    wanted: &Wanted,
    limit: Duration,
) -> Result<NodeNotes, QueryError> {
    let request = TraceRequest {
        one_in: record.map(|record| record.one_in),
        for_ms: record.map_or(0, |record| record.lasting.as_millis() as u64),
        wanted: wanted.clone(),
    };
    let contact = contact.into();
    let document = ask(limit, async {
        let stream = connect(&contact, AdminRequest::Notes(request)).await?;
        let mut document = Vec::new();
        stream.take(MAX_DOCUMENT).read_to_end(&mut document).await?;
        Ok(document)
    });
    serde_json::from_slice(&document.await?)
        .map_err(|error| QueryError::Malformed(format!("the answer is not a trace: {error}")))
}

/// Answers a query, within the limit of a handshake.
pub(crate) async fn send_notes(
    stream: &mut NodeStream,
    notes: &NodeNotes,
) -> Result<(), HandshakeError> {
    let document = serde_json::to_vec(notes).expect("notes are made of numbers and strings");
    let answer = async {
        hello::accept(stream, notes.node.as_bytes()).await?;
        stream.write_all(&document).await?;
        Ok(stream.shutdown().await?)
    };
    tokio::time::timeout(HANDSHAKE_LIMIT, answer)
        .await
        .map_err(|_| HandshakeError::TimedOut)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::wire::{decode_all, encode_all};

    #[test]
    fn a_request_without_slots_has_the_form_that_older_programs_know() {
        let command = CommandName {
            lane: 1,
            sessionless: true,
            number: 2,
        };
        let mut request = TraceRequest {
            one_in: Some(3),
            for_ms: 4,
            wanted: Wanted {
                commands: vec![command],
                slots: Vec::new(),
            },
        };
        let plain = encode_all(&request);
        let older = encode_all(&(Some(3u64), (4u64, vec![command])));
        assert_eq!(plain, older);
        assert_eq!(
            decode_all::<TraceRequest>(&plain.into()),
            Ok(request.clone())
        );
        request.wanted.slots = vec![SlotName { log: 5, slot: 6 }];
        let with_slots = encode_all(&request);
        assert_eq!(with_slots[..older.len()], older);
        assert_eq!(decode_all(&with_slots.into()), Ok(request));
    }

    #[test]
    fn the_largest_request_fits_into_a_handshake() {
        let slot = SlotName { log: 0, slot: 0 };
        let request = TraceRequest {
            one_in: Some(1),
            for_ms: 0,
            wanted: Wanted {
                commands: vec![CommandName::default(); MOST_COMMANDS],
                slots: vec![slot; MOST_SLOTS],
            },
        };
        assert!(encode_all(&request).len() <= hello::MAX_BODY);
    }
}
