//! Quorum systems (compartmentalization 3.2): which sets of acceptors must promise, and which must
//! vote. Paxos is safe as long as every read (phase 1) quorum meets every write (phase 2) quorum.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ionian_kernel::id::{AcceptorId, Id, MAX_INSTANCES, Set};
use ionian_kernel::quorum_spec::QuorumSpec;

/// A quorum system over instances of one kind, the acceptors of one configuration. While one
/// configuration is changed into another, over those of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumSystem<I: Id = AcceptorId> {
    arrangement: Arrangement<I>,
    /// The configuration that this one is being changed into: its quorums are needed as well.
    next: Option<Arrangement<I>>,
}

impl<I: Id> QuorumSystem<I> {
    /// The system of `members` arranged by `spec`, in the order of their numbers, tolerating `f`
    /// failures.
    ///
    /// # Errors
    /// Says, in terms of the protocol, why the arrangement is unsafe or tolerates fewer failures.
    pub fn new(spec: QuorumSpec, members: Set<I>, f: usize) -> Result<Self, String> {
        Arrangement::new(spec, members, f).map(|arrangement| QuorumSystem {
            arrangement,
            next: None,
        })
    }

    /// The system whose quorums are those of `self` and of `next` together. Each of its quorums
    /// meets the quorums of either alone, so that leaders and readers of the three can be at work
    /// at the same time.
    pub fn joint(self, next: Self) -> Self {
        QuorumSystem {
            arrangement: self.arrangement,
            next: Some(next.arrangement),
        }
    }

    fn arrangements(&self) -> impl Iterator<Item = &Arrangement<I>> {
        core::iter::once(&self.arrangement).chain(&self.next)
    }

    /// All acceptors.
    pub fn members(&self) -> Set<I> {
        self.arrangements()
            .fold(Set::EMPTY, |all, arrangement| all.or(arrangement.all))
    }

    /// Whether promises of `set` let a leader begin phase 2, and its watermarks a reader read.
    pub fn is_read_quorum(&self, set: Set<I>) -> bool {
        self.arrangements()
            .all(|arrangement| arrangement.is_read_quorum(set))
    }

    /// Whether votes of `set` make a value chosen.
    pub fn is_write_quorum(&self, set: Set<I>) -> bool {
        self.arrangements()
            .all(|arrangement| arrangement.is_write_quorum(set))
    }

    /// A smallest read quorum among `alive`, preferring members of `near`; `turn` deals the load
    /// out. `None` when `alive` holds none.
    pub fn read_quorum(&self, alive: Set<I>, near: Set<I>, turn: u64) -> Option<Set<I>> {
        self.arrangements()
            .try_fold(Set::EMPTY, |quorum, arrangement| {
                Some(quorum.or(arrangement.read_quorum(alive, near.or(quorum), turn)?))
            })
    }

    /// A smallest write quorum among `alive`, preferring members of `near`; `turn` deals the load
    /// out. `None` when `alive` holds none.
    pub fn write_quorum(&self, alive: Set<I>, near: Set<I>, turn: u64) -> Option<Set<I>> {
        self.arrangements()
            .try_fold(Set::EMPTY, |quorum, arrangement| {
                Some(quorum.or(arrangement.write_quorum(alive, near.or(quorum), turn)?))
            })
    }
}

/// How the acceptors of one configuration are arranged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arrangement<I: Id> {
    spec: QuorumSpec,
    all: Set<I>,
    /// All of them in order: the place of an acceptor in a grid or among groups is its place here.
    members: Vec<I>,
}

