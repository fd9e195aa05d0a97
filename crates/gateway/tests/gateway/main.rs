//! The gateway as its clients see it. One binary, so that it is linked once.

mod acl;
mod audit;
mod blocking;
mod certified;
mod clients;
mod commands;
mod common;
mod connection;
mod demand;
mod login;
mod maxmemory;
mod memory;
mod model;
mod objects;
mod parsing;
mod quotas;
mod races;
mod redis7_acl;
mod redis7_commands;
mod redis7_server;
mod socket;
mod tls;
mod transactions;
mod turns;
mod waiting;
