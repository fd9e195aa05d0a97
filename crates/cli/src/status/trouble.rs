//! What can be wrong with a cluster: each kind has an id that stays the same over versions, so that
//! programs need not read the words.

use serde::Serialize;

/// A kind of trouble, and its id in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Id {
    /// A node does not answer.
    NodeDown,
    /// A node does not answer this command, and other nodes are connected to it.
    NoStatus,
    /// A node has a new data directory and does not take part yet.
    NotTakingPart,
    /// A node was started from another deployment file.
    OtherDeployment,
    /// A node drains.
    Draining,
    /// A node refuses another one.
    PeerRefused,
    /// An instance has lost its memory.
    MemoryLost,
    /// An instance does not hold what is chosen yet.
    CatchingUp,
    /// Replicas have diverged.
    Diverged,
    /// The oldest request of a client lane waits for too long.
    Unanswered,
    /// A client lane has no session.
    NoSession,
    /// A certificate ends soon, or has ended.
    CertificateEnds,
    /// A node has found new certificates and does not take them.
    CertificateRefused,
    /// Nodes have run different programs for hours.
    VersionsMixed,
    /// A node has executed so much less than another that it may soon need a snapshot.
    ReplicaLeftBehind,
    /// A node with `--audit-mode required` refuses changes, because its audit log takes no lines.
    /// Its alert fires in the other mode too, and for lines that were lost.
    AuditFails,
    /// The process of a node has ended, without saying why, while it executed a command.
    CommandEndsNode,
    /// The disk of a node has no room for the next file of the log, or for a snapshot.
    FullDisk,
    /// The disk of a node will have no room for the next snapshot. Its alert fires sooner.
    DiskFillsUp,
    /// The disk of a node is so slow that another one is to lead.
    SlowDisk,
    /// Two nodes that answer are not connected.
    NotConnected,
    /// A node that accepts clients is not connected to a leader.
    CutOff,
    /// A command did not pass the log (`--probe`).
    ProbeFailed,
    /// Fewer nodes may fail than the deployment is meant to tolerate. Its alert fires if no further
    /// node may fail.
    ToleranceLow,
    /// No node answers.
    NoAnswer,
    /// Too few instances of a role work.
    NoQuorum,
    /// No node that answers has slots that were chosen.
    SlotsLost,
    /// No node leads, or not the whole log.
    NoLeader,
    /// No node that answers leads, but another may.
    LeaderUnknown,
    /// The node that leads is not connected to what it needs, or not followed.
    LeaderCutOff,
    /// The protocol rejects the configuration.
    InvalidConfiguration,
}

impl Id {
    /// The alert that fires for the same reason, if there is one.
    pub(crate) fn alert(self) -> Option<&'static str> {
        Some(match self {
            Id::NodeDown => "IonianNodeDown",
            Id::NotTakingPart | Id::MemoryLost | Id::CatchingUp => "IonianRedundancyLost",
            Id::Draining => "IonianNotServing",
            Id::PeerRefused => "IonianPeerRefused",
            Id::Diverged => "IonianDiverged",
            Id::Unanswered => "IonianUnanswered",
            Id::NoSession => "IonianNoSession",
            // Or, when it ends within days, IonianCertificateEndsNow.
            Id::CertificateEnds => "IonianCertificateEnds",
            Id::CertificateRefused => "IonianCertificateRefused",
            Id::VersionsMixed => "IonianVersionsMixed",
            Id::ReplicaLeftBehind => "IonianReplicaLeftBehind",
            Id::AuditFails => "IonianAuditFails",
            Id::DiskFillsUp => "IonianDiskFillsUp",
            Id::ToleranceLow => "IonianNoToleranceLeft",
            Id::NoQuorum => "IonianNoQuorum",
            Id::NoLeader => "IonianNoLeader",
            _ => return None,
        })
    }

    /// A trouble of this kind.
    pub(crate) fn with(self, text: impl Into<String>) -> Trouble {
        Trouble {
            id: self,
            text: text.into(),
        }
    }
}

/// Something that needs attention, or that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    /// The kind.
    pub(crate) id: Id,
    /// What is wrong, in words.
    pub(crate) text: String,
}

#[cfg(test)]
mod tests {
    use std::fs;

    /// Alerts without a trouble, and why: [`super::Id`] judges one moment, from what nodes answer.
    const OTHERS: &[(&str, &str)] = &[
        ("IonianLoopStuck", "the node does not answer: NodeDown"),
        ("IonianLeaderFlapping", "it takes two reports"),
        ("IonianUnserved", "it takes two reports"),
        ("IonianUncertain", "it takes two reports"),
        ("IonianWindowFull", "at one moment a full window is a burst"),
        ("IonianChangeUnfinished", "no report says when it began"),
        ("IonianSnapshotShare", "it takes two reports"),
        ("IonianBackupOld", "nodes know no backups"),
        ("IonianMemoryLimit", "no report has it"),
        ("IonianAuthGuessing", "it takes two reports"),
        ("IonianSaturated", "it takes two reports: `ionian advise`"),
        ("IonianStarved", "it takes two reports: `ionian advise`"),
        ("IonianSlowDisk", "it takes two reports: `ionian advise`"),
        (
            "IonianVerySlowDisk",
            "it takes two reports: `ionian advise`",
        ),
    ];

    fn file(path: &str) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        fs::read_to_string(format!("{root}/{path}")).expect("a file")
    }

    /// The names of alerts in a text, in its order.
    fn alerts(text: &str) -> Vec<&str> {
        let words = text.split(|it: char| !it.is_ascii_alphanumeric());
        let alerts = words.filter(|word| word.len() > 6 && word.starts_with("Ionian"));
        alerts.collect()
    }

    #[test]
    fn every_alert_is_a_trouble_or_listed_with_its_reason() {
        let rules = file("monitoring/ionian.rules.yaml");
        let lines = rules.lines().map(str::trim);
        let all: Vec<&str> = lines
            .filter_map(|it| it.strip_prefix("- alert: "))
            .collect();
        assert!(all.len() > 20, "{all:?}");
        let source = file("crates/cli/src/status/trouble.rs");
        let ids = source.split("/// Something that").next().expect("the ids");
        let troubles = alerts(ids);
        let others: Vec<&str> = OTHERS.iter().map(|(name, _)| *name).collect();
        for alert in &all {
            let known = [&troubles, &others].map(|names| names.contains(alert));
            assert!(
                known[0] != known[1],
                "{alert}: a trouble, or a reason in OTHERS"
            );
        }
        let mut named = troubles.iter().chain(&others);
        assert_eq!(
            named.find(|name| !all.contains(name)),
            None,
            "no such alert"
        );
        // The first paragraph of the runbook says the same.
        let runbook = file("docs/alerts.md");
        let said = runbook.split("```").next().expect("a paragraph");
        assert_eq!(alerts(said), others, "docs/alerts.md");
    }
}
