//! How nodes and operators tell each other the membership.

use super::hello::HandshakeError;
use bytes::Bytes;
use ionian_deployment::MAX_TEXT;
use ionian_kernel::membership::Membership;
use ionian_kernel::wire::{WireError, decode_all, encode_all};
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most bytes of anything that is said of a membership: two texts, quoted, and a little around
/// them.
pub(crate) const MAX_NEWS: usize = 4 * MAX_TEXT;

/// Says something of bounded length behind a greeting.
pub(crate) async fn send_bytes(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), HandshakeError> {
    stream.write_u32_le(bytes.len() as u32).await?;
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// Takes in what [`send_bytes`] said. Memory grows with what has arrived, not with what was
/// announced.
pub(crate) async fn receive_bytes(stream: &mut TcpStream) -> Result<Bytes, HandshakeError> {
    let length = stream.read_u32_le().await? as usize;
    if length > MAX_NEWS {
        return Err(WireError::OutOfRange {
            what: "length of what is said of the membership",
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
    stream: &mut TcpStream,
    membership: &Membership,
) -> Result<(), HandshakeError> {
    send_bytes(stream, &encode_all(membership)).await
}

pub(crate) async fn receive_membership(
    stream: &mut TcpStream,
) -> Result<Membership, HandshakeError> {
    Ok(decode_all(&receive_bytes(stream).await?)?)
}
