//! Inline commands: a line of words, as typed into telnet, with the quoting rules of Redis's
//! `sdssplitargs`.

use bytes::Bytes;

/// Appends the words of `line` to `words`; `None` if a quote is not closed, or closed within a
/// word.
pub(crate) fn split(line: &[u8], words: &mut Vec<Bytes>) -> Option<()> {
    // Redis uses C strings here, which end at the first zero byte.
    let end = line
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(line.len());
    let mut rest = trimmed(&line[..end]);
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(Bytes::from(word));
        rest = trimmed(after);
    }
    Some(())
}

/// The first word of `rest`, and what follows it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [byte, ..] if is_space(*byte) => return Some((word, rest)),
            // A closing quote must be followed by a space or nothing, so the word ends with it.
            [b'"', after @ ..] => {
                let after = closed(double_quoted(after, &mut word)?)?;
                return Some((word, after));
            }
            [b'\'', after @ ..] => {
                let after = closed(single_quoted(after, &mut word)?)?;
                return Some((word, after));
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first()
        .is_none_or(|&byte| is_space(byte))
        .then_some(rest)
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                word.push(hex(*high)? << 4 | hex(*low)?);
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match rest {
            [] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
        };
        word.push(byte);
        rest = after;
    }
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

fn trimmed(mut rest: &[u8]) -> &[u8] {
    while let [byte, after @ ..] = rest
        && is_space(*byte)
    {
        rest = after;
    }
    rest
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}
