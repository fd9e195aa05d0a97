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

/// Its neighbours would have to be emulated, which the bench does protocol by protocol.
#[test]
fn bench_role_lists_the_roles_that_it_can_measure() {
    let output = run(&["bench", "role", "oracle", "--preset", "toy-pair"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("role \"oracle\": must be leader"), "{error}");
}
