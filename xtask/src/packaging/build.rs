//! The program for packages. Equal sources and equal tools give equal bytes: no path of this
//! machine and no time is in it. It carries the list of the crates that it is built from, which
//! `cargo audit bin` and scanners of images read.

use super::{Done, finish, floor, package, program, require_subcommand, size, source_time};
use crate::repository;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shells whose completions packages contain, and where these expect them below `/usr/share`.
const SHELLS: &[(&str, &str)] = &[
    ("bash", "bash-completion/completions/ionian"),
    ("zsh", "zsh/vendor-completions/_ionian"),
    ("fish", "fish/vendor_completions.d/ionian.fish"),
];

/// Builds the program, its manual pages and its completions.
pub(super) fn dist() -> Done {
    require_subcommand("auditable")?;
    let root = repository();
    let target = crate::target();
    let mut command = crate::cargo();
    command
        .args(["auditable", "build", "--locked", "--profile", "dist"])
        .args([
            "--package",
            "ionian-cli",
            "--features",
            "mount",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(&root)
        .env("CARGO_INCREMENTAL", "0")
        // The compiler of the allocator, which is C, writes the time into the program.
        .env("SOURCE_DATE_EPOCH", source_time()?)
        .env("CARGO_ENCODED_RUSTFLAGS", remapped()?.join("\x1f"))
        .env(
            "CFLAGS",
            format!("-ffile-prefix-map={}=/cargo", cargo_home()?.display()),
        )
        .env_remove("RUSTFLAGS");
    finish(&mut command, "https://rustup.rs installs it")?;
    fs::copy(target.join("dist/ionian"), package("ionian")?)?;
    let program = program()?;
    names_no_place(&program)?;
    floor::check(&program)?;
    finish(
        Command::new(&program).arg("man").arg(package("share/man")?),
        "it has just been built",
    )?;
    for (shell, place) in SHELLS {
        let completions = Command::new(&program)
            .args(["completions", shell])
            .output()?;
        if !completions.status.success() {
            return Err(format!("ionian completions {shell} failed").into());
        }
        fs::write(package(&format!("share/{place}"))?, completions.stdout)?;
    }
    eprintln!("==> {}: {}", program.display(), size(&program)?);
    Ok(())
}

/// Two builds in two places are equal only if the program names none.
fn names_no_place(program: &Path) -> Done {
    let bytes = fs::read(program)?;
    for place in [repository(), cargo_home()?] {
        let name = place.as_os_str().as_encoded_bytes();
        if bytes.windows(name.len()).any(|it| it == name) {
            return Err(format!("the program names {}", place.display()).into());
        }
    }
    Ok(())
}

fn cargo_home() -> Done<PathBuf> {
    let stated = env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    stated
        .or_else(usual)
        .ok_or_else(|| "neither CARGO_HOME nor HOME is set".into())
}

/// Flags of rustc that replace the paths of this machine.
fn remapped() -> Done<Vec<String>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let names = [
        (cargo_home()?, "/cargo"),
        (sysroot, "/rust"),
        (repository(), "/ionian"),
    ];
    let remap =
        |(path, name): (PathBuf, &str)| format!("--remap-path-prefix={}={name}", path.display());
    Ok(names.map(remap).into())
}
