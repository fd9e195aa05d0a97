//! The open connections. Each has a slot whose number is part of its requests' tokens, so that a
//! reply finds its connection without a search.

use crate::connection::Connection;
use crate::socket::Output;
use std::task::Waker;
use std::time::Instant;

/// An open connection and its socket.
pub(crate) struct Open {
    pub(crate) connection: Connection,
    pub(crate) socket: Output,
    /// Wakes the connection's task.
    pub(crate) waker: Option<Waker>,
    /// What the task waits for in addition to being woken.
    pub(crate) awaits_input: bool,
    pub(crate) awaits_output: bool,
    /// Whether it is in the list of connections for the next flush.
    pub(crate) dirty: bool,
    /// Whether the compound waits for room.
    pub(crate) waits: bool,
    /// When the gateway looks at it again, if it is noted that it pauses.
    pub(crate) paused_until: Option<Instant>,
}

/// A place for a connection.
#[derive(Default)]
struct Slot {
    /// Incremented with every request, and not reset when the connection closes: a late reply to a
    /// former connection, or to a request that was given up, has another stamp.
    stamp: u32,
    open: Option<Box<Open>>,
}

/// All connections of a gateway.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, open: Open) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer connections than that")
        });
        self.slots[index as usize].open = Some(Box::new(open));
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<Open>> {
        let open = self.slots[index as usize].open.take();
        if open.is_some() {
            self.free.push(index);
        }
        open
    }

    pub(crate) fn get(&mut self, index: u32) -> Option<&mut Open> {
        self.slots.get_mut(index as usize)?.open.as_deref_mut()
    }

    /// The token of the next request of the connection at `index`.
    pub(crate) fn next_token(&mut self, index: u32) -> u64 {
        let slot = &mut self.slots[index as usize];
        slot.stamp = slot.stamp.wrapping_add(1);
        u64::from(index) << 32 | u64::from(slot.stamp)
    }

    /// The connection whose latest request has this token, if it is in flight.
    pub(crate) fn waiting_for(&mut self, token: u64) -> Option<(u32, &mut Open)> {
        let (index, stamp) = ((token >> 32) as u32, token as u32);
        let slot = self
            .slots
            .get_mut(index as usize)
            .filter(|slot| slot.stamp == stamp)?;
        let open = slot
            .open
            .as_deref_mut()
            .filter(|open| open.connection.is_in_flight())?;
        Some((index, open))
    }

    /// The open connection that uses most memory; `None` if none uses any. It may be closing: a
    /// client that does not read keeps its last replies here without end.
    pub(crate) fn largest(&self) -> Option<u32> {
        let open = self
            .slots
            .iter()
            .zip(0..)
            .filter_map(|(slot, index)| Some((slot.open.as_deref()?.connection.held(), index)));
        open.filter(|(held, _)| *held > 0)
            .max_by_key(|(held, _)| *held)
            .map(|(_, index)| index)
    }

    /// Numbers of the slots in use.
    pub(crate) fn open(&self) -> impl Iterator<Item = u32> {
        self.slots
            .iter()
            .zip(0..)
            .filter(|(slot, _)| slot.open.is_some())
            .map(|(_, index)| index)
    }
}
