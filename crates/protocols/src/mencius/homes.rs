//! Which leader each stripe belongs to.
//!
//! The number of stripes is the number of leaders, and fixed for the life of a cluster; the leader
//! of a stripe can change. A layout says it by the leaders' numbers: of `n` leaders, stripe `i`
//! belongs to the one whose number modulo `n` is `i`. Where two numbers want the same stripe the
//! lower one has it, and the other one takes a stripe that is left. So a leader that is replaced
//! leaves the others their stripes, as long as their numbers do not collide.
//!
//! No safety depends on it: a leader wins a round of a stripe before it proposes or skips anything
//! there.

use super::kind;
use super::stripe::{Stripe, Stripes};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use ionian_kernel::id::{Index, LeaderId};
use ionian_kernel::layout::{Layout, LayoutError, NodeId, Places};

/// The leader of each stripe, with its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Homes(Vec<(Index, NodeId)>);

impl Homes {
    /// Those of a layout by itself, whatever it is being changed into.
    pub(super) fn of(layout: &Layout) -> Self {
        let leaders: Vec<(Index, NodeId)> =
            layout.instances[usize::from(kind::Leader)].iter().collect();
        let mut homes = vec![None; leaders.len()];
        let mut others = Vec::new();
        for (leader, node) in leaders {
            let place = usize::from(leader) % homes.len();
            match homes[place] {
                None => homes[place] = Some((leader, node)),
                Some(_) => others.push((leader, node)),
            }
        }
        let mut others = others.into_iter();
        let home = |home: Option<_>| home.or_else(|| others.next());
        Homes(homes.into_iter().filter_map(home).collect())
    }

    /// How many stripes there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// # Errors
    /// When the other layout divides the log otherwise.
    pub(super) fn check_same_count(&self, next: &Homes) -> Result<(), LayoutError> {
        if self.count() == next.count() {
            return Ok(());
        }
        Err(LayoutError(format!(
            "the number of leaders of a Mencius cluster is fixed, because the slots of its log are dealt out to them: \
             there are {}, and there would be {}. Replace a node with a leader, and add nodes without one",
            self.count(),
            next.count()
        )))
    }

    /// The leader of this stripe.
    pub(super) fn leader(&self, stripe: Stripe) -> LeaderId {
        LeaderId(self.0[usize::from(stripe.0)].0)
    }

    /// The stripes whose leader is on this node.
    pub(super) fn on(&self, node: NodeId) -> Vec<Stripe> {
        let here = |(_, (_, home)): &(Index, &(Index, NodeId))| *home == node;
        let homes = (0..).zip(&self.0).filter(here);
        homes.map(|(stripe, _)| Stripe(stripe)).collect()
    }

    /// The layout of one stripe: its own leader, and the next f on other nodes, which stand in for
    /// it. Slots are positions there.
    ///
    /// # Errors
    /// When there are not as many.
    pub(super) fn within(
        &self,
        layout: &Layout,
        stripes: Stripes,
        stripe: Stripe,
    ) -> Result<Layout, LayoutError> {
        let place = usize::from(stripe.0);
        let mut served = vec![self.0[place]];
        for (leader, node) in self.0[place + 1..].iter().chain(&self.0[..place]) {
            if served.len() <= layout.f && served.iter().all(|(_, taken)| taken != node) {
                served.push((*leader, *node));
            }
        }
        if served.len() <= layout.f {
            return Err(LayoutError(format!(
                "leader {} has {} leaders on other nodes to stand in for it: to tolerate f={} it needs at least f",
                self.0[place].0,
                served.len() - 1,
                layout.f
            )));
        }
        let mut instances = layout.instances.clone();
        instances[usize::from(kind::Leader)] = served.into_iter().collect::<Places>();
        Ok(Layout {
            instances,
            frontier: stripes.from(stripe, layout.frontier).in_part(),
            next: None,
            ..layout.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaders_of(numbers: &[u8]) -> Vec<u8> {
        let mut instances = vec![Places::default(); 8];
        let places = numbers
            .iter()
            .map(|number| (*number, NodeId((*number).into())));
        instances[usize::from(kind::Leader)] = places.collect();
        let layout = Layout {
            instances,
            ..Layout::default()
        };
        Homes::of(&layout)
            .0
            .iter()
            .map(|(leader, _)| *leader)
            .collect()
    }

    #[test]
    fn a_stripe_belongs_to_the_leader_whose_number_says_so() {
        assert_eq!(leaders_of(&[0, 1, 2]), [0, 1, 2]);
        // Leader 1 is replaced, then leader 0.
        assert_eq!(leaders_of(&[0, 2, 4]), [0, 4, 2]);
        assert_eq!(leaders_of(&[2, 4, 6]), [6, 4, 2]);
    }

    #[test]
    fn leaders_whose_numbers_collide_take_the_stripes_that_are_left() {
        assert_eq!(leaders_of(&[0, 2, 3]), [0, 3, 2]);
        assert_eq!(leaders_of(&[3, 6, 9]), [3, 6, 9]);
    }
}
