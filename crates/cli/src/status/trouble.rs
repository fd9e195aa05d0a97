//! What can be wrong with a cluster: each kind has an id that stays the same over versions, so that
//! programs need not read the words.

use serde::Serialize;

/// A kind of trouble, and its id in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Id {
    /// A node does not answer. Alert: IonianNodeDown.
    NodeDown,
    /// A node does not answer this command, and other nodes are connected to it.
    NoStatus,
    /// A node has a new data directory and does not take part yet. Alert: IonianRedundancyLost.
    NotTakingPart,
    /// A node was started from another deployment file.
    OtherDeployment,
    /// A node drains. Alert: IonianNotServing.
    Draining,
    /// A node refuses another one. Alert: IonianPeerRefused.
    PeerRefused,
    /// An instance has lost its memory. Alert: IonianRedundancyLost.
    MemoryLost,
    /// Replicas have diverged. Alert: IonianDiverged.
    Diverged,
    /// A client lane has no session. Alert: IonianNoSession.
    NoSession,
    /// A certificate ends soon, or has ended. Alert: IonianCertificateEnds.
    CertificateEnds,
    /// A node refuses changes, because its audit log takes no lines.
    AuditFails,
    /// Two nodes that answer are not connected.
    NotConnected,
    /// A node that accepts clients is not connected to a leader.
    CutOff,
    /// A command did not pass the log (`--probe`).
    ProbeFailed,
    /// Fewer nodes may fail than the deployment is meant to tolerate. Alert: IonianNoToleranceLeft,
    /// if no further node may fail.
    ToleranceLow,
    /// No node answers.
    NoAnswer,
    /// Too few instances of a role work. Alert: IonianNoQuorum.
    NoQuorum,
    /// No node leads, or not the whole log. Alert: IonianNoLeader.
    NoLeader,
    /// No node that answers leads, but another may.
    LeaderUnknown,
    /// The node that leads is not connected to what it needs, or not followed.
    LeaderCutOff,
    /// The protocol rejects the configuration.
    InvalidConfiguration,
}

/// Something that needs attention, or that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    /// The kind.
    pub(crate) id: Id,
    /// What is wrong, in words.
    pub(crate) text: String,
}

impl Id {
    /// A trouble of this kind.
    pub(crate) fn with(self, text: impl Into<String>) -> Trouble {
        Trouble {
            id: self,
            text: text.into(),
        }
    }
}
