//! Commands that are skipped, as after `ionian log skip`: no replica executes them, and their
//! clients get that error.

use crate::scenario::{Canary, Scenario};
use crate::trace::mix;
use ionian_kernel::guard::{Call, Guard, LogCommand, Must, NotDone};
use ionian_kernel::layout::NodeId;
use std::sync::Arc;

/// One command in this number is skipped.
const ONE_IN: u64 = 12;

/// The guard of one node's state machines. All nodes skip the same commands, which depend only on
/// slot, session and number. A copy of such a command in a later slot is not skipped, as in the
/// runtime.
struct GivesUp;

impl Guard for GivesUp {
    fn call(&self, what: Call<'_>, call: &mut dyn FnMut()) -> Result<(), NotDone> {
        if let Call::Apply(command) | Call::Footprint(Some(command)) = what
            && let LogCommand {
                slot,
                session,
                number,
                ..
            } = command
            && mix(mix(slot.0, session.0), number).is_multiple_of(ONE_IN)
        {
            return Err(NotDone);
        }
        call();
        Ok(())
    }

    fn must_call(&self, _: Must, call: &mut dyn FnMut()) {
        call();
    }
}

/// The guard of this node's state machines, if it has one. With the defect every second node has
/// none: whichever nodes execute commands, some of them differ.
pub(crate) fn guard(scenario: &Scenario, node: NodeId) -> Option<Arc<dyn Guard>> {
    let differs = scenario.canary == Canary::GivesUpAlone && !node.0.is_multiple_of(2);
    (scenario.gives_up && !differs).then(|| Arc::new(GivesUp) as Arc<dyn Guard>)
}
