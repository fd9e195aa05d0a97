//! The conflict index, dependencies, the order of execution and read tokens together, without
//! roles: acceptors that learn of commands and decisions in any order, and replicas that execute
//! what is decided. What a client can observe must be as if there were one order.
#![expect(clippy::unwrap_used, reason = "a test")]

use ionian_kernel::id::LeaderId;
use ionian_kernel::machine::Footprint;
use ionian_kernel::random::Random;
use ionian_kernel::time::Instant;
use ionian_protocols::epaxos::graph::Graph;
use ionian_protocols::epaxos::index::ConflictIndex;
use ionian_protocols::epaxos::instance::{Deps, InstanceId, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const COMMANDS: usize = 40;
const KEYS: u64 = 3;

/// A command, with what was decided for it; no dependencies yet: it is not decided.
struct Command {
    footprint: Arc<Footprint>,
    leader: usize,
    fast: BTreeSet<usize>,
    answers: BTreeMap<usize, Deps>,
    /// What it is decided to be: a noop without dependencies.
    decided: Option<Option<Deps>>,
    /// Those that had been executed somewhere when it was submitted.
    answered_before: BTreeSet<InstanceId>,
}

/// A read under way: what it must see, and what acceptors said that it must wait for.
struct Read {
    must_see: BTreeSet<InstanceId>,
    token: Deps,
}

struct Cluster {
    f: usize,
    random: Random,
    acceptors: Vec<ConflictIndex<Arc<Footprint>>>,
    replicas: Vec<Graph<()>>,
    orders: Vec<Vec<InstanceId>>,
    commands: BTreeMap<InstanceId, Command>,
    /// Decisions on their way, to the acceptor and the replica of a node.
    commits: Vec<(usize, InstanceId)>,
    /// What each acceptor knows the decision of.
    learned: Vec<BTreeSet<InstanceId>>,
    reads: Vec<Read>,
    pairs: u64,
    reads_seen: u64,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (n, f) = [(3, 1), (5, 1), (5, 2)][random.below(3) as usize];
        Cluster {
            f,
            random,
            acceptors: (0..n).map(|_| ConflictIndex::new(0)).collect(),
            replicas: (0..n).map(|_| Graph::default()).collect(),
            orders: vec![Vec::new(); n],
            commands: BTreeMap::new(),
            commits: Vec::new(),
            learned: vec![BTreeSet::new(); n],
            reads: Vec::new(),
            pairs: 0,
            reads_seen: 0,
        }
    }

    fn any(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn footprint(&mut self) -> Footprint {
        let random = &mut self.random;
        let mut footprint = Footprint {
            everything: random.once_in(12),
            ..Footprint::default()
        };
        (0..random.below(2)).for_each(|_| footprint.reads.push(random.below(KEYS)));
        (0..random.between(1, 2)).for_each(|_| footprint.writes.push(random.below(KEYS)));
        footprint
    }

    /// All that were executed by some replica: their clients may have answers.
    fn executed(&self) -> BTreeSet<InstanceId> {
        self.orders.iter().flatten().copied().collect()
    }

    /// A leader proposes a command, and its own acceptor records it.
    fn submit(&mut self) {
        let (n, footprint) = (self.acceptors.len(), Arc::new(self.footprint()));
        let leader = self.any(n);
        let space = Space {
            leader: LeaderId(leader as u8),
            life: 0,
        };
        let of_leader = self.commands.values().filter(|of| of.leader == leader);
        let id = InstanceId::new(space, of_leader.count() as u64);
        let mut fast = BTreeSet::from([leader]);
        while fast.len() < n / 2 + self.f {
            fast.insert(self.any(n));
        }
        let past = self.acceptors[leader].record(id, &footprint);
        let command = Command {
            footprint,
            leader,
            fast,
            answers: BTreeMap::from([(leader, past)]),
            decided: None,
            answered_before: self.executed(),
        };
        self.commands.insert(id, command);
    }

    /// Another acceptor records a command.
    fn pre_accept(&mut self, id: InstanceId) {
        let at = self.any(self.acceptors.len());
        let command = self.commands.get_mut(&id).unwrap();
        let past = &command.answers[&command.leader];
        if !command.answers.contains_key(&at) && !self.learned[at].contains(&id) {
            let mut deps = self.acceptors[at].record(id, &command.footprint);
            deps.union(past);
            command.answers.insert(at, deps);
        }
    }

    /// Decides a command: all of its fast quorum have answered, or a majority; or, where neither
    /// has happened, a recovery finds a noop.
    fn decide(&mut self, id: InstanceId) {
        let (n, gives_up) = (self.acceptors.len(), self.random.once_in(40));
        let command = self.commands.get_mut(&id).unwrap();
        let answered = |at: &usize| command.answers.contains_key(at);
        let fast = command.fast.iter().all(answered);
        let decided = if fast || command.answers.len() > n / 2 {
            let mut deps = Deps::NONE;
            let some = command
                .answers
                .iter()
                .filter(|(at, _)| !fast || command.fast.contains(at));
            some.for_each(|(_, answer)| deps.union(answer));
            Some(deps)
        } else if gives_up {
            None
        } else {
            return;
        };
        command.decided = Some(decided);
        self.commits.extend((0..n).map(|node| (node, id)));
    }

    /// A node learns a decision. Its replica executes what it can.
    fn commit(&mut self) {
        let at = self.any(self.commits.len());
        let (node, id) = self.commits.swap_remove(at);
        let Command {
            footprint, decided, ..
        } = &self.commands[&id];
        let decided = decided.as_ref().unwrap();
        self.learned[node].insert(id);
        let choice = decided.as_ref().map(|deps| (footprint, deps));
        self.acceptors[node].on_committed(id, choice);
        let deps = decided.clone().unwrap_or_default();
        assert!(self.replicas[node].commit(Instant::ZERO, id, deps, ()));
        let mut ready = Vec::new();
        while self.replicas[node].pop(&mut ready) {}
        self.orders[node].extend(ready.iter().map(|(id, ())| id));
        self.check_reads(node);
    }

    /// A read asks a majority what it must wait for.
    fn read(&mut self) {
        let mut query = self.footprint();
        query.reads.append(&mut query.writes);
        let executed = self.executed();
        let conflicts = |id: &&InstanceId| {
            let Command {
                footprint, decided, ..
            } = &self.commands[*id];
            !matches!(decided, Some(None)) && footprint.conflicts(&query)
        };
        let must_see = executed.iter().filter(conflicts).copied().collect();
        let (n, mut asked) = (self.acceptors.len(), BTreeSet::new());
        while asked.len() <= n / 2 {
            asked.insert(self.any(n));
        }
        let mut token = Deps::NONE;
        asked
            .iter()
            .for_each(|at| token.union(&self.acceptors[*at].query(&query)));
        self.reads.push(Read { must_see, token });
    }

    /// A replica that has executed what a read waits for has executed what the read must see.
    fn check_reads(&mut self, node: usize) {
        let executed = self.replicas[node].executed();
        for Read { must_see, token } in &self.reads {
            if executed.covers(token) {
                self.reads_seen += u64::from(!must_see.is_empty());
                assert!(must_see.iter().all(|id| executed.contains(*id)));
            }
        }
    }

    fn run(&mut self) {
        let pick = |cluster: &mut Self, of: &dyn Fn(&Command) -> bool| {
            let all = cluster.commands.iter().filter(|(_, command)| of(command));
            let all: Vec<InstanceId> = all.map(|(id, _)| *id).collect();
            (!all.is_empty()).then(|| all[cluster.any(all.len())])
        };
        let is_open = |command: &Command| command.decided.is_none();
        loop {
            let open = pick(self, &is_open);
            match self.random.below(8) {
                0 if self.commands.len() < COMMANDS => self.submit(),
                1..=3 => open.into_iter().for_each(|id| self.pre_accept(id)),
                4 => open.into_iter().for_each(|id| self.decide(id)),
                5 if !self.commands.is_empty() => self.read(),
                _ if !self.commits.is_empty() => self.commit(),
                _ if open.is_none() && self.commands.len() == COMMANDS => return,
                _ => {}
            }
        }
    }

    /// Replicas agree on the order of what conflicts, and what was answered comes first.
    fn check_orders(&mut self) {
        let real = |id: &InstanceId| self.commands[id].decided != Some(None);
        let places: Vec<BTreeMap<InstanceId, usize>> = self
            .orders
            .iter()
            .map(|order| order.iter().enumerate().map(|(at, id)| (*id, at)).collect())
            .collect();
        assert!(places.iter().all(|places| places.len() == COMMANDS));
        for (one, first) in self.commands.iter().filter(|(id, _)| real(id)) {
            for (other, second) in self.commands.iter().filter(|(id, _)| real(id)) {
                if one >= other || !first.footprint.conflicts(&second.footprint) {
                    continue;
                }
                self.pairs += 1;
                let before = |places: &BTreeMap<_, usize>| places[one] < places[other];
                let agreed = before(&places[0]);
                assert!(places.iter().all(|places| before(places) == agreed));
                assert!(agreed || !second.answered_before.contains(one));
                assert!(!agreed || !first.answered_before.contains(other));
            }
        }
    }
}

#[test]
fn replicas_order_conflicting_commands_alike_and_reads_see_what_was_answered() {
    let (mut pairs, mut reads) = (0, 0);
    for seed in 0..1500 {
        let mut cluster = Cluster::new(seed);
        cluster.run();
        cluster.check_orders();
        pairs += cluster.pairs;
        reads += cluster.reads_seen;
    }
    assert!(
        pairs > 100_000 && reads > 100_000,
        "{pairs} pairs, {reads} reads"
    );
}
