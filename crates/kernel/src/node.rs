//! The part that all drivers share: the roles of one node, the messages between them, and the
//! fence. The runtime adds sockets, clocks and files, the simulator an event heap.

pub mod homes;
mod keyed;
mod moves;
mod positions;
mod rare;
pub mod role_loop;
mod traces;

use self::keyed::Keyed;
use crate::client::{Reply, Request};
use crate::id::{ClientId, Epoch, MAX_INSTANCES, Members};
use crate::layout::{Address, Layout, NodeId};
use crate::machine::{Frozen, RestoreError};
use crate::membership::Membership;
use crate::protocol::{Instance, Message, Protocol, Routed};
use crate::role::{Cover, Lsn, Outbox, Outgoing, Picture, RecordEnd};
use crate::time::{Instant, earliest};
use crate::trace::Recorder;
use crate::wire::{Reader, Wire, WireError};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

/// What a node needs of its surroundings.
pub trait World<P: Protocol> {
    /// Sends `message` to the instances of `kind` in `members`; none of them is on this node.
    fn send(&mut self, kind: u8, members: Members, message: P::Message);

    /// Appends a record to the node's log and returns its position. A vital record is stored even
    /// if the log is otherwise kept in memory.
    fn append(&mut self, from: Address, record: &[u8], vital: bool) -> Lsn;

    /// The position up to which everything is on disk.
    fn durable(&self) -> Lsn;

    /// What the node's clock shows at this moment.
    fn clock(&self) -> Instant;

    /// Begins to store a snapshot of a role, in place of its last one. When it is on disk, the
    /// driver calls [`Node::on_snapshot`]. Only nodes that keep records call this.
    fn store_snapshot(&mut self, from: Address, stamp: u64, frozen: Box<dyn Frozen>);

    /// The log has led to this membership. If it is new to the driver, the driver calls
    /// [`Node::reconfigure`] as soon as this call into the node has returned.
    fn announce(&mut self, membership: Membership);

    /// Hands a reply to the application of `lane`.
    fn reply(&mut self, lane: ClientId, reply: Reply);

    /// A role has taken a rare branch ([`Out::reached`](crate::role::Out::reached)). Only tests use
    /// it.
    fn reached(&mut self, branch: &'static str) {
        let _ = branch;
    }
}

/// The roles of one node.
pub struct Node<P: Protocol> {
    hosted: Vec<Hosted<P>>,
    /// Where in `hosted` an instance is, by kind and index.
    places: Vec<[Option<u16>; MAX_INSTANCES]>,
    /// The instances of each kind that are here.
    local: Vec<Members>,
    /// Messages for the roles here. [`settle`](Node::settle) empties it, and drivers bound what
    /// they put in between: the runtime reads a mebibyte of each connection, and lanes refuse
    /// requests beyond their limits. Each message leads to a bounded number of others, because the
    /// windows and batches of roles are bounded.
    inbox: VecDeque<(u16, P::Message)>,
    outbox: Outbox<P::Envelope>,
    /// The latest epoch that the roles' configuration knows.
    latest: Epoch,
    /// The number of messages of later epochs that were ignored.
    ignored: u64,
    /// The number of messages that were not sent, because their time was over.
    overdue: u64,
    /// What notes messages for traces, while it is asked for.
    recorder: Option<Box<Recorder>>,
    /// Positions of the records of the present call: `lsns[n]` is the position of record n of the
    /// call. Reused.
    lsns: Vec<Lsn>,
}

struct Hosted<P: Protocol> {
    address: Address,
    instance: P::Instance,
    /// The position of the last record it persisted.
    lsn: Lsn,
    /// The last position that it was notified of as being on disk.
    told: Lsn,
    /// Whether it was started.
    started: bool,
    /// Whether it was called since the last end of a burst.
    touched: bool,
    /// Its records with keys that it may still need.
    keyed: Keyed,
    /// Sends that wait for a log position to be on disk, in the order of the log.
    ///
    /// Drivers bound them: one takes no more input while many bytes of records wait for the disk,
    /// and what is sent here has a record, or answers a message that roles repeat less and less
    /// often.
    fenced: VecDeque<(Lsn, Routed<P::Message>)>,
}

