//! A running node: its settings, its roles, its event loop.

pub mod application;
pub mod audit;
mod bursts;
mod busy;
mod certificates;
mod clock;
mod control;
mod delays;
mod event_log;
mod event_loop;
pub mod feed;
mod guard;
mod instances;
mod io;
pub(crate) mod joining;
mod leaving;
mod listener;
mod loops;
mod membership;
mod notes;
mod peer_tasks;
pub mod settings;
pub(crate) mod start;
pub mod startup;
mod state;
pub mod unix_socket;
mod workers;
