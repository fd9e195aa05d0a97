use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn names(classes: &Classes, class: Class) -> Vec<&'static str> {
    let all = classes.all().iter();
    all.filter(|kind| kind.1 == class)
        .map(|kind| kind.0)
        .collect()
}

/// P-SMR, section V-A.
#[test]
fn the_tree_of_the_paper_has_the_groups_of_the_paper() {
    let classes = Dependencies::of(&[("insert", 1), ("delete", 1), ("read", 1), ("update", 1)])
        .always(0, &[0, 1, 2, 3])
        .always(1, &[1, 2, 3])
        .on_same_key(3, &[2, 3])
        .classes();
    assert_eq!(names(&classes, Class::Everything), ["insert", "delete"]);
    assert_eq!(names(&classes, Class::Writes), ["update"]);
    assert_eq!(names(&classes, Class::Reads), ["read"]);
}

/// P-SMR, section IV-C: without keys each `set` goes to all groups, and a `get` to any.
#[test]
fn of_two_kinds_that_always_depend_the_rarer_one_touches_everything() {
    for (get, set, expected) in [
        (90, 10, [Class::Nothing, Class::Everything]),
        (10, 90, [Class::Everything, Class::Nothing]),
    ] {
        let table = Dependencies::of(&[("get", get), ("set", set)]).always(0, &[1]);
        let classes = table.classes();
        assert_eq!([classes.of(0), classes.of(1)], expected);
    }
    let with_loop = Dependencies::of(&[("get", 10), ("set", 90)]).always(1, &[0, 1]);
    assert_eq!(with_loop.classes().of(1), Class::Everything);
}

/// P-SMR, section V-B.
#[test]
fn the_file_system_of_the_paper_has_the_groups_of_the_paper() {
    let kinds = [
        "create",
        "mknod",
        "mkdir",
        "unlink",
        "rmdir",
        "open",
        "utimens",
        "release",
        "opendir",
        "releasedir",
        "access",
        "lstat",
        "read",
        "write",
        "readdir",
    ];
    let all: Vec<usize> = (0..15).collect();
    let mut table = Dependencies::of(&kinds.map(|name| (name, 1)));
    for kind in 0..10 {
        table = table.always(kind, &all);
    }
    for kind in 10..15 {
        table = table.on_same_key(kind, &all[10..]);
    }
    let classes = table.classes();
    assert_eq!(names(&classes, Class::Everything), kinds[..10]);
    assert_eq!(names(&classes, Class::Writes), kinds[10..]);
}

/// Increments of a key commute with each other, and not with reads.
#[test]
fn of_two_kinds_that_depend_on_the_same_key_one_writes() {
    let classes = Dependencies::of(&[("add", 80), ("get", 20)])
        .on_same_key(0, &[1])
        .classes();
    assert_eq!(
        [classes.of(0), classes.of(1)],
        [Class::Reads, Class::Writes]
    );
}

#[test]
fn a_kind_that_depends_on_the_same_key_of_what_touches_everything_reads_its_keys() {
    let table = Dependencies::of(&[("get", 1), ("set", 9)]).on_same_key(0, &[1]);
    let classes = table.always(1, &[1]).classes();
    assert_eq!(
        [classes.of(0), classes.of(1)],
        [Class::Reads, Class::Everything]
    );
}

#[test]
#[should_panic(expected = "kinds 0 and 2 depend on each other; there are 2 kinds, from 0")]
fn a_kind_that_was_not_declared_is_refused() {
    let _ = Dependencies::of(&[("get", 1), ("set", 1)]).always(0, &[2]);
}

#[test]
#[should_panic(expected = "65 kinds of command; at most 64 are possible")]
fn more_kinds_than_bits_are_refused() {
    Dependencies::of(&[("one", 1); 65]);
}

fn footprint(classes: &Classes, kind: usize, keys: &[u64]) -> Footprint {
    let mut footprint = Footprint::default();
    classes.touch(kind, keys.iter().copied(), &mut footprint);
    footprint
}

proptest! {
    /// Whatever the table: what was declared is kept, for any keys.
    #[test]
    fn commands_that_depend_on_each_other_conflict(
        frequencies in vec(0..100_u32, 1..9),
        always in vec((0..9_usize, 0..9_usize), 0..6),
        on_same_key in vec((0..9_usize, 0..9_usize), 0..12),
        keys in (vec(0..4_u64, 1..3), vec(0..4_u64, 1..3)),
    ) {
        let count = frequencies.len();
        let kinds: Vec<_> = frequencies.iter().map(|frequency| ("kind", *frequency)).collect();
        let mut table = Dependencies::of(&kinds);
        for (one, other) in &always {
            table = table.always(one % count, &[other % count]);
        }
        for (one, other) in &on_same_key {
            table = table.on_same_key(one % count, &[other % count]);
        }
        let classes = table.classes();
        let conflict = |pair: &(usize, usize)| {
            let one = footprint(&classes, pair.0 % count, &keys.0);
            one.conflicts(&footprint(&classes, pair.1 % count, &keys.1))
        };
        prop_assert!(always.iter().all(conflict));
        let share = keys.0.iter().any(|key| keys.1.contains(key));
        prop_assert!(!share || on_same_key.iter().all(conflict));
        if always.is_empty() {
            prop_assert!(classes.all().iter().all(|kind| kind.1 != Class::Everything));
        }
    }
}
