//! The protocol `toy` (crates/protocols/tests/toy) came in through the registry alone.

use crate::bench::role;
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
fn its_roles_are_measured() {
    let [demand] = &role(&["oracle"])[..] else {
        panic!("one measurement")
    };
    assert_eq!(demand["deployment"], "toy-pair", "{demand}");
    // Both answers of the preset leave, one for all commands that came together.
    assert!(demand["messages_out"].as_f64().unwrap() > 0.0, "{demand}");
    assert_eq!(role(&["all", "--preset", "toy-pair"]).len(), 1);
}
