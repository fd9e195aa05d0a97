//! What defects need that take more than a line.

use bytes::Bytes;
use ionian_kernel::id::SessionId;
use ionian_kernel::membership::Membership;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::{Reader, Wire};
use ionian_replication::session::Sessions;

/// An executor's snapshot in which every session looks as if it were new.
pub(crate) fn without_sessions(snapshot: &Bytes) -> Bytes {
    let mut reader = Reader::new(snapshot);
    let now = Timestamp::decode(&mut reader).expect("begins with the time");
    let membership = Membership::decode(&mut reader).expect("goes on with the membership");
    let next = SessionId::decode(&mut Reader::new(
        &snapshot.slice(snapshot.len() - reader.remaining()..),
    ));
    let next = next.expect("then come the sessions");
    let mut sessions = Sessions::new(Duration::from_secs(600));
    sessions.restore(&mut reader).expect("whole");
    let mut forgetful = Sessions::new(Duration::from_secs(600));
    for _ in 1..next.0 {
        forgetful.open(now);
    }
    let mut out = Vec::new();
    now.encode(&mut out);
    membership.encode(&mut out);
    forgetful.snapshot(&mut out);
    out.extend_from_slice(&snapshot[snapshot.len() - reader.remaining()..]);
    Bytes::from(out)
}
