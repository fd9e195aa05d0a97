//! The state for a backup is that of the roles that execute the commands of clients, whatever other
//! roles execute.

extern crate alloc;

use ionian_kernel::client::Request;
use ionian_kernel::id::{ClientId, Epoch, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId, numbered};
use ionian_kernel::machine::Frozen;
use ionian_kernel::messages;
use ionian_kernel::node::Node;
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, NoInvariants, Protocol, Transition};
use ionian_kernel::role::{Cover, Out, Picture, Role};
use ionian_kernel::service::Service;
use ionian_kernel::status::Metrics;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Never;

ionian_kernel::ids! {
    /// A role that executes the commands of clients.
    KeeperId "keeper"
    /// A role that executes a log of its own.
    ClerkId "clerk"
}

/// A state without anything in it.
struct Nothing;

impl Frozen for Nothing {
    fn write_some(&mut self, _: &mut Vec<u8>) -> bool {
        false
    }
}

/// A role that has executed everything below a slot.
macro_rules! executes {
    ($module:ident, $name:literal, $role:ident) => {
        mod $module {
            use super::*;

            messages! {
                $name In {
                    0 => Submit { request: Request },
                }
            }

            pub(crate) struct $role(pub(crate) u64);

            impl Role for $role {
                type In = In;
                type Send = Envelope;
                type Config = Layout;
                type Record = Never;
                fn recover(&mut self, _: Never) {}
                fn on_message(&mut self, _: Instant, _: In, _: &mut Out<'_, Self>) {}
                fn freeze(&mut self, _: Instant, cover: Cover) -> Picture {
                    match cover.stamp().is_some_and(|at| self.0 >= at) {
                        true => Picture::Taken(self.0, Box::new(Nothing)),
                        false => Picture::NotYet(self.0),
                    }
                }
            }
        }
    };
}

executes!(client, "client", Lane);
executes!(keeper, "keeper", Keeper);
executes!(clerk, "clerk", Clerk);

ionian_kernel::protocol! {
    config Layout;
    0 Client "client" ToClients(ClientId) client::Lane,
    1 Keeper "keeper" ToKeepers(KeeperId) keeper::Keeper,
    2 Clerk "clerk" ToClerks(ClerkId) clerk::Clerk,
}

enum Office {}

impl Protocol for Office {
    const NAME: &'static str = "office";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = &[];
    const EXECUTORS: &'static [u8] = &[kind::Keeper];
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Layout;
    type Invariants = NoInvariants;

    fn configure(layout: Layout) -> Result<Layout, LayoutError> {
        Ok(layout)
    }
    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Ok(Transition::AtOnce)
    }
    fn latest_epoch(_: &Layout) -> Epoch {
        Epoch::default()
    }
    fn service(_: &Layout, _: Epoch) -> Service {
        unreachable!("it is not operated")
    }
    fn founding_records(_: &Layout, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }
    fn instantiate(_: &Layout, birth: Birth<'_>) -> Instance {
        instance(birth.address.kind)
    }
}

/// An instance of this kind: a keeper has executed 3 slots, a clerk 9.
fn instance(kind: u8) -> Instance {
    match kind {
        kind::Client => Instance::Client(client::Lane(0)),
        kind::Keeper => Instance::Keeper(keeper::Keeper(3)),
        _ => Instance::Clerk(clerk::Clerk(9)),
    }
}

/// A node with the first instance of each of these kinds.
fn node(kinds: &[u8]) -> Node<Office> {
    let layout = Layout {
        instances: numbered(vec![vec![NodeId(0)]; KINDS.len()]),
        ..Layout::default()
    };
    let mut node = Node::new(&layout, true);
    for kind in kinds {
        let address = Address {
            kind: *kind,
            index: 0,
        };
        node.host(address, instance(*kind));
    }
    node
}

#[test]
fn a_backup_is_of_the_state_of_clients_however_far_other_roles_are() {
    let freeze = |kinds: &[u8], at| node(kinds).freeze(Instant(0), Cover::Below(at));
    let both = [kind::Clerk, kind::Keeper];
    assert!(matches!(freeze(&both, 3), Picture::Taken(3, _)));
    assert!(matches!(freeze(&both, 4), Picture::NotYet(3)));
    assert!(matches!(freeze(&[kind::Clerk], 3), Picture::Never));
}
