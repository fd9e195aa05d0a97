//! `cargo xtask try-packages`: what `deb` and `image` have made is looked at, installed and run.
//! What a tool that is absent would show is left out, and said.

use super::{Done, finish, floor, image, package, printed, program, scripts};
use crate::absent;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release of Debian that the package is installed on.
const DEBIAN: &str = "bookworm";
/// What a small image has that has no systemd, but the parts that the package calls.
const INCLUDED: &str = "--include=systemd-standalone-sysusers,systemd-standalone-tmpfiles";

/// The largest image, in bytes: a bound that a debug build or a forgotten file exceeds.
const IMAGE_LIMIT: u64 = 30_000_000;

/// Tries the packages that are there.
pub(super) fn run() -> Done {
    floor::check(&program()?)?;
    let deb = made("ionian.deb", "deb")?;
    lintian(&deb)?;
    debian(&deb)?;
    let image = made("image", "image")?;
    same_bytes(&image)?;
    describes_itself(&image)?;
    runs(&image)
}

/// What a command before this one has made.
fn made(name: &str, command: &str) -> Done<PathBuf> {
    let path = package(name)?;
    match path.exists() {
        true => Ok(path),
        false => {
            let path = path.display();
            Err(format!("there is no {path}: cargo xtask {command} makes it").into())
        }
    }
}

/// Whether these tools are here; if not, says what is not tried.
fn can(what: &str, tools: &[&str]) -> bool {
    let lacking = tools.iter().find(|tool| !absent::has(tool));
    match lacking {
        Some(tool) => eprintln!("==> NOT TRIED: {what}. {tool} is not installed"),
        None => eprintln!("==> {what}"),
    }
    lacking.is_none()
}

/// The same for what needs namespaces of its own.
fn can_separate(what: &str, tools: &[&str]) -> bool {
    let mut probe = separate();
    let probe = probe.arg("true").stderr(Stdio::null()).status();
    if probe.is_ok_and(|it| it.success()) {
        return can(what, tools);
    }
    eprintln!("==> NOT TRIED: {what}. Namespaces cannot be made here: it takes root");
    false
}

/// A command with mounts, a network and processes of its own, which end with it.
fn separate() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command
}

/// An empty folder of this name, which is replaced by the next run.
fn folder(name: &str) -> Done<PathBuf> {
    let path = package("try")?.join(name);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs::create_dir_all(&path)?;
    Ok(path)
}

fn lintian(deb: &Path) -> Done {
    if !can("lintian finds no error in the package", &["lintian"]) {
        return Ok(());
    }
    let mut command = Command::new("lintian");
    command
        .args(["--allow-root", "--fail-on", "error"])
        .arg(deb);
    finish(&mut command, "")
}

/// Installs, upgrades and purges the package while its node runs.
fn debian(deb: &Path) -> Done {
    let what = "the package is installed, upgraded and purged";
    if !can_separate(what, &["debootstrap", "dpkg-deb", "ip", "setpriv"]) {
        return Ok(());
    }
    let root = folder("debian")?;
    let mut command = Command::new("debootstrap");
    command
        .args(["--variant=minbase", INCLUDED, DEBIAN])
        .arg(&root);
    finish(command.stdout(Stdio::null()), "")?;
    fs::copy(deb, root.join("given.deb"))?;
    newer(deb, &root.join("newer.deb"))?;
    fs::write(root.join("try.sh"), scripts::DEBIAN)?;
    let inside = "ip link set lo up && exec chroot \"$1\" sh /try.sh";
    finish(separate().args(["sh", "-c", inside, "sh"]).arg(&root), "")?;
    Ok(fs::remove_dir_all(root)?)
}

/// The same package with a higher version.
fn newer(deb: &Path, to: &Path) -> Done {
    let folder = folder("newer")?;
    finish(Command::new("dpkg-deb").arg("-R").arg(deb).arg(&folder), "")?;
    let control = folder.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let lines = text
        .lines()
        .map(|line| match line.starts_with("Version: ") {
            true => "Version: 9.9.9-1\n".to_owned(),
            false => format!("{line}\n"),
        });
    fs::write(&control, lines.collect::<String>())?;
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "-Zgzip", "-b"]);
    finish(command.arg(&folder).arg(to).stdout(Stdio::null()), "")
}

/// The image that is there is the one that is made now: equal files give equal bytes.
fn same_bytes(folder: &Path) -> Done {
    eprintln!("==> the image has the same bytes when it is made again");
    let before = fs::read(folder.join("index.json"))?;
    image::image()?;
    match before == fs::read(folder.join("index.json"))? {
        true => Ok(()),
        false => Err("two images of the same program differ".into()),
    }
}

/// Another program than ours reads the image.
fn describes_itself(folder: &Path) -> Done {
    if !can("skopeo reads the image", &["skopeo"]) {
        return Ok(());
    }
    let place = format!("oci:{}:{}", folder.display(), env!("CARGO_PKG_VERSION"));
    let mut command = Command::new("skopeo");
    command.arg("inspect").arg("--config").arg(place);
    let config: Value = serde_json::from_str(&printed(&mut command)?)?;
    match config["config"]["User"] == "65532:65532" {
        true => Ok(()),
        false => Err(format!("the image runs as another user: {config}").into()),
    }
}

/// Three nodes of the image serve, and go on without one.
fn runs(image: &Path) -> Done {
    let content = Content::of(image)?;
    eprintln!("==> the image has {} bytes", content.bytes);
    if content.bytes > IMAGE_LIMIT {
        let bytes = content.bytes;
        return Err(format!("the image has {bytes} bytes; {IMAGE_LIMIT} are allowed").into());
    }
    let what = "three nodes of the image serve, without capabilities; one is killed";
    if !can_separate(what, &["bwrap", "ip", "pgrep"]) {
        return Ok(());
    }
    let (root, work) = (folder("root")?, folder("work")?);
    tar::Archive::new(fs::File::open(&content.layer)?).unpack(&root)?;
    let mut command = separate();
    command.args(["--mount-proc", "sh", "-c", scripts::IMAGE, "sh"]);
    finish(command.arg(&root).arg(&work).arg(content.program), "")?;
    fs::remove_dir_all(root)?;
    Ok(fs::remove_dir_all(work)?)
}

/// What an image says of itself.
struct Content {
    layer: PathBuf,
    program: String,
    bytes: u64,
}

impl Content {
    fn of(image: &Path) -> Done<Content> {
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap_or_default();
            image.join("blobs").join(digest.replace(':', "/"))
        };
        let read = |path: PathBuf| -> Done<Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
        let index = read(image.join("index.json"))?;
        let manifest = read(blob(&index["manifests"][0]))?;
        let config = read(blob(&manifest["config"]))?;
        let layer = blob(&manifest["layers"][0]);
        let program = config["config"]["Entrypoint"][0].as_str();
        Ok(Content {
            bytes: fs::metadata(&layer)?.len(),
            program: program.ok_or("the image runs nothing")?.to_owned(),
            layer,
        })
    }
}
