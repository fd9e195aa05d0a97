//! The dashboard of a cluster: one page, served by every node over HTTP.
//!
//! A thread of its own asks all nodes for their status every 2 s, once for all open pages, and only
//! while a page is open. What it finds goes to each page through one stream of events. The
//! judgement of health is that of `ionian status`: the caller passes it in ([`Look`]).
//!
//! | file | job |
//! |---|---|
//! | `look` | what one look at the cluster finds |
//! | `rates` | rates and utilizations, from two reports of a node |
//! | `figures` | what charts draw of one moment |
//! | `history` | the figures of the last hour |
//! | `bottleneck` | what limits the cluster |
//! | `events` | what changed between two looks |
//! | `picture` | what the page draws, as JSON |
//! | `memory` | what is kept from look to look |
//! | `watch` | the thread that looks |
//! | `routes` | the page and its interfaces |
//! | `page` | HTML, style and script |

#![forbid(unsafe_code)]

mod bottleneck;
mod events;
mod figures;
mod history;
mod look;
mod memory;
mod picture;
mod rates;
mod routes;
mod watch;

pub use look::{Look, Node, Placed, Trouble};
pub use routes::STREAMS;
pub use watch::{Dashboard, LOOKS_EVERY, Looking};
