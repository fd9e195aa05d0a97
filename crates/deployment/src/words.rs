//! Small text functions: numbers, names, and values in messages.

/// A number of digits only: no sign, no spaces.
pub(crate) fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Whether the text is a name that is safe in paths, flags and log lines.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The alternatives in words.
pub(crate) fn one_of(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(" or ")
}

/// The text, shortened to fit into a message.
pub(crate) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// The question whether one of these names was meant, with a space before it; empty if none
/// resembles the word. Of a key only what follows its table counts.
pub(crate) fn meant(word: &str, names: &str) -> String {
    let word = word.rsplit('.').next().unwrap_or(word);
    let distance = |name: &&str| strsim::damerau_levenshtein(word, name);
    let nearest = names.split(", ").min_by_key(distance);
    match nearest.filter(|name| distance(name) <= word.chars().count() / 3) {
        Some(name) => format!(" (did you mean {name}?)"),
        None => String::new(),
    }
}
