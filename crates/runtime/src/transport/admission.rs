//! Whether this node may take part, and who may take part with it.
//!
//! A node whose data directory is new has perhaps been here before and was emptied. So it starts
//! its roles only when a majority of the other nodes has met it and known nothing against it; any
//! two such majorities have a node in common, and that one remembers. ([The
//! argument](../../../docs/decisions/0010-identity.md).)

use crate::error::NodeError;
use crate::storage::identity::{DirectoryId, Register};
use ionian_kernel::layout::NodeId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// See the top of this file. A node without a data directory has no number and knows nobody: it
/// takes part at once and compares nothing.
pub(crate) struct Admission {
    register: Option<RefCell<Register>>,
    /// How many other nodes there are.
    others: Cell<usize>,
    admitted: Cell<bool>,
    /// With whom hands were shaken by this process.
    met: RefCell<BTreeSet<NodeId>>,
    /// By whom this node is refused, though it has taken part.
    refused_by: RefCell<BTreeSet<NodeId>>,
    /// Why the node must stop.
    end: RefCell<Option<NodeError>>,
    changed: Notify,
}

/// Why somebody is not met.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    /// It has another data directory than the one by which its name is known.
    Estranged(String),
    /// Anything that may be put right.
    Other(String),
}

impl Objection {
    pub(crate) fn into_text(self) -> String {
        let (Objection::Estranged(text) | Objection::Other(text)) = self;
        text
    }
}

impl Admission {
    /// For a node with so many others.
    pub(crate) fn new(register: Option<Register>, others: usize) -> Result<Self, NodeError> {
        let admitted = Cell::new(register.as_ref().is_none_or(Register::took_part));
        let (met, refused_by, end, changed) = Default::default();
        let register = register.map(RefCell::new);
        let others = Cell::new(others);
        let admission = Admission {
            register,
            others,
            admitted,
            met,
            refused_by,
            end,
            changed,
        };
        if admission.majority() == 0 && !admission.admitted.get() {
            admission.admit()?;
        }
        Ok(admission)
    }

    /// How many of the other nodes are a majority of them.
    fn majority(&self) -> usize {
        if self.others.get() == 0 {
            0
        } else {
            self.others.get() / 2 + 1
        }
    }

    /// The membership has changed: there are so many others now, and those of these names have
    /// left.
    pub(crate) fn change(&self, others: usize, left: &[String]) -> Result<(), NodeError> {
        if let Some(register) = &self.register {
            let mut register = register.borrow_mut();
            register.forget(|name| left.iter().any(|left| left == name));
            register.save()?;
        }
        self.others.set(others);
        self.admit_if_met_enough();
        Ok(())
    }

    /// The number of this node's directory.
    pub(crate) fn own(&self) -> Option<DirectoryId> {
        self.register
            .as_ref()
            .map(|register| register.borrow().own())
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

    /// What for the node waits, if it does.
    pub(crate) fn say_what_it_waits_for(&self) {
        if !self.admitted.get() {
            tracing::info!(
                "the data directory is new: this node takes part when {} of the {} other nodes have met it",
                self.majority(),
                self.others.get()
            );
        }
    }

    /// What this node has against a peer.
    pub(crate) fn objection(
        &self,
        name: &str,
        directory: Option<DirectoryId>,
    ) -> Option<Objection> {
        let register = self.register.as_ref()?.borrow();
        match register.known(name) {
            Some(known) if directory != Some(known) => {
                Some(Objection::Estranged(estranged(name, known, directory)))
            }
            None if register.is_of_another_origin(name, directory) => Some(Objection::Estranged(
                of_another_origin(name, register.own()),
            )),
            None if register.is_full() => Some(Objection::Other(format!(
                "this node has met too many others to remember '{name}' as well"
            ))),
            _ => None,
        }
    }

    /// Meets a peer. When it is accepted, its number is on disk.
    pub(crate) async fn meet(
        &self,
        name: &str,
        directory: Option<DirectoryId>,
    ) -> Result<(), Objection> {
        if let Some(objection) = self.objection(name, directory) {
            return Err(objection);
        }
        let (Some(register), Some(directory)) = (&self.register, directory) else {
            return Ok(());
        };
        if register.borrow().known(name).is_none() {
            register.borrow_mut().note(name, directory);
        }
        // One write for all that are met in the same moment, as at the start of a cluster.
        tokio::task::yield_now().await;
        let saved = register.borrow_mut().save();
        if let Err(error) = saved {
            self.stop(error.into());
            // The node ends here: nobody is to be told anything any more.
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// Hands were shaken: neither side knows anything against the other.
    pub(crate) fn shook_hands(&self, peer: NodeId) {
        self.refused_by.borrow_mut().remove(&peer);
        self.met.borrow_mut().insert(peer);
        self.admit_if_met_enough();
    }

    fn admit_if_met_enough(&self) {
        let met = self.met.borrow().len();
        if !self.admitted.get() && met >= self.majority() {
            match self.admit() {
                Ok(()) => tracing::info!(
                    "{met} of the {} other nodes have met this one",
                    self.others.get()
                ),
                Err(error) => self.stop(error),
            }
        }
    }

    fn admit(&self) -> Result<(), NodeError> {
        if let Some(register) = &self.register {
            register.borrow_mut().takes_part()?;
        }
        self.admitted.set(true);
        self.changed.notify_waiters();
        Ok(())
    }

    /// A peer knows this node by another directory. For a node that began with nothing this is the
    /// end. One that did not asks more of them: a single one that contradicts it may itself be the
    /// one with the wrong directory.
    pub(crate) fn refused(&self, peer: NodeId, reason: &str) {
        self.refused_by.borrow_mut().insert(peer);
        let began_with_nothing = self
            .register
            .as_ref()
            .is_some_and(|register| !register.borrow().has_log());
        if began_with_nothing || self.refused_by.borrow().len() >= self.majority() {
            self.stop(NodeError::Estranged {
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

fn of_another_origin(name: &str, own: DirectoryId) -> String {
    format!(
        "the data directory {own} of this node was restored from a snapshot, and that of node '{name}' was not restored \
         from the same: make it from the very same file, for the same deployment (ionian snapshot restore)"
    )
}

/// In words for the one who is refused.
fn estranged(name: &str, known: DirectoryId, now: Option<DirectoryId>) -> String {
    let now = now.map_or_else(|| "none".to_owned(), |now| now.to_string());
    format!(
        "node '{name}' is known here by the data directory {known}, and comes with {now}: its data was deleted or \
         exchanged, and with it what it promised, so it must not take part. Start it with the data that it had, or \
         replace it by a node of another name: ionian member replace {name} NEW --address HOST:PORT"
    )
}
