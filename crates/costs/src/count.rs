//! How nodes are counted: as a whole, by a function for each group of nodes with the same roles
//! (callgrind counts by function), or message by message.

use std::hint::black_box;

/// A node that has something to do.
pub trait Pass {
    /// From bytes that have arrived to messages.
    fn receive(&mut self);
    /// From messages to bytes that are to be written.
    fn work(&mut self);
    /// Does both, and shows each message to `observer`.
    fn observe(&mut self, observer: &mut dyn Observer);
}

/// Looks at a node while it handles one message after the other.
pub trait Observer {
    /// The node begins to receive or to handle a message.
    fn begin(&mut self);
    /// It has received the message that it has begun with, which is decoded now.
    fn received(&mut self, kind: u8, name: &'static str);
    /// It has handled the message that it has begun with, of this many bytes, and encoded what it
    /// sends because of it.
    fn handled(&mut self, kind: u8, name: &'static str, bytes: usize);
}

/// Which node it is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its group, an index of [`Run::groups`](crate::Run::groups).
    pub group: usize,
    /// Its index in [`Run::nodes`](crate::Run::nodes).
    pub node: usize,
}

/// Makes nodes handle what has arrived.
pub trait Counter {
    /// Calls [`receive`](Pass::receive) and then [`work`](Pass::work) once each, or
    /// [`observe`](Pass::observe).
    fn pass(&mut self, at: Place, node: &mut dyn Pass);
}

/// Counts nothing: what comes before the steady state.
pub struct Uncounted;

impl Counter for Uncounted {
    fn pass(&mut self, _: Place, node: &mut dyn Pass) {
        node.receive();
        node.work();
    }
}

/// Passes each group through a function of its own.
pub struct ByFunction;

impl Counter for ByFunction {
    fn pass(&mut self, at: Place, node: &mut dyn Pass) {
        FUNCTIONS[at.group].1(node);
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
