//! Socket addresses: resolving host names, and listening.

use anyhow::{Context, Result};
use std::net::{SocketAddr, TcpListener};

/// Length of the queue in which the system holds new connections while the event loop is busy.
const BACKLOG: i32 = 1024;

/// The text, if it is HOST:PORT.
pub(crate) fn endpoint(text: &str) -> Option<&str> {
    text.rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        .map(|_| text)
}

/// The socket address of `host:port`.
pub(crate) fn resolve(key: &str, text: &str) -> Result<SocketAddr> {
    ionian_runtime::resolve(text).with_context(|| format!("{key} = {text:?} cannot be resolved"))
}

/// Listens with a longer queue than the standard library's, because many clients may connect at
/// once.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        None,
    )?;
    // A restarted node can bind its port immediately.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
