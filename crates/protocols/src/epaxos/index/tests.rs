use super::*;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use ionian_kernel::id::LeaderId;
use ionian_kernel::random::Random;

fn space(leader: u8) -> Space {
    let leader = LeaderId(leader);
    Space { leader, life: 0 }
}

fn id(leader: u8, number: u64) -> InstanceId {
    InstanceId::new(space(leader), number)
}

fn touching(reads: &[u64], writes: &[u64]) -> Arc<Footprint> {
    Arc::new(Footprint {
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        ..Footprint::default()
    })
}

fn writing(key: u64) -> Arc<Footprint> {
    touching(&[], &[key])
}

fn everything() -> Arc<Footprint> {
    Arc::new(Footprint {
        everything: true,
        ..Footprint::default()
    })
}

fn exact(ids: &[InstanceId]) -> Deps {
    Deps::new(ids.iter().copied(), [])
}

#[test]
fn a_command_depends_on_those_that_write_what_it_reads_or_read_or_write_what_it_writes() {
    let mut index = ConflictIndex::new(7);
    let (a, b) = (1, 2);
    assert_eq!(index.record(id(0, 0), &writing(a)), Deps::NONE);
    assert_eq!(
        index.record(id(1, 0), &touching(&[a], &[b])),
        exact(&[id(0, 0)])
    );
    assert_eq!(
        index.record(id(2, 0), &touching(&[a, a], &[])),
        exact(&[id(0, 0)])
    );
    let all = [id(0, 0), id(1, 0), id(2, 0)];
    assert_eq!(index.record(id(3, 0), &touching(&[a], &[a])), exact(&all));
    assert_eq!(index.query(&touching(&[b], &[])), exact(&[id(1, 0)]));
    assert_eq!(index.query(&touching(&[3], &[])), Deps::NONE);
    // The answer to a repeated question does not name the command itself.
    assert_eq!(index.record(id(3, 0), &touching(&[a], &[a])), exact(&all));
    assert_eq!(index.len(), 4);
}

#[test]
fn a_committed_writer_takes_the_place_of_what_it_depends_on() {
    let mut index = ConflictIndex::new(7);
    let (a, b) = (1, 2);
    index.record(id(0, 0), &touching(&[], &[a, b]));
    index.record(id(0, 1), &touching(&[a], &[]));
    index.record(id(1, 0), &writing(a));
    index.on_committed(id(1, 0), Some((&writing(a), &exact(&[id(0, 0), id(0, 1)]))));
    assert_eq!(index.query(&touching(&[a], &[])), exact(&[id(1, 0)]));
    assert_eq!(index.query(&writing(a)), exact(&[id(1, 0)]));
    // On the other key nothing else leads to it.
    assert_eq!(index.query(&writing(b)), exact(&[id(0, 0)]));
    assert_eq!(index.len(), 2);
    // What it does not depend on stays.
    index.record(id(2, 0), &writing(b));
    index.on_committed(id(2, 0), Some((&writing(b), &Deps::NONE)));
    assert_eq!(index.query(&writing(b)), exact(&[id(0, 0), id(2, 0)]));
}

/// A reader does not conflict with the next reader, which must see the writer.
#[test]
fn a_committed_reader_takes_the_place_of_nothing() {
    let mut index = ConflictIndex::new(7);
    index.record(id(0, 0), &writing(1));
    let reader = touching(&[1], &[2]);
    let deps = index.record(id(1, 0), &reader);
    index.on_committed(id(1, 0), Some((&reader, &deps)));
    assert_eq!(index.query(&touching(&[1], &[])), exact(&[id(0, 0)]));
}

/// e9: it may have been proposed through acceptors that did not include this one.
#[test]
fn e9_a_writer_that_was_never_recorded_is_before_others_are_forgotten_for_it() {
    let mut index = ConflictIndex::new(7);
    index.record(id(0, 0), &writing(1));
    index.on_committed(id(1, 0), Some((&writing(1), &exact(&[id(0, 0)]))));
    assert_eq!(index.query(&writing(1)), exact(&[id(1, 0)]));
}

