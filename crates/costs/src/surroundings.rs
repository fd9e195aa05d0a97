//! What lies around a role, in the words of MultiPaxos: drivers speak those, and roles of other
//! protocols that do the same work, or are fed alike, hear them as their own protocol says them.

mod mencius;
mod payloads;
mod spaxos;

pub(crate) use self::mencius::Striped;
pub(crate) use self::payloads::{Disseminating, Storing};
pub(crate) use self::spaxos::Referring;

use ionian_kernel::layout::Layout;
use ionian_kernel::protocol::Protocol;
use ionian_protocols::multipaxos::{self, MultiPaxos};

/// See the top of this file.
pub(crate) trait Surroundings {
    type Protocol: Protocol;

    /// Those of a role in a deployment of this layout.
    fn new(layout: &Layout) -> Self;

    /// The number of roles that must learn of a chosen value, in a deployment with this many
    /// replicas.
    fn told_of_chosen(replicas: usize) -> usize {
        replicas
    }

    /// What a driver says, as the role hears it.
    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(Message<Self>));

    /// What the role says, as a driver hears it; none when MultiPaxos has no such message.
    fn hear(&self, message: Message<Self>) -> Option<multipaxos::Message>;

    /// Whether others answer at once, though the driver knows nothing of it.
    fn is_answered(message: &Message<Self>) -> bool;

    /// What they answer. It was said to these members of a kind.
    fn answer(&mut self, members: u64, message: Message<Self>, hear: &mut dyn FnMut(Message<Self>));
}

pub(crate) type Message<S> = <<S as Surroundings>::Protocol as Protocol>::Message;

/// MultiPaxos.
pub(crate) struct Plain;

impl Surroundings for Plain {
    type Protocol = MultiPaxos;

    fn new(_: &Layout) -> Self {
        Plain
    }

    fn say(&mut self, message: multipaxos::Message, hear: &mut dyn FnMut(multipaxos::Message)) {
        hear(message);
    }

    fn hear(&self, message: multipaxos::Message) -> Option<multipaxos::Message> {
        Some(message)
    }

    fn is_answered(_: &multipaxos::Message) -> bool {
        false
    }

    fn answer(&mut self, _: u64, _: multipaxos::Message, _: &mut dyn FnMut(multipaxos::Message)) {}
}
