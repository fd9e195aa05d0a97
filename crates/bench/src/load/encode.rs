//! Commands as bytes: made once, with a place where the key's number goes.

use super::workload::{Ask, Mix};
use crate::payload::payload;
use bytes::Bytes;
use ionian_redis_client::push_request;

/// The digits of a key after `key:`, as in redis-benchmark.
const DIGITS: usize = 12;

/// The most keys that can be told apart.
pub(crate) const MOST_KEYS: u64 = 10_u64.pow(DIGITS as u32);

/// A command, and where in it the digits begin.
#[derive(Clone, Debug)]
struct Template {
    bytes: Vec<u8>,
    digits: usize,
}

/// GET and SET, or XREVRANGE and XADD.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    read: Template,
    write: Template,
}

impl Encoder {
    /// In the Redis protocol.
    pub(crate) fn of_redis(mix: &Mix) -> Self {
        Self::new(mix, |words| {
            let mut bytes = Vec::new();
            push_request(words, &mut bytes);
            bytes
        })
    }

    /// As a gateway hands a lone command to its client lane.
    pub(crate) fn of_lane(mix: &Mix) -> Self {
        Self::new(mix, |words| {
            let words: Vec<Bytes> = words
                .iter()
                .map(|word| Bytes::copy_from_slice(word))
                .collect();
            payload(&words)
        })
    }

    fn new(mix: &Mix, encode: impl Fn(&[&[u8]]) -> Vec<u8>) -> Self {
        let (zero, value) = (key(0), value(mix.value_bytes));
        let (read, write) = match mix.append {
            false => (vec!["GET", &zero], vec!["SET", &zero]),
            true => (
                vec!["XREVRANGE", &zero, "+", "-", "COUNT", "1"],
                vec!["XADD", &zero, "MAXLEN", "~", "1000", "0-*", "e"],
            ),
        };
        let read: Vec<&[u8]> = read.into_iter().map(str::as_bytes).collect();
        let mut write: Vec<&[u8]> = write.into_iter().map(str::as_bytes).collect();
        write.push(&value);
        Encoder {
            read: template(encode(&read)),
            write: template(encode(&write)),
        }
    }

    /// Appends the command.
    pub(crate) fn push(&self, ask: Ask, out: &mut Vec<u8>) {
        let Template { bytes, digits } = if ask.is_read { &self.read } else { &self.write };
        let begin = out.len() + digits;
        out.extend_from_slice(bytes);
        let mut number = ask.key;
        for digit in out[begin..begin + DIGITS].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

/// The key of this number.
fn key(number: u64) -> String {
    format!("key:{number:0DIGITS$}")
}

/// What every key is set to.
fn value(bytes: usize) -> Vec<u8> {
    vec![b'v'; bytes]
}

fn template(bytes: Vec<u8>) -> Template {
    let digits = bytes
        .windows(DIGITS)
        .position(|some| some == [b'0'; DIGITS])
        .expect("the key of number 0 is in it");
    Template { bytes, digits }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Skew;
    use super::*;
    use ionian_machines::kv;

    fn mix(value_bytes: usize, append: bool) -> Mix {
        Mix {
            keys: 1,
            skew: Skew::Uniform,
            reads: 0,
            value_bytes,
            append,
        }
    }

    #[test]
    fn commands_are_those_of_the_protocol() {
        let encoder = Encoder::of_redis(&mix(3, false));
        let mut out = Vec::new();
        encoder.push(
            Ask {
                key: 1_203,
                is_read: false,
            },
            &mut out,
        );
        encoder.push(
            Ask {
                key: MOST_KEYS - 1,
                is_read: true,
            },
            &mut out,
        );
        let words = "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000001203\r\n$3\r\nvvv\r\n\
            *2\r\n$3\r\nGET\r\n$16\r\nkey:999999999999\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), words);
        assert_eq!(key(1_203), "key:000000001203");
    }

    #[test]
    fn a_lane_carries_what_a_gateway_would_encode() {
        for (words, ask) in [
            (
                &[&b"SET"[..], b"key:000000000042", &[b'v'; 16]][..],
                Ask {
                    key: 42,
                    is_read: false,
                },
            ),
            (
                &[b"GET", b"key:000000000042"],
                Ask {
                    key: 42,
                    is_read: true,
                },
            ),
            (
                &[
                    b"XADD",
                    b"key:000000000042",
                    b"MAXLEN",
                    b"~",
                    b"1000",
                    b"0-*",
                    b"e",
                    &[b'v'; 16],
                ],
                Ask {
                    key: 42,
                    is_read: false,
                },
            ),
            (
                &[
                    b"XREVRANGE",
                    b"key:000000000042",
                    b"+",
                    b"-",
                    b"COUNT",
                    b"1",
                ],
                Ask {
                    key: 42,
                    is_read: true,
                },
            ),
        ] {
            let mut out = Vec::new();
            let encoder = Encoder::of_lane(&mix(16, words[0].starts_with(b"X")));
            encoder.push(ask, &mut out);
            let words: Vec<Bytes> = words
                .iter()
                .map(|word| Bytes::copy_from_slice(word))
                .collect();
            assert_eq!(
                out,
                kv::Compound::Pipeline(vec![kv::Command::parse(&words).unwrap()]).encode()
            );
        }
    }
}