/// Each depends on the other. The second to be committed has lost its place on one of its keys.
#[test]
fn of_two_that_depend_on_each_other_one_stays() {
    for first in [0, 1] {
        let mut index = ConflictIndex::new(7);
        let (both, one) = (touching(&[], &[1, 2]), writing(1));
        index.record(id(0, 0), &both);
        index.record(id(1, 0), &one);
        for turn in [first, 1 - first] {
            match turn {
                0 => index.on_committed(id(0, 0), Some((&both, &exact(&[id(1, 0)])))),
                _ => index.on_committed(id(1, 0), Some((&one, &exact(&[id(0, 0)])))),
            }
        }
        let last = [id(1, 0), id(0, 0)][first as usize];
        assert_eq!(index.query(&writing(1)), exact(&[last]));
        assert_eq!(index.query(&writing(2)), exact(&[id(0, 0)]));
    }
}

/// e9: a noop has no dependencies, so nothing can be seen through it.
#[test]
fn e9_a_noop_is_forgotten_alone() {
    let mut index = ConflictIndex::new(7);
    index.record(id(0, 0), &writing(1));
    index.record(id(1, 0), &touching(&[2], &[1]));
    index.record(id(2, 0), &everything());
    index.on_committed(id(1, 0), None);
    index.on_committed(id(2, 0), None);
    index.on_committed(id(3, 0), None);
    assert_eq!(index.query(&touching(&[], &[1, 2])), exact(&[id(0, 0)]));
    assert_eq!(index.len(), 1);
}

#[test]
fn what_conflicts_with_everything_depends_on_all_and_all_on_it() {
    let mut index = ConflictIndex::new(7);
    index.record(id(0, 4), &writing(1));
    index.record(id(1, 2), &touching(&[], &[]));
    let deps = index.record(id(2, 0), &everything());
    assert_eq!(deps, Deps::new([], [(space(0), 5), (space(1), 3)]));
    assert_eq!(index.query(&writing(7)), exact(&[id(2, 0)]));
    assert_eq!(index.query(&touching(&[7], &[])), exact(&[id(2, 0)]));
    index.on_committed(id(2, 0), Some((&everything(), &deps)));
    assert_eq!(index.len(), 1, "all but itself is forgotten");
    // The next one depends on it, and need not name what comes before it.
    index.record(id(0, 5), &writing(1));
    let next = Deps::new([], [(space(0), 6), (space(2), 1)]);
    assert_eq!(index.record(id(1, 3), &everything()), next);
}

/// A command that a barrier's dependencies do not have may come after it.
#[test]
fn a_barrier_leaves_what_it_does_not_depend_on() {
    let mut index = ConflictIndex::new(7);
    index.record(id(0, 0), &writing(1));
    let deps = index.record(id(2, 0), &everything());
    index.record(id(0, 1), &writing(1));
    index.on_committed(id(2, 0), Some((&everything(), &deps)));
    assert_eq!(index.query(&writing(1)), exact(&[id(0, 1), id(2, 0)]));
    // Only another of its kind takes its place.
    let both = exact(&[id(0, 1), id(2, 0)]);
    index.on_committed(id(0, 2), Some((&writing(1), &both)));
    assert_eq!(index.query(&writing(1)), exact(&[id(0, 2)]));
    assert_eq!(index.query(&writing(2)), exact(&[id(2, 0)]));
}

/// It is named until a writer that leads to it is committed, and again when that one may have been
/// forgotten.
#[test]
fn a_barrier_is_not_named_where_a_committed_writer_leads_to_it() {
    let mut index = ConflictIndex::new(7);
    let barrier = Deps::from(id(2, 0));
    let none = index.record(id(2, 0), &everything());
    index.on_committed(id(2, 0), Some((&everything(), &none)));
    // As long as it may yet be a noop, it leads nowhere.
    assert_eq!(index.record(id(0, 0), &writing(1)), barrier);
    assert_eq!(index.query(&writing(1)), exact(&[id(0, 0), id(2, 0)]));
    index.on_committed(id(0, 0), Some((&writing(1), &barrier)));
    assert_eq!(index.record(id(0, 1), &writing(1)), exact(&[id(0, 0)]));
    assert_eq!(
        index.query(&touching(&[1], &[2])),
        exact(&[id(0, 0), id(0, 1)])
    );
    // Another barrier, and then the two depend on each other.
    let second = index.record(id(1, 0), &everything());
    let all = exact(&[id(0, 0), id(0, 1), id(1, 0), id(2, 0)]);
    assert_eq!(index.query(&writing(1)), all);
    index.on_committed(id(0, 1), Some((&writing(1), &all)));
    assert_eq!(index.query(&writing(1)), exact(&[id(0, 1)]));
    index.record(id(0, 2), &writing(1));
    index.on_committed(id(1, 0), Some((&everything(), &second)));
    assert_eq!(index.query(&writing(1)), exact(&[id(0, 2), id(1, 0)]));
}

