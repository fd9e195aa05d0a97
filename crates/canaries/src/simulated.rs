//! The changed protocols for the simulator, by their names: what it does with the roles of each is
//! compiled here, once for the tests of this crate and for `ionian-tools`.

use crate::registry::{self, Work};
use ionian_kernel::protocol::Protocol;
use ionian_sim::Simulated;

struct Make;

impl Work for Make {
    type Output = Simulated;

    fn run<P: Protocol>(self) -> Simulated {
        Simulated::of::<P>()
    }
}

/// The changed protocol of this name in deployment files; its roles have the canary that is active
/// on their thread, if any. `None` if there is no such protocol.
pub fn named(protocol: &str) -> Option<Simulated> {
    registry::with_protocol(protocol, Make)
}
