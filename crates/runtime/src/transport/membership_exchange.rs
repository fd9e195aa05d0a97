//! The membership on a connection: between nodes, and between a node and an operator.

use super::hello::HandshakeError;
use super::stream::NodeStream;
use bytes::Bytes;
use ionian_deployment::MAX_TEXT;
use ionian_kernel::membership::Membership;
use ionian_kernel::wire::{WireError, decode_all, encode_all};
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The largest membership document: two texts, quoted, and a few fields.
pub(crate) const MAX_MEMBERSHIP_BYTES: usize = 4 * MAX_TEXT;

/// Sends bytes with their length.
pub(crate) async fn send_bytes(
    stream: &mut NodeStream,
    bytes: &[u8],
) -> Result<(), HandshakeError> {
    stream.write_u32_le(bytes.len() as u32).await?;
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// Receives what [`send_bytes`] sent. Memory grows with the bytes that have arrived, not with the
/// announced length.
pub(crate) async fn receive_bytes(stream: &mut NodeStream) -> Result<Bytes, HandshakeError> {
    let length = stream.read_u32_le().await? as usize;
    if length > MAX_MEMBERSHIP_BYTES {
        return Err(WireError::OutOfRange {
            what: "length of a membership document",
            value: length as u64,
        }
        .into());
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    match bytes.len() == length {
        true => Ok(bytes.into()),
        false => Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
    }
}

pub(crate) async fn send_membership(
    stream: &mut NodeStream,
    membership: &Membership,
) -> Result<(), HandshakeError> {
    send_bytes(stream, &encode_all(membership)).await
}

pub(crate) async fn receive_membership(
    stream: &mut NodeStream,
) -> Result<Membership, HandshakeError> {
    Ok(decode_all(&receive_bytes(stream).await?)?)
}
