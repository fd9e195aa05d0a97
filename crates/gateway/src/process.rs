//! What the operating system says of the node's process, for INFO.

use crate::info::InfoWriter;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Begins the section Memory. What the process holds is what the system says is resident: no
/// allocator is asked.
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

/// Bytes of memory that are resident now, and that ever were at once.
fn resident() -> [u64; 2] {
    let peak = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss() as u64 * 1024);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    // Systems without such a file tell the peak alone.
    [
        field("VmRSS:").unwrap_or(peak),
        field("VmHWM:").unwrap_or(peak),
    ]
}

/// As Redis writes bytes for people.
fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.2}K", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2}G", bytes as f64 / f64::from(1 << 30)),
    }
}
