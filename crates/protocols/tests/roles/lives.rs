//! Acceptors of one number that live on a node one after the other: it leaves with a change of the
//! membership and comes back with another, its log is truncated in between, and the node crashes at
//! any record.

use crate::stage::{Outside, batch, birth, with_acceptors};
use bytes::Bytes;
use ionian_kernel::id::*;
use ionian_kernel::layout::{Address, Layout, NodeId};
use ionian_kernel::node::Node;
use ionian_kernel::protocol::Protocol;
use ionian_kernel::random::Random;
use ionian_kernel::role::{Lsn, Role};
use ionian_kernel::time::{Instant, Timestamp};
use ionian_kernel::wire::{Reader, decode_all};
use ionian_protocols::multipaxos::acceptor::{Acceptor, Record};
use ionian_protocols::multipaxos::{Instance, Message, MultiPaxos, acceptor, kind, proxy_leader};
use ionian_replication::batch::{Batch, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Config = <MultiPaxos as Protocol>::Config;

const HERE: NodeId = NodeId(20);
const ACCEPTOR: Address = Address {
    kind: kind::Acceptor,
    index: 0,
};

/// What the log of the cluster says of its members: whether the acceptor is one now, and whether it
/// will be.
#[derive(Clone, Copy)]
struct Members {
    epoch: u32,
    since: u32,
    frontier: u64,
    now: bool,
    next: Option<bool>,
}

impl Members {
    fn config(&self) -> Config {
        let with = |it_is: bool| with_acceptors(&[if it_is { 0 } else { 3 }, 1, 2]);
        let next = self.next.map(|next| Box::new(with(next)));
        let (epoch, since, frontier) = (Epoch(self.epoch), Epoch(self.since), Slot(self.frontier));
        let layout = Layout {
            epoch,
            since,
            frontier,
            next,
            ..with(self.now)
        };
        MultiPaxos::configure(layout).expect("a deployment")
    }

    fn hosts(&self) -> bool {
        self.now || self.next == Some(true)
    }

    /// What the log decides next.
    fn step(&mut self, random: &mut Random, frontier: u64) {
        self.epoch += 1;
        match self.next.take() {
            None => self.next = Some(!self.now),
            Some(next) => {
                self.since = self.epoch;
                if !random.once_in(4) {
                    (self.now, self.frontier) = (next, frontier);
                }
            }
        }
    }
}

/// What was found out about the lives of an acceptor.
#[derive(Debug, Default)]
struct Found {
    restarts: u64,
    /// Restarts with records of an earlier life, and those whose log confirms votes of one that are
    /// gone.
    after_another: u64,
    bare: u64,
    /// Logs from which a confirmed vote was taken, and how many of these an acceptor started with.
    damaged: u64,
    unnoticed: u64,
}

struct Story {
    random: Random,
    /// What the log of the cluster has led to.
    latest: Members,
    /// What the node has heard of it.
    members: Members,
    outside: Outside,
    /// Records before this one are truncated.
    low: usize,
    node: Node<MultiPaxos>,
    /// Where the log was when the present life began, and the first epoch in which it takes part.
    born: usize,
    first: Epoch,
    /// What it voted for, and the highest rounds of which it said so.
    cast: BTreeMap<(Slot, Round), Batch>,
    told: BTreeMap<Slot, Round>,
    count: u64,
    found: Found,
}

impl Story {
    fn new(seed: u64) -> Story {
        let members = Members {
            epoch: 0,
            since: 0,
            frontier: 0,
            now: seed.is_multiple_of(2),
            next: None,
        };
        let mut story = Story {
            random: Random::new(seed),
            latest: members,
            members,
            outside: Outside::default(),
            low: 0,
            node: Node::new(&members.config(), true),
            born: 0,
            first: Epoch(0),
            cast: BTreeMap::new(),
            told: BTreeMap::new(),
            count: 0,
            found: Found::default(),
        };
        story.host();
        story.node.start(Instant(1), &mut story.outside);
        story
    }

    fn host(&mut self) {
        let config = self.members.config();
        if self.members.hosts() && !self.node.hosts(ACCEPTOR) {
            self.node.host(
                ACCEPTOR,
                MultiPaxos::instantiate(&config, birth(ACCEPTOR.kind, ACCEPTOR.index, HERE)),
            );
        }
    }

    fn acceptor(&self) -> Option<&Acceptor> {
        match self.node.instance(ACCEPTOR)? {
            Instance::Acceptor(acceptor) => Some(acceptor),
            _ => None,
        }
    }

    /// A leader proposes something, more often than not what its predecessor did.
    fn propose(&mut self) {
        let Members {
            epoch,
            since,
            now,
            next,
            frontier,
        } = self.members;
        let earlier = u32::from(next.is_some() && now && epoch > since && self.random.once_in(3));
        self.count += 1;
        let round = Round::new(Epoch(epoch - earlier), self.count, LeaderId(0));
        let slot = Slot(frontier + self.random.below(4));
        let anew = self.random.once_in(4);
        let vote = self
            .acceptor()
            .and_then(|acceptor| acceptor.core().votes().find(|(of, _)| *of == slot));
        let known = vote
            .map(|(_, vote)| vote.value.batch.clone())
            .filter(|_| !anew);
        let value = known.unwrap_or_else(|| batch(self.count.to_le_bytes().to_vec()));
        self.cast.insert((slot, round), value.clone());
        let (from, value) = (
            ProxyLeaderId(0),
            Value {
                stamp: Timestamp(1),
                batch: value,
            },
        );
        self.deliver(acceptor::In::Phase2a {
            from,
            slot,
            round,
            value,
        });
    }

    fn deliver(&mut self, message: acceptor::In) {
        self.node.deliver(
            ionian_kernel::id::Members::one(0),
            Message::Acceptor(message),
        );
        self.node.settle(Instant(2), &mut self.outside);
    }

    fn sync(&mut self, upto: usize) {
        self.outside.durable = upto
            .min(self.outside.records.len())
            .max(self.outside.durable);
        self.node.on_durable(&mut self.outside);
        for message in self.outside.sent.drain(..) {
            if let Message::ProxyLeader(proxy_leader::In::Phase2b { slot, round, .. }) = message
                && round.epoch() >= self.first
            {
                let told = self.told.entry(slot).or_default();
                *told = round.max(*told);
            }
        }
    }

    fn truncate(&mut self) {
        let next = Lsn(self.outside.records.len() as u64 + 1);
        let needed = self.node.checkpoint(next, &mut self.outside).0 as usize - 1;
        self.sync(self.outside.records.len());
        self.low += self.random.below((needed - self.low) as u64 + 1) as usize;
    }

    /// The node hears of the membership.
    fn hear(&mut self) {
        let was_here = self.node.hosts(ACCEPTOR);
        // Two lives whose only border is lost are taken for one: see `Acceptor::begin`.
        self.sync(self.born + 1);
        self.members = self.latest;
        let config = self.members.config();
        self.node.reconfigure(
            Instant(2),
            (config.layout(), &config, HERE),
            &mut self.outside,
        );
        self.host();
        let is_new = !self.members.now && self.members.next == Some(true);
        let begins = !was_here || !self.node.hosts(ACCEPTOR);
        if begins {
            self.born = self.outside.records.len();
        }
        // Where it is new, what it did in epochs that are over counts no more, though it did not
        // hear of its absence.
        if begins || is_new {
            self.told.clear();
            self.first = Epoch(if is_new {
                self.members.epoch
            } else {
                self.members.since
            });
        }
        self.node.start(Instant(2), &mut self.outside);
        if !is_new {
            self.sync(self.born + 1);
        }
    }

    /// A node that finds this log.
    fn restarted(
        &self,
        log: &[(usize, Vec<u8>)],
        outside: &mut Outside,
    ) -> Option<Node<MultiPaxos>> {
        let config = self.members.config();
        let start = || {
            let mut node = Node::new(&config, true);
            node.host(
                ACCEPTOR,
                MultiPaxos::instantiate(&config, birth(ACCEPTOR.kind, ACCEPTOR.index, HERE)),
            );
            for (place, record) in log {
                let bytes = Bytes::copy_from_slice(record);
                node.recover(ACCEPTOR, Lsn(*place as u64 + 1), &mut Reader::new(&bytes))
                    .unwrap();
            }
            node.start(Instant(3), outside);
            node
        };
        catch_unwind(AssertUnwindSafe(start)).ok()
    }

    /// The process is gone, and what was not on disk.
    fn crash(&mut self) {
        let (durable, written) = (self.outside.durable, self.outside.records.len());
        self.outside
            .records
            .truncate(durable + self.random.below((written - durable) as u64 + 1) as usize);
        self.outside.durable = self.outside.records.len();
        self.born = self.born.min(self.outside.durable);
        if !self.members.hosts() {
            self.node = Node::new(&self.members.config(), true);
            return;
        }
        let log: Vec<(usize, Vec<u8>)> = self
            .outside
            .records
            .iter()
            .cloned()
            .enumerate()
            .skip(self.low)
            .collect();
        self.damage(&log);
        let mut outside = core::mem::take(&mut self.outside);
        self.node = self
            .restarted(&log, &mut outside)
            .expect("nothing is wrong with this log");
        self.outside = outside;
        self.found.restarts += 1;
        self.found.after_another +=
            u64::from(log.first().is_some_and(|(place, _)| *place < self.born));
        self.check();
    }

    fn check(&mut self) {
        let acceptor = self.acceptor().expect("it is a member");
        acceptor.invariants();
        let votes: BTreeMap<Slot, (Round, Batch)> = acceptor
            .core()
            .votes()
            .map(|(slot, vote)| (slot, (vote.round, vote.value.batch.clone())))
            .collect();
        for (slot, (round, value)) in &votes {
            assert_eq!(
                self.cast.get(&(*slot, *round)),
                Some(value),
                "it never voted so"
            );
        }
        for (slot, told) in &self.told {
            assert!(
                votes.get(slot).is_some_and(|(round, _)| round >= told),
                "a vote is lost: {slot:?} in {told:?}"
            );
        }
    }

    /// Takes from the log a vote that it confirms.
    fn damage(&mut self, log: &[(usize, Vec<u8>)]) {
        let (mut voted, mut confirmed, mut bare) = (BTreeSet::new(), BTreeSet::new(), false);
        for (place, record) in log {
            match decode_all::<Record>(&Bytes::copy_from_slice(record)).unwrap() {
                Record::Voted { slot, .. } => drop(voted.insert((slot, *place >= self.born))),
                Record::Confirmed { slot, round }
                    if *place >= self.born && round.epoch() >= self.first =>
                {
                    confirmed.insert(slot);
                }
                Record::Confirmed { slot, .. } => bare |= !voted.contains(&(slot, false)),
                _ => {}
            }
        }
        self.found.bare += u64::from(bare);
        for slot in confirmed
            .into_iter()
            .filter(|slot| slot.0 >= self.members.frontier)
        {
            let is_taken = |place: usize, record: &[u8]| {
                let record = decode_all::<Record>(&Bytes::copy_from_slice(record)).unwrap();
                place >= self.born && matches!(record, Record::Voted { slot: of, .. } if of == slot)
            };
            let left: Vec<_> = log
                .iter()
                .filter(|(place, record)| !is_taken(*place, record))
                .cloned()
                .collect();
            if left.len() < log.len() {
                self.found.damaged += 1;
                self.found.unnoticed +=
                    u64::from(self.restarted(&left, &mut Outside::default()).is_some());
            }
        }
    }
}

/// Many stories, each of this many steps.
fn stories() -> Found {
    let mut all = Found::default();
    for seed in 0..STORIES {
        let mut story = Story::new(seed);
        for _ in 0..200 {
            match story.random.below(16) {
                0 | 1 => {
                    let slots = story
                        .cast
                        .keys()
                        .map(|(slot, _)| slot.0 + 1)
                        .max()
                        .unwrap_or_default();
                    // One acceptor may have votes far above what a quorum found.
                    let frontier = story.latest.frontier;
                    let frontier =
                        frontier + story.random.below(slots.saturating_sub(frontier) + 1);
                    story.latest.step(&mut story.random, frontier);
                    // The node may miss some.
                    if !story.random.once_in(4) {
                        story.hear();
                    }
                }
                2 => story.truncate(),
                3 => story.crash(),
                4 | 5 => {
                    let upto = story.outside.durable as u64 + story.random.below(4);
                    story.sync(upto as usize);
                }
                _ => story.propose(),
            }
        }
        let Found {
            restarts,
            after_another,
            bare,
            damaged,
            unnoticed,
        } = story.found;
        all.restarts += restarts;
        all.after_another += after_another;
        all.bare += bare;
        all.damaged += damaged;
        all.unnoticed += unnoticed;
    }
    all
}

const STORIES: u64 = 300;

/// It starts whatever another has left there, has all that it said it voted for and nothing else,
/// and does not start when a vote is missing that it confirmed: also one of an epoch that is over,
/// which its successor needs all the same.
#[test]
pub(crate) fn an_acceptor_tells_its_own_votes_from_those_of_one_that_lived_here_before() {
    let found = stories();
    assert!(
        found.restarts > STORIES * 5 && found.after_another > STORIES && found.bare > STORIES / 10,
        "{found:?}"
    );
    assert!(found.damaged > STORIES, "{found:?}");
    assert_eq!(found.unnoticed, 0, "{found:?}");
}
