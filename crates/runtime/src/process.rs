//! What the system says of this process.

/// The size of a page where the system does not say: that of nearly all systems.
const PAGE: u64 = 4096;

/// Virtual and resident memory of this process, in bytes; `None` where the system does not report
/// it.
pub fn memory_bytes() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages = text.split_whitespace().map_while(|it| it.parse().ok());
    let mut bytes = pages.map(|pages: u64| pages * PAGE);
    Some([bytes.next()?, bytes.next()?])
}
