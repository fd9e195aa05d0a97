//! See `cargo xtask torture --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ionian_torture::torture()
}
