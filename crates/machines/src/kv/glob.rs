//! The patterns of KEYS, SCAN MATCH and users: `*`, `?`, `[a-c]`, `[^x]` and `\` before what is
//! meant as is.
//!
//! A pattern is parsed once. What stands before the first `*` and behind the last one has one place
//! in a text; each part between two of them is searched for once, from left to right, as the
//! leftmost place leaves most for the parts behind it. A search for a part takes at most [`SHORT`]
//! steps for each byte, or one for each 64 elements of the part, whatever the text is: otherwise a
//! client could stall all replicas with a pattern.

use super::work;

/// The longest pattern that clients may use.
pub(crate) const MAX_PATTERN: usize = 1024;

/// Up to this many elements, a part is compared at each place of a text.
const SHORT: usize = 16;

/// The most steps that it takes to match a text by any pattern of this length.
pub(crate) fn most_steps(pattern: usize, text: usize) -> u64 {
    1 + (1 + pattern.min(SHORT)) as u64 * text as u64
}

/// What matches one byte.
#[derive(Clone, Debug, PartialEq)]
enum Element {
    Any,
    Byte(u8),
    /// A bit for each byte that matches.
    Class(Box<[u64; 4]>),
}

impl Element {
    fn matches(&self, byte: u8) -> bool {
        work::glance(1);
        match self {
            Element::Any => true,
            Element::Byte(literal) => *literal == byte,
            Element::Class(class) => class[usize::from(byte / 64)] >> (byte % 64) & 1 == 1,
        }
    }
}

fn all_match(part: &[Element], text: &[u8]) -> bool {
    part.len() == text.len() && part.iter().zip(text).all(|(it, byte)| it.matches(*byte))
}

/// A part between two `*`.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Short(Vec<Element>),
    /// How many elements, and for each byte a bit for each element that it matches.
    Long(usize, Vec<u64>),
}

impl Part {
    fn new(elements: Vec<Element>) -> Part {
        if elements.len() <= SHORT {
            return Part::Short(elements);
        }
        let words = elements.len().div_ceil(64);
        let mut masks = vec![0; 256 * words];
        for (byte, mask) in (0..=u8::MAX).zip(masks.chunks_exact_mut(words)) {
            for (at, element) in elements.iter().enumerate() {
                mask[at / 64] |= u64::from(element.matches(byte)) << (at % 64);
            }
        }
        Part::Long(elements.len(), masks)
    }

    /// What follows the first place of the text that matches.
    fn find<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        match self {
            Part::Short(elements) => {
                let mut places = text.windows(elements.len());
                let at = places.position(|place| all_match(elements, place))?;
                Some(&text[at + elements.len()..])
            }
            Part::Long(len, masks) => find_long(*len, masks, text),
        }
    }
}

/// Shift-And (Baeza-Yates and Gonnet 1992): bit `i` of the state says that the bytes up to here
/// match the first `i + 1` elements.
fn find_long<'t>(len: usize, masks: &[u64], text: &'t [u8]) -> Option<&'t [u8]> {
    let words = len.div_ceil(64);
    let mut state = vec![0_u64; words];
    for (at, byte) in text.iter().enumerate() {
        work::glance(words);
        let mut carry = 1;
        for (bits, mask) in state.iter_mut().zip(&masks[usize::from(*byte) * words..]) {
            let next = *bits >> 63;
            *bits = (*bits << 1 | carry) & mask;
            carry = next;
        }
        if state[words - 1] >> ((len - 1) % 64) & 1 == 1 {
            return Some(&text[at + 1..]);
        }
    }
    None
}

/// A pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Glob {
    first: Vec<Element>,
    /// With a `*`: the parts between two of them, and what stands behind the last one.
    rest: Option<(Vec<Part>, Vec<Element>)>,
    /// The most steps that one byte of a text takes.
    steps: u64,
}

impl Glob {
    pub(crate) fn new(pattern: &[u8]) -> Glob {
        let mut parts = parse(pattern);
        let last = if parts.len() > 1 { parts.pop() } else { None };
        let first = parts.remove(0);
        let between = parts.into_iter().filter(|part| !part.is_empty());
        let between: Vec<_> = between.map(Part::new).collect();
        let steps = between.iter().map(|part| match part {
            Part::Short(elements) => elements.len() as u64,
            Part::Long(len, _) => len.div_ceil(64) as u64,
        });
        Glob {
            first,
            steps: 1 + steps.max().unwrap_or(0),
            rest: last.map(|last| (between, last)),
        }
    }

