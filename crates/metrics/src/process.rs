//! What the system says of the process and of its disk.

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::statvfs::statvfs;
use nix::sys::time::TimeVal;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// When this program first looked: close to its start.
static STARTED: LazyLock<f64> = LazyLock::new(|| {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    unix.unwrap_or_default().as_secs_f64()
});

/// What was read. A number that the system does not report is `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) started: f64,
    pub(crate) cpu: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) open_files_limit: Option<u64>,
    pub(crate) disk_free_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
}

impl Process {
    /// `data` is a directory on the disk that counts.
    pub(crate) fn read(data: &Path) -> Self {
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        let memory = ionian_runtime::memory_bytes();
        let disk = statvfs(data).ok();
        let size = |blocks: u64| disk.map(|disk| blocks.saturating_mul(disk.fragment_size()));
        Process {
            started: *STARTED,
            cpu: usage.map(|it| seconds(it.user_time()) + seconds(it.system_time())),
            resident_bytes: memory.map(|[_, resident]| resident),
            virtual_bytes: memory.map(|[size, _]| size),
            open_files: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count() as u64),
            open_files_limit: getrlimit(Resource::RLIMIT_NOFILE)
                .ok()
                .map(|(soft, _)| soft),
            disk_free_bytes: disk.and_then(|disk| size(disk.blocks_available())),
            disk_bytes: disk.and_then(|disk| size(disk.blocks())),
        }
    }
}

/// Takes note of the start of the process, if that is not done yet.
pub fn started() {
    LazyLock::force(&STARTED);
}
