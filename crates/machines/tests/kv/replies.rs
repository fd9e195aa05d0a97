//! Replies and error texts are those of Redis 7, of which `redis7.txt`, `redis7-streams.txt` and
//! `redis7-objects.txt` are records.

use super::{NOW, apply, argv, shown};
use ionian_machines::kv::{Command, Compound, Kv};

/// The words of a line; what stands in single or double quotes is one word.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for char in line.chars() {
        match (quote, char) {
            (Some(open), _) if char == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

#[test]
fn replies_are_those_of_redis() {
    compare(include_str!("redis7.txt"));
}

#[test]
fn replies_about_streams_are_those_of_redis() {
    compare(include_str!("redis7-streams.txt"));
}

#[test]
fn replies_about_objects_are_those_of_redis() {
    compare(include_str!("redis7-objects.txt"));
}

fn compare(record: &str) {
    let mut kv = Kv::default();
    for line in record
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (asked, expected) = line.split_once(" => ").expect("a command and a reply");
        let words = words(asked);
        let argv = argv(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let reply = match Command::parse(&argv) {
            Ok(command) => apply(&mut kv, NOW, &Compound::Pipeline(vec![command])),
            Err(text) => shown(format!("-{text}\r\n").as_bytes()),
        };
        assert_eq!(reply, expected, "{asked}");
    }
}
