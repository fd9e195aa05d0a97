//! Commands that are given up, as after `ionian log skip`: no replica executes them, and their
//! clients get that error.

use crate::scenario::{Canary, Scenario};
use crate::trace::mix;
use ionian_kernel::guard::{Call, Guard, LogCommand, NotDone};
use ionian_kernel::layout::NodeId;
use std::sync::Arc;

/// One command in this number is given up.
const ONE_IN: u64 = 12;

/// The guard of the machines of one node. All nodes give up the same commands: which, depends on
/// the slot, the session and the number alone. A copy of such a command in a later slot is none of
/// them, as it is none for a node that runs.
struct GivesUp;

impl Guard for GivesUp {
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        if let Call::Apply(LogCommand {
            slot,
            session,
            number,
            ..
        }) = what
            && mix(mix(slot.0, session.0), number).is_multiple_of(ONE_IN)
        {
            return Err(NotDone);
        }
        call();
        Ok(())
    }
}

/// The guard of the machines of this node, if it has one.
pub(crate) fn guard(scenario: &Scenario, node: NodeId) -> Option<Arc<dyn Guard>> {
    let differs = scenario.canary == Canary::GivesUpAlone && node != NodeId(0);
    (scenario.gives_up && !differs).then(|| Arc::new(GivesUp) as Arc<dyn Guard>)
}