impl<I: Id> Arrangement<I> {
    fn new(spec: QuorumSpec, all: Set<I>, f: usize) -> Result<Self, String> {
        let (members, kind) = (all.len(), I::NAME);
        if members == 0 {
            return Err(format!("no {kind}s: a deployment has 1 to {MAX_INSTANCES}"));
        }
        match spec {
            QuorumSpec::Majority if members < 2 * f + 1 => Err(format!(
                "{members} {kind}s in majorities tolerate f={}, not f={f}: there must be at least 2f+1 = {}",
                (members - 1) / 2,
                2 * f + 1
            )),
            QuorumSpec::Counts { read, write } if read + write <= members => Err(format!(
                "any {read} of {members} {kind}s read and any {write} write: a read quorum without a member that \
                 has voted knows nothing of what was written; the two numbers must add up to {} or more",
                members + 1
            )),
            QuorumSpec::Counts { read, write } if read.max(write) + f > members => Err(format!(
                "quorums of {read} and {write} of {members} {kind}s tolerate f={}, not f={f}: both numbers must be at \
                 most {}",
                members.saturating_sub(read.max(write)),
                members.saturating_sub(f)
            )),
            QuorumSpec::Grid { rows, columns } if rows * columns != members => Err(format!(
                "a {rows}x{columns} grid holds {} {kind}s, and the deployment has {members}",
                rows * columns
            )),
            QuorumSpec::Grid { rows, columns } if rows.min(columns) < f + 1 => Err(format!(
                "a {rows}x{columns} grid tolerates f={}, not f={f}: rows and columns must be at least f+1 = {}",
                rows.min(columns).saturating_sub(1),
                f + 1
            )),
            QuorumSpec::Groups { groups } if !members.is_multiple_of(groups) => Err(format!(
                "{members} {kind}s cannot be divided into {groups} groups of equal size"
            )),
            QuorumSpec::Groups { groups } if members / groups < 2 * f + 1 => Err(format!(
                "{groups} groups of {} {kind}s tolerate f={}, not f={f}: a group must have at least 2f+1 = {}",
                members / groups,
                (members / groups - 1) / 2,
                2 * f + 1
            )),
            _ => {
                let arrangement = Arrangement {
                    spec,
                    all,
                    members: all.iter().collect(),
                };
                assert!(arrangement.every_read_quorum_meets_every_write_quorum());
                Ok(arrangement)
            }
        }
    }

    /// The blocks of acceptors that quorums are made of, and how many of a block make it count: a
    /// read quorum needs that many of *one* row or of *every* group, a write quorum of one column
    /// or one group.
    fn block(&self, start: usize, step: usize, count: usize) -> Set<I> {
        (0..count).map(|i| self.members[start + i * step]).collect()
    }

    fn row(&self, row: usize, columns: usize) -> Set<I> {
        self.block(row * columns, 1, columns)
    }

    fn column(&self, column: usize, rows: usize, columns: usize) -> Set<I> {
        self.block(column, columns, rows)
    }

    fn group(&self, group: usize, groups: usize) -> Set<I> {
        let size = self.members.len() / groups;
        self.block(group * size, 1, size)
    }

    fn is_read_quorum(&self, set: Set<I>) -> bool {
        match self.spec {
            QuorumSpec::Majority => majority(set.and(self.all), self.members.len()),
            QuorumSpec::Counts { read, .. } => set.and(self.all).len() >= read,
            QuorumSpec::Grid { rows, columns } => {
                (0..rows).any(|row| set.covers(self.row(row, columns)))
            }
            QuorumSpec::Groups { groups } => (0..groups).all(|group| {
                majority(
                    set.and(self.group(group, groups)),
                    self.members.len() / groups,
                )
            }),
        }
    }

    fn is_write_quorum(&self, set: Set<I>) -> bool {
        match self.spec {
            QuorumSpec::Majority => self.is_read_quorum(set),
            QuorumSpec::Counts { write, .. } => set.and(self.all).len() >= write,
            QuorumSpec::Grid { rows, columns } => {
                (0..columns).any(|column| set.covers(self.column(column, rows, columns)))
            }
            QuorumSpec::Groups { groups } => (0..groups).any(|group| {
                majority(
                    set.and(self.group(group, groups)),
                    self.members.len() / groups,
                )
            }),
        }
    }

    fn read_quorum(&self, alive: Set<I>, near: Set<I>, turn: u64) -> Option<Set<I>> {
        match self.spec {
            QuorumSpec::Majority => pick_majority(self.all, alive, near, turn),
            QuorumSpec::Counts { read, .. } => pick_some(self.all, read, alive, near, turn),
            QuorumSpec::Grid { rows, columns } => turned(rows, turn)
                .map(|row| self.row(row, columns))
                .find(|row| alive.covers(*row)),
            QuorumSpec::Groups { groups } => (0..groups)
                .map(|group| pick_majority(self.group(group, groups), alive, near, turn))
                .try_fold(Set::EMPTY, |quorum, part| Some(quorum.or(part?))),
        }
    }

