//! How patches are read and applied, and how those are refused that do not fit.

#[path = "../build/patch.rs"]
mod patch;

use patch::{Patch, apply};
use std::collections::BTreeMap;

const SOURCE: &str = "fn f() {\n    one();\n    two();\n    one();\n}\n";

fn sources() -> BTreeMap<String, String> {
    let other = "fn g() {\n    three();\n}\n";
    [("a.rs", SOURCE), ("b.rs", other)]
        .map(|(file, text)| (file.to_owned(), text.to_owned()))
        .into()
}

fn patch(id: &str, hunks: &str) -> Patch {
    Patch::parse(id, &format!("It is wrong.\n\norigin: ours\n\n{hunks}")).expect("a patch")
}

fn applied(patches: &[Patch]) -> Result<String, Vec<String>> {
    let mut sources = sources();
    apply(&mut sources, patches).map(|()| sources.remove("a.rs").expect("it was there"))
}

fn refused(text: &str) -> String {
    Patch::parse("p/x", text).expect_err("not a patch")
}

#[test]
fn a_patch_says_what_is_wrong_and_what_shows_it() {
    let text = "It is\nwrong.\n\norigin: ours\nset: a=1\nset: b=2\n\n@@ a.rs\n     two();\n+    if CANARY {}\n\n";
    let patch = Patch::parse("p/x", text).expect("a patch");
    assert_eq!(patch.defect, "It is wrong.");
    assert_eq!(patch.declared("origin"), Some("ours"));
    assert_eq!(patch.declared["set"], ["a=1", "b=2"]);
    assert_eq!(patch.declared("seeds"), None);
    assert_eq!(patch.hunks.len(), 1);
    assert_eq!(
        patch.hunks[0].lines.len(),
        2,
        "blank lines at the end are no context"
    );
}

#[test]
fn all_patches_speak_of_the_source_as_it_was() {
    let one = patch(
        "p/x",
        "@@ a.rs\n     one();\n-    two();\n+    if !CANARY { two(); }\n",
    );
    let two = patch(
        "p/y",
        "@@ a.rs\n     two();\n+    if CANARY { return; }\n     one();\n",
    );
    let expected = "fn f() {\n    one();\n    if !crate::canary::is(\"p/x\") { two(); }\n    \
                    if crate::canary::is(\"p/y\") { return; }\n    one();\n}\n";
    assert_eq!(
        applied(&[one.clone(), two.clone()]).as_deref(),
        Ok(expected)
    );
    assert_eq!(applied(&[two, one]).as_deref(), Ok(expected));
}

#[test]
fn lines_that_are_missing_elsewhere_or_not_unique_are_errors() {
    let errors = |hunks: &str| {
        applied(&[patch("p/x", hunks)])
            .expect_err("does not fit")
            .join("\n")
    };
    assert_eq!(
        errors("@@ a.rs\n-    four();\n+    CANARY;\n"),
        "p/x.patch: line 5: these lines are not in a.rs:\n        four();"
    );
    assert_eq!(
        errors("@@ a.rs\n-    three();\n+    CANARY;\n"),
        "p/x.patch: line 5: these lines are not in a.rs:\n        three();\n  they are in b.rs"
    );
    assert_eq!(
        errors("@@ a.rs\n-    one();\n+    CANARY;\n"),
        "p/x.patch: line 5: these lines are in a.rs 2 times; add lines around them that stay:\n        one();"
    );
    assert_eq!(
        errors("@@ c.rs\n-    one();\n+    CANARY;\n"),
        "p/x.patch: line 5: there is no file c.rs"
    );
}

#[test]
fn every_patch_that_does_not_fit_is_reported() {
    let hunk = "@@ a.rs\n-    four();\n+    CANARY;\n";
    let errors = applied(&[patch("p/x", hunk), patch("p/y", hunk)]).expect_err("neither fits");
    assert_eq!(errors.len(), 2);
}

#[test]
fn two_patches_may_not_change_the_same_line() {
    let hunk = "@@ a.rs\n-    two();\n+    CANARY;\n";
    assert_eq!(
        applied(&[patch("p/x", hunk), patch("p/y", hunk)]),
        Err(vec![
            "p/y.patch: line 5: p/x.patch changes line 3 of a.rs as well".to_owned()
        ])
    );
}

#[test]
fn a_change_that_would_be_there_without_the_canary_is_refused() {
    let error = refused("It is wrong.\n\n@@ a.rs\n-    two();\n+    three();\n");
    assert!(
        error.starts_with("line 3: no line that comes asks CANARY"),
        "{error}"
    );
}

#[test]
fn what_is_not_a_patch_is_refused_with_the_line_and_what_is_allowed() {
    for (text, error) in [
        ("", "a patch is a paragraph with the defect"),
        ("It is wrong.\n", "a patch is a paragraph with the defect"),
        (
            "It is wrong.\n\nfrom: me\n",
            "line 3: \"from: me\" declares nothing; known are:\n  origin: ",
        ),
        (
            "It is wrong.\n\nseeds: 1..2\nseeds: 1..3\n",
            "line 4: \"seeds\" is declared twice",
        ),
        (
            "It is wrong.\n\n@@ a.rs\ntwo();\n",
            "line 4: \"two();\" starts neither with a blank",
        ),
        (
            "It is wrong.\n\n@@ a.rs\n+CANARY\n",
            "line 3: no line that stays or goes",
        ),
    ] {
        let refusal = refused(text);
        assert!(refusal.starts_with(error), "{refusal}");
    }
}
