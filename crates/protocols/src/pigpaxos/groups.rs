//! How acceptors are divided into groups (PigPaxos 3.1), and layers of groups (8.3).

use ionian_kernel::id::{AcceptorSet, Id, Index, MAX_INSTANCES};
use ionian_kernel::random::Random;

/// Acceptors in an order, to be cut into slices.
pub(super) struct Order {
    members: [Index; MAX_INSTANCES],
    len: usize,
}

impl Order {
    /// In the order of their numbers.
    pub(super) fn by_number(acceptors: AcceptorSet) -> Self {
        let mut order = Order {
            members: [0; MAX_INSTANCES],
            len: 0,
        };
        for acceptor in acceptors.iter() {
            order.push(acceptor.index());
        }
        order
    }

    /// In a random order, `slow` ones last: they are gathered in as few groups as can be.
    pub(super) fn shuffled(acceptors: AcceptorSet, slow: AcceptorSet, random: &mut Random) -> Self {
        let mut order = Order::by_number(acceptors.without(slow));
        for place in (1..order.len).rev() {
            let other = random.below(place as u64 + 1) as usize;
            order.members.swap(place, other);
        }
        for acceptor in acceptors.and(slow).iter() {
            order.push(acceptor.index());
        }
        order
    }

    fn push(&mut self, index: Index) {
        self.members[self.len] = index;
        self.len += 1;
    }

    /// The `group`-th of `groups` slices that are as equal as can be, and the `overlap` acceptors
    /// after it, going round.
    pub(super) fn slice(&self, group: usize, groups: usize, overlap: usize) -> AcceptorSet {
        let (start, end) = (group * self.len / groups, (group + 1) * self.len / groups);
        let end = match start == end {
            true => end,
            false => end + overlap.min(self.len - (end - start)),
        };
        (start..end)
            .map(|place| Id::at(self.members[place % self.len]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use ionian_kernel::id::AcceptorId;

    fn sizes(order: &Order, groups: usize, overlap: usize) -> Vec<usize> {
        (0..groups)
            .map(|group| order.slice(group, groups, overlap).len())
            .collect()
    }

    #[test]
    fn slices_are_equal_cover_all_and_overlap_as_asked() {
        let order = Order::by_number(AcceptorSet::first(24));
        assert_eq!(sizes(&order, 3, 0), [8, 8, 8]);
        assert_eq!(sizes(&order, 5, 0), [4, 5, 5, 5, 5]);
        assert_eq!(sizes(&order, 3, 2), [10, 10, 10]);
        assert_eq!(order.slice(2, 3, 1).iter().next(), Some(AcceptorId(0)));
        assert_eq!(
            sizes(&order, 1, 9),
            [24],
            "a group that is all has no next one"
        );
        let few = Order::by_number(AcceptorSet::first(2));
        assert_eq!(sizes(&few, 4, 1), [0, 2, 0, 2]);
        assert_eq!(sizes(&Order::by_number(AcceptorSet::EMPTY), 2, 1), [0, 0]);
    }

    #[test]
    fn a_shuffle_keeps_all_and_puts_the_slow_last() {
        let mut random = Random::new(5);
        let slow: AcceptorSet = [AcceptorId(0), AcceptorId(3)].into_iter().collect();
        for _ in 0..50 {
            let order = Order::shuffled(AcceptorSet::first(7), slow, &mut random);
            assert_eq!(order.slice(0, 1, 0), AcceptorSet::first(7));
            assert!(order.slice(2, 3, 0).covers(slow));
        }
    }
}
