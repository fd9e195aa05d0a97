//! The defects that the patches build in, and which one is active.

pub(crate) mod help;

use std::cell::Cell;
use std::marker::PhantomData;

/// A defect, as its patch describes it.
#[derive(Debug, PartialEq)]
pub struct Canary {
    /// Its protocol and its name, as in `multipaxos/repair`.
    pub id: &'static str,
    /// The protocol in which it is.
    pub protocol: &'static str,
    /// Its name, unique within the protocol.
    pub name: &'static str,
    /// The defect in a sentence, as in `docs/defects.md`.
    pub defect: &'static str,
    /// Whether a published implementation made this mistake.
    pub is_published: bool,
    /// The preset in which it shows, if the protocol's smallest does not show it.
    pub preset: Option<&'static str>,
    /// Settings with which it shows, each `key=value`.
    pub set: &'static [&'static str],
    /// What must survive a crash for it to show, in the words of `ionian sim --durability`.
    pub durability: Option<&'static str>,
    /// Whether it shows only when the membership changes.
    pub changes: bool,
    /// Among which seeds it shows, `A..B`, if it is rare.
    pub seeds: Option<&'static str>,
}

/// All canaries, in the order of their ids.
pub const ALL: &[Canary] = crate::CANARIES;

thread_local! {
    static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Whether the defect of this id is active on this thread.
pub(crate) fn is(id: &str) -> bool {
    ACTIVE.get() == Some(id)
}

/// Keeps a defect active on the thread that made it, until it is dropped. Roles must run on that
/// thread.
#[must_use = "the defect is active until this is dropped"]
pub struct Active {
    before: Option<&'static str>,
    stays_here: PhantomData<*const ()>,
}

impl Canary {
    /// The canaries that a protocol can have, by its name in deployment files: its own, and those
    /// of the protocols whose roles it has, if none of its own has that name.
    pub fn of(protocol: &str) -> impl Iterator<Item = &'static Canary> {
        let own = ALL.iter().filter(move |canary| canary.protocol == protocol);
        let inherited = crate::INHERITED
            .iter()
            .filter(move |(heir, _)| *heir == protocol);
        let inherited = inherited.flat_map(|(_, of)| ALL.iter().filter(|it| it.protocol == *of));
        own.clone()
            .chain(inherited.filter(move |it| own.clone().all(|own| own.name != it.name)))
    }

    /// The canary of this name that a protocol can have.
    pub fn named(protocol: &str, name: &str) -> Option<&'static Canary> {
        Canary::of(protocol).find(|canary| canary.name == name)
    }

    /// Makes this defect the active one on this thread.
    pub fn activate(&self) -> Active {
        Active {
            before: ACTIVE.replace(Some(self.id)),
            stays_here: PhantomData,
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.set(self.before);
    }
}
