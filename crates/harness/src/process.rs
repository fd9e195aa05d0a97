//! What a process and its directory hold, and what it uses.

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The unit of processor time in `/proc/PID/stat`: on Linux, 100 in a second for whoever looks from outside.
const TICK: Duration = Duration::from_millis(10);

/// Bytes of memory in which the process has something, shared libraries included.
///
/// # Errors
/// When the process is gone, or the system does not tell.
pub fn resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}, which only Linux has"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    Ok(kib.with_context(|| format!("{path} does not say VmRSS"))? << 10)
}

/// The processor time that the process has used until now, all its threads together, in user mode and in the
/// system; in steps of 10 ms.
///
/// # Errors
/// When the process is gone, or the system does not tell.
pub fn processor_time(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}, which only Linux has"))?;
    // The name may hold anything, parentheses and blanks included; what follows it may not.
    let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<&str>>()).unwrap_or_default();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<u32>().ok());
    // Fields 14 and 15 of the manual, which begins with 1 at the number of the process and has 3 behind the name.
    let used = ticks(11).zip(ticks(12)).with_context(|| format!("{path} does not say utime and stime"))?;
    Ok(TICK * used.0 + TICK * used.1)
}

/// The processor time that the calling thread has used, and the time that it was ready to run and had no processor.
///
/// # Errors
/// When the system does not tell.
pub fn thread_times() -> Result<(Duration, Duration)> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}, which only Linux has"))?;
    let mut fields = text.split(' ').map(|field| field.trim().parse().ok().map(Duration::from_nanos));
    let both = fields.next().flatten().zip(fields.next().flatten());
    both.with_context(|| format!("{path} does not say how long the thread ran"))
}

/// Lets this process have as many open files as the system allows: every connection is one.
///
/// # Errors
/// When the system does not tell or does not let it.
pub fn raise_file_limit() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("the limit of open files cannot be raised")?;
    }
    Ok(())
}

/// The size of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The sum of their lengths.
    pub bytes: u64,
    /// What the file system has really allocated for them.
    pub allocated: u64,
}

/// All files below `path`. Those that go while they are looked at count for nothing.
///
/// # Errors
/// When a directory cannot be listed or a file not be looked at.
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

/// Has the system forget what it caches of all files below `path`, as if the machine had just been started.
///
/// # Errors
/// When a file cannot be read or synced.
pub fn forget_cached(path: &Path) -> Result<()> {
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
    fn a_thread_that_works_uses_time_and_so_does_its_process() {
        let (process, (thread, _)) = (processor_time(std::process::id()).unwrap(), thread_times().unwrap());
        while thread_times().unwrap().0 < thread + 10 * TICK {
            std::hint::black_box(fs::metadata("/").unwrap());
        }
        let used = processor_time(std::process::id()).unwrap() - process;
        assert!(used >= 9 * TICK, "{used:?}");
        assert!(processor_time(0).is_err());
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
