//! Socket addresses: resolving host names, and listening.

use anyhow::{Context, Result};
use ionian_program::BadUsage;
use socket2::{SockRef, TcpKeepalive};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

/// Length of the queue in which the system holds new connections while the event loop is busy.
const BACKLOG: i32 = 1024;

/// How long the machine of a client may acknowledge nothing before its connection is closed. An
/// idle one is asked from half of that time on.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

/// How often it is asked then.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// The text, if it is HOST:PORT.
pub(crate) fn endpoint(text: &str) -> Option<&str> {
    text.rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        .map(|_| text)
}

/// The socket address of `host:port`, the value of this key of a deployment, or of this flag.
pub(crate) fn resolve(key: &str, text: &str) -> Result<SocketAddr> {
    ionian_runtime::resolve(text).with_context(|| key.to_owned())
}

/// Checks that one machine can listen at all of these addresses, each with the flag or key that
/// gives it.
///
/// # Errors
/// Names both of two that it cannot.
pub(crate) fn check_apart(places: &[(String, SocketAddr)]) -> Result<(), BadUsage> {
    for (index, (key, address)) in places.iter().enumerate() {
        let meets = |(_, at): &&(String, SocketAddr)| {
            let (one, other) = (address.ip().to_canonical(), at.ip().to_canonical());
            // The wildcard of IPv6 is that of IPv4, too.
            let has =
                |all: IpAddr, it: IpAddr| all.is_unspecified() && (all.is_ipv6() || it.is_ipv4());
            // The system chooses another port for each 0.
            let is_port = address.port() == at.port() && at.port() != 0;
            is_port && (has(one, other) || has(other, one) || one == other)
        };
        if let Some((by, _)) = places[..index].iter().find(meets) {
            return Err(BadUsage(format!(
                "{key} = \"{address}\": already used by {by}"
            )));
        }
    }
    Ok(())
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

/// Listens for clients, whose machines may vanish. Connections inherit the options of the socket
/// that accepts them.
pub(crate) fn listen_for_clients(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = listen(address)?;
    let socket = SockRef::from(&listener);
    let asks = TcpKeepalive::new()
        .with_time(CLIENT_LIMIT / 2)
        .with_interval(ASK_EVERY);
    socket.set_tcp_keepalive(&asks)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(CLIENT_LIMIT))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_meet_where_the_system_refuses_the_second() {
        let hosts = [
            "0.0.0.0",
            "127.0.0.1",
            "127.0.0.2",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ];
        let at = |host: &str, port| -> SocketAddr { format!("{host}:{port}").parse().unwrap() };
        // A machine may have no IPv6.
        let hosts = hosts.into_iter().filter(|host| listen(at(host, 0)).is_ok());
        let hosts: Vec<_> = hosts.collect();
        for (one, other) in hosts
            .iter()
            .flat_map(|one| hosts.iter().map(move |it| (*one, *it)))
        {
            let both = |port| [one, other].map(|host| (host.to_owned(), at(host, port)));
            assert!(check_apart(&both(0)).is_ok(), "{one} {other}");
            // Another process may have the port of the second.
            let is_apart = (0..10).any(|_| {
                let first = listen(at(one, 0)).unwrap();
                listen(at(other, first.local_addr().unwrap().port())).is_ok()
            });
            assert_eq!(check_apart(&both(9)).is_ok(), is_apart, "{one} {other}");
        }
    }
}
