//! The requests of a lane that were not answered, and what is known of the answered ones between
//! them.

use super::pending::Pending;
use crate::session::SESSION_WINDOW;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ionian_kernel::id::Index;

/// Requests by number, from the lowest unanswered on.
pub(super) struct InFlight {
    /// The lowest unanswered number. The cluster keeps the results of all commands from here on, so
    /// that one that comes again is not executed again.
    pub(super) floor: u64,
    places: VecDeque<Place>,
    /// How many are unanswered.
    pub(super) occupied: usize,
    /// What their payloads hold.
    pub(super) bytes: usize,
    /// What the results hold that the cluster keeps.
    kept: usize,
}

enum Place {
    Pending(Pending),
    /// Answered, with a result of this many bytes.
    Done(usize),
}

impl Place {
    fn pending(&self) -> Option<&Pending> {
        match self {
            Place::Pending(pending) => Some(pending),
            Place::Done(_) => None,
        }
    }

    fn pending_mut(&mut self) -> Option<&mut Pending> {
        match self {
            Place::Pending(pending) => Some(pending),
            Place::Done(_) => None,
        }
    }

    /// The request, if it is unanswered; from now on it is not.
    fn end(&mut self, kept: usize) -> Option<Pending> {
        match core::mem::replace(self, Place::Done(kept)) {
            Place::Pending(pending) => Some(pending),
            done @ Place::Done(_) => {
                *self = done;
                None
            }
        }
    }
}

impl InFlight {
    pub(super) fn new(floor: u64) -> Self {
        InFlight {
            floor,
            places: VecDeque::new(),
            occupied: 0,
            bytes: 0,
            kept: 0,
        }
    }

    /// Whether one old request has held the floor for so long that numbers run out, or that the
    /// cluster keeps as many bytes of results as `limit`.
    pub(super) fn is_stretched(&self, limit: usize) -> bool {
        self.places.len() as u64 >= SESSION_WINDOW / 2 || self.kept >= limit
    }

    pub(super) fn push(&mut self, pending: Pending) -> u64 {
        self.bytes += pending.payload.len();
        self.places.push_back(Place::Pending(pending));
        self.occupied += 1;
        self.floor + self.places.len() as u64 - 1
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        self.place(number)?.pending_mut()
    }

    /// Through which instance a request was sent last.
    pub(super) fn via(&mut self, number: u64) -> Option<&mut Option<Index>> {
        self.get_mut(number).map(|pending| &mut pending.via)
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        let index = usize::try_from(number.checked_sub(self.floor)?).ok()?;
        self.places.get_mut(index)
    }

    /// Takes out the request, answered with a result of which the cluster keeps `kept` bytes.
    pub(super) fn take(&mut self, number: u64, kept: usize) -> Option<Pending> {
        let pending = self.place(number)?.end(kept)?;
        self.kept += kept;
        self.occupied -= 1;
        self.bytes -= pending.payload.len();
        self.raise_floor();
        Some(pending)
    }

    /// Gives up the requests that `which` names: what becomes of them is not known here.
    pub(super) fn take_if(&mut self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let chosen = self
            .places
            .iter_mut()
            .filter(|place| place.pending().is_some_and(&which));
        let gone: Vec<Pending> = chosen.filter_map(|place| place.end(0)).collect();
        self.occupied -= gone.len();
        self.bytes -= gone
            .iter()
            .map(|pending| pending.payload.len())
            .sum::<usize>();
        self.raise_floor();
        gone
    }

    fn raise_floor(&mut self) {
        while let Some(Place::Done(kept)) = self.places.front() {
            self.kept -= kept;
            self.places.pop_front();
            self.floor += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.places.iter().filter_map(Place::pending)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Pending)> {
        let floor = self.floor;
        (floor..)
            .zip(self.places.iter_mut())
            .filter_map(|(number, place)| Some((number, place.pending_mut()?)))
    }

    pub(super) fn into_pending(self) -> impl Iterator<Item = Pending> {
        self.places.into_iter().filter_map(|mut place| place.end(0))
    }

    pub(super) fn invariants(&self) {
        assert!(
            (self.places.len() as u64) < SESSION_WINDOW,
            "a lane numbers commands beyond its session"
        );
        let kept = self.places.iter().map(|place| {
            if let Place::Done(kept) = place {
                *kept
            } else {
                0
            }
        });
        assert_eq!(
            self.kept,
            kept.sum::<usize>(),
            "a lane lost count of the results that the cluster keeps"
        );
    }
}
