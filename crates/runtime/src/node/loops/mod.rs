//! The further event loops of a node (`loops = k`): each runs some of the roles on a thread.
//!
//! | file | job |
//! |---|---|
//! | `queue` | bounds what is on its way between two loops |
//! | `thread` | a role loop: the thread, its roles and its timers |
//! | `threads` | the role loops as the main loop uses them |
//!
//! The main loop has the connections, the log and the application. Messages for roles of other
//! loops are handed over as values, through channels of the standard library that take no lock, and
//! the thread is woken if it sleeps. All messages between two role loops pass the main loop. So
//! whatever the main loop has passed to all of them, such as a membership, is known to each before
//! any message that assumes it.

mod queue;
mod thread;
mod threads;

pub(crate) use self::threads::Loops;
