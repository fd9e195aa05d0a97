//! What a role is given to do.

pub(crate) use crate::model::demand::Kind as Work;

/// What a role can be given; nothing if it is none that can be measured alone.
pub(crate) fn of(role: &str) -> &'static [Work] {
    match role {
        "leader" | "proxy_leader" | "batcher" | "unbatcher" => &[Work::Write],
        "acceptor" | "server" => &[Work::Write, Work::Read],
        "replica" => &[Work::Execute, Work::Answer, Work::Read],
        "read_batcher" => &[Work::Read],
        _ => &[],
    }
}
