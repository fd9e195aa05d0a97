//! Unused ports.

use anyhow::{Result, ensure};
use std::net::TcpListener;

/// The range to search: outside the range from which the system takes ports for outgoing
/// connections, so that no connection takes a port while its node is down.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Ports that are free now and not in `taken`, which are the ports of stopped nodes.
///
/// # Errors
/// If there are not enough.
pub fn free_ports(count: usize, taken: &[u16]) -> Result<Vec<u16>> {
    // Concurrent programs start at different places.
    let offset = std::process::id().wrapping_mul(997) as usize % RANGE.len();
    let places = RANGE
        .cycle()
        .skip(offset)
        .take(RANGE.len())
        .filter(|port| !taken.contains(port));
    // Held until all are found, so that none is found twice.
    let found: Vec<(u16, TcpListener)> = places
        .filter_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?)))
        .take(count)
        .collect();
    ensure!(
        found.len() == count,
        "fewer than {count} ports of {} to {} are free",
        RANGE.start,
        RANGE.end - 1
    );
    Ok(found.into_iter().map(|(port, _)| port).collect())
}
