//! See `cargo xtask soak --help`, `cargo xtask restart-time --help` and `cargo xtask group-commit --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ionian_torture::measure()
}
