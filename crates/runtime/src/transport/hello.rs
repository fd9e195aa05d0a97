//! The first words on a connection: who is there, what for, and whether that can be.
//!
//! The dialler says [`Hello`]; the other side answers that it accepts, or why not; the dialler
//! accepts in turn, or says why not. The beginning of all three is the same in every version of the
//! program, so that even nodes of different versions can tell each other what is wrong.

use super::admission::Objection;
use crate::storage::identity::DirectoryId;
use bytes::Bytes;
use ionian_kernel::id::Epoch;
use ionian_kernel::wire::{Reader, WIRE_VERSION, Wire, WireError, decode_all, encode_all};
use ionian_kernel::wire_struct;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whoever has not finished the handshake by then is dropped. A peer needs a millisecond; this
/// leaves room for a machine that swaps or a packet that is lost twice.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// No other protocol begins like this; the first byte is not ASCII, so no text protocol does.
const MAGIC: [u8; 8] = *b"\x96ionian\n";

/// The longest body of a hello or an answer. Names are short; this only bounds what a stranger
/// makes us hold.
const MAX_BODY: usize = 8 << 10;

const FOR_PEER: u8 = 0;
const FOR_STATUS: u8 = 1;
const FOR_SNAPSHOT: u8 = 2;
const FOR_MEMBERSHIP: u8 = 3;
const FOR_CHANGE: u8 = 4;
const FOR_DRAIN: u8 = 5;

const ACCEPTED: u8 = 0;
const REFUSED: u8 = 1;
/// Refused because of another data directory: nothing that passes by itself.
const ESTRANGED: u8 = 2;
/// The caller's membership is of an earlier epoch; the present one follows.
const OUTDATED: u8 = 3;
/// The caller's membership is of a later epoch: it is to be told next.
const BEHIND: u8 = 4;
/// Neither yes nor no can be said, and why.
const UNDECIDED: u8 = 5;

/// What a dialler wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// To be the connection between two nodes.
    Peer(Introduction),
    /// An answer for an operator or a tool.
    Admin(AdminRequest),
}

/// What operators and tools ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdminRequest {
    /// A status report.
    Status,
    /// A snapshot of the state, with everything below this stamp.
    Snapshot(u64),
    /// The membership.
    Membership,
    /// A change of the membership, which follows.
    Change,
    /// That the node starts to drain, or ends it.
    Drain(bool),
}

/// Who the dialler is and whom it believes to have reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    pub(crate) cluster: Text,
    pub(crate) protocol: Text,
    pub(crate) founding: u64,
    pub(crate) epoch: Epoch,
    pub(crate) sender: u16,
    pub(crate) sender_name: Text,
    pub(crate) target: u16,
    /// The dialler's data directory, if it has one.
    pub(crate) directory: Option<DirectoryId>,
    /// The commands that it leaves out, as [`Skips`](crate::storage::skips::Skips) are written.
    pub(crate) skips: Text,
}

wire_struct! { Introduction { cluster, protocol, founding, epoch, sender, sender_name, target, directory, skips } }

/// Who has taken the call.
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

/// A stranger's words end up in logs: whatever could break or forge a line is replaced.
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

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {} s", HANDSHAKE_LIMIT.as_secs())]
    TimedOut,
    /// A port scanner, or somebody who wanted to know whether anybody listens.
    #[error("it was closed without a word")]
    Silent,
    #[error("whoever is there does not speak Ionian's protocol")]
    Stranger,
    #[error("a malformed greeting: {0}")]
    Malformed(#[from] WireError),
    #[error("{0}")]
    Refused(String),
    /// The other side knows this node by another data directory.
    #[error("{reason}")]
    Estranged {
        /// Who the other side is.
        by: Acceptance,
        reason: String,
    },
    /// This side does not want the one that it has dialled.
    #[error("{0}")]
    Unwanted(String),
    /// The other side knows of a later membership, and tells next.
    #[error("this node knows of an earlier membership only")]
    Outdated,
    /// The other side knows of an earlier membership only, and is to be told.
    #[error("the other node knows of an earlier membership only")]
    Behind,
    /// The other side cannot say yes or no.
    #[error("{0}")]
    Undecided(String),
}

/// Reads what a caller wants.
///
/// # Errors
/// [`HandshakeError::Refused`] when the caller speaks another version; it has been told so.
pub(crate) async fn receive_hello(stream: &mut TcpStream) -> Result<Hello, HandshakeError> {
    let (version, purpose, body) = receive_part(stream).await?;
    match purpose {
        // A status query carries nothing that could have changed with the version.
        FOR_STATUS => Ok(Hello::Admin(AdminRequest::Status)),
        FOR_MEMBERSHIP => Ok(Hello::Admin(AdminRequest::Membership)),
        _ if version != WIRE_VERSION => {
            let reason = format!(
                "this node speaks wire version {WIRE_VERSION}, you speak version {version}"
            );
            decline(stream, &reason).await?;
            Err(HandshakeError::Refused(reason))
        }
        FOR_PEER => Ok(Hello::Peer(decode_all(&body)?)),
        FOR_SNAPSHOT => Ok(Hello::Admin(AdminRequest::Snapshot(decode_all(&body)?))),
        FOR_CHANGE => Ok(Hello::Admin(AdminRequest::Change)),
        FOR_DRAIN => Ok(Hello::Admin(AdminRequest::Drain(decode_all(&body)?))),
        tag => Err(WireError::UnknownTag {
            what: "purpose of a connection",
            tag,
        }
        .into()),
    }
}

