//! The types of a node's status report.

use crate::storage::executing::Unfinished;
use ionian_kernel::histogram::{Numbers, Sizes, Times};
use ionian_kernel::id::{Index, Round, Slot};
use ionian_kernel::status::{Metrics, Status, each};
use ionian_kernel::time::Instant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The status of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The cluster's name.
    pub cluster: String,
    /// The protocol's name.
    pub protocol: String,
    /// The digest of the deployment that the cluster was founded with, in hexadecimal.
    pub founding: String,
    /// The epoch of the membership that the node knows.
    pub epoch: u32,
    /// Whether this membership is a change in progress.
    pub changing: bool,
    /// The node's number.
    pub node: u16,
    /// The node's name.
    pub name: String,
    /// The version of the messages and records that the node writes: that of its level.
    pub wire_version: u16,
    /// The level of the cluster, as the node knows it; 0 from programs that know no levels.
    #[serde(default)]
    pub level: u16,
    /// The release of its program; `None` from programs that know no levels.
    #[serde(default)]
    pub release: Option<String>,
    /// The lowest and the highest level that its program supports; `None` from programs that know
    /// no levels.
    #[serde(default)]
    pub supports: Option<(u16, u16)>,
    /// The id of its process.
    pub pid: u32,
    /// How long it has run, in microseconds.
    pub uptime_us: u64,
    /// Whether an earlier process of this node took part in the cluster and most of its records are
    /// lost.
    pub amnesiac: bool,
    /// The id by which the others know its data directory, in hexadecimal; `None` without a
    /// directory.
    pub directory: Option<String>,
    /// What is left to do, if the node drains.
    pub drains: Option<DrainStatus>,
    /// Whether its roles run. A node with a new data directory waits until a majority of the others
    /// has accepted it.
    pub takes_part: bool,
    /// Processor time of the whole process, in microseconds.
    pub process_cpu_us: u64,
    /// Processor time of the thread of the event loop, the main one if there are several, in
    /// microseconds.
    pub loop_cpu_us: u64,
    /// What this event loop did.
    pub event_loop: LoopStatus,
    /// The other event loops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub role_loops: Vec<RoleLoopStatus>,
    /// The log and the snapshots.
    pub log: LogStatus,
    /// The role instances on this node.
    pub roles: Vec<RoleStatus>,
    /// The other nodes.
    pub peers: Vec<PeerStatus>,
    /// How connections are secured; `None` if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
    /// Why the node refuses what must have a line in its audit log, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_refusal: Option<String>,
    /// The commands that earlier processes of this node were executing when they ended without
    /// saying why, and that this one has not executed yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<Unfinished>,
    /// What it has measured of its work; `None` from programs that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkStatus>,
    /// What the driver has measured besides. Not a part of the JSON document.
    #[serde(skip)]
    pub measured: Measured,
}

/// What a node has measured of its work since its start: two reports of the same process show
/// rates and utilizations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkStatus {
    /// How long the main loop itself has waited for syncs of the log, in microseconds. That is no
    /// processor time.
    pub loop_sync_us: u64,
    /// How long that thread was ready to run and had no processor, in microseconds; `None` where
    /// the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_wait_us: Option<u64>,
    /// Estimated time that role instances have spent on messages, in microseconds, in the order of
    /// [`NodeStatus::roles`]. Empty if the node has several loops.
    #[serde(default)]
    pub role_busy_us: Vec<u64>,
    /// How many syncs of the log took up to 50 us, up to 100 us, and so on ([`counts`]).
    #[serde(default)]
    pub syncs: Vec<u64>,
    /// Memory of the process that is in use, in bytes; `None` where the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// When the last snapshot was stored, in seconds since the beginning of 1970; `None` if the
    /// process has stored none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_stored_at: Option<u64>,
    /// What the node has measured of its clients; `None` if it serves none that are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsStatus>,
}

/// What a node has measured of its clients since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Clients that are connected.
    pub connections: u64,
    /// The most bytes that keys and values may take (maxmemory), as the node knows it; 0: no limit.
    #[serde(default)]
    pub data_limit_bytes: u64,
    /// The bytes that keys and values took when that was measured last; 0 without a limit.
    #[serde(default)]
    pub data_bytes: u64,
    /// Commands by family and by outcome.
    pub commands: BTreeMap<String, BTreeMap<String, u64>>,
    /// By family: how many commands took up to 50 us, up to 100 us, and so on ([`counts`]), from
    /// their receipt to their reply.
    pub service: BTreeMap<String, Vec<u64>>,
}

