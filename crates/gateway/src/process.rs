//! Data of the operating system about the node's process, for INFO.

use crate::info::InfoWriter;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Starts the section Memory. The memory of the process is what the system reports as resident, not
/// the allocator's count.
pub(crate) fn write_memory(info: &mut InfoWriter) {
    let [now, peak] = resident();
    info.section("Memory")
        .field("used_memory", now)
        .field("used_memory_human", human(now))
        .field("used_memory_rss", now)
        .field("used_memory_rss_human", human(now))
        .field("used_memory_peak", peak)
        .field("used_memory_peak_human", human(peak));
}

/// Writes the section CPU: seconds of all threads of the process.
pub(crate) fn write_cpu(info: &mut InfoWriter) {
    info.section("CPU");
    let seconds = |time: TimeVal| format!("{}.{:06}", time.tv_sec(), time.tv_usec());
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        info.field("used_cpu_sys", seconds(usage.system_time()))
            .field("used_cpu_user", seconds(usage.user_time()));
    }
}

/// Bytes of resident memory: now, and the maximum so far.
pub(crate) fn resident() -> [u64; 2] {
    let peak = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss() as u64 * 1024);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    // Systems without this file report the maximum only.
    [
        field("VmRSS:").unwrap_or(peak),
        field("VmHWM:").unwrap_or(peak),
    ]
}

/// Bytes in Redis's notation for people.
fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.2}K", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2}G", bytes as f64 / f64::from(1 << 30)),
    }
}
