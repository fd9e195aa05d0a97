//! A client of a gateway whose replies are easy to compare.

use ionian_redis_client::{self as redis, Connection, Limits};
use ionian_tls::rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const LIMITS: Limits = Limits {
    connect: Duration::from_secs(30),
    // No reply takes this long, even of a cluster without a quorum.
    reply: Duration::from_secs(30),
    reply_bytes: 64 << 20,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Option<String>),
    Array(Vec<Reply>),
}

impl From<redis::Reply> for Reply {
    fn from(reply: redis::Reply) -> Reply {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        match reply {
            redis::Reply::SimpleString(bytes) => Reply::Status(text(&bytes)),
            redis::Reply::Error(error) => Reply::Error(error.to_string()),
            redis::Reply::Integer(number) => Reply::Integer(number),
            redis::Reply::BulkString(bytes) => Reply::Bulk(Some(text(&bytes))),
            redis::Reply::Null => Reply::Bulk(None),
            redis::Reply::Array(parts) => {
                Reply::Array(parts.into_iter().map(Reply::from).collect())
            }
        }
    }
}

pub(crate) struct Client {
    connection: Connection,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        Client::try_connect(port).expect("the gateway takes clients")
    }

    pub(crate) fn try_connect(port: u16) -> io::Result<Client> {
        let connection = Connection::open(([127, 0, 0, 1], port).into(), LIMITS)?;
        Ok(Client { connection })
    }

    /// With TLS. The handshake is over.
    pub(crate) fn try_secured(port: u16, config: Arc<ClientConfig>) -> io::Result<Client> {
        let address = ([127, 0, 0, 1], port).into();
        let mut connection = Connection::open_tls(address, "127.0.0.1", config, LIMITS)?;
        connection.greet()?;
        Ok(Client { connection })
    }

    pub(crate) fn call(&mut self, words: &[&str]) -> Result<Reply, redis::Error> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        Ok(self.connection.call(&words)?.into())
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        assert_eq!(
            self.call(&["SET", key, value]).unwrap(),
            Reply::Status("OK".into())
        );
    }

    pub(crate) fn get(&mut self, key: &str) -> Option<String> {
        match self.call(&["GET", key]).unwrap() {
            Reply::Bulk(value) => value,
            other => panic!("GET {key}: {other:?}"),
        }
    }
}
