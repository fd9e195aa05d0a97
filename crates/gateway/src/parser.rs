//! From bytes to the words of commands: RESP multibulk requests and inline commands.
//!
//! The parser keeps its place between reads, so every byte is looked at once however the bytes are
//! cut into pieces. The crate `redis-protocol` starts over with every piece and tells nothing about
//! what it has found so far: an MSET of 65,535 words takes it 5 ms in one piece, 295 ms in TCP
//! segments of 1448 bytes and 6.5 s in pieces of 64. It also reserves memory by an unknown client's
//! count, accepts frames that are no requests, and has errors of its own; guarding it against all
//! this means finding the words first. So it serves here as the second opinion of the tests.

use crate::inline;
use crate::limits::Limits;
use crate::socket::TLS_HANDSHAKE;
use bytes::{Buf, Bytes};
use std::fmt;

/// The position of the next byte in a request.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// At the start of a request.
    Start,
    /// In the line that announces the next word; with the number of missing words.
    Head { missing: usize },
    /// In a word of `len` bytes.
    Word { missing: usize, len: usize },
}

/// Why a connection cannot continue. `Display` is the text of the error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line that is too long, where the head of an array is expected.
    TooBigCount,
    /// A line that is too long, where the head of a word is expected.
    TooBigBulkCount,
    /// `*N` with an N that is not a number, or above the limit.
    InvalidMultibulkLength,
    /// `$N` with an N that is not a number, or above the limit.
    InvalidBulkLength,
    /// Something other than `$N` at the start of a word.
    ExpectedDollar(u8),
    /// An inline command that is too long.
    TooBigInline,
    /// An inline command with an unclosed quote.
    UnbalancedQuotes,
    /// The handshake of TLS, where there is none.
    Tls,
    /// `$N` with which the words of a command exceed this limit together.
    TooManyBytes(usize),
    /// `*N` with an N that is above the limit before AUTH.
    UnauthenticatedMultibulkLength,
    /// `$N` with an N that is above the limit before AUTH.
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// The error of a client that has to log in, under [its limits](Limits::before_login).
    pub(crate) fn before_login(self) -> ProtocolError {
        match self {
            ProtocolError::InvalidMultibulkLength => ProtocolError::UnauthenticatedMultibulkLength,
            ProtocolError::InvalidBulkLength | ProtocolError::TooManyBytes(_) => {
                ProtocolError::UnauthenticatedBulkLength
            }
            other => other,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        match self {
            ProtocolError::TooBigCount => f.write_str("too big mbulk count string"),
            ProtocolError::TooBigBulkCount => f.write_str("too big bulk count string"),
            ProtocolError::InvalidMultibulkLength => f.write_str("invalid multibulk length"),
            ProtocolError::InvalidBulkLength => f.write_str("invalid bulk length"),
            // It begins as in Redis.
            ProtocolError::TooManyBytes(most) => {
                write!(f, "invalid bulk length: a command has at most {most} bytes")
            }
            // A control character must not end the error line.
            ProtocolError::ExpectedDollar(got @ b' '..=b'~') => {
                write!(f, "expected '$', got '{}'", *got as char)
            }
            ProtocolError::ExpectedDollar(_) => f.write_str("expected '$', got ' '"),
            ProtocolError::TooBigInline => f.write_str("too big inline request"),
            ProtocolError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::Tls => f.write_str("this port does not accept TLS connections"),
            ProtocolError::UnauthenticatedMultibulkLength => {
                f.write_str("unauthenticated multibulk length")
            }
            ProtocolError::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
        }
    }
}

/// The incremental parser of one connection.
#[derive(Debug)]
pub struct Parser {
    stage: Stage,
    /// The complete words of the current command.
    words: Vec<Bytes>,
    /// Bytes of all `words` and, in [`Stage::Word`], of the announced one.
    bytes: usize,
    /// The start of a line or word that continues in the next piece.
    partial: Vec<u8>,
    /// Whether the words of the piece in which the command started have their own memory.
    compact: bool,
}

