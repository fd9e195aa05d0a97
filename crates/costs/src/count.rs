//! One function for each group of nodes with the same roles: callgrind counts by function.

use std::hint::black_box;

/// A node that has something to do.
pub trait Pass {
    /// From bytes that have arrived to messages.
    fn receive(&mut self);
    /// From messages to bytes that are to be written.
    fn work(&mut self);
}

/// Has a node of a group take its burst in.
pub trait Counter {
    /// Calls [`receive`](Pass::receive) and then [`work`](Pass::work) once each.
    fn pass(&mut self, group: usize, node: &mut dyn Pass);
}

/// Counts nothing: what comes before the steady state.
pub struct Uncounted;

impl Counter for Uncounted {
    fn pass(&mut self, _: usize, node: &mut dyn Pass) {
        node.receive();
        node.work();
    }
}

/// Passes each group through a function of its own.
pub struct ByFunction;

impl Counter for ByFunction {
    fn pass(&mut self, group: usize, node: &mut dyn Pass) {
        FUNCTIONS[group].1(node);
    }
}

macro_rules! functions {
    ($($name:ident)*) => {
        /// The name of the function of each group, and the function.
        pub const FUNCTIONS: &[(&str, fn(&mut dyn Pass))] = &[$((stringify!($name), $name)),*];

        $(
            /// Its name makes it differ from the others, so that the compiler does not merge them.
            #[inline(never)]
            fn $name(node: &mut dyn Pass) {
                black_box(stringify!($name));
                node.receive();
                node.work();
            }
        )*
    };
}

functions! {
    group_0 group_1 group_2 group_3 group_4 group_5 group_6 group_7
    group_8 group_9 group_10 group_11 group_12 group_13 group_14 group_15
}
