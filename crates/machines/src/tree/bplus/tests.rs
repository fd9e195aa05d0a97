use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range as Keys;

impl Tree {
    /// The depth of the tree.
    ///
    /// # Panics
    /// If an invariant does not hold.
    fn check(&self) -> usize {
        let mut len = 0;
        let whole = 0..u64::MAX;
        let depth = check(&self.root, true, true, &whole, &mut len);
        assert_eq!(len, self.len());
        depth
    }
}

/// Checks a node whose keys lie in `bounds`; adds its entries to `len`.
fn check(node: &Node, is_root: bool, is_last: bool, bounds: &Keys<u64>, len: &mut usize) -> usize {
    let least = match node {
        Node::Inner(_) if is_root => 2,
        Node::Leaf(_) if is_root => 0,
        Node::Leaf(_) if is_last => 1,
        _ => MINIMUM,
    };
    assert!((least..=CAPACITY).contains(&node.len()), "occupancy");
    let inner = match node {
        Node::Leaf(leaf) => {
            assert!(leaf.keys().is_sorted_by(|a, b| a < b), "order");
            assert!(leaf.keys().iter().all(|key| bounds.contains(key)), "bounds");
            *len += leaf.len();
            return 1;
        }
        Node::Inner(inner) => inner,
    };
    let keys = inner.keys();
    assert!(keys.is_sorted_by(|a, b| a < b), "order");
    assert_eq!(keys[0], bounds.start, "the first key");
    let depths: Vec<usize> = (0..inner.len())
        .map(|at| {
            let end = keys.get(at + 1).copied().unwrap_or(bounds.end);
            let is_last = is_last && at + 1 == inner.len();
            check(child(inner, at), false, is_last, &(keys[at]..end), len)
        })
        .collect();
    assert!(depths.iter().all(|depth| *depth == depths[0]), "depth");
    depths[0] + 1
}

#[derive(Clone, Debug)]
enum Action {
    Insert(u64, u64),
    Update(u64, u64),
    Delete(u64),
    /// Inserts these keys, in ascending or descending order.
    Fill(Keys<u64>, bool),
    /// Deletes these keys, in ascending or descending order.
    Clear(Keys<u64>, bool),
    /// Keeps the present state, and compares it at the end.
    Share,
    /// Takes some entries of each state that was kept.
    Walk(usize),
}

fn keys() -> impl Strategy<Value = Keys<u64>> {
    (0..300_u64, 1..60_u64).prop_map(|(from, count)| from..from + count)
}

fn action() -> impl Strategy<Value = Action> {
    let key = || 0..300_u64;
    prop_oneof![
        6 => (key(), any::<u64>()).prop_map(|(key, value)| Action::Insert(key, value)),
        3 => (key(), any::<u64>()).prop_map(|(key, value)| Action::Update(key, value)),
        6 => key().prop_map(Action::Delete),
        2 => (keys(), any::<bool>()).prop_map(|(keys, up)| Action::Fill(keys, up)),
        1 => (keys(), any::<bool>()).prop_map(|(keys, up)| Action::Clear(keys, up)),
        1 => Just(Action::Share),
        1 => (0..50_usize).prop_map(Action::Walk),
    ]
}

/// The actions on single keys that an action consists of.
fn steps(action: &Action) -> Vec<Action> {
    let ordered = |keys: &Keys<u64>, up: bool| match up {
        true => keys.clone().collect::<Vec<_>>(),
        false => keys.clone().rev().collect(),
    };
    match action {
        Action::Fill(keys, up) => {
            let keys = ordered(keys, *up).into_iter();
            keys.map(|key| Action::Insert(key, key + 7)).collect()
        }
        Action::Clear(keys, up) => {
            let keys = ordered(keys, *up).into_iter();
            keys.map(Action::Delete).collect()
        }
        other => vec![other.clone()],
    }
}

/// A state that was kept: what is left of it, and what must come.
type Kept = (Shared, std::vec::IntoIter<(u64, u64)>);

#[derive(Default)]
struct Trial {
    tree: Tree,
    model: BTreeMap<u64, u64>,
    kept: Vec<Kept>,
}

