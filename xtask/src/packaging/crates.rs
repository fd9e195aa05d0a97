//! The crates that the program is built from: a list for tools (`sbom`), and their licences
//! for people (`copyright`).

use super::{Done, finish, package, printed, require_subcommand};
use crate::repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The name of the list below a package, as `cargo cyclonedx` writes it.
const LIST: &str = "ionian.cdx";

/// Writes a bill of materials (CycloneDX) of the program.
pub(super) fn sbom() -> Done {
    require_subcommand("cyclonedx")?;
    let root = repository();
    let mut command = crate::cargo();
    command
        .args(["cyclonedx", "--format", "json", "--spec-version", "1.5"])
        .args([
            "--no-build-deps",
            "--override-filename",
            LIST,
            "--manifest-path",
        ])
        .arg(root.join("crates/cli/Cargo.toml"));
    finish(&mut command, "https://rustup.rs installs it")?;
    // It writes one beside the manifest of each package of the workspace.
    let mut folders = vec![root.join("xtask")];
    for entry in fs::read_dir(root.join("crates"))? {
        folders.push(entry?.path());
    }
    let mut written = None;
    for folder in folders {
        let path = folder.join(format!("{LIST}.json"));
        if folder.ends_with("crates/cli") {
            written = Some(fs::read_to_string(&path)?);
        }
        if path.is_file() {
            fs::remove_file(&path)?;
        }
    }
    let written = written.ok_or("cargo cyclonedx has written no list for crates/cli")?;
    let mut list = without_place(serde_json::from_str(&written)?, &root);
    let linked = linked()?;
    keep(&mut list, &linked);
    if let Some((name, version)) = missing(&list, &linked) {
        return Err(format!("cargo cyclonedx does not list {name} {version}").into());
    }
    let path = package("ionian.cdx.json")?;
    fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")?;
    let count = list["components"].as_array().map_or(0, Vec::len);
    eprintln!("==> {}: {count} crates", path.display());
    Ok(())
}

/// The list without time, number and path of this run, so that equal sources give equal bytes.
fn without_place(mut list: Value, root: &Path) -> Value {
    if let Some(fields) = list.as_object_mut() {
        fields.remove("serialNumber");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("timestamp");
        }
        if let Some(components) = fields.get_mut("components").and_then(Value::as_array_mut) {
            components.sort_by_key(|component| component["bom-ref"].to_string());
        }
    }
    let place = root.display().to_string();
    replace(&mut list, &place);
    list
}

/// Keeps what is linked: not the crates that only the compiler has run.
fn keep(list: &mut Value, linked: &BTreeSet<Crate>) {
    let mut refs = BTreeSet::new();
    if let Some(components) = list["components"].as_array_mut() {
        components.retain(|component| linked.contains(&crate_of(component)));
        refs.extend(
            components
                .iter()
                .map(|it| text_of(&it["bom-ref"]).to_owned()),
        );
    }
    refs.insert(text_of(&list["metadata"]["component"]["bom-ref"]).to_owned());
    if let Some(dependencies) = list["dependencies"].as_array_mut() {
        dependencies.retain(|one| refs.contains(text_of(&one["ref"])));
        for on in dependencies
            .iter_mut()
            .filter_map(|one| one.get_mut("dependsOn")?.as_array_mut())
        {
            on.retain(|one| refs.contains(text_of(one)));
        }
    }
}

/// A crate that is linked and not listed.
fn missing(list: &Value, linked: &BTreeSet<Crate>) -> Option<Crate> {
    let components = list["components"].as_array().into_iter().flatten();
    let mut listed: BTreeSet<Crate> = components.map(crate_of).collect();
    listed.insert(crate_of(&list["metadata"]["component"]));
    linked.difference(&listed).next().cloned()
}

