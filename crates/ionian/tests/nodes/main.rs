//! The library on real nodes: what programs read, what their machines learn, and three processes of
//! which one is killed.

mod common;
mod context;
mod processes;
mod reads;
mod starting;
