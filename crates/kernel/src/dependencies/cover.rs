//! Minimum-weight vertex cover: the vertices of least weight that touch every edge.

/// The neighbours of each vertex, as bits. A vertex with a loop is its own neighbour.
type Edges = [u64];

/// A minimum-weight cover of the edges between vertices of `among`, as bits. Of several with the
/// same weight it is always the same.
///
/// Branch and bound on each connected component: a vertex is in the cover, or all its neighbours
/// are. The bound is that of local ratio (Bar-Yehuda and Even, 1985): take each edge in turn and
/// subtract the smaller of its two remaining weights from both; any cover costs at least the sum.
/// The dual of the linear relaxation has the same value at best. Random graphs of 64 vertices and
/// any density take at most about ten milliseconds.
pub(super) fn minimum(edges: &Edges, weights: &[u64], among: u64) -> u64 {
    let among = among & all(edges.len());
    let loops = vertices(among).filter(|vertex| edges[*vertex] & 1 << vertex != 0);
    let forced = loops.fold(0, |all, vertex| all | 1 << vertex);
    let rest = with_edges(edges, among & !forced);
    forced | of_components(edges, weights, rest)
}

fn all(count: usize) -> u64 {
    1_u64.unbounded_shl(count as u32).wrapping_sub(1)
}

fn vertices(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let first = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            first
        })
    })
}

fn weight(weights: &[u64], set: u64) -> u64 {
    vertices(set).map(|vertex| weights[vertex]).sum()
}

/// Those of `set` that have a neighbour in it.
fn with_edges(edges: &Edges, set: u64) -> u64 {
    let connected = vertices(set).filter(|vertex| edges[*vertex] & set != 0);
    connected.fold(0, |all, vertex| all | 1 << vertex)
}

/// The cover of the edges between vertices of `set`.
fn of_components(edges: &Edges, weights: &[u64], mut set: u64) -> u64 {
    let mut cover = 0;
    while set != 0 {
        let component = component(edges, set);
        set &= !component;
        let mut search = Search {
            edges,
            weights,
            best: component,
            cost: weight(weights, component),
        };
        search.branch(component, 0, 0);
        cover |= search.best;
    }
    cover
}

/// The vertices of `set` that are connected with its first.
fn component(edges: &Edges, set: u64) -> u64 {
    let mut reached = set & set.wrapping_neg();
    loop {
        let next = vertices(reached).fold(reached, |all, vertex| all | edges[vertex] & set);
        if next == reached {
            return reached;
        }
        reached = next;
    }
}

struct Search<'a> {
    edges: &'a Edges,
    weights: &'a [u64],
    best: u64,
    cost: u64,
}

impl Search<'_> {
    /// Tries all covers that contain `taken`, which costs `cost`, and cover the edges between the
    /// vertices of `open`. Each step removes a vertex, so the depth is at most their number.
    fn branch(&mut self, open: u64, taken: u64, cost: u64) {
        let open = with_edges(self.edges, open);
        if open == 0 {
            if cost < self.cost {
                (self.best, self.cost) = (taken, cost);
            }
            return;
        }
        if cost + self.bound(open) >= self.cost {
            return;
        }
        if component(self.edges, open) != open {
            let rest = of_components(self.edges, self.weights, open);
            return self.branch(0, taken | rest, cost + weight(self.weights, rest));
        }
        let degree = |vertex: &usize| (self.edges[*vertex] & open).count_ones();
        let vertex = vertices(open)
            .max_by_key(degree)
            .expect("there is an open edge");
        let neighbours = self.edges[vertex] & open;
        let alone = open & !(1 << vertex);
        self.branch(alone, taken | 1 << vertex, cost + self.weights[vertex]);
        let cost = cost + weight(self.weights, neighbours);
        self.branch(alone & !neighbours, taken | neighbours, cost);
    }

    /// No cover of the edges between vertices of `open` costs less.
    fn bound(&self, open: u64) -> u64 {
        let mut left = [0; super::MAX_KINDS];
        left[..self.weights.len()].copy_from_slice(self.weights);
        let mut sum = 0;
        for one in vertices(open) {
            // Each edge once.
            for other in vertices(self.edges[one] & open & !all(one + 1)) {
                let least = left[one].min(left[other]);
                left[one] -= least;
                left[other] -= least;
                sum += least;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn is_cover(edges: &Edges, cover: u64) -> bool {
        (0..edges.len()).all(|vertex| cover & 1 << vertex != 0 || edges[vertex] & !cover == 0)
    }

    /// The weight of the best of all sets.
    fn brute_force(edges: &Edges, weights: &[u64]) -> u64 {
        (0..1 << edges.len())
            .filter(|set| is_cover(edges, *set))
            .map(|set| weight(weights, set))
            .min()
            .expect("all vertices are a cover")
    }

    fn graph(count: usize, pairs: &[(usize, usize)]) -> Vec<u64> {
        let mut edges = alloc::vec![0; count];
        for (one, other) in pairs {
            let (one, other) = (one % count, other % count);
            edges[one] |= 1 << other;
            edges[other] |= 1 << one;
        }
        edges
    }

    proptest! {
        #[test]
        fn the_cover_is_the_best_of_all_sets(
            weights in vec(0..20_u64, 1..11),
            pairs in vec((0..11_usize, 0..11_usize), 0..25),
        ) {
            // Most loops are dropped: they are forced, and leave little to decide.
            let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b || *a == 3).collect();
            let edges = graph(weights.len(), &pairs);
            let cover = minimum(&edges, &weights, u64::MAX);
            prop_assert!(is_cover(&edges, cover));
            prop_assert_eq!(weight(&weights, cover), brute_force(&edges, &weights));
        }
    }

    /// The bound alone does not end the search early here: it is half of the optimum.
    #[test]
    fn many_triangles_are_covered_one_by_one() {
        let triangles = (0..21).flat_map(|i| {
            let (a, b, c) = (3 * i, 3 * i + 1, 3 * i + 2);
            [(a, b), (b, c), (a, c)]
        });
        let edges = graph(64, &triangles.collect::<Vec<_>>());
        assert_eq!(minimum(&edges, &[1; 64], u64::MAX).count_ones(), 42);
    }

    #[test]
    fn sixty_four_kinds_in_a_ring_with_chords_are_covered() {
        let ring = (0..64).flat_map(|i| [(i, (i + 1) % 64), (i, (i + 32) % 64)]);
        let edges = graph(64, &ring.collect::<Vec<_>>());
        let cover = minimum(&edges, &[1; 64], u64::MAX);
        // The ladder of Moebius: every second vertex would leave out one edge.
        assert!(is_cover(&edges, cover) && cover.count_ones() == 33);
    }
}
