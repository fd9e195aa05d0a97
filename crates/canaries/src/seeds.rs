//! Seeds of the changed protocols, by their names: the simulator of each is compiled here, once for
//! the tests of this crate and for `ionian-tools`.

use crate::registry::{self, Work};
use ionian_kernel::protocol::Protocol;
use ionian_sim::{Outcome, Scenario, run_seed};

struct Seed<'a> {
    scenario: &'a Scenario,
    seed: u64,
}

impl Work for Seed<'_> {
    type Output = Outcome;

    fn run<P: Protocol>(self) -> Outcome {
        run_seed::<P>(self.scenario, self.seed)
    }
}

/// Runs one seed of the protocol, with the canary that is active on this thread, if any. `None` if
/// there is no such protocol.
pub fn run(protocol: &str, scenario: &Scenario, seed: u64) -> Option<Outcome> {
    registry::with_protocol(protocol, Seed { scenario, seed })
}
