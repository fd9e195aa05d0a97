//! Workers of which the seed says when they are done. A node may have fewer than it asks for, as a
//! machine with few cores has: replicas must end alike all the same.

use ionian_kernel::random::Random;
use ionian_kernel::work::{Inline, Workers};

/// Up to this many workers.
pub(crate) fn hire(seed: u64, count: usize) -> Box<dyn Workers> {
    let mut random = Random::new(seed ^ 0x0077_6f72_6b65_7273);
    let count = random.between(1, count as u64) as usize;
    let worth = random.between(1, 4) as usize;
    Inline::at_random(random, count, worth)
}
