//! The parts that protocols share whose log is ordered by votes: the rules and the state of one job
//! each, without messages.
//!
//! A part knows the message enumeration of no protocol. It says what it wants done through its
//! *port*, a trait without default methods that the role implements over its own
//! [`Out`](ionian_kernel::role::Out): nothing is copied on the way, the fence is kept, and an
//! output that is added to a part is a compile error in every protocol that uses it. What a role
//! needs to know of the result, a method returns. See decision 35. S-Paxos has MultiPaxos's
//! acceptor and replica whole.
//!
//! | part | a role that has it | in |
//! |---|---|---|
//! | [`leader`] | leader | MultiPaxos, S-Paxos; Mencius, one for each stripe that it serves |
//! | [`acceptor`] | acceptor | MultiPaxos; Mencius, one for each stripe |
//! | [`proxy_leader`] | proxy leader | MultiPaxos, S-Paxos; Mencius, one for each stripe |
//! | [`replica`] | replica | MultiPaxos, Mencius |

pub mod acceptor;
pub(crate) mod branch;
pub(crate) mod due;
pub mod leader;
pub mod message;
pub(crate) mod metrics;
pub mod proxy_leader;
pub mod replica;
pub mod salvage;
pub(crate) mod workers;
