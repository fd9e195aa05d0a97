//! A client of the Redis protocol, as small as it gets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No reply of a healthy or an unhealthy cluster takes this long.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Option<String>),
}

pub(crate) struct Client {
    input: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        Client::try_connect(port).expect("the gateway takes clients")
    }

    pub(crate) fn try_connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        Ok(Client {
            input: BufReader::new(stream),
        })
    }

    pub(crate) fn call(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.input.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        Ok(match kind {
            "+" => Reply::Status(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(rest.parse().expect("a number")),
            "$" => match rest.parse::<i64>().expect("a length") {
                -1 => Reply::Bulk(None),
                length => {
                    let mut bytes = vec![0; length as usize + 2];
                    self.input.read_exact(&mut bytes)?;
                    bytes.truncate(length as usize);
                    Reply::Bulk(Some(String::from_utf8(bytes).expect("text")))
                }
            },
            _ => panic!("an unexpected reply: {line:?}"),
        })
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