/// Replaces a path in every text.
fn replace(value: &mut Value, place: &str) {
    match value {
        Value::String(text) => *text = text.replace(place, "/ionian"),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, place)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The licences of the program and of all crates in it, in the format of Debian's packages.
pub(super) fn copyright() -> Done<String> {
    let mut text = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ionian

Files: *
Copyright: the Ionian contributors
License: Apache-2.0

License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

Comment:
 The program contains these crates, each with its licence:
"
    .to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in foreign()? {
        let (name, version) = (text_of(&package["name"]), text_of(&package["version"]));
        let _ = writeln!(text, " {name} {version}: {}", text_of(&package["license"]));
        let manifest = Path::new(text_of(&package["manifest_path"]));
        for notice in notices(manifest.parent().unwrap_or(manifest))? {
            texts.entry(notice).or_default().push(name.to_owned());
        }
    }
    for (notice, names) in texts {
        let _ = write!(text, " .\n Of {}:\n .\n", names.join(", "));
        for line in notice.lines().map(str::trim_end) {
            let _ = writeln!(text, " {}", if line.is_empty() { "." } else { line });
        }
    }
    Ok(text)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A name and a version.
type Crate = (String, String);

fn crate_of(value: &Value) -> Crate {
    let text = |key: &str| text_of(&value[key]).to_owned();
    (text("name"), text("version"))
}

/// The crates that the program links.
fn linked() -> Done<BTreeSet<Crate>> {
    let root = repository();
    let mut command = crate::cargo();
    command
        .args(["tree", "--package", "ionian-cli", "--prefix", "none"])
        .args(["--edges", "normal,no-proc-macro", "--format", "{p}"]);
    let tree = printed(command.current_dir(root))?;
    let crates = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
    });
    Ok(crates.collect())
}

/// What cargo knows of all crates.
fn packages() -> Done<Vec<Value>> {
    let metadata = ["metadata", "--locked", "--format-version", "1"];
    let metadata = printed(crate::cargo().args(metadata).current_dir(repository()))?;
    let mut metadata: Value = serde_json::from_str(&metadata)?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata lists no packages".into()),
    }
}

/// The table `package.metadata` of a crate of ours.
pub(super) fn metadata_of(name: &str) -> Done<Value> {
    let packages = packages()?;
    let found = packages.into_iter().find(|it| it["name"] == name);
    match found {
        Some(mut package) => Ok(package["metadata"].take()),
        None => Err(format!("there is no crate {name}").into()),
    }
}

/// What cargo knows of the crates of others that the program links, by name and version.
fn foreign() -> Done<Vec<Value>> {
    let linked = linked()?;
    let mut packages = packages()?;
    packages.retain(|package| !package["source"].is_null() && linked.contains(&crate_of(package)));
    match packages.is_empty() {
        true => Err("cargo lists no crates of the program".into()),
        false => Ok(packages),
    }
}

/// The texts of a crate's licences, but for the one that every system has.
fn notices(folder: &Path) -> Done<Vec<String>> {
    let mut notices = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        let is_notice = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "COPYRIGHT",
            "NOTICE",
            "UNLICENSE",
        ]
        .iter()
        .any(|start| name.starts_with(start));
        if is_notice && !name.contains("APACHE") && path.is_file() {
            notices.push(String::from_utf8_lossy(&fs::read(&path)?).into_owned());
        }
    }
    notices.retain(|notice| !notice.contains("Version 2.0, January 2004"));
    notices.sort_unstable();
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_list_has_no_time_and_no_path_and_is_sorted() {
        let list = json!({
            "serialNumber": "urn:uuid:1",
            "metadata": { "timestamp": "now", "component": { "purl": "file:///home/me/src" } },
            "components": [{ "bom-ref": "b" }, { "bom-ref": "a" }],
        });
        let expected = json!({
            "metadata": { "component": { "purl": "file:///ionian" } },
            "components": [{ "bom-ref": "a" }, { "bom-ref": "b" }],
        });
        assert_eq!(without_place(list, Path::new("/home/me/src")), expected);
    }

    #[test]
    fn a_crate_that_only_the_compiler_has_run_is_not_listed() {
        let component = |name: &str| json!({ "bom-ref": name, "name": name, "version": "1" });
        let mut list = json!({
            "metadata": { "component": component("program") },
            "components": [component("linked"), component("derive"), component("leaf")],
            "dependencies": [
                { "ref": "program", "dependsOn": ["derive", "linked"] },
                { "ref": "linked", "dependsOn": ["derive"] },
                { "ref": "derive" },
                { "ref": "leaf" },
            ],
        });
        let linked = ["linked", "leaf"].map(|name| (name.to_owned(), "1".to_owned()));
        let mut linked = linked.into();
        keep(&mut list, &linked);
        assert_eq!(missing(&list, &linked), None);
        let unlisted = ("unlisted".to_owned(), "1".to_owned());
        linked.insert(unlisted.clone());
        assert_eq!(missing(&list, &linked), Some(unlisted));
        let expected = json!({
            "metadata": { "component": component("program") },
            "components": [component("linked"), component("leaf")],
            "dependencies": [
                { "ref": "program", "dependsOn": ["linked"] },
                { "ref": "linked", "dependsOn": [] },
                { "ref": "leaf" },
            ],
        });
        assert_eq!(list, expected);
    }
}
