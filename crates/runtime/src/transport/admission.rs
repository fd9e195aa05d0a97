//! Whether this node may take part, and which peers it accepts.
//!
//! A node whose data directory is new may have taken part before and may have been emptied. So it
//! starts its roles only when a majority of the other nodes has accepted it. Any two such
//! majorities have a node in common, and that node knows the first directory. ([The
//! argument](../../../../docs/decisions/0010-identity.md).)
//!
//! Where the protocol [readmits](ionian_kernel::protocol::Protocol::READMITS) nodes whose directory
//! is lost, an operator gives such a node an empty directory whose id counts those lost before it.
//! A peer accepts it in place of a known one with fewer predecessors, and refuses that one from
//! then on. By the same argument no two directories that have taken part have equally many.

use crate::error::NodeError;
use crate::storage::identity::{DirectoryId, IdentityFile, MAX_PEERS};
use ionian_kernel::layout::NodeId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// See the top of this file. A node without a data directory has no id and stores no ids of peers:
/// it takes part at once and compares nothing.
pub(crate) struct Admission {
    identities: Option<RefCell<IdentityFile>>,
    /// The number of other nodes.
    others: Cell<usize>,
    /// Whether a directory may take the place of one that is lost.
    readmits: bool,
    admitted: Cell<bool>,
    /// The peers with which this process has completed a handshake.
    accepted: RefCell<BTreeSet<NodeId>>,
    /// The peers that refuse this node though it has taken part.
    refused_by: RefCell<BTreeSet<NodeId>>,
    /// Why the node must stop.
    end: RefCell<Option<NodeError>>,
    changed: Notify,
}

/// Why this node does not accept a peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    /// Its data directory is not the one that this node knows for its name.
    IdentityMismatch(String),
    /// Any reason that an operator can remove.
    Other(String),
}

impl Objection {
    pub(crate) fn into_text(self) -> String {
        let (Objection::IdentityMismatch(text) | Objection::Other(text)) = self;
        text
    }
}

impl Admission {
    /// `others` is the number of other nodes; `readmits` says whether the protocol readmits those
    /// that have lost their directory.
    pub(crate) fn new(
        identities: Option<IdentityFile>,
        others: usize,
        readmits: bool,
    ) -> Result<Self, NodeError> {
        let admission = Admission {
            admitted: Cell::new(identities.as_ref().is_none_or(IdentityFile::took_part)),
            identities: identities.map(RefCell::new),
            others: Cell::new(others),
            readmits,
            accepted: RefCell::default(),
            refused_by: RefCell::default(),
            end: RefCell::default(),
            changed: Notify::new(),
        };
        if admission.majority() == 0 && !admission.admitted.get() {
            admission.admit()?;
        }
        Ok(admission)
    }

    /// The size of a majority of the other nodes.
    fn majority(&self) -> usize {
        if self.others.get() == 0 {
            0
        } else {
            self.others.get() / 2 + 1
        }
    }

    /// The membership has changed: there are `others` other nodes now, and the nodes with the names
    /// in `left` have left.
    pub(crate) fn change(&self, others: usize, left: &[String]) -> Result<(), NodeError> {
        if let Some(identities) = &self.identities {
            let mut identities = identities.borrow_mut();
            identities.forget(|name| left.iter().any(|left| left == name));
            identities.save()?;
        }
        self.others.set(others);
        self.admit_if_accepted();
        Ok(())
    }

    /// The id of this node's directory.
    pub(crate) fn own(&self) -> Option<DirectoryId> {
        self.identities
            .as_ref()
            .map(|identities| identities.borrow().own())
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted.get()
    }

    /// Completes when the roles may be started.
    pub(crate) async fn admitted(&self) {
        self.until(|| self.admitted.get().then_some(())).await;
    }

    /// Completes when the node must stop.
    pub(crate) async fn end(&self) -> NodeError {
        self.until(|| self.end.borrow_mut().take()).await
    }

