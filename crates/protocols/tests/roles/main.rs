//! What one role alone must do, and the mistakes that it alone can make: each role is on a stage,
//! the others are played by the test. What takes a whole cluster is in the simulator's tests.

mod acceptor;
mod batcher;
mod bytes;
mod catching_up;
mod client_lane;
mod election;
#[cfg(feature = "incomplete")]
mod epaxos_acceptor;
mod known_defects;
mod leader;
mod learning;
mod lives;
mod membership;
mod mencius;
mod mencius_acceptor;
mod mencius_leader;
mod mencius_membership;
mod mencius_replica;
mod options;
mod proxies;
mod proxy_leader;
mod reach;
mod read_batcher;
mod relay;
mod replica;
mod salvage;
mod servers;
mod spaxos;
mod spaxos_batcher;
mod spaxos_disseminator;
mod spaxos_leader;
mod spaxos_membership;
mod spaxos_proxy_leader;
mod spaxos_servers;
mod spaxos_stabilizer;
mod stage;
mod strays;
mod succession;
mod time;
mod unbatcher;
mod unreplicated_server;
