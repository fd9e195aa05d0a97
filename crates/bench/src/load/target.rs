//! A server that speaks the Redis protocol: its address, and the first words with it.

use super::encode::command;
use anyhow::{Context, Result, bail};
use ionian_program::Level;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long to wait for a connection, and for the answer to a first word.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a cluster that starts is asked whether it serves.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The key that is written to see whether a cluster serves.
const PROBE: &[u8] = b"ionian-bench";

/// `redis://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    place: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = text
            .strip_prefix("redis://")
            .ok_or("must be redis://HOST:PORT")?
            .trim_end_matches('/');
        let port = place
            .rsplit_once(':')
            .and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>()));
        match port {
            Some(Ok(port)) if port > 0 && !place.contains(['@', '/']) => Ok(Target { place: place.to_owned() }),
            _ => Err("must be redis://HOST:PORT, without a password and without the number of a database".to_owned()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis://{}", self.place)
    }
}

impl Target {
    /// The socket address.
    pub(crate) fn resolve(&self) -> Result<SocketAddr> {
        ionian_runtime::resolve(&self.place).with_context(|| format!("{self} cannot be resolved"))
    }
}

/// Connects, makes sure that somebody answers who speaks the protocol, and chooses the level of
/// reads.
///
/// # Errors
/// Says what is wrong with whom.
pub(crate) fn connect(address: SocketAddr, level: Option<Level>) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)
        .with_context(|| format!("cannot connect to redis://{address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match call(&mut stream, address, &[b"PING"])? {
        Answer::Error(text) => bail!("redis://{address} answers PING with an error: {text}"),
        Answer::Word | Answer::Number(_) => {}
    }
    if let Some(level) = level {
        let asked = [&b"IONIAN"[..], b"CONSISTENCY", level.name().as_bytes()];
        if let Answer::Error(text) = call(&mut stream, address, &asked)? {
            bail!(
                "--level {}: redis://{address} knows no levels of reads, as gateways of Ionian do: {text}",
                level.name()
            );
        }
    }
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// Waits until a write succeeds there. In between `check` looks whether it still can.
///
/// # Errors
/// When it does not within `patience`: says why the last attempt failed.
pub(crate) fn wait_until_served(
    address: SocketAddr,
    patience: Duration,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        check()?;
        let write = connect(address, None).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            call(&mut stream, address, &[b"SET", PROBE, b"1"])
        });
        match write {
            Ok(Answer::Word | Answer::Number(_)) => return Ok(()),
            Ok(Answer::Error(text)) if Instant::now() > deadline => {
                bail!("redis://{address} takes no writes: {text}")
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(Answer::Error(_)) | Err(_) => std::thread::sleep(ASK_EVERY),
        }
    }
}

/// How many keys a server holds; none when it does not say.
///
/// # Errors
/// When it cannot be asked.
pub(crate) fn keys(address: SocketAddr) -> Result<Option<u64>> {
    let mut stream = connect(address, None)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(match call(&mut stream, address, &[b"DBSIZE"])? {
        Answer::Number(keys) => Some(keys),
        Answer::Word | Answer::Error(_) => None,
    })
}

/// The answer to a first word.
enum Answer {
    Word,
    Number(u64),
    Error(String),
}

/// Sends a command that is answered by a line.
fn call(stream: &mut TcpStream, address: SocketAddr, words: &[&[u8]]) -> Result<Answer> {
    let name = String::from_utf8_lossy(words[0]);
    stream
        .write_all(&command(words))
        .with_context(|| format!("the connection to redis://{address} broke"))?;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut piece = [0; 512];
        match stream.read(&mut piece) {
            Ok(0) if line.is_empty() => {
                bail!("redis://{address} closed the connection instead of answering {name}")
            }
            Ok(0) => break,
            Ok(length) => line.extend_from_slice(&piece[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!(
                    "redis://{address} does not answer {name} within {} s",
                    PATIENCE.as_secs()
                )
            }
            // A signal: whoever is to stop because of it is told where the run begins.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("the connection to redis://{address} broke"));
            }
        }
        if line.len() > 4096 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&line);
    match text
        .strip_suffix("\r\n")
        .map(|text| text.split_at_checked(1))
    {
        Some(Some(("+", _))) => Ok(Answer::Word),
        Some(Some(("-", text))) => Ok(Answer::Error(text.to_owned())),
        Some(Some((":", digits))) if digits.parse::<u64>().is_ok() => {
            Ok(Answer::Number(digits.parse().expect("it was looked at")))
        }
        _ => {
            let said: String = text
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(60)
                .collect();
            bail!(
                "redis://{address} does not speak the Redis protocol: it answers {name} with {said:?}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_target_has_a_host_and_a_port_and_nothing_else() {
        for text in [
            "redis://127.0.0.1:7379",
            "redis://[::1]:1",
            "redis://host.name:65535",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert!("redis://host:1/".parse::<Target>().is_ok());
        let nonsense = [
            "127.0.0.1:7379",
            "redis://",
            "redis://host",
            "redis://:1",
            "redis://h:0",
            "redis://h:70000",
        ];
        for text in [&nonsense[..], &["redis://:secret@h:1", "redis://h:1/3"]].concat() {
            assert!(
                text.parse::<Target>()
                    .unwrap_err()
                    .contains("redis://HOST:PORT"),
                "{text}"
            );
        }
    }

    /// Somebody who answers anything with these bytes, once for each of them.
    fn somebody(answers: Vec<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    #[test]
    fn who_speaks_another_language_is_told_apart() {
        let said = |answers, level| format!("{:#}", connect(somebody(answers), level).unwrap_err());
        assert!(
            said(vec!["HTTP/1.1 400 Bad Request\r\n\r\n"], None)
                .contains("with \"HTTP/1.1 400 Bad Request\"")
        );
        assert!(said(vec![""], None).contains("closed the connection"));
        assert!(said(vec!["-NOAUTH first\r\n"], None).contains("an error: NOAUTH first"));
        let unknown = vec!["+PONG\r\n", "-ERR unknown command\r\n"];
        assert!(said(unknown, Some(Level::Eventual)).contains("--level eventual"));
        assert!(
            connect(
                somebody(vec!["+PONG\r\n", "+OK\r\n"]),
                Some(Level::Sequential)
            )
            .is_ok()
        );
        let nobody = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(
            format!("{:#}", connect(nobody, None).unwrap_err())
                .contains("cannot connect to redis://127.0.0.1:")
        );
    }
}