/// The counts of a histogram, each for times up to twice those of the one before, beginning with
/// 50 us. Zeros at the end are left out.
pub fn counts(times: &Times) -> Vec<u64> {
    let mut counts: Vec<u64> = times.buckets().map(|(_, count)| count).collect();
    let used = counts.iter().rposition(|count| *count > 0);
    counts.truncate(used.map_or(0, |last| last + 1));
    counts
}

/// What a driver has measured since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// How long each run of the main loop took.
    pub iterations: Times,
    /// What the log has measured.
    pub log: LogMeasured,
}

/// What the log of a node has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogMeasured {
    /// How long each sync took, from its beginning until the loop has noticed its end.
    pub sync_times: Times,
    /// The bytes of each sync.
    pub sync_bytes: Sizes,
    /// The records of each sync.
    pub sync_records: Numbers,
    /// How long the event loop itself has waited for syncs, in microseconds.
    pub loop_sync_us: u64,
    /// How long snapshots took to write.
    pub snapshot_times: Times,
    /// The bytes of the last snapshot.
    pub snapshot_bytes: u64,
    /// When the last snapshot was stored, in seconds since the beginning of 1970; 0 if none was.
    pub snapshot_stored_at: u64,
}

/// The certificates of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsStatus {
    /// Which connections the node accepts: "permissive" or "required".
    pub mode: String,
    /// The node's own certificate.
    pub certificate: CertificateStatus,
    /// The certificate authorities that it trusts.
    pub trusted: Vec<CertificateStatus>,
    /// How many new sets of certificates the node has refused since its start.
    pub refused_sets: u64,
    /// Why the files as they were read last are not in force, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// How often the node has read its files; `None` from programs that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<u64>,
    /// How many callers of the node's port had no valid certificate, or not one for what they
    /// wanted; 0 from programs that do not report it.
    #[serde(default)]
    pub refused_callers: u64,
    /// The names of the trusted authorities to which the node's own certificate leads, directly or
    /// through others; empty from programs that do not report it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<String>,
    /// Who has connected to the node; `None` from programs that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<AdmittedStatus>,
}

/// The certificates of operators, monitors and clients that a node has admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmittedStatus {
    /// Since when the node knows them: its start, in seconds since 1970.
    pub since: i64,
    /// Each authority that the node trusts now and to which some of them lead, for each kind of
    /// owner. The node has verified that: other certificates that the owners sent do not count.
    pub issuers: Vec<IssuerStatus>,
}

/// An authority to which certificates of owners of one kind lead, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerStatus {
    /// The name of the authority.
    pub issuer: String,
    /// The owners: "operator", "monitor" or "client".
    pub kind: String,
    /// When the last of them connected, in seconds since 1970.
    pub last: i64,
}

/// A certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The name of its owner.
    pub subject: String,
    /// The name of the authority that signed it.
    pub issuer: String,
    /// The beginning of its validity, in seconds since 1970; 0 from programs that do not report it.
    #[serde(default)]
    pub not_before: i64,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
    /// Its SHA-256, in hexadecimal.
    pub fingerprint: String,
}

/// What a node that drains still has to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Clients that wait for an answer or are in a transaction.
    pub clients: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Whether it leads and another node can still take over.
    pub leads: bool,
}

impl DrainStatus {
    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.clients == 0 && self.unanswered == 0 && !self.leads
    }
}

impl std::fmt::Display for DrainStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DrainStatus {
            clients,
            unanswered,
            leads,
        } = self;
        write!(
            f,
            "{clients} clients, {unanswered} commands without an answer{}",
            if *leads { ", the lead" } else { "" }
        )
    }
}

/// What an event loop has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopStatus {
    /// How often it ran: each run takes in everything that has arrived.
    pub pumps: u64,
    /// How many messages came from other nodes.
    pub messages_in: u64,
    /// How many messages were ignored because their epoch is not known here.
    pub ignored: u64,
    /// How many messages were not sent because their time was over: answers under a lease that had
    /// ended.
    pub overdue: u64,
    /// How many messages went to other nodes; a message to several instances on a node counts once.
    pub messages_out: u64,
    /// How many requests applications have submitted.
    pub requests: u64,
    /// How many replies applications have received.
    pub replies: u64,
    /// How many records the roles have persisted.
    pub records: u64,
    /// How often the log was synced to disk.
    pub syncs: u64,
}

