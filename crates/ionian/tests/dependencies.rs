//! Tables of dependencies, right and wrong: the test kit finds what is missing.
#![cfg(feature = "testing")]

use ionian::dependencies::{Classes, Dependencies};
use ionian::testing::{Commands, Random, exercise};
use ionian::{Footprint, NotARead, RestoreError, StateMachine, Timestamp};
use ionian_kernel::delegate;
use ionian_machines::tree::{
    Command, KINDS, MAX_SCAN, Partitioned, Published, Table, TreeStore,
    kind::{COUNT, DELETE, INSERT, READ, SCAN, UPDATE},
};
use std::sync::LazyLock;

/// The B+-tree with a table, as a machine whose commands can be drawn.
struct Tree<T>(TreeStore<T>);

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Tree(TreeStore::default())
    }
}

impl<T: Table> StateMachine for Tree<T> {
    delegate!(0: apply read snapshot freeze restore footprint parts);
}

impl<T: Table> Commands for Tree<T> {
    fn random_write(random: &mut Random) -> Vec<u8> {
        let (key, value) = (random.below(20), random.any());
        let command = match random.below(4) {
            0 => Command::Update { key, value },
            1 => Command::Delete { key },
            _ => Command::Insert { key, value },
        };
        command.encode()
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        let (key, to, limit) = (random.below(20), random.below(30), MAX_SCAN);
        let command = match random.below(4) {
            0 => Command::Count,
            1 => Command::Scan {
                from: key,
                to,
                limit,
            },
            _ => Command::Read { key },
        };
        command.encode()
    }
}

/// What the exercise says of a machine.
fn fault<M: Commands>() -> String {
    exercise::<M>(0..100).map_or_else(|fault| fault.what, |_| "nothing".into())
}

/// How many of a hundred seeds' steps executed something in both orders.
fn commuted<M: Commands>() -> u64 {
    exercise::<M>(0..100).expect("no fault").commuted
}

#[test]
fn the_tables_of_the_tree_are_right() {
    let (published, partitioned) = (
        commuted::<Tree<Published>>(),
        commuted::<Tree<Partitioned>>(),
    );
    // Most of the random commands are inserts and deletes.
    assert!(
        published > 300 && partitioned > published,
        "{published}, {partitioned}"
    );
}

/// A machine that says of each command that it touches everything.
#[derive(Default)]
struct Undeclared(Accounts<false>);

impl StateMachine for Undeclared {
    delegate!(0: apply read snapshot restore);
}

impl Commands for Undeclared {
    fn random_write(random: &mut Random) -> Vec<u8> {
        Accounts::<false>::random_write(random)
    }
    fn random_read(random: &mut Random) -> Vec<u8> {
        Accounts::<false>::random_read(random)
    }
}

#[test]
fn an_exercise_says_when_it_could_not_compare_orders() {
    assert_eq!(commuted::<Undeclared>(), 0);
    assert!(commuted::<Accounts<false>>() > 300);
}

/// Wrong: scans and counts are independent of inserts and deletes.
struct InsertsForgotten;

impl Table for InsertsForgotten {
    fn classes() -> &'static Classes {
        static CLASSES: LazyLock<Classes> = LazyLock::new(|| {
            Dependencies::of(&KINDS)
                .on_same_key(INSERT, &[READ, UPDATE, INSERT, DELETE])
                .on_same_key(DELETE, &[READ, UPDATE, DELETE])
                .on_same_key(UPDATE, &[READ, UPDATE])
                .classes()
        });
        &CLASSES
    }
}

/// Wrong: updates are independent of all but scans, which are expected to be the more frequent.
struct UpdatesForgotten;

impl Table for UpdatesForgotten {
    fn classes() -> &'static Classes {
        static CLASSES: LazyLock<Classes> = LazyLock::new(|| {
            Dependencies::of(&KINDS)
                .on_same_key(INSERT, &[READ, INSERT, DELETE])
                .on_same_key(DELETE, &[READ, DELETE])
                .always(SCAN, &[UPDATE, INSERT, DELETE, SCAN])
                .always(COUNT, &[INSERT, DELETE])
                .classes()
        });
        &CLASSES
    }
}

