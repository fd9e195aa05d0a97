//! The rpm package. It has the files of the Debian package, which `crates/cli/Cargo.toml` lists.

use super::{Done, crates, deb, finish, package, require_subcommand, size, source_time};
use crate::repository;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Folders that other systems than Debian have elsewhere.
const ELSEWHERE: &[(&str, &str)] = &[(
    "/usr/share/zsh/vendor-completions/",
    "/usr/share/zsh/site-functions/",
)];

/// Folders of documentation.
const DOCUMENTATION: [&str; 2] = ["/usr/share/doc/", "/usr/share/man/"];

/// What is added to `package.metadata.generate-rpm`.
#[derive(Debug, PartialEq, Serialize)]
struct Added {
    assets: Vec<Asset>,
}

/// A file, or those that a pattern matches.
#[derive(Debug, PartialEq, Serialize)]
struct Asset {
    source: String,
    dest: String,
    mode: String,
    /// Whether an installation without documentation leaves it out.
    doc: bool,
}

/// Makes the package of the program that `dist` has built.
pub(super) fn rpm() -> Done {
    require_subcommand("generate-rpm")?;
    deb::documents()?;
    let root = repository();
    let metadata = crates::metadata_of("ionian-cli")?;
    let added = Added {
        assets: assets(&metadata["deb"], &root.join("crates/cli"))?,
    };
    let file = package("rpm.toml")?;
    fs::write(&file, toml::to_string(&added)?)?;
    let path = package("ionian.rpm")?;
    let mut command = crate::cargo();
    command
        .args(["generate-rpm", "--package", "crates/cli"])
        .args(["--auto-req", "builtin", "--metadata-overwrite"])
        .arg(&file)
        .arg("--output")
        .arg(&path)
        .current_dir(&root)
        .env("SOURCE_DATE_EPOCH", source_time()?);
    finish(&mut command, "https://rustup.rs installs it")?;
    eprintln!("==> {}: {}", path.display(), size(&path)?);
    Ok(())
}

/// The files of the Debian package, whose sources are named from this folder.
fn assets(deb: &Value, folder: &Path) -> Done<Vec<Asset>> {
    let wrong = "crates/cli/Cargo.toml: package.metadata.deb.assets must be lists of three texts";
    let source = |text: &str| folder.join(text).display().to_string();
    let asset = |source: String, dest: String, mode: &str| Asset {
        source,
        doc: DOCUMENTATION.iter().any(|it| dest.starts_with(it)),
        dest,
        mode: mode.to_owned(),
    };
    let mut assets = Vec::new();
    for listed in deb["assets"].as_array().ok_or(wrong)? {
        let text = |index: usize| listed[index].as_str().ok_or(wrong);
        let mut dest = format!("/{}", text(1)?);
        for (there, here) in ELSEWHERE {
            dest = dest.replace(there, here);
        }
        assets.push(asset(source(text(0)?), dest, text(2)?));
    }
    // Debian's tool adds this one by itself.
    let licence = source(deb["license-file"][0].as_str().ok_or(wrong)?);
    let dest = "/usr/share/doc/ionian/copyright".to_owned();
    assets.push(asset(licence, dest, "644"));
    Ok(assets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asset(source: &str, dest: &str, mode: &str) -> Asset {
        let [source, dest, mode] = [source, dest, mode].map(str::to_owned);
        let doc = dest.contains("/doc/");
        Asset {
            source,
            dest,
            mode,
            doc,
        }
    }

    #[test]
    fn the_files_are_those_of_the_debian_package_and_its_copyright() {
        let deb = serde_json::json!({
            "license-file": ["doc/copyright", "0"],
            "assets": [
                ["program", "usr/bin/", "755"],
                ["_program", "usr/share/zsh/vendor-completions/", "644"],
            ],
        });
        let expected = [
            asset("/src/program", "/usr/bin/", "755"),
            asset("/src/_program", "/usr/share/zsh/site-functions/", "644"),
            asset(
                "/src/doc/copyright",
                "/usr/share/doc/ionian/copyright",
                "644",
            ),
        ];
        assert_eq!(assets(&deb, Path::new("/src")).unwrap(), expected);
        let wrong = serde_json::json!({ "assets": [["program", "usr/bin/"]] });
        let error = assets(&wrong, Path::new("/src")).unwrap_err().to_string();
        assert!(error.contains("lists of three texts"), "{error}");
    }
}