/// An event loop that runs some roles of a node with `loops` above 1, and what it has done since
/// its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleLoopStatus {
    /// Its number, from 1: the main loop is 0.
    pub number: u64,
    /// Processor time of its thread, in microseconds.
    pub cpu_us: u64,
    /// How often it ran: each run takes in what the main loop has passed.
    pub pumps: u64,
    /// How many messages came from other loops and other nodes.
    pub messages_in: u64,
    /// How many of them were ignored because their epoch is not known here.
    pub ignored: u64,
    /// How many messages were not sent because their time was over.
    pub overdue: u64,
    /// How many messages went to other loops and other nodes; a message to several instances counts
    /// once.
    pub messages_out: u64,
    /// How many records its roles have persisted.
    pub records: u64,
    /// Its role instances.
    pub roles: Vec<String>,
}

/// The log and the snapshots of a node. Counters start at zero with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// `memory` or `disk`.
    pub durability: String,
    /// The size of all files of the write-ahead log.
    pub bytes: u64,
    /// The position of the last record.
    pub position: u64,
    /// How many of the last records are not on disk yet.
    pub lag: u64,
    /// How often the log was synced to disk.
    pub syncs: u64,
    /// How often the beginning of the log was cut off.
    pub checkpoints: u64,
    /// How many snapshots were stored.
    pub snapshots: u64,
    /// Whether the disk is so slow that another node is to lead.
    #[serde(default)]
    pub is_slow: bool,
    /// Whether the disk has no room for the next file of the log or for a snapshot, so that the
    /// node accepts only what needs none.
    #[serde(default)]
    pub is_full: bool,
    /// The room on the disk; `None` if nothing but vital records is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomStatus>,
}

/// The room on the disk of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomStatus {
    /// Free bytes.
    pub free_bytes: u64,
    /// What the log may take until the next snapshot, and that snapshot: without so much the disk
    /// will be full.
    pub needed_bytes: u64,
}

/// One role instance. A field that does not apply to its role is `None`; see [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleStatus {
    /// The role's name in deployment files.
    pub role: String,
    /// The number of the instance within its role.
    pub index: Index,
    /// What it leads; `None` if its role does not lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads: Option<LeadsStatus>,
    /// The epoch of its round, or else of its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The round that it leads, works for or has promised, within that epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// It has executed all slots below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<u64>,
    /// As far as it knows, the log ends before this slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_end: Option<u64>,
    /// Whether it holds what is chosen, apart from the last seconds; false while it catches up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<bool>,
    /// For how long something that it has asked for is not answered, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered_ms: Option<u64>,
    /// How often it has installed a snapshot of another instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots_installed: Option<u64>,
    /// Its stored snapshot contains everything below this slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<u64>,
    /// Whether its stored snapshot contains the last change of the cluster's level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level_stored: Option<bool>,
    /// It has not voted in this slot or any after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voted: Option<u64>,
    /// Whether it has everything that earlier processes stored; `None` if it stores nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembers: Option<bool>,
    /// Whether the cluster has opened its session, without which it serves no client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_session: Option<bool>,
    /// What comparing its state with that of other instances has shown: 0 that they are equal, 1
    /// that others have diverged, 2 that some have and it is not known which, 3 that it has itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<u8>,
    /// The metrics of its protocol, by name.
    pub metrics: BTreeMap<String, u64>,
}

/// What a leader leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadsStatus {
    /// Whether it leads its own part of the log: all of it, where there is one leader.
    pub own: bool,
    /// How many other leaders' parts of the log it leads.
    pub others: u64,
    /// How often it has started an election.
    pub elections: u64,
}

impl LeadsStatus {
    /// How many parts of the log it leads.
    pub fn parts(self) -> u64 {
        u64::from(self.own) + self.others
    }
}

