//! One-command gates.
fn main() {}
