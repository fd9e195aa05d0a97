//! Reports of nodes, for the tests of this crate and of the dashboard.

use ionian_kernel::id::Index;
use ionian_runtime::NodeStatus;
use ionian_runtime::status::{RoleStatus, WorkStatus};

/// A report of a node: how long it has run, in milliseconds, and what it measured.
pub fn report(name: &str, ms: u64, work: WorkStatus) -> NodeStatus {
    let document = serde_json::json!({
        "cluster": "c", "protocol": "p", "founding": "", "epoch": 0, "changing": false,
        "node": 0, "name": name, "wire_version": 17, "pid": 7, "uptime_us": ms * 1000,
        "amnesiac": false, "directory": null, "drains": null, "takes_part": true,
        "process_cpu_us": 0, "loop_cpu_us": 0, "event_loop": {
            "pumps": 0, "messages_in": 0, "ignored": 0, "overdue": 0, "messages_out": 0,
            "requests": 0, "replies": 0, "records": 0, "syncs": 0 },
        "log": { "durability": "disk", "bytes": 0, "position": 0, "lag": 0, "syncs": 0,
            "checkpoints": 0, "snapshots": 0 },
        "roles": [], "peers": [], "work": work,
    });
    serde_json::from_value(document).expect("a report")
}

/// A role without figures.
pub fn role(role: &str, index: Index) -> RoleStatus {
    RoleStatus {
        role: role.into(),
        index,
        ..RoleStatus::default()
    }
}