impl<P: Protocol> Node<P> {
    /// A node without roles, of this configuration. It stores every record, or (`keeps_records`
    /// false) only vital ones.
    pub fn new(config: &P::Config, keeps_records: bool) -> Self {
        Node {
            hosted: Vec::new(),
            places: vec![[None; MAX_INSTANCES]; P::KINDS.len()],
            local: vec![Members::EMPTY; P::KINDS.len()],
            inbox: VecDeque::new(),
            outbox: Outbox::new(keeps_records),
            latest: P::latest_epoch(config),
            ignored: 0,
            overdue: 0,
            recorder: None,
            lsns: Vec::new(),
        }
    }

    /// Adds an instance.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn host(&mut self, address: Address, instance: P::Instance) {
        let place = &mut self.places[address.kind as usize][address.index as usize];
        assert!(place.is_none(), "{address:?} is hosted twice");
        *place = Some(self.hosted.len() as u16);
        self.local[address.kind as usize].insert(address.index);
        self.hosted.push(Hosted {
            address,
            instance,
            lsn: Lsn(0),
            told: Lsn(0),
            started: false,
            touched: false,
            keyed: Keyed::default(),
            fenced: VecDeque::new(),
        });
    }

    fn place(&self, address: Address) -> Option<u16> {
        *self
            .places
            .get(address.kind as usize)?
            .get(address.index as usize)?
    }

    /// Gives an instance a record that it wrote before a crash.
    ///
    /// # Errors
    /// If the bytes are not a record of that instance, or it is not on this node.
    pub fn recover(
        &mut self,
        from: Address,
        lsn: Lsn,
        record: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let missing = WireError::OutOfRange {
            what: "role instance of this node",
            value: from.index as u64,
        };
        let place = self.place(from).ok_or(missing)?;
        let hosted = &mut self.hosted[place as usize];
        let key = hosted.instance.recover(record)?;
        if let Some(key) = key {
            hosted.keyed.add(lsn, key);
        }
        (hosted.lsn, hosted.told) = (lsn, lsn);
        Ok(())
    }

    /// Gives an instance the last snapshot that it stored before a crash. Call it before
    /// [`recover`](Node::recover).
    ///
    /// # Errors
    /// Says what is wrong with the bytes, or that the instance is not on this node.
    pub fn restore(
        &mut self,
        from: Address,
        stamp: u64,
        snapshot: &Bytes,
    ) -> Result<(), RestoreError> {
        let missing = || RestoreError("of a role that is not on this node".into());
        let place = self.place(from).ok_or_else(missing)?;
        self.hosted[place as usize]
            .instance
            .restore(stamp, snapshot)
    }

    /// A snapshot of an instance is on disk, or (not `stored`) has found no room.
    pub fn on_snapshot(
        &mut self,
        from: Address,
        (stamp, stored): (u64, bool),
        world: &mut impl World<P>,
    ) {
        if let Some(place) = self.place(from) {
            self.call(place as usize, world, |instance, outbox| {
                instance.on_snapshot(stamp, stored, outbox)
            });
        }
    }

    /// The picture of an instance that contains what `cover` says, or how far the furthest instance
    /// is if none has executed that much. Other roles may execute a log of their own: only
    /// [`Protocol::EXECUTORS`] have the state of clients.
    pub fn freeze(&mut self, now: Instant, cover: Cover) -> Picture {
        let hosted = self.hosted.iter_mut();
        let executors = hosted.filter(|it| P::EXECUTORS.contains(&it.address.kind));
        executors.fold(Picture::Never, |best, hosted| {
            best.or_else(|| hosted.instance.freeze(now, cover))
        })
    }

    /// Makes every instance persist again what it needs of its records without keys. When that is
    /// on disk, the driver can drop everything before the position returned.
    pub fn checkpoint(&mut self, next: Lsn, world: &mut impl World<P>) -> Lsn {
        for place in 0..self.hosted.len() {
            self.call(place, world, |instance, outbox| instance.checkpoint(outbox));
        }
        let oldest = self
            .hosted
            .iter()
            .filter_map(|hosted| hosted.keyed.oldest());
        oldest.fold(next, Lsn::min)
    }

    /// Starts every instance that is not started.
    pub fn start(&mut self, now: Instant, world: &mut impl World<P>) {
        for place in 0..self.hosted.len() {
            if !core::mem::replace(&mut self.hosted[place].started, true) {
                self.call(place, world, |instance, outbox| {
                    instance.on_start(now, outbox)
                });
            }
        }
    }

    /// The membership has changed. Instances that the layout no longer places here are removed,
    /// with their messages that wait for the disk: these are lost, as any message may be. The
    /// driver [hosts](Node::host) and [starts](Node::start) new ones next.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        (layout, config, here): (&Layout, &P::Config, NodeId),
        world: &mut impl World<P>,
    ) {
        self.latest = P::latest_epoch(config);
        let stays = |address: Address| layout.node_of(address) == Some(here);
        for place in 0..self.hosted.len() {
            let stays = stays(self.hosted[place].address);
            self.call(place, world, |instance, outbox| match stays {
                true => instance.on_reconfigure(now, config.clone(), outbox),
                false => instance.on_retire(now, outbox),
            });
        }
        if self.hosted.iter().any(|hosted| !stays(hosted.address)) {
            self.retire(stays);
        }
    }

    /// See [`Role::on_drain`](crate::role::Role::on_drain).
    pub fn drain(&mut self, now: Instant, drains: bool, world: &mut impl World<P>) {
        for place in 0..self.hosted.len() {
            self.call(place, world, |instance, outbox| {
                instance.on_drain(now, drains, outbox)
            });
        }
    }

    /// Whether the cluster no longer needs the instances of this node, which drains.
    pub fn is_drained(&self) -> bool {
        self.hosted
            .iter()
            .all(|hosted| hosted.instance.is_drained())
    }

    /// Whether an instance is on this node.
    pub fn hosts(&self, address: Address) -> bool {
        self.place(address).is_some()
    }

    /// The instances of `kind` that are here.
    pub fn local(&self, kind: u8) -> Members {
        self.local
            .get(kind as usize)
            .copied()
            .unwrap_or(Members::EMPTY)
    }

    /// Queues a message for each local instance of its kind that is in `members`.
    pub fn deliver(&mut self, members: Members, message: P::Message) {
        let kind = message.kind();
        let mut members = members.and(self.local(kind));
        while let Some(index) = members.pop_first() {
            let place = self.place(Address { kind, index }).expect("a local member");
            if members.is_empty() {
                self.inbox.push_back((place, message));
                return;
            }
            self.inbox.push_back((place, message.clone()));
        }
    }

    /// Queues an application's request for a client lane of this node.
    pub fn submit(&mut self, lane: ClientId, request: Request) {
        self.deliver(Members::one(lane.0), P::Message::submit(request));
    }

    /// The number of queued messages.
    pub fn queued(&self) -> usize {
        self.inbox.len()
    }

    /// The next message and its receiver: for a driver that measures the cost of each.
    pub fn front(&self) -> Option<(Address, &P::Message)> {
        self.inbox
            .front()
            .map(|(place, message)| (self.hosted[*place as usize].address, message))
    }

    /// Hands at most `limit` queued messages to their receivers.
    ///
    /// A message that names an epoch which this node's configuration does not know is ignored. A
    /// round of such an epoch is higher than every round that leaders of this configuration can
    /// begin, so a role that promised or recorded it would refuse them all until the membership
    /// changes. One damaged or forged message to one role could stop a cluster.
    ///
    /// To ignore a message is to lose it, which every protocol tolerates. No role waits without an
    /// end because of it, since no message that a role sends is ignored, except after what a record
    /// says (below). A role begins rounds of epochs that its configuration knows, and learns of
    /// others only here; so a role that names an epoch is on a node that knows it. Drivers give a
    /// node the membership of the sender before the sender's messages, and reconfigure the node at
    /// once. Messages between roles of one node pass here too, and name what the node knows. The
    /// simulator asserts it.
    ///
    /// An acceptor may find a promise of an unknown epoch in its own records, from a version of
    /// this program that accepted such messages. It keeps the promise. All others ignore what it
    /// sends in that round, so that to them it is an acceptor that does not answer; any quorum of
    /// the rest works without it. A leader that finds such a round does not lead.
    pub fn run(&mut self, now: Instant, limit: usize, world: &mut impl World<P>) {
        for _ in 0..limit {
            let Some((place, message)) = self.inbox.pop_front() else {
                return;
            };
            if message.latest_epoch() > self.latest {
                self.ignored += 1;
                continue;
            }
            match self.recorder {
                None => self.handle(now, place as usize, message, world),
                Some(_) => self.note_and_handle(now, place as usize, message, world),
            }
        }
    }

    #[inline]
    fn handle(
        &mut self,
        now: Instant,
        place: usize,
        message: P::Message,
        world: &mut impl World<P>,
    ) {
        self.call(place, world, |instance, outbox| {
            instance.on_message(now, message, outbox)
        });
    }

    /// Ends the burst for every instance that was called. This can queue messages between local
    /// instances again.
    pub fn end_burst(&mut self, now: Instant, world: &mut impl World<P>) {
        for place in 0..self.hosted.len() {
            if self.hosted[place].touched {
                self.call(place, world, |instance, outbox| {
                    instance.on_burst_end(now, outbox)
                });
                self.hosted[place].touched = false;
            }
        }
    }

    /// The number of messages that it has ignored because they name epochs that it does not know.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The number of messages that it has not sent, because it was too late
    /// ([`Out::send_until`](crate::role::Out::send_until)).
    pub fn overdue(&self) -> u64 {
        self.overdue
    }

    /// Handles everything that is queued and what follows from it, and ends the burst.
    pub fn settle(&mut self, now: Instant, world: &mut impl World<P>) {
        loop {
            self.run(now, usize::MAX, world);
            self.end_burst(now, world);
            if self.inbox.is_empty() {
                return;
            }
        }
    }

    /// The earliest time at which an instance needs a call of its timer.
    pub fn next_timer(&self) -> Option<Instant> {
        self.hosted.iter().fold(None, |next, hosted| {
            earliest(next, hosted.instance.next_timer())
        })
    }

    /// Calls the instances whose timers have expired.
    pub fn fire_timers(&mut self, now: Instant, world: &mut impl World<P>) {
        for place in 0..self.hosted.len() {
            if self.hosted[place]
                .instance
                .next_timer()
                .is_some_and(|timer| timer <= now)
            {
                self.call(place, world, |instance, outbox| {
                    instance.on_timer(now, outbox)
                });
            }
        }
    }

    /// The log is on disk up to [`World::durable`]: sends what waited for that.
    pub fn on_durable(&mut self, world: &mut impl World<P>) {
        let durable = world.durable();
        for place in 0..self.hosted.len() {
            while self.hosted[place]
                .fenced
                .front()
                .is_some_and(|(fence, _)| *fence <= durable)
            {
                let (_, routed) = self.hosted[place].fenced.pop_front().expect("just seen");
                self.route(place, routed, world);
            }
        }
        for place in 0..self.hosted.len() {
            let hosted = &mut self.hosted[place];
            let reached = hosted.lsn.min(durable);
            if reached > hosted.told {
                hosted.told = reached;
                self.call(place, world, |instance, outbox| {
                    instance.on_durable(reached, outbox)
                });
            }
        }
    }

    /// Asserts the invariants of every instance.
    pub fn invariants(&self) {
        for hosted in &self.hosted {
            hosted.instance.invariants();
        }
    }

    /// The instances with their addresses.
    pub fn instances(&self) -> impl Iterator<Item = (Address, &P::Instance)> {
        self.hosted
            .iter()
            .map(|hosted| (hosted.address, &hosted.instance))
    }

    /// The instance with this address, if it is on this node.
    pub fn instance(&self, address: Address) -> Option<&P::Instance> {
        Some(&self.hosted[self.place(address)? as usize].instance)
    }

    /// Calls one instance and does what it asks for.
    fn call(
        &mut self,
        place: usize,
        world: &mut impl World<P>,
        handler: impl FnOnce(&mut P::Instance, &mut Outbox<P::Envelope>),
    ) {
        debug_assert!(self.outbox.is_empty());
        let hosted = &mut self.hosted[place];
        hosted.touched = true;
        handler(&mut hosted.instance, &mut self.outbox);
        if !self.outbox.is_empty() {
            self.carry_out(place, world);
        }
    }

    fn carry_out(&mut self, place: usize, world: &mut impl World<P>) {
        let before = self.hosted[place].lsn;
        self.lsns.clear();
        if !self.outbox.record_ends.is_empty() {
            self.append(place, world);
        }
        if !self.outbox.asks_nothing_rare() {
            self.carry_out_rare(place, world);
        }
        let durable = world.durable();
        let mut sends = core::mem::take(&mut self.outbox.sends);
        // Faster than to drain it: nearly always there is one.
        sends.reverse();
        while let Some(outgoing) = sends.pop() {
            self.send(place, outgoing, (before, durable), world);
        }
        // The vector goes back, so that its memory is used again.
        self.outbox.sends = sends;
    }

    /// Sends, or keeps until the log is on disk: `before` is the position of the last record of
    /// earlier calls.
    fn send(
        &mut self,
        place: usize,
        outgoing: Outgoing<P::Envelope>,
        (before, durable): (Lsn, Lsn),
        world: &mut impl World<P>,
    ) {
        let fence = match outgoing.fence {
            None => Lsn(0),
            Some(0) => before,
            Some(records) => self.lsns[records - 1],
        };
        let routed = outgoing.envelope.into();
        if fence <= durable {
            return self.route(place, routed, world);
        }
        let fenced = &mut self.hosted[place].fenced;
        debug_assert!(
            fenced.back().is_none_or(|(last, _)| *last <= fence),
            "fences of a role only rise"
        );
        fenced.push_back((fence, routed));
    }

    /// Appends the records of a call.
    fn append(&mut self, place: usize, world: &mut impl World<P>) {
        let hosted = &mut self.hosted[place];
        let mut start = 0;
        for &RecordEnd { end, vital, key } in &self.outbox.record_ends {
            hosted.lsn = world.append(hosted.address, &self.outbox.records[start..end], vital);
            if let Some(key) = key {
                hosted.keyed.add(hosted.lsn, key);
            }
            self.lsns.push(hosted.lsn);
            start = end;
        }
        self.outbox.record_ends.clear();
        self.outbox.records.clear();
    }

    /// Passes on what the instance at `place` sends.
    fn route(&mut self, place: usize, routed: Routed<P::Message>, world: &mut impl World<P>) {
        match self.recorder {
            None => self.pass_on(routed, world),
            Some(_) => self.note_and_pass_on(place, routed, world),
        }
    }

    fn pass_on(&mut self, routed: Routed<P::Message>, world: &mut impl World<P>) {
        match routed {
            Routed::Application { lane, reply } => world.reply(lane, reply),
            Routed::Roles {
                kind,
                members,
                message,
            } => self.route_to((kind, members), message, world),
        }
    }

    /// Queues a message for the local instances among these, and sends it to the others.
    pub fn route_to(
        &mut self,
        (kind, members): (u8, Members),
        message: P::Message,
        world: &mut impl World<P>,
    ) {
        let local = members.and(self.local[kind as usize]);
        let remote = members.without(local);
        match (local.is_empty(), remote.is_empty()) {
            (true, true) => {}
            (true, false) => world.send(kind, remote, message),
            (false, true) => self.deliver(local, message),
            (false, false) => {
                self.deliver(local, message.clone());
                world.send(kind, remote, message);
            }
        }
    }
}