impl Trial {
    fn step(&mut self, action: &Action) {
        let Trial { tree, model, kept } = self;
        match *action {
            Action::Insert(key, value) => {
                let is_new = !model.contains_key(&key);
                model.entry(key).or_insert(value);
                assert_eq!(tree.insert(key, value), is_new);
            }
            Action::Update(key, value) => {
                let found = model.get_mut(&key).map(|old| *old = value);
                assert_eq!(tree.update(key, value), found.is_some());
            }
            Action::Delete(key) => assert_eq!(tree.delete(key), model.remove(&key).is_some()),
            Action::Share => {
                let entries: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
                kept.push((tree.share(), entries.into_iter()));
            }
            Action::Walk(count) => kept.iter_mut().for_each(|(shared, expected)| {
                (0..count).for_each(|_| assert_eq!(shared.next(), expected.next()));
            }),
            Action::Fill(..) | Action::Clear(..) => unreachable!("they consist of steps"),
        }
        let depth = tree.check();
        // Nodes are at least half full.
        let most = MINIMUM.pow(depth.saturating_sub(2) as u32);
        assert!(depth <= 2 || tree.len() > most, "{depth} levels");
    }
}

proptest! {
    #[test]
    fn the_tree_is_a_sorted_map_and_keeps_its_invariants(
        actions in vec(action(), 0..80),
        probes in vec(0..310_u64, 5),
    ) {
        let mut trial = Trial::default();
        for action in &actions {
            steps(action).iter().for_each(|step| trial.step(step));
        }
        let Trial { tree, model, kept } = trial;
        for probe in probes {
            prop_assert_eq!(tree.get(probe), model.get(&probe).copied());
            let expected = model.range(probe..).map(|(key, value)| (*key, *value));
            prop_assert!(tree.range(probe).eq(expected));
        }
        for (shared, expected) in kept {
            prop_assert!(shared.eq(expected));
        }
    }
}

#[test]
fn the_largest_and_the_smallest_keys_are_keys() {
    let mut tree = Tree::default();
    for key in (0..40).flat_map(|i| [i, u64::MAX - 1 - i]) {
        assert!(tree.insert(key, key));
    }
    assert_eq!(tree.check(), 4);
    assert_eq!(
        tree.range(u64::MAX - 1).collect::<Vec<_>>(),
        [(u64::MAX - 1, u64::MAX - 1)]
    );
    assert!(tree.insert(u64::MAX, 1) && tree.get(u64::MAX) == Some(1));
    assert_eq!(tree.range(u64::MAX).collect::<Vec<_>>(), [(u64::MAX, 1)]);
    assert!(tree.delete(u64::MAX) && tree.range(u64::MAX).next().is_none());
}

#[test]
fn a_tree_that_was_emptied_is_as_a_new_one() {
    let orders: [fn(u64) -> u64; 3] = [|i| i, |i| 499 - i, |i| i * 7 % 500];
    for order in orders {
        let mut tree = Tree::default();
        (0..500).for_each(|i| assert!(tree.insert(i, i)));
        assert!(tree.check() >= 4);
        for i in 0..500 {
            assert!(tree.delete(order(i)) && !tree.delete(order(i)));
            tree.check();
        }
        assert!(tree.is_empty() && tree.check() == 1 && tree.range(0).next().is_none());
    }
}

fn leaves(node: &Arc<Node>, all: &mut Vec<*const Node>) {
    match &**node {
        Node::Inner(inner) => (0..inner.len()).for_each(|at| leaves(child(inner, at), all)),
        Node::Leaf(_) => all.push(Arc::as_ptr(node)),
    }
}

fn leaves_of(tree: &Tree) -> Vec<*const Node> {
    let mut all = Vec::new();
    leaves(&tree.root, &mut all);
    all
}

#[test]
fn keys_in_ascending_order_fill_their_leaves() {
    let mut tree = Tree::default();
    (0..600).for_each(|key| assert!(tree.insert(key, 0)));
    assert_eq!(leaves_of(&tree).len(), 600 / CAPACITY);
}

#[test]
fn a_change_copies_a_shared_node_once_and_none_that_was_passed() {
    let mut tree = Tree::default();
    (0..600).for_each(|key| assert!(tree.insert(key, 0)));
    let mut shared = tree.share();
    // It has passed ten leaves, and is in the eleventh.
    assert_eq!(shared.nth(10 * CAPACITY), Some((10 * CAPACITY as u64, 0)));
    let before = leaves_of(&tree);
    (0..600).for_each(|key| assert!(tree.update(key, 1)));
    let copied = leaves_of(&tree);
    assert_eq!(before[..10], copied[..10]);
    assert!((10..before.len()).all(|at| before[at] != copied[at]));
    (0..600).for_each(|key| assert!(tree.update(key, 2)));
    assert_eq!(leaves_of(&tree), copied);
    assert!(shared.all(|(_, value)| value == 0));
}
