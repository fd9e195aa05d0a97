//! An image for container engines, in the layout that the OCI specifies, made without an engine.
//!
//! It has one layer: the program, the libraries that it is linked with, their loader, and an empty
//! `/data`. There is no shell. Names, owners and times are fixed, so equal files give equal bytes.

use super::{Done, package, program, size};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tar::{Builder, EntryType, Header};

/// The user that the program runs as: `nonroot` of other images.
const USER: u64 = 65532;

/// The files that are the same in every image. Names of hosts come from the file and from DNS.
const TEXTS: &[(&str, &str)] = &[
    ("etc/group", "root:x:0:\nionian:x:65532:\n"),
    ("etc/nsswitch.conf", "hosts: files dns\n"),
    (
        "etc/passwd",
        "root:x:0:0:root:/:/sbin/nologin\nionian:x:65532:65532:Ionian:/data:/sbin/nologin\n",
    ),
];

/// Writes the image of the program that `dist` has built.
pub(super) fn image() -> Done {
    let folder = package("image")?;
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let blobs = Blobs(folder.join("blobs/sha256"));
    fs::create_dir_all(&blobs.0)?;
    let layer = layer(&files(&program()?)?)?;
    let layer = blobs.add("application/vnd.oci.image.layer.v1.tar", &layer)?;
    let config = config(&layer["digest"]);
    let config = blobs.add_json("application/vnd.oci.image.config.v1+json", &config)?;
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let mut manifest = blobs.add_json(
        media_type,
        &json!({
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": config,
            "layers": [layer],
        }),
    )?;
    let name = json!({ "org.opencontainers.image.ref.name": env!("CARGO_PKG_VERSION") });
    manifest["annotations"] = name;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(folder.join("index.json"), index.to_string())?;
    fs::write(
        folder.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let digest = layer["digest"].as_str().unwrap_or_default();
    let path = blobs.0.join(digest.trim_start_matches("sha256:"));
    eprintln!("==> {}: {}, {digest}", folder.display(), size(&path)?);
    Ok(())
}

/// How an engine runs it.
fn config(layer: &Value) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/ionian"],
            "Cmd": ["--help"],
            "WorkingDir": "/data",
            "Volumes": { "/data": {} },
            "ExposedPorts": { "7379/tcp": {}, "17400/tcp": {} },
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "ionian",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [layer] },
    })
}

/// The folder of an image's parts, which are named after their content.
struct Blobs(PathBuf);

impl Blobs {
    /// Adds a part; returns its descriptor.
    fn add(&self, media_type: &str, content: &[u8]) -> Done<Value> {
        let digest = Sha256::digest(content);
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(self.0.join(&name), content)?;
        Ok(json!({
            "mediaType": media_type,
            "digest": format!("sha256:{name}"),
            "size": content.len(),
        }))
    }

    fn add_json(&self, media_type: &str, content: &Value) -> Done<Value> {
        self.add(media_type, content.to_string().as_bytes())
    }
}

/// The files of the image by their paths, from those of this machine.
fn files(program: &Path) -> Done<BTreeMap<String, (u32, Vec<u8>)>> {
    let mut files = BTreeMap::new();
    for (path, text) in TEXTS {
        files.insert((*path).to_owned(), (0o644, text.as_bytes().to_vec()));
    }
    files.insert("usr/bin/ionian".to_owned(), (0o755, fs::read(program)?));
    for library in libraries(program)? {
        files.insert(library[1..].to_owned(), (0o755, fs::read(&library)?));
    }
    Ok(files)
}

/// The libraries that the program is linked with, and their loader.
fn libraries(program: &Path) -> Done<Vec<String>> {
    let output = Command::new("ldd").arg(program).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let libraries: Vec<String> = printed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(str::to_owned)
        .collect();
    match libraries.is_empty() {
        true => Err(format!("ldd names no library of {}", program.display()).into()),
        false => Ok(libraries),
    }
}

/// The archive of these files, with the folders that they are in.
fn layer(files: &BTreeMap<String, (u32, Vec<u8>)>) -> Done<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut folders: Vec<&Path> = files
        .keys()
        .flat_map(|path| Path::new(path).ancestors().skip(1))
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        append(&mut archive, folder, EntryType::Directory, 0o755, 0, &[])?;
    }
    append(
        &mut archive,
        Path::new("data"),
        EntryType::Directory,
        0o700,
        USER,
        &[],
    )?;
    for (path, (mode, content)) in files {
        append(
            &mut archive,
            Path::new(path),
            EntryType::Regular,
            *mode,
            0,
            content,
        )?;
    }
    Ok(archive.into_inner()?)
}

fn append(
    archive: &mut Builder<Vec<u8>>,
    path: &Path,
    kind: EntryType,
    mode: u32,
    owner: u64,
    content: &[u8],
) -> Done {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    Ok(archive.append_data(&mut header, path, content)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_layer_has_its_folders_before_its_files_and_a_folder_for_data() {
        let mut files = BTreeMap::new();
        files.insert("usr/bin/ionian".to_owned(), (0o755, b"program".to_vec()));
        files.insert("etc/passwd".to_owned(), (0o644, b"users".to_vec()));
        let bytes = layer(&files).unwrap();
        assert_eq!(bytes, layer(&files).unwrap());
        let mut archive = tar::Archive::new(&bytes[..]);
        let found = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let path = entry.path().unwrap().display().to_string();
            let header = entry.header();
            (path, header.mode().unwrap(), header.uid().unwrap(), content)
        });
        let folder = |path: &str| (path.to_owned(), 0o755, 0, String::new());
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                folder("etc"),
                folder("usr"),
                folder("usr/bin"),
                ("data".to_owned(), 0o700, USER, String::new()),
                ("etc/passwd".to_owned(), 0o644, 0, "users".to_owned()),
                ("usr/bin/ionian".to_owned(), 0o755, 0, "program".to_owned()),
            ]
        );
    }
}
