//! How many bytes a leader takes in and sends for a command: the real roles at work, in the
//! simulator.

use super::deployments::{batches, preset};
use super::simulate::KeyValue;
use anyhow::Result;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::wire::encode_all;
use ionian_protocols::multipaxos::{self, MultiPaxos};
use ionian_protocols::spaxos::{self, SPaxos};
use ionian_sim::performance::{Costs, Setting, measure};
use std::cell::Cell;
use std::fmt;

const COMMANDS: u64 = 2000;

/// For each command. The network's own headers are not among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traffic {
    pub(super) bytes_in: f64,
    pub(super) bytes_out: f64,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} + {:.0}", self.bytes_in, self.bytes_out)
    }
}

/// What a message is to a leader.
pub(super) enum Way {
    /// The message that it receives.
    In,
    /// Only leaders say this.
    Out,
    /// It concerns others.
    Past,
}

/// A protocol that has leaders.
pub(super) trait Led: Protocol {
    fn way(message: &Self::Message) -> Way;
}

impl Led for MultiPaxos {
    fn way(message: &multipaxos::Message) -> Way {
        use multipaxos::{Message, acceptor, proxy_leader, replica};
        match message {
            Message::Leader(_) => Way::In,
            Message::ProxyLeader(proxy_leader::In::Phase2a { .. })
            | Message::Acceptor(acceptor::In::Heartbeat { .. })
            | Message::Replica(replica::In::Heartbeat { .. }) => Way::Out,
            _ => Way::Past,
        }
    }
}

impl Led for SPaxos {
    fn way(message: &spaxos::Message) -> Way {
        use spaxos::{Message, disseminator, proxy_leader, stabilizer};
        match message {
            Message::Leader(_) => Way::In,
            Message::ProxyLeader(proxy_leader::In::Ordering { message }) => {
                MultiPaxos::way(&multipaxos::Message::ProxyLeader(message.clone()))
            }
            Message::Acceptor(message) => {
                MultiPaxos::way(&multipaxos::Message::Acceptor(message.clone()))
            }
            Message::Replica(message) => {
                MultiPaxos::way(&multipaxos::Message::Replica(message.clone()))
            }
            Message::Stabilizer(stabilizer::In::Kept { .. })
            | Message::Disseminator(disseminator::In::Progress { .. }) => Way::Out,
            _ => Way::Past,
        }
    }
}

#[derive(Default)]
struct Counted {
    bytes_in: Cell<usize>,
    bytes_out: Cell<usize>,
}

impl<P: Led> Costs<P> for Counted {
    fn of(&self, _: Address, message: &P::Message) -> f64 {
        let counter = match P::way(message) {
            Way::In => &self.bytes_in,
            Way::Out => &self.bytes_out,
            Way::Past => return 1.0,
        };
        counter.set(counter.get() + encode_all(message).len());
        1.0
    }
}

/// Counts at the leader of a preset without batches, for writes of this size.
///
/// # Errors
/// When the preset is none of the protocol.
pub(super) fn at_leader<P: Led>(from: &str, value_bytes: usize) -> Result<Traffic> {
    let deployment = batches(preset(from, 4)?, 1)?;
    let setting = Setting {
        layout: deployment.layout(P::KINDS)?,
        client_kinds: vec![0],
        clients: 50,
        read_fraction: 0.0,
        read_level: ionian_kernel::client::ReadLevel::Linearizable,
        network_delay_us: 50.0,
        network_jitter: 0.2,
        wake_us: 5.0,
        burst_us: 100.0,
        warm_up_requests: 0,
        requests: COMMANDS,
        longest_us: 10_000_000,
    };
    let counted = Counted::default();
    let measured = measure::<P>(&setting, &counted, &KeyValue { value_bytes })?;
    let per_command = |counter: &Cell<usize>| counter.get() as f64 / measured.requests as f64;
    Ok(Traffic {
        bytes_in: per_command(&counted.bytes_in),
        bytes_out: per_command(&counted.bytes_out),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_of_s_paxos_handles_does_not_grow_with_the_value() {
        let of =
            |value_bytes| at_leader::<SPaxos>("spaxos-compartmentalized", value_bytes).unwrap();
        let small = of(16);
        assert!(small.bytes_in > 40.0 && small.bytes_out > 40.0, "{small}");
        for value_bytes in [1024, 65_536] {
            let large = of(value_bytes);
            let grows = |one: f64, other: f64| (one / other - 1.0).abs() > 0.02;
            let differ =
                grows(large.bytes_in, small.bytes_in) || grows(large.bytes_out, small.bytes_out);
            assert!(!differ, "{value_bytes} bytes: {large}, 16 bytes: {small}");
        }
        let multipaxos = at_leader::<MultiPaxos>("compartmentalized", 65_536).unwrap();
        assert!(
            multipaxos.bytes_in > 65_536.0 && multipaxos.bytes_out > 65_536.0,
            "this one carries it: {multipaxos}"
        );
    }
}
