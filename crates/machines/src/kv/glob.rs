//! The patterns of KEYS and SCAN MATCH: `*`, `?`, `[a-c]`, `[^x]` and `\` before what is meant as
//! is.

/// Whether the whole of `text` matches `pattern`.
///
/// Everything except `*` matches exactly one byte, so it is enough to come back to the last `*`
/// when something does not match: the time is at most the product of the lengths, where recursion
/// on every `*` would let a client stall all replicas with a pattern like `a*a*a*a*b`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        if let Some((&byte, after)) = text.split_first()
            && let Some(rest) = one(pattern, byte)
        {
            (pattern, text) = (rest, after);
            continue;
        }
        // Give the last `*` one byte more.
        match retry {
            Some((rest, [_, after @ ..])) => {
                retry = Some((rest, after));
                (pattern, text) = (rest, after);
            }
            _ => return false,
        }
    }
}

/// If the first element of `pattern` matches `byte`, what follows the element.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (matched, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', b'^', class @ ..] => {
            let (contained, rest) = in_class(class, byte);
            (!contained, rest)
        }
        [b'[', class @ ..] => in_class(class, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
    };
    matched.then_some(rest)
}

/// Whether the class contains `byte`, and what follows its `]`. A class that is never closed ends
/// with the pattern.
fn in_class(mut class: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut contained = false;
    loop {
        class = match class {
            [] => return (contained, class),
            [b'\\', literal, rest @ ..] => {
                contained |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => return (contained, rest),
            [from, b'-', to, rest @ ..] => {
                contained |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                contained |= *literal == byte;
                rest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_redis_does() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("[abc", "bx", false),
            ("a\\", "a\\", true),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("*a*b*c", "xxaxxbxxb", false),
            ("a**", "a", true),
            ("[a-]x", "-x", false),
            ("[]x", "x", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    /// Takes 2^40 steps where every `*` is tried with every length.
    #[test]
    fn stars_do_not_multiply() {
        assert!(!matches(
            &[b"a*".repeat(40), b"b".to_vec()].concat(),
            &b"a".repeat(2000)
        ));
    }
}
