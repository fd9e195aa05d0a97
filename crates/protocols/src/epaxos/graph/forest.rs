//! Trees in which a root can be put under a vertex of another tree, and taken out again, and of
//! which any vertex finds its root, all in logarithmic time on average: the link-cut trees of
//! Sleator and Tarjan (A Data Structure for Dynamic Trees, 1983; with splay trees: Self-Adjusting
//! Binary Search Trees, 1985). No tree is ever turned upside down, so there is no mark for that.

use alloc::vec::Vec;

/// No vertex.
pub(super) const NONE: u32 = u32::MAX;

/// Each tree is a set of paths, each of which is a splay tree by depth. The root of a splay tree
/// has as its `parent` the vertex above its path, which does not have it as a child.
#[derive(Debug, Default)]
pub(super) struct Forest {
    links: Vec<Links>,
    /// What the operations cost so far.
    #[cfg(test)]
    pub(super) steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    parent: u32,
    /// Of lower depth, then of greater.
    children: [u32; 2],
}

const ALONE: Links = Links {
    parent: NONE,
    children: [NONE; 2],
};

/// The places of children.
const ABOVE: usize = 0;
const BELOW: usize = 1;

impl Forest {
    /// Makes a vertex a tree of its own. What it was linked to must be so too, or be cut off.
    pub(super) fn isolate(&mut self, vertex: u32) {
        let at = vertex as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, ALONE);
        }
        self.links[at] = ALONE;
    }

    /// Puts a root under a vertex of another tree.
    pub(super) fn link(&mut self, root: u32, vertex: u32) {
        self.expose(vertex);
        self.expose(root);
        assert!(
            self.child(root, ABOVE) == NONE,
            "only the root of a tree is put under another"
        );
        self.links[root as usize].parent = vertex;
    }

    /// Makes a vertex a root, with all below it.
    pub(super) fn cut(&mut self, vertex: u32) {
        self.expose(vertex);
        let above = self.child(vertex, ABOVE);
        assert!(above != NONE, "a root is under nothing");
        self.links[above as usize].parent = NONE;
        self.links[vertex as usize].children[ABOVE] = NONE;
    }

    /// The root of the tree of a vertex.
    pub(super) fn root(&mut self, vertex: u32) -> u32 {
        self.expose(vertex);
        let mut root = vertex;
        while self.child(root, ABOVE) != NONE {
            root = self.child(root, ABOVE);
            self.step();
        }
        // It pays for the way.
        self.splay(root);
        root
    }

    /// Makes the path from the root to a vertex one splay tree, with the vertex on top.
    fn expose(&mut self, vertex: u32) {
        let (mut top, mut below) = (vertex, NONE);
        while top != NONE {
            self.splay(top);
            self.links[top as usize].children[BELOW] = below;
            below = top;
            top = self.links[top as usize].parent;
        }
        self.splay(vertex);
    }

    fn splay(&mut self, vertex: u32) {
        while let Some((parent, side)) = self.place(vertex) {
            if let Some((_, upper_side)) = self.place(parent) {
                let first = if side == upper_side { parent } else { vertex };
                self.rotate(first);
            }
            self.rotate(vertex);
        }
    }

    /// Exchanges a vertex with its parent in the splay tree.
    fn rotate(&mut self, vertex: u32) {
        self.step();
        let (parent, side) = self.place(vertex).expect("it is no root of a splay tree");
        let upper = self.place(parent);
        let inner = self.child(vertex, 1 - side);
        self.links[vertex as usize].parent = self.links[parent as usize].parent;
        if let Some((grandparent, side)) = upper {
            self.links[grandparent as usize].children[side] = vertex;
        }
        self.links[parent as usize].children[side] = inner;
        if inner != NONE {
            self.links[inner as usize].parent = parent;
        }
        self.links[vertex as usize].children[1 - side] = parent;
        self.links[parent as usize].parent = vertex;
    }

    /// Of which vertex in the splay tree this is a child, and which; none for its root.
    fn place(&self, vertex: u32) -> Option<(u32, usize)> {
        let parent = self.links[vertex as usize].parent;
        let children = self.links.get(parent as usize)?.children;
        let side = children.iter().position(|child| *child == vertex)?;
        Some((parent, side))
    }

    fn child(&self, vertex: u32, side: usize) -> u32 {
        self.links[vertex as usize].children[side]
    }

    /// Counts a step, for tests.
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_vertex_finds_its_root(
            steps in prop::collection::vec((0..12u32, 0..12u32, any::<bool>()), 0..80),
        ) {
            let mut forest = Forest::default();
            (0..12).for_each(|vertex| forest.isolate(vertex));
            let mut above = [NONE; 12];
            let root = |above: &[u32; 12], mut vertex: u32| {
                while above[vertex as usize] != NONE {
                    vertex = above[vertex as usize];
                }
                vertex
            };
            for (a, b, link) in steps {
                if above[a as usize] != NONE && !link {
                    above[a as usize] = NONE;
                    forest.cut(a);
                } else if above[a as usize] == NONE && root(&above, b) != a {
                    above[a as usize] = b;
                    forest.link(a, b);
                }
                prop_assert_eq!(forest.root(b), root(&above, b));
            }
            for vertex in 0..12 {
                prop_assert_eq!(forest.root(vertex), root(&above, vertex));
            }
        }
    }
}
