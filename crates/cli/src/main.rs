//! The command `ionian`.
fn main() {}
