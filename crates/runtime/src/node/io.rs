//! What the roles of a node ask of the driver: sends, records, replies.

use super::application::Application;
use super::clock::Clock;
use crate::status::LoopStatus;
use crate::storage::log::Log;
use crate::transport::frame::{HEADER_BYTES, encode_frame};
use crate::transport::outgoing::LARGE_FROM;
use crate::transport::peers::Peers;
use bytes::Bytes;
use ionian_kernel::client::{Operation, Refusal, Reply, Request};
use ionian_kernel::histogram::Times;
use ionian_kernel::id::{ClientId, Members};
use ionian_kernel::layout::{Layout, NodeId, Places};
use ionian_kernel::membership::Membership;
use ionian_kernel::time::Instant;
use ionian_kernel::wire::Wire;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::oneshot;

/// The peers, the log and the application of a node.
pub(crate) struct NodeIo {
    /// For each kind of role, the nodes that have instances of it, and which ones.
    places: Vec<Vec<(NodeId, Members)>>,
    pub(crate) peers: Rc<Peers>,
    pub(crate) log: Log,
    pub(crate) application: Box<dyn Application>,
    pub(crate) clock: Clock,
    /// When the present run of the loop began.
    pub(crate) now: Instant,
    pub(crate) counts: LoopStatus,
    /// How long the runs of the loop took.
    pub(crate) iterations: Times,
    /// A membership that the log has led to and that the loop has not applied yet.
    pub(crate) announced: Option<Membership>,
    pub(crate) changes: ChangeRequests,
    /// How many requests have no reply yet.
    pub(crate) unanswered: u64,
    /// A frame that goes to several nodes is encoded here once. Reused.
    scratch: Vec<u8>,
}

impl NodeIo {
    pub(crate) fn new(
        (layout, clock): (&Layout, Clock),
        peers: Rc<Peers>,
        log: Log,
        application: Box<dyn Application>,
    ) -> Self {
        let mut io = NodeIo {
            places: Vec::new(),
            peers,
            log,
            application,
            clock,
            now: Instant::ZERO,
            counts: LoopStatus::default(),
            iterations: Times::default(),
            announced: None,
            changes: ChangeRequests::default(),
            unanswered: 0,
            scratch: Vec::new(),
        };
        io.place(layout);
        io
    }

    /// Takes over where each role instance is.
    pub(crate) fn place(&mut self, layout: &Layout) {
        self.places = (0..layout.instances.len())
            .map(|kind| places(&layout.places(kind as u8)))
            .collect();
    }

    /// Refuses a request: its lane is on another node or does not run yet, and no request may be
    /// left without an answer.
    pub(crate) fn refuse(&mut self, lane: ClientId, request: Request) {
        let reply = Reply::refused(request.token, Refusal::Unavailable);
        self.deliver_reply(lane, reply);
    }

    /// Hands a reply to the application, or to the operator who has requested a change.
    pub(crate) fn deliver_reply(&mut self, lane: ClientId, reply: Reply) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if reply.token >= CHANGE_TOKENS {
            self.changes.answer(reply);
            return;
        }
        self.counts.replies += 1;
        self.application.on_reply(lane, reply);
    }

    /// Sends a message to instances on other nodes.
    pub(crate) fn send(&mut self, kind: u8, members: Members, message: &impl Wire) {
        let places = self
            .places
            .get(kind as usize)
            .map_or(&[][..], Vec::as_slice);
        let mut meant = places
            .iter()
            .filter(|(_, here)| !here.and(members).is_empty());
        let Some(&(first, here)) = meant.next() else {
            return;
        };
        let Some(&(second, there)) = meant.next() else {
            self.counts.messages_out += 1;
            return self.peers.send(first, here.and(members), message, self.now);
        };
        self.scratch.clear();
        if let Err(error) = encode_frame(&mut self.scratch, Members::EMPTY, message) {
            return tracing::error!(
                id = "E0306",
                "a message to several nodes is dropped: {error}"
            );
        }
        let all = [(first, here), (second, there)]
            .into_iter()
            .chain(meant.copied());
        if self.scratch.len() >= HEADER_BYTES + LARGE_FROM {
            let message = Bytes::from(std::mem::take(&mut self.scratch)).slice(HEADER_BYTES..);
            for (node, here) in all {
                self.counts.messages_out += 1;
                self.peers
                    .send_large(node, here.and(members), message.clone(), self.now);
            }
            return;
        }
        for (node, here) in all {
            self.counts.messages_out += 1;
            self.peers
                .send_copy(node, here.and(members), &self.scratch, self.now);
        }
    }
}

/// The changes of the membership that operators have requested and that have no reply yet.
#[derive(Default)]
pub(crate) struct ChangeRequests {
    /// By token.
    open: HashMap<u64, oneshot::Sender<Result<Bytes, Refusal>>>,
    requests: u64,
}

/// The tokens of these requests begin here; smaller ones are the application's.
const CHANGE_TOKENS: u64 = 1 << 63;

impl ChangeRequests {
    /// A request, and the channel that brings its reply.
    pub(crate) fn request(
        &mut self,
        payload: Bytes,
    ) -> (Request, oneshot::Receiver<Result<Bytes, Refusal>>) {
        self.requests += 1;
        let token = CHANGE_TOKENS | self.requests;
        let (answer, answered) = oneshot::channel();
        self.open.insert(token, answer);
        (
            Request {
                token,
                operation: Operation::Change,
                payload,
            },
            answered,
        )
    }

    fn answer(&mut self, reply: Reply) {
        if let Some(answer) = self.open.remove(&reply.token) {
            // It fails if the operator has closed the connection.
            let _ = answer.send(reply.outcome);
        }
    }
}

/// Gathers the instances of one kind by node.
fn places(nodes: &Places) -> Vec<(NodeId, Members)> {
    let mut places: Vec<(NodeId, Members)> = Vec::new();
    for (index, node) in nodes.iter() {
        match places.iter_mut().find(|(place, _)| *place == node) {
            Some((_, members)) => _ = members.insert(index),
            None => places.push((node, Members::one(index))),
        }
    }
    places
}
