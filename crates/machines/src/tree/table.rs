//! Which commands of the tree depend on each other: two tables.

use super::kind::{COUNT, DELETE, INSERT, READ, SCAN, UPDATE};
use ionian_kernel::dependencies::{Classes, Dependencies};
use std::sync::LazyLock;

/// A table of dependencies (P-SMR, C-Dep) of the tree's commands, and what follows from it.
pub trait Table: Send + 'static {
    /// The class of each kind of command.
    fn classes() -> &'static Classes;
}

/// The table of P-SMR, section V-A: an insert or a delete may change any node, so it depends on
/// every command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published;

/// The table of a tree that is divided by its keys: an insert or a delete changes nodes only of the
/// part that has its key, and depends only on commands with that key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitioned;

/// The kinds of command, in the order of their numbers, and how often each is expected among a
/// thousand. Scans and counts are rare, so where they depend on others it is they that touch
/// everything.
pub const KINDS: [(&str, u32); 6] = [
    ("read", 500),
    ("update", 400),
    ("insert", 49),
    ("delete", 49),
    ("scan", 1),
    ("count", 1),
];

impl Table for Published {
    fn classes() -> &'static Classes {
        static CLASSES: LazyLock<Classes> = LazyLock::new(|| {
            Dependencies::of(&KINDS)
                .always(INSERT, &[READ, UPDATE, INSERT, DELETE, SCAN, COUNT])
                .always(DELETE, &[READ, UPDATE, INSERT, DELETE, SCAN, COUNT])
                .on_same_key(UPDATE, &[READ, UPDATE])
                // It needs all parts: two scans cannot have them at once.
                .always(SCAN, &[UPDATE, SCAN])
                .classes()
        });
        &CLASSES
    }
}

impl Table for Partitioned {
    fn classes() -> &'static Classes {
        static CLASSES: LazyLock<Classes> = LazyLock::new(|| {
            Dependencies::of(&KINDS)
                .on_same_key(INSERT, &[READ, UPDATE, INSERT, DELETE])
                .on_same_key(DELETE, &[READ, UPDATE, DELETE])
                .on_same_key(UPDATE, &[READ, UPDATE])
                .always(SCAN, &[UPDATE, INSERT, DELETE, SCAN])
                .always(COUNT, &[INSERT, DELETE])
                .classes()
        });
        &CLASSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::dependencies::Class::{self, Everything, Nothing, Reads, Writes};

    fn classes<T: Table>() -> [Class; 6] {
        [READ, UPDATE, INSERT, DELETE, SCAN, COUNT].map(|kind| T::classes().of(kind))
    }

    #[test]
    fn inserts_and_deletes_touch_everything_or_their_key() {
        assert_eq!(
            classes::<Published>(),
            [Reads, Writes, Everything, Everything, Everything, Nothing]
        );
        assert_eq!(
            classes::<Partitioned>(),
            [Reads, Writes, Writes, Writes, Everything, Everything]
        );
    }
}