    async fn until<T>(&self, condition: impl Fn() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = condition() {
                return found;
            }
            changed.await;
        }
    }

    /// Logs what the node waits for, if it does.
    pub(crate) fn log_waiting(&self) {
        if !self.admitted.get() {
            tracing::info!(
                "the data directory is new: this node takes part when {} of the {} other nodes have accepted it",
                self.majority(),
                self.others.get()
            );
        }
    }

    /// Why this node does not accept a peer, if so.
    pub(crate) fn objection(
        &self,
        name: &str,
        directory: Option<DirectoryId>,
    ) -> Option<Objection> {
        let identities = self.identities.as_ref()?.borrow();
        let lost = directory.map_or(0, DirectoryId::predecessors);
        if lost > 0 && !self.readmits {
            return Some(Objection::Other(format!(
                "node '{name}' was given a data directory in place of a lost one, which this protocol does not allow"
            )));
        }
        match identities.known(name) {
            Some(known) if lost > known.predecessors() => None,
            Some(known) if directory != Some(known) => Some(Objection::IdentityMismatch(
                mismatch_text(name, (known, directory), self.readmits),
            )),
            None if lost == 0 && identities.has_other_origin(name, directory) => Some(
                Objection::IdentityMismatch(other_origin_text(name, identities.own())),
            ),
            None if identities.is_full() => Some(Objection::Other(format!(
                "this node knows {MAX_PEERS} names of nodes already, which is the most: it cannot store '{name}'"
            ))),
            _ => None,
        }
    }

    /// Accepts a peer, if there is no objection. On return the id of its directory is on disk.
    pub(crate) async fn accept_peer(
        &self,
        name: &str,
        directory: Option<DirectoryId>,
    ) -> Result<(), Objection> {
        if let Some(objection) = self.objection(name, directory) {
            return Err(objection);
        }
        let (Some(identities), Some(directory)) = (&self.identities, directory) else {
            return Ok(());
        };
        let known = identities.borrow().known(name);
        if known != Some(directory) {
            identities.borrow_mut().note(name, directory);
        }
        if let Some(lost) = known.filter(|known| *known != directory) {
            tracing::warn!(
                id = "E0307",
                "node '{name}' has lost its data directory {lost} and is back without it: it has {directory} now"
            );
        }
        // One write for all peers that are accepted at the same moment, as at the start of a
        // cluster.
        tokio::task::yield_now().await;
        let saved = identities.borrow_mut().save();
        if let Err(error) = saved {
            self.stop(error.into());
            // The node ends here: no peer may receive an answer any more.
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// A handshake is complete: neither side objects to the other. Meanwhile this node may have met
    /// another directory of that name.
    pub(crate) fn handshake_done(
        &self,
        peer: NodeId,
        name: &str,
        directory: Option<DirectoryId>,
    ) -> Result<(), Objection> {
        if let Some(objection) = self.objection(name, directory) {
            return Err(objection);
        }
        self.refused_by.borrow_mut().remove(&peer);
        self.accepted.borrow_mut().insert(peer);
        self.admit_if_accepted();
        Ok(())
    }

    fn admit_if_accepted(&self) {
        let accepted = self.accepted.borrow().len();
        if !self.admitted.get() && accepted >= self.majority() {
            match self.admit() {
                Ok(()) => tracing::info!(
                    "{accepted} of the {} other nodes have accepted this node",
                    self.others.get()
                ),
                Err(error) => self.stop(error),
            }
        }
    }

    fn admit(&self) -> Result<(), NodeError> {
        if let Some(identities) = &self.identities {
            identities.borrow_mut().takes_part()?;
        }
        self.admitted.set(true);
        self.changed.notify_waiters();
        Ok(())
    }

    /// A peer knows this node by another directory. A node that started with an empty directory
    /// stops. A node that did not stops only when a majority refuses it: a single peer that
    /// contradicts it may itself be the one with the wrong directory.
    pub(crate) fn refused(&self, peer: NodeId, reason: &str) {
        self.refused_by.borrow_mut().insert(peer);
        let began_with_nothing = self
            .identities
            .as_ref()
            .is_some_and(|identities| !identities.borrow().has_log());
        if began_with_nothing || self.refused_by.borrow().len() >= self.majority() {
            self.stop(NodeError::IdentityMismatch {
                by: peer,
                reason: reason.to_owned(),
            });
        }
    }

    fn stop(&self, error: NodeError) {
        self.end.borrow_mut().get_or_insert(error);
        self.changed.notify_waiters();
    }
}

fn other_origin_text(name: &str, own: DirectoryId) -> String {
    format!(
        "the data directory {own} of this node was restored from a snapshot, and that of node '{name}' was not restored \
         from the same one: restore it from the same file, for the same deployment (ionian snapshot restore)"
    )
}

/// The text for the refused node, whose directory is known by the first id and has the second.
fn mismatch_text(
    name: &str,
    (known, now): (DirectoryId, Option<DirectoryId>),
    readmits: bool,
) -> String {
    let now = now.map_or_else(|| "none".to_owned(), |now| now.to_string());
    let else_what = match readmits {
        true => format!(
            "if it is lost for good: ionian member readmit {name} --lost {known} --data DIR"
        ),
        false => format!(
            "replace it by a node of another name: ionian member replace {name} NEW --address HOST:PORT. Where members \
             cannot change, save the state and found another cluster (docs/backup.md)"
        ),
    };
    format!(
        "node '{name}' is known here by the data directory {known}, and comes with {now}: its data was deleted or \
         exchanged, and with it what it promised, so it must not take part. Start it with the data that it had, or \
         {else_what}"
    )
}
