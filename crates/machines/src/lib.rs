//! State machines for Ionian to replicate: their commands, their replies, and which commands conflict.

#![forbid(unsafe_code)]

pub mod kv;
pub mod register;
pub mod registers;