#[test]
fn an_insert_that_is_declared_independent_of_scans_and_counts_is_found() {
    let found = fault::<Tree<InsertsForgotten>>();
    assert!(
        found.contains("their order matters: the answer to"),
        "{found}"
    );
    // One insert or delete and one query are left of the sequences, whatever they were.
    for seed in 0..40 {
        let fault = exercise::<Tree<InsertsForgotten>>(seed..seed + 100).expect_err("a fault");
        assert!(!fault.what.contains(" then "), "{fault}");
    }
}

#[test]
fn an_update_that_is_declared_independent_of_its_key_is_found() {
    let found = fault::<Tree<UpdatesForgotten>>();
    assert!(
        found.contains("\"\\x01") && found.contains("their order matters"),
        "{found}"
    );
}

/// Accounts, and transfers from one to another. `FIRST_KEY_ONLY` is the defect.
#[derive(Default)]
struct Accounts<const FIRST_KEY_ONLY: bool>([u8; 6]);

const BALANCE: usize = 0;
const TRANSFER: usize = 1;

static ACCOUNTS: LazyLock<Classes> = LazyLock::new(|| {
    Dependencies::of(&[("balance", 50), ("transfer", 50)])
        .on_same_key(TRANSFER, &[BALANCE, TRANSFER])
        .classes()
});

impl<const FIRST_KEY_ONLY: bool> StateMachine for Accounts<FIRST_KEY_ONLY> {
    fn apply(&mut self, _: Timestamp, command: &[u8], reply: &mut Vec<u8>) {
        let [from @ 0..6, to @ 0..6, amount] = *command else {
            return reply.extend_from_slice(b"?");
        };
        // An account gets what it lacks from outside.
        let taken = self.0[usize::from(from)].saturating_sub(amount);
        self.0[usize::from(from)] = taken;
        self.0[usize::from(to)] = self.0[usize::from(to)].saturating_add(amount);
    }

    fn read(&self, _: Timestamp, query: &[u8], reply: &mut Vec<u8>) -> Result<(), NotARead> {
        let [account @ 0..6] = *query else {
            return Err(NotARead);
        };
        reply.push(self.0[usize::from(account)]);
        Ok(())
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let accounts = snapshot.try_into();
        self.0 = accounts.map_err(|_| RestoreError("there are 6 accounts".into()))?;
        Ok(())
    }

    fn footprint(&self, command: &[u8], footprint: &mut Footprint) {
        match *command {
            [account] => ACCOUNTS.touch(BALANCE, [account.into()], footprint),
            [from, _, _] if FIRST_KEY_ONLY => ACCOUNTS.touch(TRANSFER, [from.into()], footprint),
            [from, to, _] => ACCOUNTS.touch(TRANSFER, [from.into(), to.into()], footprint),
            _ => {}
        }
    }
}

impl<const FIRST_KEY_ONLY: bool> Commands for Accounts<FIRST_KEY_ONLY> {
    fn random_write(random: &mut Random) -> Vec<u8> {
        let mut below = |bound| random.below(bound) as u8;
        vec![below(6), below(6), below(100)]
    }

    fn random_read(random: &mut Random) -> Vec<u8> {
        vec![random.below(6) as u8]
    }
}

#[test]
fn a_command_of_two_keys_that_is_keyed_by_its_first_only_is_found() {
    assert_eq!(fault::<Accounts<false>>(), "nothing");
    let found = fault::<Accounts<true>>();
    assert!(
        found.contains("do not conflict by their footprints, and their order matters"),
        "{found}"
    );
}

/// Remembers the last command, which it does not answer, and claims that all commute.
#[derive(Default)]
struct Last(Vec<u8>);

impl StateMachine for Last {
    fn apply(&mut self, _: Timestamp, command: &[u8], _: &mut Vec<u8>) {
        self.0 = command.to_vec();
    }
    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Result<(), NotARead> {
        Ok(())
    }
    fn snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.0 = snapshot.to_vec();
        Ok(())
    }
    fn footprint(&self, _: &[u8], _: &mut Footprint) {}
}

impl Commands for Last {
    fn random_write(random: &mut Random) -> Vec<u8> {
        vec![7, b'a' + random.below(3) as u8]
    }
    fn random_read(_: &mut Random) -> Vec<u8> {
        Vec::new()
    }
}

#[test]
fn an_order_that_shows_in_the_snapshot_alone_is_found() {
    let found = fault::<Last>();
    let expected = "their order matters: from its byte 1 on, the snapshot is ";
    assert!(found.contains(expected), "{found}");
}
