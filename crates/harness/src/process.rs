//! Memory, disk space and processor time of a process.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Resident memory of the process in bytes, including shared libraries.
///
/// # Errors
/// If the process has ended, or the system does not report it.
pub fn resident_bytes(process: u32) -> Result<u64> {
    Ok(number(&format!("/proc/{process}/status"), "VmRSS:")? << 10)
}

/// The maximum of its resident memory so far.
///
/// # Errors
/// Like [`resident_bytes`].
pub fn peak_resident_bytes(process: u32) -> Result<u64> {
    Ok(number(&format!("/proc/{process}/status"), "VmHWM:")? << 10)
}

/// The number after this word in a file of the system.
fn number(path: &str, word: &str) -> Result<u64> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {path}, which only Linux has"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("{path} does not say {word}"))
}

/// The processor time of the process so far, of all its threads, in user mode and in the system.
///
/// # Errors
/// If the process has ended, or the system does not report it.
#[cfg(target_os = "linux")]
pub fn processor_time(process: u32) -> Result<Duration> {
    let process = nix::unistd::Pid::from_raw(i32::try_from(process)?);
    // 0 would mean this process.
    anyhow::ensure!(process.as_raw() > 0, "no process has the number {process}");
    // `/proc/PID/stat` has the same time in hundredths of a second only.
    let clock = nix::time::clock_getcpuclockid(process).context("there is no such process")?;
    Ok(nix::time::clock_gettime(clock)?.into())
}

/// Not available on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn processor_time(_: u32) -> Result<Duration> {
    anyhow::bail!("the processor time of another process can be had on Linux only")
}

/// The processor time of the calling thread, and the time that it was ready without a processor.
///
/// # Errors
/// If the system does not report it.
pub fn thread_times() -> Result<(Duration, Duration)> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {path}, which only Linux has"))?;
    let mut fields = text
        .split(' ')
        .map(|field| field.trim().parse().ok().map(Duration::from_nanos));
    let both = fields.next().flatten().zip(fields.next().flatten());
    both.with_context(|| format!("{path} does not say how long the thread ran"))
}

/// Raises the limit of open files to the system's maximum, because every connection is a file.
///
/// # Errors
/// If the system refuses.
pub fn raise_file_limit() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .context("the limit of open files cannot be raised")?;
    }
    Ok(())
}

/// The size of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The sum of their lengths.
    pub bytes: u64,
    /// The space that the file system has allocated for them.
    pub allocated: u64,
}

/// The size of all files below `path`. Files that disappear meanwhile do not count.
///
/// # Errors
/// If a directory or a file cannot be read.
pub fn size(path: &Path) -> Result<Size> {
    let mut size = Size::default();
    walk(path, &mut |file| {
        let found = fs::symlink_metadata(file)?;
        size.bytes += found.len();
        size.allocated += found.blocks() * 512;
        Ok(())
    })?;
    Ok(size)
}

/// Calls `visit` for all files below `path`. Skips files that disappear meanwhile.
///
/// # Errors
/// If a directory cannot be read, or `visit` fails.
pub fn walk(path: &Path, visit: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> Result<()> {
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
    fn a_thread_that_works_uses_time_and_so_does_its_process() {
        let hundredth = Duration::from_millis(10);
        let (process, (thread, _)) = (
            processor_time(std::process::id()).unwrap(),
            thread_times().unwrap(),
        );
        while thread_times().unwrap().0 < thread + hundredth {
            std::hint::black_box(fs::metadata("/").unwrap());
        }
        let used = processor_time(std::process::id()).unwrap() - process;
        assert!(used >= hundredth, "{used:?}");
        // A child remains known until its parent waits for it.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(processor_time(child.id()).is_ok());
        child.wait().unwrap();
        assert!(processor_time(child.id()).is_err());
        assert!(processor_time(0).is_err() && processor_time(u32::MAX).is_err());
    }

    #[test]
    fn lengths_and_blocks_are_summed_over_all_directories() {
        let root = std::env::temp_dir().join(format!("ionian-size-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/one"), [1; 10_000]).unwrap();
        // A hole has a length but no blocks.
        fs::File::create(root.join("a/b/hole"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let size = size(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(size.bytes, (1 << 30) + 10_000);
        assert!((10_000..1 << 20).contains(&size.allocated), "{size:?}");
        assert_eq!(
            super::size(&root).unwrap(),
            Size::default(),
            "what is not there holds nothing"
        );
    }
}
