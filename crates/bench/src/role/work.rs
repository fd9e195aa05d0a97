//! What a role is given to do.

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Commands that change something, on their way to being chosen, or through a batcher or unbatcher.
    Write,
    /// Chosen commands, of which a replica executes all and answers none.
    Execute,
    /// Chosen commands, of which a replica executes and answers all.
    Answer,
    /// Linearizable reads.
    Read,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Write => "write",
            Work::Execute => "execute",
            Work::Answer => "answer",
            Work::Read => "read",
        }
    }

    /// What a role can be given.
    pub(crate) fn of(role: &str) -> &'static [Work] {
        match role {
            "leader" | "proxy_leader" | "batcher" | "unbatcher" => &[Work::Write],
            "acceptor" | "server" => &[Work::Write, Work::Read],
            "replica" => &[Work::Execute, Work::Answer, Work::Read],
            "read_batcher" => &[Work::Read],
            _ => &[],
        }
    }
}