impl Default for Parser {
    fn default() -> Self {
        Parser {
            stage: Stage::Start,
            words: Vec::new(),
            bytes: 0,
            partial: Vec::new(),
            compact: false,
        }
    }
}

impl Parser {
    /// Takes from the front of `input` what belongs to the next command. True when it is complete:
    /// its words, of which there is at least one, are in [`words`](Self::words) until the next
    /// call. False when all input is used up.
    ///
    /// # Errors
    /// The client does not speak the protocol; there is no way to find the next command.
    pub fn next(&mut self, input: &mut Bytes, limits: &Limits) -> Result<bool, ProtocolError> {
        if matches!(self.stage, Stage::Start) {
            self.words.clear();
            self.bytes = 0;
            self.compact = false;
        }
        let complete = self.complete(input, limits)?;
        if !complete && !self.words.is_empty() && !self.compact {
            // Otherwise they would retain the whole piece, including the commands before.
            self.words = compact(&self.words);
            self.compact = true;
        }
        Ok(complete)
    }

    fn complete(&mut self, input: &mut Bytes, limits: &Limits) -> Result<bool, ProtocolError> {
        loop {
            let complete = match self.stage {
                Stage::Word { missing, len } => match self.take_word(input, len) {
                    None => return Ok(false),
                    Some(word) => {
                        self.words.push(word);
                        missing == 1 || {
                            self.stage = Stage::Head {
                                missing: missing - 1,
                            };
                            false
                        }
                    }
                },
                Stage::Start | Stage::Head { .. } => match self.on_line_end(input, limits)? {
                    None => return Ok(false),
                    Some(complete) => complete,
                },
            };
            if complete {
                self.stage = Stage::Start;
                return Ok(true);
            }
        }
    }

    /// The words of the command that [`next`](Self::next) completed.
    pub fn words(&self) -> &[Bytes] {
        &self.words
    }

    /// Whether a command is incomplete.
    pub(crate) fn is_unfinished(&self) -> bool {
        !matches!(self.stage, Stage::Start) || !self.partial.is_empty()
    }

    /// Memory of the incomplete command.
    pub(crate) fn held(&self) -> usize {
        let announced = if let Stage::Word { len, .. } = self.stage {
            len
        } else {
            0
        };
        self.partial.capacity()
            + self.words.capacity() * size_of::<Bytes>()
            + self.bytes.saturating_sub(announced)
    }

