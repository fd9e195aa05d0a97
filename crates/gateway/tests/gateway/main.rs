//! The gateway as its clients see it. One binary, so that it is linked once.

mod acl;
mod blocking;
mod certified;
mod commands;
mod common;
mod connection;
mod login;
mod maxmemory;
mod memory;
mod model;
mod objects;
mod parsing;
mod quotas;
mod redis7_acl;
mod socket;
mod tls;
mod transactions;
mod waiting;
