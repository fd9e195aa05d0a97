//! The text of INFO: `# Section` and lines of `key:value`.

use crate::resp3;
use std::fmt::{self, Display, Write};

/// What a replica knows of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) total: i64,
    /// Of these, the keys that have a deadline; 0 from replicas that do not tell.
    pub(crate) expiring: i64,
}

impl Keys {
    /// Reads the replies to DBSIZE and, where the cluster's level has it, to the question for keys
    /// with a deadline.
    pub(crate) fn of(replies: &[u8]) -> Option<Keys> {
        let of = |count: u8| {
            let head = format!("*{count}\r\n");
            resp3::integers(&[head.as_bytes(), replies].concat())
        };
        let numbers = of(1).or_else(|| of(2))?;
        Some(Keys {
            total: *numbers.first()?,
            expiring: numbers.get(1).copied().unwrap_or(0),
        })
    }
}

impl Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As with Redis, 0 says that the mean of the times to live is not known. Programs that read
        // INFO look for all three.
        let Keys { total, expiring } = self;
        write!(f, "keys={total},expires={expiring},avg_ttl=0")
    }
}

/// Collects the sections that the client requested, and drops the fields of other sections.
#[derive(Debug)]
pub struct InfoWriter {
    text: String,
    /// In lower case; empty means all.
    wanted: Vec<String>,
    in_wanted: bool,
}

impl InfoWriter {
    /// A writer for the sections named by a client; for all sections if it names none, or `all`,
    /// `default` or `everything`.
    pub fn new<'a>(sections: impl Iterator<Item = &'a [u8]>) -> InfoWriter {
        let mut wanted: Vec<_> = sections
            .map(|name| String::from_utf8_lossy(name).to_lowercase())
            .collect();
        if wanted
            .iter()
            .any(|name| matches!(name.as_str(), "all" | "default" | "everything"))
        {
            wanted.clear();
        }
        InfoWriter {
            text: String::new(),
            wanted,
            in_wanted: false,
        }
    }

    /// Starts a section.
    pub fn section(&mut self, name: &str) -> &mut Self {
        self.in_wanted = self.wanted.is_empty()
            || self
                .wanted
                .iter()
                .any(|wanted| wanted.eq_ignore_ascii_case(name));
        if self.in_wanted {
            let gap = if self.text.is_empty() { "" } else { "\r\n" };
            self.push(format_args!("{gap}# {name}\r\n"));
        }
        self
    }

    /// Adds a line to the current section.
    pub fn field(&mut self, key: &str, value: impl Display) -> &mut Self {
        if self.in_wanted {
            self.push(format_args!("{key}:{value}\r\n"));
        }
        self
    }

    /// Whether none of the requested sections exist.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes any text");
    }
}
