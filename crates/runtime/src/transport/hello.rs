//! The first messages on a connection.
//!
//! The dialling side sends a [`Hello`]; the other side accepts or refuses it with a reason; then
//! the dialling side accepts or refuses in turn. The header of all three messages is the same in
//! every version of the program, so that nodes of different versions can report the difference.

use super::admission::Objection;
use super::stream::NodeStream;
use crate::admin::traces::TraceRequest;
use crate::storage::identity::DirectoryId;
use bytes::Bytes;
use ionian_kernel::id::Epoch;
use ionian_kernel::level::Level;
use ionian_kernel::wire::{Reader, Wire, WireError, decode_all, encode_all};
use ionian_kernel::wire_struct;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The limit of a handshake. A peer needs a millisecond; the limit allows for a machine that swaps
/// or a packet that is lost twice.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// No other protocol starts with these bytes; the first is not ASCII, so no text protocol does.
const MAGIC: [u8; 8] = *b"\x96ionian\n";

/// The longest body of a handshake message. Names are short; the limit bounds what an unknown
/// caller can make this node store.
pub(crate) const MAX_BODY: usize = 8 << 10;

const FOR_PEER: u8 = 0;
const FOR_STATUS: u8 = 1;
const FOR_SNAPSHOT: u8 = 2;
const FOR_MEMBERSHIP: u8 = 3;
const FOR_CHANGE: u8 = 4;
const FOR_DRAIN: u8 = 5;
const FOR_NOTES: u8 = 6;

const ACCEPTED: u8 = 0;
const REFUSED: u8 = 1;
/// Refused because of another data directory: only an operator can change that.
const IDENTITY_MISMATCH: u8 = 2;
/// The caller knows only an earlier membership; the present one follows.
const OUTDATED: u8 = 3;
/// The caller knows a later membership and must send it.
const BEHIND: u8 = 4;
/// The result of a change is not known; the reason follows.
const UNDECIDED: u8 = 5;

/// What operators, tools and answers greet with: programs that knew no levels understand it.
const PLAIN: u16 = Level::OLDEST.number();

/// What the dialling side wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// To connect two nodes, of which the one that dials knows this level of the cluster.
    Peer(Level, Introduction),
    /// An answer to a request of an operator or tool.
    Admin(AdminRequest),
}

impl Hello {
    /// The kind of the request, which decides who may make it.
    pub(crate) fn purpose(&self) -> Purpose {
        match self {
            Hello::Peer(..) => Purpose::Peer,
            Hello::Admin(AdminRequest::Status) => Purpose::Status,
            Hello::Admin(AdminRequest::Snapshot(_)) => Purpose::Snapshot,
            Hello::Admin(AdminRequest::Membership) => Purpose::Membership,
            Hello::Admin(AdminRequest::Change) => Purpose::Change,
            Hello::Admin(AdminRequest::Drain(_)) => Purpose::Drain,
            Hello::Admin(AdminRequest::Notes(request)) if request.one_in.is_some() => {
                Purpose::Record
            }
            Hello::Admin(AdminRequest::Notes(_)) => Purpose::Notes,
        }
    }
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Peer,
    Status,
    Snapshot,
    Membership,
    Change,
    Drain,
    /// To read what was noted for traces.
    Notes,
    /// To read that, and to have the node note more.
    Record,
}

/// The requests of operators and tools.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdminRequest {
    /// A status report.
    Status,
    /// A snapshot with everything below this stamp; without one, with everything that was
    /// acknowledged before.
    Snapshot(Option<u64>),
    /// The membership.
    Membership,
    /// A change of the membership, which follows.
    Change,
    /// Start to drain a node, or end that.
    Drain(DrainRequest),
    /// What the node has noted for traces.
    Notes(TraceRequest),
}

/// The node that should drain. Another node can have its address by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrainRequest {
    pub(crate) cluster: Text,
    pub(crate) node: Text,
    /// The id of its process; `None` if any process of the node is meant.
    pub(crate) process: Option<u32>,
    /// Whether it should drain or serve again.
    pub(crate) drains: bool,
}

wire_struct! { DrainRequest { cluster, node, process, drains } }

/// The node that dials, and the node that it means to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    pub(crate) cluster: Text,
    pub(crate) protocol: Text,
    pub(crate) founding: u64,
    pub(crate) epoch: Epoch,
    pub(crate) sender: u16,
    pub(crate) sender_name: Text,
    pub(crate) target: u16,
    /// The data directory of the node that dials, if it has one.
    pub(crate) directory: Option<DirectoryId>,
    /// The commands that it leaves out, in the form of [`Skips`](crate::storage::skips::Skips).
    pub(crate) skips: Text,
}

wire_struct! { Introduction { cluster, protocol, founding, epoch, sender, sender_name, target, directory, skips } }

