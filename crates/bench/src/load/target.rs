//! A server that speaks the Redis protocol: its address, and the first words with it.

use super::access::{Access, Place};
use super::connection::Opened;
use anyhow::{Context, Result, anyhow, bail};
use ionian_program::Level;
use ionian_redis_client::{Connection, Error, Limits, Reply};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Of a connection until the load takes it over.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(5),
    reply: Duration::from_secs(5),
    reply_bytes: 4096,
};

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
    /// Where it is.
    pub(crate) fn resolve(&self) -> Result<Place> {
        let address = ionian_runtime::resolve(&self.place)
            .with_context(|| format!("{self} cannot be resolved"))?;
        let host = self.place.rsplit_once(':').map(|(host, _)| host);
        let host = host.unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Ok(Place { address, host })
    }
}

/// Connects, logs in, makes sure that a server of the protocol answers, and chooses the level of
/// reads.
///
/// # Errors
/// Says what is wrong with which server.
pub(crate) fn connect(place: &Place, access: &Access, level: Option<Level>) -> Result<Opened> {
    Ok(greet(place, access, level)?.into_parts()?)
}

fn greet(place: &Place, access: &Access, level: Option<Level>) -> Result<Connection> {
    let opened = match &access.tls {
        None => Connection::open(place.address, LIMITS),
        Some(tls) => Connection::open_tls(place.address, &place.host, tls.clone(), LIMITS),
    };
    let mut connection = opened.with_context(|| format!("cannot connect to {place}"))?;
    if let Some((user, password)) = &access.login {
        let words = [&b"AUTH"[..], user.as_bytes(), password.as_bytes()];
        if let Reply::Error(text) = call(&mut connection, place, &words)? {
            bail!("{place} refuses user {user}: {text}");
        }
    }
    if let Reply::Error(text) = call(&mut connection, place, &[b"PING"])? {
        bail!("{place} answers PING with an error: {text}");
    }
    if let Some(level) = level {
        let asked = [&b"IONIAN"[..], b"CONSISTENCY", level.name().as_bytes()];
        if let Reply::Error(text) = call(&mut connection, place, &asked)? {
            bail!(
                "--level {}: {place} knows no levels of reads, as gateways of Ionian do: {text}",
                level.name()
            );
        }
    }
    Ok(connection)
}

/// Waits until a write succeeds there. In between `check` looks whether it still can.
///
/// # Errors
/// When it does not within `patience`: says why the last attempt failed.
pub(crate) fn wait_until_served(
    place: &Place,
    patience: Duration,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        check()?;
        let write = greet(place, &Access::default(), None)
            .and_then(|mut connection| call(&mut connection, place, &[b"SET", PROBE, b"1"]));
        match write {
            Ok(Reply::Error(text)) if Instant::now() > deadline => {
                bail!("{place} takes no writes: {text}")
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(Reply::Error(_)) | Err(_) => std::thread::sleep(ASK_EVERY),
            Ok(_) => return Ok(()),
        }
    }
}

/// How many keys a server holds; none when it does not say.
///
/// # Errors
/// When it cannot be asked.
pub(crate) fn keys(place: &Place, access: &Access) -> Result<Option<u64>> {
    let mut connection = greet(place, access, None)?;
    Ok(match call(&mut connection, place, &[b"DBSIZE"])? {
        Reply::Integer(keys) => u64::try_from(keys).ok(),
        _ => None,
    })
}

/// Sends a request; an error names the server and the request.
fn call(connection: &mut Connection, place: &Place, words: &[&[u8]]) -> Result<Reply> {
    let name = String::from_utf8_lossy(words[0]);
    connection.call(words).map_err(|error| match error {
        Error::Closed => {
            anyhow!("{place} closed the connection instead of answering {name}")
        }
        Error::TimedOut(limit) => anyhow!(
            "{place} does not answer {name} within {} s",
            limit.as_secs()
        ),
        Error::NotRedis(text) => {
            anyhow!("{place} does not speak the Redis protocol: it answers {name} with {text:?}")
        }
        other => anyhow::Error::new(other).context(format!("{place}, asked {name}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
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

    /// A server that answers anything with these bytes, once for each of them.
    fn server(answers: Vec<&'static str>) -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address.into()
    }

    #[test]
    fn who_speaks_another_language_is_told_apart() {
        let plain = Access::default();
        let said = |answers, level| {
            let error = connect(&server(answers), &plain, level).map(drop);
            format!("{:#}", error.unwrap_err())
        };
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
                &server(vec!["+PONG\r\n", "+OK\r\n"]),
                &plain,
                Some(Level::Sequential)
            )
            .is_ok()
        );
        let eva = Access {
            login: Some(("eva".into(), "secret".into())),
            ..Access::default()
        };
        assert!(connect(&server(vec!["+OK\r\n", "+PONG\r\n"]), &eva, None).is_ok());
        let wrong = server(vec!["-WRONGPASS no\r\n"]);
        let error = connect(&wrong, &eva, None).map(drop).unwrap_err();
        assert!(format!("{error:#}").contains("refuses user eva: WRONGPASS no"));
        let silent = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(
            format!(
                "{:#}",
                connect(&silent.into(), &plain, None).map(drop).unwrap_err()
            )
            .contains("cannot connect to redis://127.0.0.1:")
        );
    }
}
