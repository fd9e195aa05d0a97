//! PigPaxos: relays between those who ask acceptors and the acceptors (PigPaxos, sections 3, 4 and
//! 8.2).
//!
//! PigPaxos changes who carries messages and nothing of what is decided. So it is a role here, the
//! relay, that a deployment of MultiPaxos or S-Paxos can have beside its acceptors: every
//! arrangement of acceptors, changes of the membership, reads, snapshots and tools stay what they
//! are, and a running cluster gets relays by a change of its members (decision 39).
//!
//! A proxy leader asks the acceptor of its own node itself. It divides the others into groups and
//! chooses a relay in each, which asks the acceptors of its group and gathers their votes. What is
//! chosen rides on later requests, and is sent alone when none comes.
//!
//! ```text
//! proxy leader ── Phase2a ──> relay (one a group) ── RelayedPhase2a ──> acceptor (of the group)
//! proxy leader <── Votes ──── relay               <── Phase2b ──────── acceptor
//! proxy leader ── Phase2a, LearnSlots ──> acceptor ── Phase2b ──> proxy leader   (without a relay)
//!
//! proxy leader ── Learn ──> acceptor ── Chosen ──> replica     (the one that answers the clients)
//! proxy leader ── Learn ──> relay ── LearnSlots ──> acceptor ── Chosen ──> replica (beside it)
//! proxy leader <── Nack, Forgotten ── relay <── Nack, Forgotten ── acceptor
//! relay ── Phase2a ──> relay ── Votes ──> relay                        (more than one layer)
//! ```
//!
//! Leaders and readers have their questions carried too, and ask again without relays what is not
//! answered.
//!
//! ```text
//! leader ── Heartbeat ──> relay ── Heartbeat ──> leaders, acceptors, replicas
//! leader <── Relayed ──── relay
//! leader ── Phase1a ──> relay ── RelayedPhase1a ──> acceptor
//! leader <── Promises ── relay <── Phase1b ──────── acceptor
//! reader ── PreRead ──> relay ── RelayedPreRead ──> acceptor
//! reader <── Watermarks ── relay <── PreReadAck ─── acceptor
//! replica ── Executed ──> acceptor ── Watermarks ──> reader     (reads where it is executed)
//! ```
//!
//! Why it is safe: an answer of a relay names who has voted, promised, or told its watermark, and
//! the receiver adds the names to a set. Names that come twice, late, from overlapping groups, or
//! from another attempt change nothing; no count is ever added to a count (defect s9). What comes
//! with the names holds for each of them: the vote of the highest round in each slot, the largest
//! watermark.

pub(crate) mod asking;
pub(crate) mod branch;
pub mod commits;
pub mod fanout;
pub mod groups;
pub(crate) mod leading;
pub mod message;
pub(crate) mod metrics;
pub(crate) mod presets;
pub mod relay;
pub mod relaying;
pub(crate) mod routes;
pub(crate) mod settings;