/// The node that has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acceptance {
    pub(crate) name: Text,
    pub(crate) directory: Option<DirectoryId>,
}

wire_struct! { Acceptance { name, directory } }

/// A string on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl Wire for Text {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        out.extend_from_slice(self.0.as_bytes());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = u32::decode(reader)? as usize;
        Ok(Text(printable(reader.take(length)?)))
    }
}

/// Replaces characters that could break or forge a line of a log: the text comes from another
/// process.
fn printable(bytes: &[u8]) -> String {
    let harmless = |letter: char| {
        if letter.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            letter
        }
    };
    String::from_utf8_lossy(bytes)
        .chars()
        .map(harmless)
        .collect()
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.to_owned())
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {} s", HANDSHAKE_LIMIT.as_secs())]
    TimedOut,
    /// A port scanner, or a check whether a process listens.
    #[error("connection closed during handshake")]
    ClosedBeforeHello,
    #[error("the other side is not an Ionian node")]
    NotIonian,
    #[error("malformed handshake: {0}")]
    Malformed(#[from] WireError),
    #[error("{0}")]
    Refused(String),
    /// The other side knows this node by another data directory.
    #[error("{reason}")]
    IdentityMismatch {
        /// The other side.
        by: Acceptance,
        reason: String,
    },
    /// The caller refuses this node, which would accept it.
    #[error("it refuses this node: {0}")]
    RefusedByCaller(String),
    /// This side refuses the node that it has dialled.
    #[error("{0}")]
    RefusedHere(String),
    /// The other side knows a later membership, which follows.
    #[error("this node knows only an earlier membership")]
    Outdated,
    /// The other side knows only an earlier membership, and receives the present one.
    #[error("the other node knows only an earlier membership")]
    Behind,
    /// The other side does not know the result of a change.
    #[error("{0}")]
    Undecided(String),
}

/// Whether a connection that begins with this byte may come from a node or tool without TLS.
pub(crate) fn is_ours(first: u8) -> bool {
    first == MAGIC[0]
}

/// Receives what a caller wants.
///
/// # Errors
/// [`HandshakeError::Refused`] if this program does not support the caller's level; it has received
/// the reason.
pub(crate) async fn receive_hello(stream: &mut NodeStream) -> Result<Hello, HandshakeError> {
    let (version, purpose, body) = receive_part(stream).await?;
    match purpose {
        // These queries contain nothing that depends on the level.
        FOR_STATUS => return Ok(Hello::Admin(AdminRequest::Status)),
        FOR_MEMBERSHIP => return Ok(Hello::Admin(AdminRequest::Membership)),
        _ => {}
    }
    let Some(level) = Level::of_number(version).filter(|level| level.is_supported()) else {
        let reason = format!(
            "this node speaks wire versions {} to {}, you speak version {version}",
            Level::OLDEST.number(),
            Level::LATEST.number()
        );
        decline(stream, &reason).await?;
        return Err(HandshakeError::Refused(reason));
    };
    match purpose {
        FOR_PEER => Ok(Hello::Peer(level, decode_all(&body)?)),
        FOR_SNAPSHOT => Ok(Hello::Admin(AdminRequest::Snapshot(decode_all(&body)?))),
        FOR_CHANGE => Ok(Hello::Admin(AdminRequest::Change)),
        FOR_DRAIN => Ok(Hello::Admin(AdminRequest::Drain(decode_all(&body)?))),
        FOR_NOTES => Ok(Hello::Admin(AdminRequest::Notes(decode_all(&body)?))),
        tag => Err(WireError::UnknownTag {
            what: "purpose of a connection",
            tag,
        }
        .into()),
    }
}

/// Sends what this side wants.
pub(crate) async fn send_hello(
    stream: &mut NodeStream,
    hello: &Hello,
) -> Result<(), HandshakeError> {
    let (version, purpose, body) = match hello {
        Hello::Peer(level, introduction) => (level.number(), FOR_PEER, encode_all(introduction)),
        Hello::Admin(AdminRequest::Status) => (PLAIN, FOR_STATUS, Vec::new()),
        Hello::Admin(AdminRequest::Snapshot(at)) => (PLAIN, FOR_SNAPSHOT, encode_all(at)),
        Hello::Admin(AdminRequest::Membership) => (PLAIN, FOR_MEMBERSHIP, Vec::new()),
        Hello::Admin(AdminRequest::Change) => (PLAIN, FOR_CHANGE, Vec::new()),
        Hello::Admin(AdminRequest::Drain(request)) => (PLAIN, FOR_DRAIN, encode_all(request)),
        Hello::Admin(AdminRequest::Notes(request)) => (PLAIN, FOR_NOTES, encode_all(request)),
    };
    send_part(stream, version, purpose, &body).await
}

