//! What must hold over all roles at once, at every moment of every run. The simulator asks after
//! each event.

use super::config::Config;
use super::cut::{Cut, LogId, Range, changes_of};
use super::id::ServerId;
use super::replica::{Replica, value_of};
use super::server::Server;
use super::{Instance, Scalog, kind};
use crate::multipaxos::acceptor::Acceptor;
use crate::multipaxos::invariants::{Invariants as Ordering, one_leads};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use ionian_kernel::id::*;
use ionian_kernel::layout::Address;
use ionian_kernel::protocol;
use ionian_replication::batch::Batch;

/// What was seen so far in one run.
pub struct Invariants {
    config: Config,
    /// What MultiPaxos says of votes, which are for changes of cuts here.
    ordering: Ordering,
    /// What each record is.
    records: BTreeMap<(LogId, u64), Batch>,
    /// Those in whose place another record may be, because a server without peers has crashed.
    doubtful: BTreeSet<(LogId, u64)>,
    /// How much of a log each server ever held.
    held: BTreeMap<(ServerId, LogId), u64>,
    /// How much of a log was looked at of each server, in its present life.
    seen: BTreeMap<(Address, LogId), u64>,
    /// Slots below this one are executed by some replica.
    executed: Slot,
    /// The cut behind each slot below that which has changes.
    cuts: BTreeMap<Slot, Cut>,
}

impl protocol::Invariants<Scalog> for Invariants {
    fn new(config: &Config) -> Self {
        Invariants {
            config: config.clone(),
            ordering: protocol::Invariants::new(&config.ordering),
            records: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            held: BTreeMap::new(),
            seen: BTreeMap::new(),
            executed: Slot::ZERO,
            cuts: BTreeMap::new(),
        }
    }

    fn reconfigured(&mut self, config: &Config) {
        protocol::Invariants::reconfigured(&mut self.ordering, &config.ordering);
    }

    fn check(&mut self, address: Address, instance: &Instance) -> Result<(), String> {
        match instance {
            Instance::Acceptor(acceptor) => self.check_acceptor(address, acceptor),
            Instance::Server(server) => self.check_server(address, server),
            Instance::Replica(replica) => self.check_replica(address, replica),
            _ => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        protocol::Invariants::crashed(&mut self.ordering, address);
        self.seen.retain(|(at, _), _| *at != address);
        if address.kind == kind::Server {
            self.forget_undurable(ServerId(address.index));
        }
    }

    fn awaited(&self, instances: &[(Address, &Instance)]) -> Option<String> {
        one_leads(instances.iter().filter_map(|(_, instance)| match instance {
            Instance::Leader(leader) => Some(leader.is_leading()),
            _ => None,
        }))
    }
}

impl Invariants {
    fn check_acceptor(&mut self, address: Address, acceptor: &Acceptor) -> Result<(), String> {
        let checked = self.ordering.check_acceptor(address, acceptor.core());
        checked.map(drop)
    }

    /// "Servers replicate records in FIFO order" (Scalog): what two servers have at one index of a
    /// log is the same. And a server that takes part in a generation holds what is ordered of it.
    fn check_server(&mut self, address: Address, server: &Server) -> Result<(), String> {
        let Some(generation) = server.generation() else {
            return Ok(());
        };
        let id = ServerId(address.index);
        let (shard, _) = self.config.place_of(id);
        for owner in self.config.servers_of(shard) {
            let log = LogId {
                generation,
                server: owner,
            };
            let (start, length) = server.extent(log);
            let known = self.seen.insert((address, log), length);
            if known == Some(length) {
                continue;
            }
            for (index, batch) in server.records_from(log, known.unwrap_or(start)) {
                if self.doubtful.remove(&(log, index)) {
                    self.records.remove(&(log, index));
                }
                let record = self.records.entry((log, index));
                if record.or_insert_with(|| batch.clone()) != batch {
                    return Err(format!("there are two records {index} of {log:?}"));
                }
            }
            let held = self.held.entry((id, log)).or_default();
            *held = length.max(*held);
            let last = self.cuts.last_key_value();
            let ordered = last.and_then(|(_, cut)| cut.ordered(log, self.config.size()));
            if ordered.is_some_and(|ordered| length < ordered) {
                return Err(format!(
                    "server {} takes part in {generation:?} with {length} records of {log:?}, and \
                     {ordered:?} are ordered",
                    id.0
                ));
            }
        }
        Ok(())
    }