impl RoleStatus {
    /// The report of an instance of the kind `role`, whose protocol declares these metrics.
    pub(crate) fn of(
        now: Instant,
        (role, index): (&str, Index),
        status: Status,
        metrics: Metrics,
    ) -> Self {
        let slot = |slot: Option<Slot>| slot.map(|slot| slot.0);
        let epoch = status.round.map(Round::epoch).or(status.epoch);
        RoleStatus {
            role: role.to_owned(),
            index,
            leads: status.leads.map(|leads| LeadsStatus {
                own: leads.own,
                others: leads.others,
                elections: leads.elections,
            }),
            epoch: epoch.map(|epoch| epoch.0),
            round: status.round.map(Round::number),
            executed: slot(status.executed),
            log_end: slot(status.log_end),
            current: status.current_until.map(|until| now <= until),
            unanswered_ms: status
                .unanswered_since
                .map(|since| now.since(since).as_millis() as u64),
            snapshots_installed: status.snapshots_installed,
            stored: slot(status.stored),
            level_stored: status.level_stored,
            voted: slot(status.voted),
            remembers: status.remembers,
            has_session: status.has_session,
            divergence: status.agreement.map(|agreement| agreement as u8),
            metrics: each(metrics)
                .map(|metric| metric.name.to_owned())
                .zip(status.metrics)
                .collect(),
        }
    }

    /// The epoch and the round: later ones are greater.
    pub fn ballot(&self) -> Option<(u32, u64)> {
        self.epoch.zip(self.round)
    }

    /// All fields as numbers with the names that they have in JSON, for people.
    pub fn figures(&self) -> Vec<(&str, u64)> {
        let leads = self.leads;
        let fields = [
            ("leads.own", leads.map(|leads| leads.own.into())),
            ("leads.others", leads.map(|leads| leads.others)),
            ("leads.elections", leads.map(|leads| leads.elections)),
            ("epoch", self.epoch.map(u64::from)),
            ("round", self.round),
            ("executed", self.executed),
            ("log_end", self.log_end),
            ("current", self.current.map(u64::from)),
            ("unanswered_ms", self.unanswered_ms),
            ("snapshots_installed", self.snapshots_installed),
            ("stored", self.stored),
            ("voted", self.voted),
            ("remembers", self.remembers.map(u64::from)),
            ("has_session", self.has_session.map(u64::from)),
            ("divergence", self.divergence.map(u64::from)),
        ];
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let metrics = self.metrics.iter();
        fields
            .chain(metrics.map(|(name, value)| (name.as_str(), *value)))
            .collect()
    }
}

/// The state of the connection to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// Connected.
    Connected,
    /// Not connected.
    Disconnected,
    /// Not connected, because the other node refuses this one.
    Refused,
}

/// Another node as this one sees it. Counters start at zero with the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its number.
    pub node: u16,
    /// Its name, once it has been connected.
    pub name: Option<String>,
    /// Where it listens.
    pub address: String,
    /// The state of the connection to it.
    pub state: PeerState,
    /// Why it refuses this node.
    pub refusal: Option<String>,
    /// How often it was connected.
    pub connections: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Messages received.
    pub frames_in: u64,
    /// How often it has sent what is no message, so that the connection was closed; 0 from programs
    /// that do not report it.
    #[serde(default)]
    pub malformed: u64,
    /// Messages queued for it, including those that were dropped later.
    pub frames_out: u64,
    /// Successful write calls; `frames_out` divided by this shows how well messages are coalesced.
    pub writes: u64,
    /// Messages dropped because it was not connected or too many bytes waited.
    pub dropped: u64,
    /// Large messages that were not queued because the same message was waiting already.
    pub repeated: u64,
    /// Bytes that wait to be sent.
    pub backlog_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A person who reads one of them finds the figure in the other.
    #[test]
    fn figures_have_the_names_of_the_document() {
        let role = RoleStatus {
            leads: Some(LeadsStatus::default()),
            epoch: Some(1),
            round: Some(1),
            executed: Some(1),
            log_end: Some(1),
            snapshots_installed: Some(1),
            stored: Some(1),
            voted: Some(1),
            remembers: Some(true),
            has_session: Some(true),
            divergence: Some(1),
            ..RoleStatus::default()
        };
        let document = serde_json::to_value(&role).unwrap();
        let figures = role.figures();
        assert_eq!(figures.len(), 13);
        for (name, _) in figures {
            let pointer = format!("/{}", name.replace('.', "/"));
            assert!(document.pointer(&pointer).is_some(), "{name}: {document}");
        }
    }
}