/// Accepts the other side. The meaning of the body depends on the request.
pub(crate) async fn accept(stream: &mut NodeStream, body: &[u8]) -> Result<(), HandshakeError> {
    send_part(stream, PLAIN, ACCEPTED, body).await
}

/// Refuses the other side with a reason. `own` identifies this node: the other side may object to
/// it too, and then ignores this refusal.
pub(crate) async fn refuse(
    stream: &mut NodeStream,
    objection: &Objection,
    own: &Acceptance,
) -> Result<(), HandshakeError> {
    match objection {
        Objection::Other(reason) => send_part(stream, PLAIN, REFUSED, reason.as_bytes()).await,
        Objection::IdentityMismatch(reason) => {
            let mut body = encode_all(own);
            body.extend_from_slice(reason.as_bytes());
            send_part(stream, PLAIN, IDENTITY_MISMATCH, &body).await
        }
    }
}

/// Refuses the request of a caller, and closes the connection.
pub(crate) async fn decline(stream: &mut NodeStream, reason: &str) -> Result<(), HandshakeError> {
    send_part(stream, PLAIN, REFUSED, reason.as_bytes()).await?;
    hang_up(stream).await
}

/// Closes the connection to a caller that was refused.
pub(crate) async fn hang_up(stream: &mut NodeStream) -> Result<(), HandshakeError> {
    // Waits until the other side has closed its side too: bytes that we never read would turn our
    // closing into a reset, which can overtake the reason.
    stream.shutdown().await?;
    let mut rest = [0; 512];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Sends which side has the earlier membership. The other side sends the later membership next.
pub(crate) async fn refuse_epoch(
    stream: &mut NodeStream,
    caller_is_outdated: bool,
) -> Result<(), HandshakeError> {
    send_part(
        stream,
        PLAIN,
        if caller_is_outdated { OUTDATED } else { BEHIND },
        &[],
    )
    .await
}

/// Sends that the result of a change is not known.
pub(crate) async fn leave_undecided(
    stream: &mut NodeStream,
    reason: &str,
) -> Result<(), HandshakeError> {
    send_part(stream, PLAIN, UNDECIDED, reason.as_bytes()).await
}

/// Receives whether the other side accepts, and the body of its answer.
pub(crate) async fn receive_answer(stream: &mut NodeStream) -> Result<Bytes, HandshakeError> {
    let (_, verdict, body) = receive_part(stream).await?;
    match verdict {
        ACCEPTED => Ok(body),
        REFUSED => Err(HandshakeError::Refused(printable(&body))),
        IDENTITY_MISMATCH => {
            let mut reader = Reader::new(&body);
            let by = Acceptance::decode(&mut reader)?;
            let reason = printable(reader.take(reader.remaining())?);
            Err(HandshakeError::IdentityMismatch { by, reason })
        }
        OUTDATED => Err(HandshakeError::Outdated),
        BEHIND => Err(HandshakeError::Behind),
        UNDECIDED => Err(HandshakeError::Undecided(printable(&body))),
        tag => Err(WireError::UnknownTag {
            what: "answer in a handshake",
            tag,
        }
        .into()),
    }
}

/// Magic, version, tag, length of the body, body. This form never changes.
async fn send_part(
    stream: &mut NodeStream,
    version: u16,
    tag: u8,
    body: &[u8],
) -> Result<(), HandshakeError> {
    let body = &body[..body.len().min(MAX_BODY)];
    let mut part = Vec::with_capacity(MAGIC.len() + 5 + body.len());
    part.extend_from_slice(&MAGIC);
    (version, (tag, body.len() as u16)).encode(&mut part);
    part.extend_from_slice(body);
    stream.write_all(&part).await?;
    Ok(stream.flush().await?)
}

async fn receive_part(stream: &mut NodeStream) -> Result<(u16, u8, Bytes), HandshakeError> {
    let mut magic = [0; MAGIC.len()];
    let mut count = 0;
    // Another protocol may begin with less, and then wait.
    while count < MAGIC.len() {
        match stream.read(&mut magic[count..]).await? {
            0 if count == 0 => return Err(HandshakeError::ClosedBeforeHello),
            0 => return Err(HandshakeError::NotIonian),
            more => count += more,
        }
        if magic[..count] != MAGIC[..count] {
            return Err(HandshakeError::NotIonian);
        }
    }
    let version = stream.read_u16_le().await?;
    let tag = stream.read_u8().await?;
    let length = stream.read_u16_le().await? as usize;
    if length > MAX_BODY {
        return Err(WireError::OutOfRange {
            what: "length of a handshake message",
            value: length as u64,
        }
        .into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((version, tag, body.into()))
}

/// Limits a handshake to [`HANDSHAKE_LIMIT`].
pub(crate) async fn within_handshake_limit<T>(
    handshake: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    timeout(HANDSHAKE_LIMIT, handshake)
        .await
        .unwrap_or(Err(HandshakeError::TimedOut))
}
