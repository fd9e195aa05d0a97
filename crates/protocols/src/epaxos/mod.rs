//! EPaxos: every replica leads commands of its own, and conflicting commands are ordered by the
//! dependencies that acceptors find.

pub mod executed;
pub mod graph;
pub mod index;
pub mod instance;
