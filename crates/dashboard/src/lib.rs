//! The dashboard of a cluster: one page, served by every node over HTTP.
//!
//! A thread of its own asks all nodes for their status every 2 s while a page is open, once for all
//! pages, and every 30 s while none is. What it finds goes to each page through one stream of
//! events. The judgement of health is that of `ionian status`: the caller passes it in ([`Look`]).
//!
//! | file | job |
//! |---|---|
//! | `look` | what one look at the cluster finds |
//! | `figures` | what charts draw of one moment |
//! | `history` | the figures of the last hour and the last day |
//! | `events` | what changed between two looks |
//! | `picture` | what the page draws, as JSON |
//! | `memory` | what is kept from look to look |
//! | `watch` | the thread that looks |
//! | `routes` | the page and its interfaces |
//! | `page` | HTML, style and script |
//!
//! Rates of nodes, and what limits the cluster, are in the crate `planner`.

#![forbid(unsafe_code)]

mod events;
mod figures;
mod history;
mod look;
mod memory;
mod picture;
mod routes;
mod watch;

pub use look::{Look, Node, Placed, Trouble};
pub use routes::STREAMS;
pub use watch::{Dashboard, LOOKS_EVERY, Looking, RARELY};