    /// The most steps that it takes to match a text of this length.
    pub(crate) fn steps(&self, len: usize) -> u64 {
        match self.matches_all() {
            true => 1,
            false => 1 + self.steps * len as u64,
        }
    }

    /// Whether it is `*`.
    pub(crate) fn matches_all(&self) -> bool {
        let is_empty =
            |(between, last): &(Vec<Part>, Vec<Element>)| between.is_empty() && last.is_empty();
        self.first.is_empty() && self.rest.as_ref().is_some_and(is_empty)
    }

    /// Whether it matches the whole of `text`.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let Some((between, last)) = &self.rest else {
            return all_match(&self.first, text);
        };
        let Some(len) = text.len().checked_sub(self.first.len() + last.len()) else {
            return false;
        };
        let (first, text) = text.split_at(self.first.len());
        let (mut text, end) = text.split_at(len);
        all_match(&self.first, first)
            && all_match(last, end)
            && between.iter().all(|part| {
                let behind = part.find(text);
                text = behind.unwrap_or(text);
                behind.is_some()
            })
    }
}

/// What stands before the first `*`, between them, and behind the last one.
fn parse(mut pattern: &[u8]) -> Vec<Vec<Element>> {
    let mut parts = vec![Vec::new()];
    while let Some((first, mut rest)) = pattern.split_first() {
        let element = match (first, rest) {
            (b'*', _) => {
                parts.push(Vec::new());
                pattern = rest;
                continue;
            }
            (b'?', _) => Element::Any,
            (b'[', [b'^', class @ ..]) => {
                let (class, behind) = parse_class(class);
                rest = behind;
                Element::Class(Box::new(class.map(|bits| !bits)))
            }
            (b'[', _) => {
                let (class, behind) = parse_class(rest);
                rest = behind;
                Element::Class(Box::new(class))
            }
            (b'\\', [literal, behind @ ..]) => {
                rest = behind;
                Element::Byte(*literal)
            }
            (literal, _) => Element::Byte(*literal),
        };
        parts.last_mut().expect("there is one").push(element);
        pattern = rest;
    }
    parts
}

/// The bytes of a class, and what follows its `]`. A class that is never closed ends with the
/// pattern.
fn parse_class(mut class: &[u8]) -> ([u64; 4], &[u8]) {
    let mut bits = [0; 4];
    loop {
        let (range, rest) = match class {
            [] => return (bits, class),
            [b'\\', literal, rest @ ..] => (*literal..=*literal, rest),
            [b']', rest @ ..] => return (bits, rest),
            [from, b'-', to, rest @ ..] => (*from.min(to)..=*from.max(to), rest),
            [literal, rest @ ..] => (*literal..=*literal, rest),
        };
        work::glance(range.len());
        range.for_each(|byte| bits[usize::from(byte / 64)] |= 1 << (byte % 64));
        class = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

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
            let matches = Glob::new(pattern.as_bytes()).matches(text.as_bytes());
            assert_eq!(matches, expected, "{pattern} {text}");
        }
    }

    /// By the definition: a `*` is any number of bytes.
    fn matches_by_definition(parts: &[Vec<Element>], text: &[u8]) -> bool {
        let [first, rest @ ..] = parts else {
            return false;
        };
        let starts = text.len() >= first.len() && all_match(first, &text[..first.len()]);
        let behind = || &text[first.len()..];
        match rest {
            [] => starts && behind().is_empty(),
            _ => {
                starts
                    && (0..=behind().len()).any(|at| matches_by_definition(rest, &behind()[at..]))
            }
        }
    }

    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => "[ab]{1,3}",
            1 => "[ab]{17,20}",
            1 => "a{70}",
            2 => Just("?".to_owned()),
            1 => "\\[\\^?[ab]-?[ab]?\\]?",
            1 => Just("\\".to_owned()),
            4 => Just("*".to_owned()),
        ];
        vec(piece, 0..6).prop_map(|pieces| pieces.concat().into_bytes())
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof!["[ab]{0,24}", "a{60,80}b{0,2}", "[ab]{0,4}a{17,75}[ab]{0,4}"]
            .prop_map(String::into_bytes)
    }

    proptest! {
        #[test]
        fn a_pattern_matches_by_its_definition_in_few_steps(pattern in pattern(), text in text()) {
            let glob = Glob::new(&pattern);
            work::take();
            let matches = glob.matches(&text);
            prop_assert!(work::take() <= glob.steps(text.len()));
            prop_assert_eq!(matches, matches_by_definition(&parse(&pattern), &text));
        }
    }
}