    fn write_quorum(&self, alive: Set<I>, near: Set<I>, turn: u64) -> Option<Set<I>> {
        match self.spec {
            QuorumSpec::Majority => self.read_quorum(alive, near, turn),
            QuorumSpec::Counts { write, .. } => pick_some(self.all, write, alive, near, turn),
            QuorumSpec::Grid { rows, columns } => turned(columns, turn)
                .map(|column| self.column(column, rows, columns))
                .find(|column| alive.covers(*column)),
            QuorumSpec::Groups { groups } => turned(groups, turn).find_map(|group| {
                pick_majority(self.group(group, groups), alive, near, turn / groups as u64)
            }),
        }
    }

    /// A set that avoids every read quorum must not hold a write quorum, and the other way round.
    /// It is enough to look at the largest such sets, which have the shape of the system itself.
    fn every_read_quorum_meets_every_write_quorum(&self) -> bool {
        match self.spec {
            QuorumSpec::Majority => 2 * (self.members.len() / 2 + 1) > self.members.len(),
            QuorumSpec::Counts { read, write } => read + write > self.members.len(),
            QuorumSpec::Grid { rows, columns } => (0..rows).all(|row| {
                (0..columns).all(|column| {
                    self.row(row, columns)
                        .meets(self.column(column, rows, columns))
                })
            }),
            QuorumSpec::Groups { groups } => {
                let size = self.members.len() / groups;
                2 * (size / 2 + 1) > size
            }
        }
    }
}

fn majority<I: Id>(set: Set<I>, members: usize) -> bool {
    set.len() > members / 2
}

fn turned(count: usize, turn: u64) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| ((turn + i as u64) % count as u64) as usize)
}

/// A majority of `members`, as [`pick_some`] takes it.
fn pick_majority<I: Id>(members: Set<I>, alive: Set<I>, near: Set<I>, turn: u64) -> Option<Set<I>> {
    pick_some(members, members.len() / 2 + 1, alive, near, turn)
}

