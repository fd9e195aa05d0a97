//! Parses the replies of the state machine, which are RESP2, and converts them to RESP3.
//!
//! Of all replies of the key-value store only null differs: RESP2 has two nulls, for bulk strings
//! and for arrays, RESP3 has one type for it. Maps, which RESP2 does not have, the machine itself
//! writes for clients of RESP3.

use bytes::Bytes;

/// Appends `replies` to `out`, with RESP3's null instead of RESP2's.
pub(crate) fn convert(replies: &[u8], out: &mut Vec<u8>) {
    let mut rest = replies;
    while let Some((element, after)) = element(rest) {
        match element {
            b"$-1\r\n" | b"*-1\r\n" => out.extend_from_slice(b"_\r\n"),
            _ => out.extend_from_slice(element),
        }
        rest = after;
    }
    // Empty if the machine encoded its replies well; otherwise the rest is passed on unchanged.
    out.extend_from_slice(rest);
}

/// Splits off the first whole reply, including all elements of an array; `None` if it is truncated.
pub(crate) fn split_reply(replies: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = replies;
    let mut missing = 1u64;
    while missing > 0 {
        let (element, after) = element(rest)?;
        missing = missing - 1 + array_len(element).unwrap_or(0);
        rest = after;
    }
    Some(replies.split_at(replies.len() - rest.len()))
}

/// The integers of an array of integers; `None` if `reply` is not one.
pub(crate) fn integers(reply: &[u8]) -> Option<Vec<i64>> {
    let (head, mut rest) = element(reply)?;
    let mut values = Vec::new();
    for _ in 0..array_len(head)? {
        let (element, after) = element(rest)?;
        let digits = element.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
        values.push(std::str::from_utf8(digits).ok()?.parse().ok()?);
        rest = after;
    }
    rest.is_empty().then_some(values)
}

/// The strings of an array of bulk strings; `None` if `reply` is not one.
pub(crate) fn bulks(reply: &Bytes) -> Option<Vec<Bytes>> {
    let (head, mut rest) = element(reply)?;
    let mut values = Vec::new();
    for _ in 0..array_len(head)? {
        let (element, after) = element(rest)?;
        let end = element.iter().position(|&byte| byte == b'\n')? + 1;
        let value = element.strip_prefix(b"$")?.get(end - 1..)?;
        values.push(reply.slice_ref(value.strip_suffix(b"\r\n")?));
        rest = after;
    }
    rest.is_empty().then_some(values)
}

/// The first element and what follows it. The head of an array counts as an element, so nothing
/// here recurses, however deeply a reply is nested.
fn element(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = rest.iter().position(|&byte| byte == b'\n')? + 1;
    let len = match rest[0] {
        b'$' => count(&rest[..line]).map_or(line, |len| {
            line.saturating_add(len as usize).saturating_add(2)
        }),
        _ => line,
    };
    rest.split_at_checked(len)
}

/// The number of elements after the head of an array or of a map; `None` if the element is neither.
fn array_len(element: &[u8]) -> Option<u64> {
    match element[0] {
        b'*' => Some(count(element).unwrap_or(0)),
        b'%' => Some(count(element).unwrap_or(0).saturating_mul(2)),
        _ => None,
    }
}

/// The count in a head; `None` if it is negative, which means null.
fn count(head: &[u8]) -> Option<u64> {
    std::str::from_utf8(head.get(1..)?.strip_suffix(b"\r\n")?)
        .ok()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_become_the_null_of_resp3_and_nothing_else_changes() {
        let replies =
            b"$-1\r\n*-1\r\n$5\r\n$-1\r\n\r\n*2\r\n$-1\r\n:-1\r\n+OK\r\n-ERR *-1\r\n$0\r\n\r\n";
        let mut out = Vec::new();
        convert(replies, &mut out);
        assert_eq!(
            out,
            b"_\r\n_\r\n$5\r\n$-1\r\n\r\n*2\r\n_\r\n:-1\r\n+OK\r\n-ERR *-1\r\n$0\r\n\r\n"
        );
    }

    #[test]
    fn replies_are_split_whole() {
        let replies = b"*2\r\n*1\r\n$3\r\na\r\n\r\n*0\r\n+OK\r\n";
        assert_eq!(
            split_reply(replies),
            Some((&replies[..replies.len() - 5], &b"+OK\r\n"[..]))
        );
        assert_eq!(split_reply(b"*2\r\n:1\r\n"), None);
        assert_eq!(split_reply(b"$3\r\nab"), None);
        assert_eq!(split_reply(b""), None);
    }

    #[test]
    fn a_map_has_two_elements_for_each_key() {
        let replies = b"%1\r\n$1\r\nk\r\n*1\r\n$-1\r\n+OK\r\n";
        assert_eq!(
            split_reply(replies),
            Some((&replies[..replies.len() - 5], &b"+OK\r\n"[..]))
        );
    }

    #[test]
    fn bulks_of_an_array() {
        let bulks = |reply: &'static str| bulks(&Bytes::from_static(reply.as_bytes()));
        let expected: Vec<Bytes> = vec![Bytes::from("a"), Bytes::new()];
        assert_eq!(bulks("*2\r\n$1\r\na\r\n$0\r\n\r\n"), Some(expected));
        for wrong in [
            "",
            "-ERR no\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n$-1\r\n",
            "*2\r\n$0\r\n\r\n",
        ] {
            assert_eq!(bulks(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn integers_of_an_array() {
        assert_eq!(integers(b"*2\r\n:0\r\n:17\r\n"), Some(vec![0, 17]));
        assert_eq!(integers(b"*0\r\n"), Some(vec![]));
        for wrong in [
            &b"-ERR no\r\n"[..],
            b"*2\r\n:1\r\n",
            b"*1\r\n$1\r\n1\r\n",
            b"*1\r\n:1\r\n:2\r\n",
            b"",
        ] {
            assert_eq!(integers(wrong), None);
        }
    }
}