    /// What a server appended to its own log and no peer has may not have been on its disk: another
    /// record may take its place. Where a server has no peers a cut may order what was on its disk
    /// also after the crash: it is kept until there is another.
    fn forget_undurable(&mut self, server: ServerId) {
        let peers = self.config.peers_of(server);
        if peers.is_empty() {
            let records = self.records.keys();
            let own = records.filter(|(log, _)| log.server == server);
            return self.doubtful.extend(own.copied());
        }
        let held = &self.held;
        let backed_up = |log: LogId| {
            let lengths = peers.iter().filter_map(|peer| held.get(&(peer, log)));
            lengths.max().copied().unwrap_or(0)
        };
        let stays = |log: LogId, index| log.server != server || index < backed_up(log);
        self.records.retain(|(log, index), _| stays(*log, *index));
    }

    /// Each replica executes in a slot the records that the log itself says, in one order.
    fn check_replica(&mut self, address: Address, replica: &Replica) -> Result<(), String> {
        self.follow(replica.executed())?;
        let Invariants {
            config,
            ordering,
            records,
            cuts,
            ..
        } = self;
        ordering.check_replica(address, replica.core(), |slot, voted, value| {
            let Some(changes) = changes_of(&voted.batch) else {
                return voted == value;
            };
            let before = cuts.range(..slot).next_back();
            let mut cut = before.map(|(_, cut)| cut.clone()).unwrap_or_default();
            let ranges = cut.apply(slot, &changes, config.size());
            let records = ranges.iter().flat_map(|range| {
                let indexes = range.from..range.to;
                indexes.filter_map(|index| records.get(&(range.log, index)))
            });
            voted.stamp == value.stamp && value_of(&cut, records) == value.batch
        })
    }

    /// Applies what was chosen below a slot that is executed. What a cut adds was held by all
    /// servers of the shard, and no cut goes back.
    fn follow(&mut self, executed: Slot) -> Result<(), String> {
        while self.executed < executed {
            let slot = self.executed;
            self.executed = slot.next();
            let chosen = self.ordering.chosen_in(slot);
            let Some(changes) = chosen.and_then(|value| changes_of(&value.batch)) else {
                continue;
            };
            let before = self.cuts.last_key_value();
            let before = before.map(|(_, cut)| cut.clone()).unwrap_or_default();
            let mut cut = before.clone();
            for range in cut.apply(slot, &changes, self.config.size()) {
                if let Some(server) = self.lacks(&range) {
                    return Err(format!(
                        "{slot:?} orders {range:?}, which server {} never held",
                        server.0
                    ));
                }
            }
            if let Some(shard) = goes_back(&before, &cut) {
                return Err(format!("the cut of shard {shard} goes back in {slot:?}"));
            }
            self.cuts.insert(slot, cut);
        }
        Ok(())
    }

    /// A server of the shard that never held all of a range.
    fn lacks(&self, range: &Range) -> Option<ServerId> {
        let (shard, _) = self.config.place_of(range.log.server);
        let lacks = |server: &ServerId| {
            let length = self.held.get(&(*server, range.log));
            length.is_none_or(|length| *length < range.to)
        };
        self.config.servers_of(shard).find(lacks)
    }
}

/// A shard of which less is ordered in a generation than before.
fn goes_back(before: &Cut, after: &Cut) -> Option<usize> {
    let mut shards = before.shards.iter().zip(&after.shards);
    shards.position(|(before, after)| {
        let same = before.generation == after.generation;
        same && before
            .lengths
            .iter()
            .zip(&after.lengths)
            .any(|(one, other)| other < one)
    })
}
