//! The trace that a command is a part of, as its client gives it.

use core::fmt;

/// A `traceparent` (W3C Trace Context, section 3.2): a trace and the span within it that the
/// command belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not zero.
    pub trace: u128,
    /// The span; not zero.
    pub span: u64,
}

impl TraceParent {
    /// Reads `VERSION-TRACE-SPAN-FLAGS` in lower-case hexadecimal. Later versions may have more
    /// fields. None if it is no `traceparent`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let mut fields = text.splitn(5, |byte| *byte == b'-');
        let mut field = |length| {
            let field = fields.next()?;
            let is_right = field.len() == length && field.iter().all(is_hex);
            core::str::from_utf8(field).ok().filter(|_| is_right)
        };
        let (version, trace, span, _flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let has_more = fields.next().is_some();
        if version == "ff" || version == "00" && has_more {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let span = u64::from_str_radix(span, 16).ok()?;
        (trace != 0 && span != 0).then_some(TraceParent { trace, span })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceParent { trace, span } = self;
        // Sampled: it is traced.
        write!(f, "00-{trace:032x}-{span:016x}-01")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_traceparent_is_read_and_written_and_nothing_else_is() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = TraceParent::parse(text.as_bytes()).expect("that of the standard");
        assert_eq!(read.span, 0x00f0_67aa_0ba9_02b7);
        assert_eq!(read.to_string(), text);
        let later = text.replace("00-4", "cc-4") + "-more";
        assert_eq!(TraceParent::parse(later.as_bytes()), Some(read));
        for wrong in [
            "",
            "00",
            &text[1..],
            &text.replace("00-4", "ff-4"),
            &text.replace('a', "A"),
            &text.replace('a', "+"),
            &(text.to_string() + "-more"),
            &text.replace("00f067aa0ba902b7", "0000000000000000"),
        ] {
            assert_eq!(TraceParent::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