/// Decision 12: the number of dependencies is bounded.
#[test]
fn a_command_with_too_many_conflicts_waits_for_all_up_to_the_last_of_them() {
    let mut index = ConflictIndex::new(7);
    for number in 0..=MAX_EXACT as u64 {
        let deps = index.query(&writing(1));
        assert_eq!(deps.exact().len() as u64, number);
        index.record(id((number % 2) as u8, number * 2), &touching(&[1], &[]));
    }
    let end = 2 * MAX_EXACT as u64;
    let deps = Deps::new([], [(space(0), end + 1), (space(1), end - 1)]);
    assert_eq!(index.query(&writing(1)), deps);
    index.on_committed(id(2, 0), Some((&writing(1), &deps)));
    assert_eq!(index.query(&writing(1)), exact(&[id(2, 0)]));
    assert_eq!(index.len(), 1);
}

/// Whatever was forgotten is seen through what is left: from the answer to each command a path of
/// dependencies of committed commands leads to every command before it that conflicts and is no
/// noop. Others may yet be noops, and lead nowhere.
#[test]
fn every_conflict_is_seen_directly_or_over_others() {
    let mut widest = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut index = ConflictIndex::new(7);
        let mut proposed: BTreeMap<InstanceId, Deps> = BTreeMap::new();
        let mut committed: BTreeMap<InstanceId, Deps> = BTreeMap::new();
        let mut open: Vec<InstanceId> = Vec::new();
        let mut all: Vec<(InstanceId, Arc<Footprint>)> = Vec::new();
        // Those that this acceptor has recorded, or knows to be committed.
        let mut known: BTreeSet<InstanceId> = BTreeSet::new();
        for number in 0..40 {
            let footprint = match random.below(12) {
                0 => everything(),
                1..=3 => touching(&[random.below(4)], &[random.below(4), random.below(4)]),
                4 => touching(&[random.below(4)], &[]),
                _ => writing(random.below(4)),
            };
            let id = id(random.below(3) as u8, number);
            let mut deps = index.query(&footprint);
            if random.once_in(4) {
                // It is never recorded here until it is committed, and this acceptor's answer is
                // one of several.
                deps = Deps::new(all.iter().map(|(id, _)| *id), []);
            } else {
                assert_eq!(index.record(id, &footprint), deps);
                known.insert(id);
            }
            let (mut seen, mut next) = (Deps::NONE, deps.clone());
            while seen != next {
                seen = next.clone();
                for (_, further) in committed.iter().filter(|(id, _)| seen.contains(**id)) {
                    next.union(further);
                }
            }
            for (other, touched) in all.iter().filter(|(id, _)| known.contains(id)) {
                let conflicts = touched.conflicts(&footprint);
                assert!(
                    !conflicts || seen.contains(*other),
                    "seed {seed}: {id:?} {other:?}"
                );
            }
            proposed.insert(id, deps);
            all.push((id, footprint));
            open.push(id);
            while !open.is_empty() && random.once_in(2) {
                let id = open.swap_remove(random.below(open.len() as u64) as usize);
                let at = all
                    .iter()
                    .position(|(other, _)| *other == id)
                    .expect("it is there");
                if random.once_in(5) {
                    // Those that depend on it have lost nothing by that.
                    all.remove(at);
                    index.on_committed(id, None);
                } else {
                    let mut deps = proposed[&id].clone();
                    if random.once_in(4) {
                        // Another acceptor recorded later ones earlier: they depend on each other.
                        let later = all[at + 1..].iter().map(|(id, _)| *id);
                        deps.union(&Deps::new(later, []));
                    }
                    index.on_committed(id, Some((&all[at].1, &deps)));
                    committed.insert(id, deps);
                    known.insert(id);
                }
            }
            widest = widest.max(index.len());
        }
    }
    assert!(widest < 40, "it forgets: {widest}");
}
