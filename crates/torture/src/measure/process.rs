//! What a process and its directory hold.

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of memory in which the process has something, shared libraries included.
///
/// # Errors
/// When the process is gone, or the system does not tell.
pub(crate) fn resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}, which only Linux has"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    Ok(kib.with_context(|| format!("{path} does not say VmRSS"))? << 10)
}

/// The size of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// The sum of their lengths.
    pub(crate) bytes: u64,
    /// What the file system has really allocated for them.
    pub(crate) allocated: u64,
}

/// All files below `path`. Those that go while they are looked at count for nothing.
pub(crate) fn size(path: &Path) -> Result<Size> {
    let mut size = Size::default();
    walk(path, &mut |file| {
        let found = fs::symlink_metadata(file)?;
        size.bytes += found.len();
        size.allocated += found.blocks() * 512;
        Ok(())
    })?;
    Ok(size)
}

/// Has the system forget what it caches of all files below `path`, as if the machine had just been started.
pub(crate) fn forget_cached(path: &Path) -> Result<()> {
    walk(path, &mut |file| {
        let file = File::open(file)?;
        // Only what is on disk can be forgotten.
        file.sync_all()?;
        Ok(posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
    })
}

fn walk(path: &Path, visit: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot list {}", path.display()))?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, visit)?;
            continue;
        }
        match visit(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            visited => visited.with_context(|| format!("cannot look at {}", path.display()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_memory_and_one_without_number_does_not_exist() {
        let before = resident_bytes(std::process::id()).unwrap();
        let much = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes(std::process::id()).unwrap() > before + (32 << 20), "{before}");
        drop(much);
        assert!(resident_bytes(0).is_err());
    }

    #[test]
    fn lengths_and_blocks_are_summed_over_all_directories() {
        let root = std::env::temp_dir().join(format!("ionian-size-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/one"), [1; 10_000]).unwrap();
        // A hole has a length and no blocks.
        File::create(root.join("a/b/hole")).unwrap().set_len(1 << 30).unwrap();
        forget_cached(&root).unwrap();
        let size = size(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(size.bytes, (1 << 30) + 10_000);
        assert!((10_000..1 << 20).contains(&size.allocated), "{size:?}");
        assert_eq!(super::size(&root).unwrap(), Size::default(), "what is not there holds nothing");
    }
}
