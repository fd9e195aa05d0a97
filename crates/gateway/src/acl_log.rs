//! What clients were refused: the entries of ACL LOG.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of entries; further ones replace the oldest.
const ENTRIES: usize = 128;

/// The longest object or name in bytes.
const MAX_TEXT: usize = 256;

/// A refusal like one that is less old than this counts as the same entry.
const TOGETHER: Duration = Duration::from_secs(60);

/// Why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Auth,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Auth => "auth",
        }
    }
}

/// Refusals of the same kind.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    /// Whether it was a command between MULTI and EXEC.
    pub(crate) in_multi: bool,
    /// The command, the key, or for AUTH the name of the user.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// The last time.
    pub(crate) at: Instant,
    /// The line of CLIENT LIST.
    pub(crate) client: String,
}

/// The entries, the newest first.
#[derive(Debug, Default)]
pub(crate) struct AclLog(VecDeque<Entry>);

impl AclLog {
    pub(crate) fn add(
        &mut self,
        (reason, in_multi): (Reason, bool),
        object: &[u8],
        user: &[u8],
        client: String,
    ) {
        let cut = |text: &[u8]| text[..text.len().min(MAX_TEXT)].to_vec();
        let (object, user, at) = (cut(object), cut(user), Instant::now());
        let same = self.0.iter().position(|known| {
            (known.reason, known.in_multi) == (reason, in_multi)
                && known.object == object
                && known.user == user
                && at.duration_since(known.at) <= TOGETHER
        });
        let count = same.and_then(|place| self.0.remove(place));
        self.0.push_front(Entry {
            count: count.map_or(1, |known| known.count + 1),
            reason,
            in_multi,
            object,
            user,
            at,
            client,
        });
        self.0.truncate(ENTRIES);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &Entry> {
        self.0.iter().take(count)
    }
}
