//! The sets of nodes that may fail together.

use alloc::format;
use alloc::vec::Vec;
use ionian_kernel::layout::{LayoutError, NodeId};

/// How many sets of nodes a layout is checked with at most, one after the other: 10 of 21 nodes are
/// less.
const MOST_FAILURES: u128 = 500_000;

/// Every set of `f` of these nodes.
///
/// # Errors
/// When there are more than can be tried.
pub(crate) fn failures(nodes: &[NodeId], f: usize) -> Result<Vec<Vec<NodeId>>, LayoutError> {
    let (all, few) = (nodes.len(), f.min(nodes.len().saturating_sub(f)));
    let sets = (0..few).fold(1_u128, |sets, i| {
        sets.saturating_mul((all - i) as u128) / (i as u128 + 1)
    });
    match sets <= MOST_FAILURES {
        true => Ok(combinations(nodes, f)),
        false => Err(LayoutError(format!(
            "f={f} of {all} nodes may fail, which {sets} sets of nodes can be: this layout is \
             checked with each of them, of which {MOST_FAILURES} are allowed; take a smaller f, \
             or fewer nodes"
        ))),
    }
}

/// Every choice of `count` of `items`.
fn combinations<T: Copy>(items: &[T], count: usize) -> Vec<Vec<T>> {
    if count == 0 {
        return Vec::from([Vec::new()]);
    }
    let mut all = Vec::new();
    for (i, first) in items.iter().enumerate() {
        for mut rest in combinations(&items[i + 1..], count - 1) {
            rest.push(*first);
            all.push(rest);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes_that_are_too_many_to_try_are_not_listed() {
        let sets = |nodes: u16, f| {
            let nodes: Vec<NodeId> = (0..nodes).map(NodeId).collect();
            failures(&nodes, f).map(|sets| sets.len())
        };
        assert_eq!(sets(5, 2), Ok(10));
        assert_eq!(sets(3, 0), Ok(1));
        assert_eq!(sets(2, 3), Ok(0));
        let refused = sets(500, 250).expect_err("too many");
        assert!(refused.0.contains("500000 are allowed"), "{refused}");
    }
}