/// Says what this side wants.
pub(crate) async fn send_hello(
    stream: &mut TcpStream,
    hello: &Hello,
) -> Result<(), HandshakeError> {
    let (purpose, body) = match hello {
        Hello::Peer(introduction) => (FOR_PEER, encode_all(introduction)),
        Hello::Admin(AdminRequest::Status) => (FOR_STATUS, Vec::new()),
        Hello::Admin(AdminRequest::Snapshot(at)) => (FOR_SNAPSHOT, encode_all(at)),
        Hello::Admin(AdminRequest::Membership) => (FOR_MEMBERSHIP, Vec::new()),
        Hello::Admin(AdminRequest::Change) => (FOR_CHANGE, Vec::new()),
        Hello::Admin(AdminRequest::Drain(drains)) => (FOR_DRAIN, encode_all(drains)),
    };
    send_part(stream, WIRE_VERSION, purpose, &body).await
}

/// Tells the other side that this one agrees. The body says to what.
pub(crate) async fn accept(stream: &mut TcpStream, body: &[u8]) -> Result<(), HandshakeError> {
    send_part(stream, WIRE_VERSION, ACCEPTED, body).await
}

/// Tells the other side why there is no connection. `own` is who says so: the other may know
/// something against this side too, and then it does not count for much.
pub(crate) async fn refuse(
    stream: &mut TcpStream,
    objection: &Objection,
    own: &Acceptance,
) -> Result<(), HandshakeError> {
    match objection {
        Objection::Other(reason) => {
            send_part(stream, WIRE_VERSION, REFUSED, reason.as_bytes()).await
        }
        Objection::Estranged(reason) => {
            let mut body = encode_all(own);
            body.extend_from_slice(reason.as_bytes());
            send_part(stream, WIRE_VERSION, ESTRANGED, &body).await
        }
    }
}

/// Tells a caller why it does not get what it wants, and hangs up.
pub(crate) async fn decline(stream: &mut TcpStream, reason: &str) -> Result<(), HandshakeError> {
    send_part(stream, WIRE_VERSION, REFUSED, reason.as_bytes()).await?;
    hang_up(stream).await
}

/// Ends a conversation with whoever is refused.
pub(crate) async fn hang_up(stream: &mut TcpStream) -> Result<(), HandshakeError> {
    // Until the other has closed its side too: bytes it sent that we never read would otherwise
    // turn our closing into a reset, which can overtake the reason.
    stream.shutdown().await?;
    let mut rest = [0; 512];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Tells the caller whose membership is the later one: what it is comes next, from whoever knows.
pub(crate) async fn tell_epoch(
    stream: &mut TcpStream,
    caller_is_outdated: bool,
) -> Result<(), HandshakeError> {
    send_part(
        stream,
        WIRE_VERSION,
        if caller_is_outdated { OUTDATED } else { BEHIND },
        &[],
    )
    .await
}

/// Tells the caller that neither yes nor no can be said.
pub(crate) async fn leave_undecided(
    stream: &mut TcpStream,
    reason: &str,
) -> Result<(), HandshakeError> {
    send_part(stream, WIRE_VERSION, UNDECIDED, reason.as_bytes()).await
}

/// Reads whether the other side agrees, and the body of it.
pub(crate) async fn receive_answer(stream: &mut TcpStream) -> Result<Bytes, HandshakeError> {
    let (_, verdict, body) = receive_part(stream).await?;
    match verdict {
        ACCEPTED => Ok(body),
        REFUSED => Err(HandshakeError::Refused(printable(&body))),
        ESTRANGED => {
            let mut reader = Reader::new(&body);
            let by = Acceptance::decode(&mut reader)?;
            let reason = printable(reader.take(reader.remaining())?);
            Err(HandshakeError::Estranged { by, reason })
        }
        OUTDATED => Err(HandshakeError::Outdated),
        BEHIND => Err(HandshakeError::Behind),
        UNDECIDED => Err(HandshakeError::Undecided(printable(&body))),
        tag => Err(WireError::UnknownTag {
            what: "answer to a greeting",
            tag,
        }
        .into()),
    }
}

/// Magic, version, tag, length of the body, body: the part that never changes its form.
async fn send_part(
    stream: &mut TcpStream,
    version: u16,
    tag: u8,
    body: &[u8],
) -> Result<(), HandshakeError> {
    let body = &body[..body.len().min(MAX_BODY)];
    let mut part = Vec::with_capacity(MAGIC.len() + 5 + body.len());
    part.extend_from_slice(&MAGIC);
    (version, (tag, body.len() as u16)).encode(&mut part);
    part.extend_from_slice(body);
    Ok(stream.write_all(&part).await?)
}

async fn receive_part(stream: &mut TcpStream) -> Result<(u16, u8, Bytes), HandshakeError> {
    let mut magic = [0; MAGIC.len()];
    match stream.read(&mut magic).await? {
        0 => return Err(HandshakeError::Silent),
        count => stream.read_exact(&mut magic[count..]).await?,
    };
    if magic != MAGIC {
        return Err(HandshakeError::Stranger);
    }
    let version = stream.read_u16_le().await?;
    let tag = stream.read_u8().await?;
    let length = stream.read_u16_le().await? as usize;
    if length > MAX_BODY {
        return Err(WireError::OutOfRange {
            what: "greeting's length",
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
