//! Defects built in on purpose, to test the tests: each is a mistake that a published
//! implementation of this protocol made, and the simulator must catch every one. A deployment file
//! cannot name them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use ionian_kernel::id::SessionId;
use ionian_kernel::membership::Membership;
use ionian_kernel::time::{Duration, Timestamp};
use ionian_kernel::wire::{Reader, Wire};
use ionian_replication::session::Sessions;

/// One defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Canary {
    /// Phase 1 on a grid looks for a slot's safe value in one acceptor of the row only.
    S1GridLeaderChange,
    /// A new leader continues at the highest slot voted for *above the watermark*, plus one.
    S2NextSlotFallsBack,
    /// A reader asks f+1 acceptors of a row, which is no read quorum when the row is longer.
    S7ReadsOnAGrid,
    /// An acceptor's vote watermark starts again at zero after a restart.
    S8WatermarkLost,
    /// An acceptor answers before its vote is on disk.
    UnfencedVote,
    /// An acceptor's log is truncated one slot too far.
    TruncatesTooFar,
    /// A replica that restarts does not find in its snapshot which commands its sessions have
    /// executed.
    SnapshotWithoutSessions,
    /// An acceptor forgets what it promised and votes in older rounds.
    ForgetsPromise,
    /// The timer that recovers holes fires once and is never armed again.
    L1HoleTimerOnce,
    /// A slot that was voted for and never chosen is not finished for a read that waits for it.
    L5VotedNeverChosen,
    /// A proxy leader asks one quorum and never another.
    L8AlwaysThrifty,
    /// A batch that is not full waits for ever.
    L9PartBatchWaits,
    /// A deposed leader drops queued work and says nothing, and nobody asks again.
    L10DeposedLeaderDrops,
    /// A leader queues and proposes again what it has in hand already.
    QueuesCopies,
    /// Phase 1 is begun anew when an election timeout has passed, though it advances.
    ImpatientPhase1,
    /// A proxy leader asks acceptors again for what it has asked for already, whenever the leader
    /// hands it over again.
    AsksAtOnce,
    /// A change of the membership takes effect at once: there is no time in which both
    /// configurations are in force.
    AppliesAtOnce,
    /// An acceptor that lost its memory takes part as if it had not.
    AmnesiacVotes,
    /// A slot that one acceptor has forgotten is repaired with a vote that another still holds.
    RepairsForgotten,
    /// Watermarks that acceptors told a reader before its configuration changed count in the new
    /// one.
    CountsOldWatermarks,
    /// An acceptor that is new in the configuration to come acts as if it had promised a round of
    /// it.
    NewcomersBar,
    /// A leader takes acceptors that answered at any time since a change began for reachable.
    AnswersNeverAge,
    /// A round begins in any epoch with the right quorums.
    EarlierEpochs,
    /// Roles believe messages of epochs that their configuration does not know.
    BelievesAnyEpoch,
    /// A leader stamps what its own clock shows, whatever those of the others do.
    BelievesItsClock,
    /// A leader goes on saying that it lives, though no write quorum hears it.
    LeadsAlone,
    /// A leader that has proposed nothing takes it for granted that a write quorum hears it.
    TrustsItsIdleness,
    /// A proxy leader says nothing to a leader whose proposals it drops because acceptors have
    /// promised a higher round.
    DropsSilently,
    /// A leader that hears no proxy leader or no replica any more goes on as long as a write quorum
    /// hears it.
    NeedsNoHelpers,
    /// A leader gives slots to a proxy leader as long as it hears it, whatever becomes of them.
    CountsOnTheHeard,
    /// A replica asks for the time that it takes to have come, which is later than the deadline.
    AsksAhead,
    /// A leader that asks for votes in vain does not take its stripe back (Mencius).
    NeverReturns,
    /// A leader takes its stripe back whether it reaches those without whom it cannot lead or not
    /// (Mencius).
    DeposesBlindly,
    /// A leader does not let acceptors take part again that lost their votes.
    ShutsOut,
    /// An acceptor whose log lacks votes that it confirms starts all the same if they are of epochs
    /// that are over.
    PardonsEarlierEpochs,
    /// A batcher or a client lane turns from a leader at whatever is overdue, also where another
    /// left it unanswered.
    BlamesSuccessors,
    /// A leader that stands in vain, or stands by again, keeps what waits for it to lead.
    KeepsQueue,
    /// A new leader fills each slot that earlier ones skipped with a noop of its own (Mencius).
    FillsGaps,
}

impl Canary {
    /// All of them, with the names by which the command line knows them.
    pub const ALL: &'static [(&'static str, Canary)] = &[
        ("s1", Canary::S1GridLeaderChange),
        ("s2", Canary::S2NextSlotFallsBack),
        ("s7", Canary::S7ReadsOnAGrid),
        ("s8", Canary::S8WatermarkLost),
        ("unfenced", Canary::UnfencedVote),
        ("truncation", Canary::TruncatesTooFar),
        ("sessions", Canary::SnapshotWithoutSessions),
        ("promise", Canary::ForgetsPromise),
        ("l1", Canary::L1HoleTimerOnce),
        ("l5", Canary::L5VotedNeverChosen),
        ("l8", Canary::L8AlwaysThrifty),
        ("l9", Canary::L9PartBatchWaits),
        ("l10", Canary::L10DeposedLeaderDrops),
        ("copies", Canary::QueuesCopies),
        ("impatient", Canary::ImpatientPhase1),
        ("hasty", Canary::AsksAtOnce),
        ("at-once", Canary::AppliesAtOnce),
        ("amnesia", Canary::AmnesiacVotes),
        ("repair", Canary::RepairsForgotten),
        ("watermarks", Canary::CountsOldWatermarks),
        ("newcomers", Canary::NewcomersBar),
        ("answers", Canary::AnswersNeverAge),
        ("epochs", Canary::EarlierEpochs),
        ("any-epoch", Canary::BelievesAnyEpoch),
        ("clock", Canary::BelievesItsClock),
        ("alone", Canary::LeadsAlone),
        ("idle", Canary::TrustsItsIdleness),
        ("drops", Canary::DropsSilently),
        ("helpers", Canary::NeedsNoHelpers),
        ("heard", Canary::CountsOnTheHeard),
        ("asks-ahead", Canary::AsksAhead),
        ("returns", Canary::NeverReturns),
        ("blind", Canary::DeposesBlindly),
        ("shuts-out", Canary::ShutsOut),
        ("keeps-queue", Canary::KeepsQueue),
        ("pardons", Canary::PardonsEarlierEpochs),
        ("blames", Canary::BlamesSuccessors),
        ("fills-gaps", Canary::FillsGaps),
    ];

    /// The defect of this name.
    ///
    /// # Errors
    /// Lists the names there are.
    pub fn named(name: &str) -> Result<Canary, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, canary)| *canary).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!(
                "there is no canary {name:?}: the canaries are {}",
                names.join(", ")
            )
        })
    }
}

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
