//! Writes the sources of this crate: those of `ionian-protocols`, changed as the patches say.

mod patch;

use patch::{Patch, apply};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// What to do when a patch does not apply.
const ADVICE: &str = "\
A canary is a defect that is built into a copy of the protocols on purpose, to test the tests
(CONTRIBUTING.md, \"Adding a canary\"). If you changed these lines, build the same defect into the
lines as they are now. If they are in another file, name that one. If the mistake cannot be made any
more, remove the patch, its row in docs/defects.md and its test.";

fn main() {
    let home = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("protocols");
    let (originals, patches) = (home.join("../protocols/src"), home.join("patches"));
    // The copy has the conditions of the original, and not its features.
    println!(r#"cargo::rustc-check-cfg=cfg(feature, values(any()))"#);
    for folder in ["build", "patches", "../protocols/src"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let mut files = read(&originals, &originals);
    let (canaries, inherited, mut errors) = parse(&patches);
    if let Err(more) = apply(&mut files, &canaries) {
        errors.extend(more);
    }
    let root = files
        .remove("lib.rs")
        .expect("crates/protocols has a lib.rs");
    let root = match errors.is_empty() {
        true => without_head(&root).to_owned() + &table(&canaries, &inherited),
        false => complaints(&errors),
    };
    files.insert("lib.rs".to_owned(), root);
    if out.exists() {
        fs::remove_dir_all(&out).expect("the folder of an earlier build can be removed");
    }
    for (file, text) in files {
        let path = out.join(file);
        let folder = path.parent().expect("it is in a folder");
        fs::create_dir_all(folder).expect("a folder in OUT_DIR");
        fs::write(&path, text).expect("a file in OUT_DIR");
    }
}

/// All files below `folder`, by their path relative to `root`.
fn read(folder: &Path, root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(read(&path, root));
            continue;
        }
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(root).expect("it is below the root");
        let parts: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
        files.insert(parts.join("/"), text);
    }
    files
}

/// The patches; which protocol has the roles, and so the canaries, of which other; and what is
/// wrong with files.
fn parse(folder: &Path) -> (Vec<Patch>, Vec<(String, String)>, Vec<String>) {
    let (mut patches, mut inherited, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (file, text) in read(folder, folder) {
        if let Some(protocol) = file.strip_suffix("/inherits") {
            let of = text.split_whitespace();
            inherited.extend(of.map(|of| (protocol.to_owned(), of.to_owned())));
            continue;
        }
        let Some(id) = file.strip_suffix(".patch") else {
            errors.push(format!("{file}: not a patch (PROTOCOL/NAME.patch)"));
            continue;
        };
        match Patch::parse(id, &text) {
            Ok(patch) => patches.push(patch),
            Err(error) => errors.push(format!("{file}: {error}")),
        }
    }
    (patches, inherited, errors)
}

/// What a crate's root says of itself is not allowed where it is included.
fn without_head(root: &str) -> &str {
    let is_head = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with("//!") || line.starts_with("#![")
    };
    let head = root.split_inclusive('\n').take_while(|line| is_head(line));
    &root[head.map(str::len).sum::<usize>()..]
}

/// The list of canaries.
fn table(canaries: &[Patch], inherited: &[(String, String)]) -> String {
    let mut text = "const CANARIES: &[canary::Canary] = &[\n".to_owned();
    for patch in canaries {
        let (protocol, name) = patch.id.split_once('/').expect("a folder and a name");
        let set = patch.declared.get("set").cloned().unwrap_or_default();
        let _ = writeln!(
            text,
            "canary::Canary {{ id: {:?}, protocol: {protocol:?}, name: {name:?}, defect: {:?}, \
             is_published: {}, preset: {:?}, set: &{set:?}, durability: {:?}, changes: {}, \
             seeds: {:?} }},",
            patch.id,
            patch.defect,
            patch.declared("origin") == Some("published"),
            patch.declared("preset"),
            patch.declared("durability"),
            patch.declared("changes") == Some("yes"),
            patch.declared("seeds"),
        );
    }
    let _ = writeln!(
        text,
        "];\nconst INHERITED: &[(&str, &str)] = &{inherited:?};"
    );
    text
}

/// Errors of the compiler, in place of the protocols: what to do is in the last.
fn complaints(errors: &[String]) -> String {
    let errors = errors.iter().enumerate().map(|(number, error)| {
        let advice = match number + 1 == errors.len() {
            true => format!("\n\n{ADVICE}"),
            false => String::new(),
        };
        let text = format!("crates/canaries/patches/{error}{advice}");
        format!("compile_error!({text:?});\n")
    });
    errors.collect::<String>()
        + "const CANARIES: &[canary::Canary] = &[];\nconst INHERITED: &[(&str, &str)] = &[];\n"
}
