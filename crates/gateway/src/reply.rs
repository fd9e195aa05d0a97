//! The encodings of the gateway's own replies, in the client's protocol.

use crate::host::{Client, Host};
use std::fmt::{Display, Write};

/// The context in which one of the gateway's own commands runs.
pub(crate) struct Context<'a> {
    pub(crate) host: &'a Host,
    pub(crate) client: &'a Client,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Context<'_> {
    pub(crate) fn ok(&mut self) {
        self.simple("OK");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line('+', text);
    }

    /// An error; `text` starts with its code.
    pub(crate) fn error(&mut self, text: impl Display) {
        let start = self.out.len();
        error(self.out, text);
        self.host.usage.error(&self.out[start + 1..]);
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(':', value);
    }

    pub(crate) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.line('$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        let null: &[u8] = if self.client.resp3.get() {
            b"_\r\n"
        } else {
            b"$-1\r\n"
        };
        self.out.extend_from_slice(null);
    }

    /// The head of a message without a request; its elements follow. Only for RESP3.
    pub(crate) fn push(&mut self, len: usize) {
        self.line('>', len);
    }

    /// The head of an array; its elements follow.
    pub(crate) fn array(&mut self, len: usize) {
        self.line('*', len);
    }

    /// The head of a set; its elements follow.
    pub(crate) fn set(&mut self, len: usize) {
        self.line(if self.client.resp3.get() { '~' } else { '*' }, len);
    }

    /// The head of a map; its keys and values follow in turn.
    pub(crate) fn map(&mut self, len: usize) {
        if self.client.resp3.get() {
            self.line('%', len)
        } else {
            self.line('*', 2 * len)
        }
    }

    /// Text for people.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !self.client.resp3.get() {
            return self.bulk(text);
        }
        self.line('=', text.len() + 4);
        self.line_of(format_args!("txt:{text}"));
    }

    pub(crate) fn wrong_number(&mut self, command: impl Display) {
        self.error(format_args!(
            "ERR wrong number of arguments for '{command}' command"
        ));
    }

    pub(crate) fn unknown_subcommand(&mut self, command: &str, name: &[u8]) {
        let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
        self.error(format_args!(
            "ERR unknown subcommand '{name}'. Try {command} HELP."
        ));
    }

    /// The lines of HELP.
    pub(crate) fn help(&mut self, lines: &[&str]) {
        self.array(lines.len());
        lines.iter().for_each(|line| self.simple(line));
    }

    fn line(&mut self, kind: char, value: impl Display) {
        self.line_of(format_args!("{kind}{value}"));
    }

    fn line_of(&mut self, text: std::fmt::Arguments<'_>) {
        Text(self.out)
            .write_fmt(text)
            .expect("a vector takes any bytes");
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends an error reply. A line break would end it early, so it becomes a space.
pub(crate) fn error(out: &mut Vec<u8>, text: impl Display) {
    out.push(b'-');
    let start = out.len();
    write!(Text(out), "{text}").expect("a vector takes any bytes");
    out[start..]
        .iter_mut()
        .filter(|byte| matches!(byte, b'\r' | b'\n'))
        .for_each(|byte| *byte = b' ');
    out.extend_from_slice(b"\r\n");
}

/// Formats text into the buffer without a temporary string.
struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
