//! What a node notes for traces.

use super::{Node, World};
use crate::id::Members;
use crate::layout::Address;
use crate::protocol::{Message, Protocol, Routed};
use crate::role::Lsn;
use crate::time::Instant;
use crate::trace::{Event, LogSlot, Recorder, Recording};
use alloc::boxed::Box;

impl<P: Protocol> Node<P> {
    /// Notes messages from now on, for [traces](crate::trace). A node that does so already goes on
    /// as long as either asks, in as much detail.
    pub fn record(&mut self, now: Instant, recording: Recording) {
        let recorder = match &mut self.recorder {
            Some(recorder) => {
                recorder.extend(now, recording);
                recorder
            }
            none => none.insert(Box::new(Recorder::new(recording))),
        };
        self.outbox.is_traced = recorder.notes_all();
    }

    /// What is noted now.
    pub fn recording(&self) -> Option<Recording> {
        self.recorder.as_ref()?.recording()
    }

    /// The events that it has noted, the oldest first, and how many earlier ones made room.
    pub fn events(&self) -> (impl Iterator<Item = &Event>, u64) {
        let events = self.recorder.as_ref().map(|recorder| recorder.events());
        let lost = events.as_ref().map_or(0, |(_, lost)| *lost);
        (events.into_iter().flat_map(|(events, _)| events), lost)
    }

    /// The messages that the next [`on_durable`](Node::on_durable) sends if the log is on disk up
    /// to this position: the role that sends each, and the slot that it names. For a driver that
    /// finds that they have waited long.
    pub fn held(&self, durable: Lsn) -> impl Iterator<Item = (Address, Option<LogSlot>)> {
        self.hosted.iter().flat_map(move |hosted| {
            let held = hosted.fenced.iter();
            let held = held.take_while(move |(fence, _)| *fence <= durable);
            held.map(|(_, routed)| {
                let subject = match routed {
                    Routed::Roles { message, .. } => message.subject(),
                    Routed::Application { .. } => None,
                };
                (hosted.address, subject.and_then(|subject| subject.slot))
            })
        })
    }

    /// Notes what the instance at this place sends, and passes it on. Apart, so that the message is
    /// not copied for it where nothing is noted.
    #[cold]
    #[inline(never)]
    pub(super) fn note_and_pass_on(
        &mut self,
        place: usize,
        routed: Routed<P::Message>,
        world: &mut impl World<P>,
    ) {
        if let Routed::Roles {
            members, message, ..
        } = &routed
        {
            self.note((place, Some(*members)), message, world);
        }
        self.pass_on(routed, world);
    }

    /// Notes a message for the instance at this place, and hands it over. Apart for the same
    /// reason.
    #[cold]
    #[inline(never)]
    pub(super) fn note_and_handle(
        &mut self,
        now: Instant,
        place: usize,
        message: P::Message,
        world: &mut impl World<P>,
    ) {
        self.note((place, None), &message, world);
        self.handle(now, place, message, world);
        if let Some(recorder) = &mut self.recorder {
            recorder.handled();
        }
    }

    /// Notes a message that the instance at this place has sent to others (`sent`) or begins to
    /// handle.
    fn note(
        &mut self,
        (place, sent): (usize, Option<Members>),
        message: &P::Message,
        world: &impl World<P>,
    ) {
        let role = self.hosted[place].address;
        let inquiries = self.outbox.inquiries.drain(..);
        let goes_on = self.recorder.as_mut().is_some_and(|recorder| {
            inquiries.for_each(|(inquiry, command)| recorder.inquires_for(inquiry, command));
            recorder.note(|| world.clock(), (role, sent), message)
        });
        if !goes_on {
            self.recorder = None;
        }
        // Inquiries are noted with all commands only.
        self.outbox.is_traced = self.recorder.as_ref().is_some_and(|it| it.notes_all());
    }
}