    /// Returns the words and the memory of their list; [`put_words`](Self::put_words) returns it.
    pub(crate) fn take_words(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.words)
    }

    /// Takes the list back, with its words if the command must be parsed again.
    pub(crate) fn put_words(&mut self, words: Vec<Bytes>) {
        // The memory of a command with very many words is not retained.
        self.words = if words.is_empty() && words.capacity() > 1024 {
            Vec::new()
        } else {
            words
        };
    }

    /// Handles a whole line, including its end; returns true if the line is a command.
    fn on_line(&mut self, line: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        match self.stage {
            Stage::Head { missing } => {
                let len = self.word_len(line, limits)?;
                self.stage = Stage::Word { missing, len };
                Ok(false)
            }
            _ if line[0] == b'*' => {
                let count = number(line).ok_or(ProtocolError::InvalidMultibulkLength)?;
                if count > limits.args as i64 {
                    return Err(ProtocolError::InvalidMultibulkLength);
                }
                // Zero and negative counts have no effect, as in Redis.
                if count > 0 {
                    self.stage = Stage::Head {
                        missing: count as usize,
                    };
                }
                Ok(false)
            }
            _ => {
                check_plain(line)?;
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                inline::split(line, &mut self.words).ok_or(ProtocolError::UnbalancedQuotes)?;
                Ok(!self.words.is_empty())
            }
        }
    }

    fn word_len(&mut self, line: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
        if line[0] != b'$' {
            return Err(ProtocolError::ExpectedDollar(line[0]));
        }
        let len = number(line)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or(ProtocolError::InvalidBulkLength)?;
        let bytes = self.bytes.saturating_add(len);
        if bytes > limits.bulk_bytes {
            return Err(ProtocolError::TooManyBytes(limits.bulk_bytes));
        }
        self.bytes = bytes;
        Ok(len)
    }

    /// The next word, which has `len` bytes and a line end. Like Redis, it does not check the line
    /// end.
    fn take_word(&mut self, input: &mut Bytes, len: usize) -> Option<Bytes> {
        let whole = len + 2;
        if self.partial.is_empty() && input.len() >= whole {
            let word = input.split_to(len);
            input.advance(2);
            return Some(word);
        }
        // The memory grows with the bytes that have arrived, not with the announced length.
        let take = input.len().min(whole - self.partial.len());
        if self.partial.len() + take > whole / 2 {
            // The last reallocation has the exact size.
            self.partial.reserve_exact(whole - self.partial.len());
        }
        self.partial.extend_from_slice(&input[..take]);
        input.advance(take);
        if self.partial.len() < whole {
            return None;
        }
        let mut word = std::mem::take(&mut self.partial);
        word.truncate(len);
        Some(Bytes::from(word))
    }

    /// Handles the next line; `None` if the input contains no line end.
    fn on_line_end(
        &mut self,
        input: &mut Bytes,
        limits: &Limits,
    ) -> Result<Option<bool>, ProtocolError> {
        let end = input.iter().position(|&byte| byte == b'\n');
        let len = end.map_or(input.len(), |end| end + 1);
        if self.partial.len() + len > limits.inline_bytes {
            let first = self.partial.first().or(input.first());
            return Err(match (self.stage, first) {
                (Stage::Head { .. }, _) => ProtocolError::TooBigBulkCount,
                (_, Some(b'*')) => ProtocolError::TooBigCount,
                _ => ProtocolError::TooBigInline,
            });
        }
        let complete = if end.is_some() && self.partial.is_empty() {
            Some(self.on_line(&input[..len], limits)?)
        } else {
            self.partial.extend_from_slice(&input[..len]);
            if matches!(self.stage, Stage::Start) {
                check_plain(&self.partial)?;
            }
            let line = end.map(|_| std::mem::take(&mut self.partial));
            line.map(|line| self.on_line(&line, limits)).transpose()?
        };
        input.advance(len);
        Ok(complete)
    }
}

/// Checks that a command does not begin as every connection with TLS, whose client waits for an
/// answer before it sends more.
fn check_plain(line: &[u8]) -> Result<(), ProtocolError> {
    match line.first() {
        Some(&TLS_HANDSHAKE) => Err(ProtocolError::Tls),
        _ => Ok(()),
    }
}

/// Copies of the words in their own memory.
pub(crate) fn compact(words: &[Bytes]) -> Vec<Bytes> {
    let mut all = Vec::with_capacity(words.iter().map(Bytes::len).sum());
    words.iter().for_each(|word| all.extend_from_slice(word));
    let mut all = Bytes::from(all);
    words.iter().map(|word| all.split_to(word.len())).collect()
}

/// The number after the first byte of a line that ends with `\r
/// `, in Redis's notation: no plus sign, no leading zeros.
fn number(line: &[u8]) -> Option<i64> {
    let digits = line.get(1..)?.strip_suffix(b"\r\n")?;
    let (negative, magnitude) = match digits {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match magnitude {
        b"0" if !negative => return Some(0),
        [b'1'..=b'9', ..] if magnitude.len() <= 18 => {}
        _ => return None,
    }
    let value = magnitude.iter().try_fold(0i64, |value, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + i64::from(digit - b'0'))
    })?;
    Some(if negative { -value } else { value })
}
