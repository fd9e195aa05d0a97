//! The protocol `toy` (crates/protocols/tests/toy) came in through the registry alone.

use crate::common::text;
use crate::run;

#[test]
fn it_is_simulated() {
    for durability in ["disk", "memory"] {
        let arguments = ["sim", "--preset", "toy-pair", "--durability", durability];
        let output = run(&[&arguments[..], &["--seeds", "0..30"]].concat());
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{durability}: {said}{error}");
    }
}

#[test]
fn what_is_written_for_some_protocols_only_says_so() {
    let output = run(&["bench", "role", "--preset", "toy-pair"]);
    let error = text(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("toy"), "{error}");
}