/// As many of `members` as are needed, taken from `alive`: near ones first, then from the turn's
/// place on.
fn pick_some<I: Id>(
    members: Set<I>,
    needed: usize,
    alive: Set<I>,
    near: Set<I>,
    turn: u64,
) -> Option<Set<I>> {
    let alive = alive.and(members);
    if alive.len() < needed {
        return None;
    }
    let mut quorum: Set<I> = alive.and(near).iter().take(needed).collect();
    let mut turn = turn;
    while quorum.len() < needed {
        let left = alive.without(quorum);
        quorum.insert(left.pick(turn).expect("enough are alive"));
        // The next pick is from a set smaller by one: this keeps to neighbours.
        turn %= left.len() as u64;
    }
    Some(quorum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::AcceptorSet;

    fn systems() -> Vec<(QuorumSystem, usize)> {
        let mut systems = Vec::new();
        for f in 0..3 {
            for members in 1..10 {
                let mut specs = Vec::from([QuorumSpec::Majority]);
                specs.extend((1..5).map(|groups| QuorumSpec::Groups { groups }));
                specs.extend(
                    (1..7).flat_map(|read| {
                        (1..7).map(move |write| QuorumSpec::Counts { read, write })
                    }),
                );
                specs.extend((1..5).flat_map(|rows| {
                    (1..5).map(move |columns| QuorumSpec::Grid { rows, columns })
                }));
                systems.extend(specs.into_iter().filter_map(|s| {
                    Some((
                        QuorumSystem::new(s, AcceptorSet::first(members), f).ok()?,
                        f,
                    ))
                }));
            }
        }
        systems
    }

    fn subsets(members: usize) -> impl Iterator<Item = AcceptorSet> {
        (0..1u64 << members).map(AcceptorSet::from_bits)
    }

    #[test]
    fn every_read_quorum_meets_every_write_quorum() {
        for (system, _) in systems() {
            for set in subsets(system.members().len()) {
                let rest = system.members().without(set);
                assert!(
                    !(system.is_read_quorum(set) && system.is_write_quorum(rest)),
                    "{system:?} {set:?}"
                );
            }
        }
    }

    #[test]
    fn f_failures_leave_a_quorum_of_each_kind_and_it_is_picked() {
        for (system, f) in systems() {
            for dead in subsets(system.members().len()).filter(|dead| dead.len() <= f) {
                let alive = system.members().without(dead);
                for turn in 0..7 {
                    let near = AcceptorSet::one(AcceptorId(turn as u8 % 3));
                    let read = system
                        .read_quorum(alive, near, turn)
                        .expect("f failures are tolerated");
                    let write = system
                        .write_quorum(alive, near, turn)
                        .expect("f failures are tolerated");
                    assert!(
                        system.is_read_quorum(read) && alive.covers(read),
                        "{system:?} {read:?}"
                    );
                    assert!(
                        system.is_write_quorum(write) && alive.covers(write),
                        "{system:?} {write:?}"
                    );
                }
            }
        }
    }

    /// Every second number: as after changes of the membership.
    fn apart(members: usize) -> AcceptorSet {
        (0..members)
            .map(|index| AcceptorId(2 * index as u8))
            .collect()
    }

    #[test]
    fn joint_quorums_meet_the_quorums_of_both_sides() {
        let majority = QuorumSystem::new(QuorumSpec::Majority, AcceptorSet::first(3), 1).unwrap();
        let grid = QuorumSystem::new(
            QuorumSpec::Grid {
                rows: 2,
                columns: 2,
            },
            apart(4),
            1,
        )
        .unwrap();
        let joint = majority.clone().joint(grid.clone());
        for set in subsets(7) {
            let rest = joint.members().without(set);
            for side in [&majority, &grid, &joint] {
                assert!(
                    !(joint.is_read_quorum(set) && side.is_write_quorum(rest)),
                    "{set:?}"
                );
                assert!(
                    !(joint.is_write_quorum(set) && side.is_read_quorum(rest)),
                    "{set:?}"
                );
            }
        }
        let write = joint
            .write_quorum(joint.members(), AcceptorSet::EMPTY, 1)
            .unwrap();
        assert!(majority.is_write_quorum(write) && grid.is_write_quorum(write));
    }

    #[test]
    fn refusals_speak_of_the_protocol() {
        let refusal =
            |spec, members, f| QuorumSystem::new(spec, AcceptorSet::first(members), f).unwrap_err();
        assert_eq!(
            refusal(
                QuorumSpec::Grid {
                    rows: 2,
                    columns: 3
                },
                6,
                2
            ),
            "a 2x3 grid tolerates f=1, not f=2: rows and columns must be at least f+1 = 3"
        );
        assert!(
            refusal(
                QuorumSpec::Grid {
                    rows: 2,
                    columns: 3
                },
                5,
                1
            )
            .contains("holds 6 acceptors")
        );
        assert!(refusal(QuorumSpec::Majority, 2, 1).contains("at least 2f+1 = 3"));
        let counts = |read, write| QuorumSpec::Counts { read, write };
        assert_eq!(
            refusal(counts(5, 20), 25, 5),
            "any 5 of 25 acceptors read and any 20 write: a read quorum without a member that \
             has voted knows nothing of what was written; the two numbers must add up to 26 or more"
        );
        assert_eq!(
            refusal(counts(6, 20), 25, 12),
            "quorums of 6 and 20 of 25 acceptors tolerate f=5, not f=12: both numbers must be at most 13"
        );
        assert!(refusal(QuorumSpec::Groups { groups: 2 }, 3, 1).contains("cannot be divided"));
    }

    #[test]
    fn load_is_dealt_out_and_near_acceptors_come_first() {
        let grid = QuorumSystem::new(
            QuorumSpec::Grid {
                rows: 2,
                columns: 2,
            },
            AcceptorSet::first(4),
            1,
        )
        .unwrap();
        assert_ne!(
            grid.write_quorum(grid.members(), AcceptorSet::EMPTY, 0),
            grid.write_quorum(grid.members(), AcceptorSet::EMPTY, 1)
        );
        let three = QuorumSystem::new(QuorumSpec::Majority, AcceptorSet::first(3), 1).unwrap();
        let near = AcceptorSet::one(AcceptorId(2));
        assert!((0..9).all(|turn| {
            three
                .write_quorum(three.members(), near, turn)
                .unwrap()
                .contains(AcceptorId(2))
        }));
    }
}
