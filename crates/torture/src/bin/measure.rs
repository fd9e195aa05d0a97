//! See `--help` of `cargo xtask soak`, `cargo xtask restart-time`, `cargo xtask group-commit` and
//! `cargo xtask burden`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ionian_torture::measure()
}
