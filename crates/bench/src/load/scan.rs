//! Replies of a Redis server, counted as they come and not kept: a load generator wants to know how
//! many, and which are errors.

/// No line of a reply that is worth waiting for is longer.
const LINE_BYTES: usize = 64 << 10;

/// The deepest that arrays may stand in each other.
const DEPTH: usize = 8;

/// One whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// Something.
    Something,
    /// Null: the key is not there.
    Nothing,
    /// An error, by its first word.
    Error(&'a str),
}

/// What came is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Garbage(pub(crate) String);

/// Where in a reply the bytes taken so far have ended.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The beginning of a line of which the rest has not come yet.
    line: Vec<u8>,
    /// The bytes of a string and its line end that are still to come.
    skip: usize,
    /// For each array that is open, how many of its elements have not begun.
    open: Vec<usize>,
}

impl Scanner {
    /// Takes what has come, and calls `each` for every reply that is whole now.
    ///
    /// # Errors
    /// When that is no reply. Nothing can be taken from then on.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Reply<'_>),
    ) -> Result<(), Garbage> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let some = self.skip.min(bytes.len());
                bytes = &bytes[some..];
                self.skip -= some;
                if self.skip == 0 {
                    self.element(Reply::Something, &mut each);
                }
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                return match self.line.len() > LINE_BYTES {
                    true => Err(garbage(&self.line)),
                    false => Ok(()),
                };
            };
            let (line, rest) = bytes.split_at(end + 1);
            bytes = rest;
            if self.line.is_empty() {
                self.line(line, &mut each)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.line(&whole, &mut each)?;
                // Its memory is of use for the next.
                whole.clear();
                self.line = whole;
            }
        }
        Ok(())
    }

    /// A line with its end.
    fn line(&mut self, line: &[u8], each: &mut impl FnMut(Reply<'_>)) -> Result<(), Garbage> {
        let Some([kind, text @ ..]) = line.strip_suffix(b"\r\n") else {
            return Err(garbage(line));
        };
        match kind {
            b'+' | b':' => self.element(Reply::Something, each),
            b'-' => self.element(Reply::Error(first_word(text)), each),
            b'$' => match number(text).ok_or_else(|| garbage(line))? {
                None => self.element(Reply::Nothing, each),
                Some(length) => self.skip = length + 2,
            },
            b'*' => match number(text).ok_or_else(|| garbage(line))? {
                None => self.element(Reply::Nothing, each),
                Some(0) => self.element(Reply::Something, each),
                Some(_) if self.open.len() == DEPTH => return Err(garbage(line)),
                Some(count) => self.open.push(count),
            },
            _ => return Err(garbage(line)),
        }
        Ok(())
    }

    /// Something is whole: a reply, or the element of an array, which may be whole with it.
    fn element(&mut self, reply: Reply<'_>, each: &mut impl FnMut(Reply<'_>)) {
        let mut whole = reply;
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
            whole = Reply::Something;
        }
        each(whole);
    }
}

/// A length; -1 is none of anything.
#[expect(
    clippy::option_option,
    reason = "no number, and the number that stands for none, are different things"
)]
fn number(text: &[u8]) -> Option<Option<usize>> {
    match text {
        b"-1" => Some(None),
        // No server sends strings of a terabyte.
        _ if text.is_empty() || text.len() > 12 => None,
        _ => text
            .iter()
            .try_fold(0, |sum: usize, digit| {
                digit
                    .is_ascii_digit()
                    .then(|| sum * 10 + usize::from(digit - b'0'))
            })
            .map(Some),
    }
}

fn first_word(text: &[u8]) -> &str {
    let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    str::from_utf8(word)
        .ok()
        .filter(|word| !word.is_empty() && word.len() <= 32)
        .unwrap_or("(no word)")
}

fn garbage(line: &[u8]) -> Garbage {
    Garbage(
        String::from_utf8_lossy(&line[..line.len().min(60)])
            .trim_end()
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[u8] =
        b"+OK\r\n$-1\r\n$3\r\nabc\r\n$0\r\n\r\n:17\r\n-TRYAGAIN not now\r\n*2\r\n$1\r\nx\r\n*1\r\n+y\r\n\
        *0\r\n*-1\r\n-ERR\r\n$4\r\n\r\n\r\n\r\n+OK\r\n";

    fn told(pieces: &[&[u8]]) -> Result<Vec<String>, Garbage> {
        let mut scanner = Scanner::default();
        let mut told = Vec::new();
        for piece in pieces {
            scanner.take(piece, |reply| told.push(format!("{reply:?}")))?;
        }
        Ok(told)
    }

    #[test]
    fn every_whole_reply_is_told_once() {
        let words = "Something,Nothing,Something,Something,Something,Error(\"TRYAGAIN\"),Something,Something,Nothing,\
            Error(\"ERR\"),Something,Something";
        assert_eq!(told(&[ALL]).unwrap().join(","), words);
    }

    #[test]
    fn it_does_not_matter_where_reads_end() {
        let whole = told(&[ALL]).unwrap();
        for first in 0..=ALL.len() {
            for second in first..=ALL.len() {
                let pieces = [&ALL[..first], &ALL[first..second], &ALL[second..]];
                assert_eq!(told(&pieces).unwrap(), whole, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = ALL.chunks(1).collect();
        assert_eq!(told(&bytes).unwrap(), whole);
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "+OK\n",
            "$x\r\n",
            "$-2\r\n",
            "$\r\n",
            "*1234567890123\r\n",
        ] {
            assert!(told(&[text.as_bytes()]).is_err(), "{text:?}");
        }
        assert!(told(&[&b"*1\r\n".repeat(DEPTH + 1)]).is_err());
        let endless = vec![b'+'; LINE_BYTES + 1];
        assert_eq!(told(&[&endless]).unwrap_err().0.len(), 60);
    }

    #[test]
    fn half_a_reply_is_none() {
        assert_eq!(told(&[&ALL[..4]]).unwrap(), Vec::<String>::new());
        assert_eq!(told(&[b"$3\r\nabc\r"]).unwrap(), Vec::<String>::new());
        assert_eq!(told(&[b"*2\r\n+a\r\n"]).unwrap(), Vec::<String>::new());
    }
}
