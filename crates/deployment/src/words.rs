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
