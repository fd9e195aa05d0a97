//! Who has answered lately: a failure detector fed by the traffic itself.

use crate::id::{Id, Set};
use crate::time::{Duration, Instant};

/// How long a suspect is left alone before it is given one piece of work to show that it lives.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// The instances of one role that left a request unanswered and have not been heard of since.
#[derive(Clone, Debug)]
pub struct Suspicion<I: Id> {
    suspects: Set<I>,
    next_probe: Instant,
}

impl<I: Id> Suspicion<I> {
    /// Nobody is suspected.
    pub fn new() -> Self {
        Suspicion { suspects: Set::EMPTY, next_probe: Instant::ZERO }
    }

    /// `id` answered.
    pub fn heard(&mut self, id: I) {
        self.suspects.remove(id);
    }

    /// `ids` left a request unanswered for too long.
    pub fn silent(&mut self, ids: Set<I>, now: Instant) {
        if !self.suspects.covers(ids) {
            self.next_probe = now + PROBE_EVERY;
        }
        self.suspects = self.suspects.or(ids);
    }

    /// Those of `all` that are not suspected; everybody when all of them are, since work must go
    /// somewhere.
    pub fn trusted(&self, all: Set<I>) -> Set<I> {
        let trusted = all.without(self.suspects);
        if trusted.is_empty() { all } else { trusted }
    }

    /// Those under suspicion.
    pub fn suspects(&self) -> Set<I> {
        self.suspects
    }

    /// The suspects that are to be given a piece of work now, beside somebody trusted.
    pub fn probe(&mut self, now: Instant) -> Set<I> {
        if self.suspects.is_empty() || now < self.next_probe {
            return Set::EMPTY;
        }
        self.next_probe = now + PROBE_EVERY;
        self.suspects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ReplicaId;

    #[test]
    fn suspects_are_avoided_probed_now_and_then_and_forgiven() {
        let all = Set::first(2);
        let one = Set::one(ReplicaId(1));
        let mut suspicion = Suspicion::new();
        suspicion.silent(one, Instant(0));
        assert_eq!(suspicion.trusted(all), Set::one(ReplicaId(0)));
        assert_eq!(suspicion.probe(Instant(1)), Set::EMPTY);
        assert_eq!(suspicion.probe(Instant(600_000)), one);
        assert_eq!(suspicion.probe(Instant(600_001)), Set::EMPTY);
        suspicion.silent(all, Instant(600_002));
        assert_eq!(suspicion.trusted(all), all);
        suspicion.heard(ReplicaId(1));
        assert_eq!(suspicion.trusted(all), one);
    }
}
