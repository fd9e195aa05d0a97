//! The knobs of a run, all drawn from its seed. Each seed switches a random subset of the fault
//! kinds on, at random rates: bugs that need one kind without another are found that way, which a
//! mix of everything at once would hide. Some seeds are calm.

use crate::configurations::CHANGE_EVERY;
use crate::disk::SnapshotKnobs;
use crate::event::Micros;
use crate::scenario::{Durability, Scenario};
use ionian_kernel::client::ReadLevel;
use ionian_kernel::layout::Options;
use ionian_kernel::level::Level;
use ionian_kernel::random::Random;
use ionian_kernel::setting::Setting;
use std::collections::BTreeMap;
use std::time::Duration;

mod options;

use options::{listed, loops, options, vary_own};

const MS: Micros = 1000;

/// How many requests each client lane has where they come all at once.
const BURST: u64 = 250;

/// From and up to.
pub(crate) type Range = (Micros, Micros);

/// How the network behaves until it is healed.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkKnobs {
    pub(crate) delay: Range,
    /// Whether messages of one link arrive in order.
    pub(crate) ordered: bool,
    pub(crate) straggle: f64,
    pub(crate) straggle_delay: Micros,
    pub(crate) drop: f64,
    pub(crate) duplicate: f64,
    /// Kinds of message whose name's hash leaves this remainder are lost more often.
    pub(crate) hated: Option<(u64, f64)>,
    /// Whether messages of some kinds are lost or held back for a while.
    pub(crate) meddles: bool,
    /// How much a link carries in a millisecond, if that is limited.
    pub(crate) bytes_a_ms: Option<u64>,
}

impl NetworkKnobs {
    pub(crate) fn healed(&self) -> Self {
        NetworkKnobs {
            delay: (self.delay.0.min(MS), self.delay.1.min(5 * MS)),
            ordered: self.ordered,
            ..Self::default()
        }
    }
}

/// A fault that strikes again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recurring {
    /// On average.
    pub(crate) every: Micros,
    pub(crate) lasts: Range,
}

/// Everything that a seed decides, but for the course of the run.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) calm: bool,
    /// How long there are faults and requests.
    pub(crate) duration: Micros,
    pub(crate) network: NetworkKnobs,
    pub(crate) sync: Range,
    /// Now and then (once in this many) a sync takes this long.
    pub(crate) stall: Option<(u64, Micros)>,
    pub(crate) crash: Option<Recurring>,
    /// The chance that a sync is interrupted by a crash of its node.
    pub(crate) crash_in_sync: f64,
    /// All nodes at once.
    pub(crate) blackout: Option<Recurring>,
    /// At most this many nodes are down at a time, blackouts aside.
    pub(crate) most_down: usize,
    pub(crate) pause: Option<Recurring>,
    /// Nodes lead nothing for a while.
    pub(crate) drain: Option<Recurring>,
    pub(crate) partition: Option<Recurring>,
    pub(crate) slow_link: Option<Recurring>,
    /// Some links are cut.
    pub(crate) cut: Option<Recurring>,
    /// Leaders are parted from the others, with a minority of each role.
    pub(crate) strand: Option<Recurring>,
    /// Disks fail.
    pub(crate) disk_error: Option<Recurring>,
    /// Mostly nodes of this kind crash.
    pub(crate) victims: Option<u8>,
    /// Messages of some kinds are lost or held back.
    pub(crate) meddle: Option<Recurring>,
    /// Where memory is lost, any number of nodes lose it one after another, each when the others
    /// are whole; otherwise no more than f different ones.
    pub(crate) in_turn: bool,
    /// Nodes that start late, and when; not before the faults are over when that is later.
    pub(crate) late: BTreeMap<usize, Micros>,
    /// Whether a machine is lost for good.
    pub(crate) loses: bool,
    /// Whether one node does not reach the others, or they do not reach it, when all else is
    /// healed.
    pub(crate) apart: bool,
    /// How often an operator asks for a change of the membership.
    pub(crate) change_every: Option<Micros>,
    /// The level that the cluster is founded with.
    pub(crate) founding_level: Level,
    pub(crate) clock_ahead: Micros,
    pub(crate) clock_drift_ppm: i64,
    /// Once in this many bursts the clock is read before the input comes.
    pub(crate) early_clock: Option<u64>,
    /// How many messages a node takes in at a time.
    pub(crate) burst: u64,
    /// The chance that a node goes on without ending its burst.
    pub(crate) burst_goes_on: f64,
    /// How long a node takes from one burst to the next.
    pub(crate) step: Range,
    pub(crate) read_levels: Vec<ReadLevel>,
    pub(crate) keys: u64,
    pub(crate) threads: u64,
    /// About how many requests clients make while there are faults.
    pub(crate) operations: u64,
    /// How many times longer than usual the run is.
    pub(crate) length: u64,
    /// Whether clients ask again as soon as they are answered.
    pub(crate) bursts: bool,
    /// Some values have up to this many bytes.
    pub(crate) large: Option<u32>,
    /// Whether some of what clients write is there for a time only.
    pub(crate) timed: bool,
    /// Whether some reads are of two keys.
    pub(crate) pairs: bool,
    /// Whether some writes are of two keys, or of all; reads are linearizable then.
    pub(crate) spans: bool,
    pub(crate) options: Options,
    /// The size of the log's segments: so small that they are made, dropped and used again all the
    /// time.
    pub(crate) segment_bytes: u64,
    pub(crate) snapshots: SnapshotKnobs,
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

/// Draws switches and rates for one seed.
struct Swarm {
    random: Random,
    calm: bool,
}

impl Swarm {
    fn on(&mut self, allowed: bool) -> bool {
        // Drawn in any case, so that forbidding one kind leaves the other draws as they are.
        self.random.once_in(2) && allowed && !self.calm
    }

    fn chance(&mut self, allowed: bool, rates: &[f64]) -> f64 {
        let rate = pick(&mut self.random, rates);
        if self.on(allowed) { rate } else { 0.0 }
    }

    fn recurring(
        &mut self,
        allowed: bool,
        every: &[Micros],
        lasts: &[Micros],
    ) -> Option<Recurring> {
        let (every, lasts) = (pick(&mut self.random, every), pick(&mut self.random, lasts));
        self.on(allowed).then_some(Recurring {
            every,
            lasts: (lasts / 20, lasts),
        })
    }

    fn network(&mut self, scenario: &Scenario) -> NetworkKnobs {
        let faults = scenario.faults;
        let delays = [(20, 200), (50, 2 * MS), (300, 15 * MS), (4 * MS, 50 * MS)];
        let delay = if self.on(faults.delay) {
            pick(&mut self.random, &delays)
        } else {
            (50, 400)
        };
        let hated = (
            self.random.below(8),
            self.chance(faults.drop, &[0.2, 0.5, 0.9]),
        );
        NetworkKnobs {
            delay,
            ordered: !faults.delay || self.random.once_in(3),
            straggle: self.chance(faults.delay, &[0.002, 0.02, 0.1]),
            straggle_delay: pick(&mut self.random, &[20 * MS, 200 * MS, 1500 * MS]),
            drop: self.chance(faults.drop, &[0.001, 0.01, 0.05, 0.2]),
            duplicate: self.chance(faults.duplicate, &[0.005, 0.05, 0.3]),
            hated: (hated.1 > 0.0 && self.random.once_in(2)).then_some(hated),
            meddles: false,
            bytes_a_ms: None,
        }
    }
}

impl Knobs {
    /// The knobs of `seed`, for a protocol with these settings, which may readmit lost nodes.
    pub(crate) fn draw(seed: u64, scenario: &Scenario, own: &[Setting], readmits: bool) -> Self {
        let mut random = Random::new(seed ^ 0x05ea_50a1_d001);
        let calm = random.once_in(8);
        let mut swarm = Swarm { random, calm };
        let network = swarm.network(scenario);
        let faults = scenario.faults;
        let (disk, nodes) = (scenario.durability == Durability::Disk, scenario.nodes());
        let f = scenario.layout.f;
        let most_down = match scenario.durability {
            Durability::Disk if swarm.random.once_in(4) => nodes,
            Durability::Disk => f.max(1),
            Durability::Memory { .. } => f,
        };
        let slow_disk = swarm.on(faults.slow_disk);
        let slow_syncs = [(MS, 10 * MS), (5 * MS, 60 * MS)];
        let sync = if slow_disk {
            pick(&mut swarm.random, &slow_syncs)
        } else {
            (100, 3 * MS)
        };
        let stall = (
            pick(&mut swarm.random, &[10, 50]),
            pick(&mut swarm.random, &[50 * MS, 600 * MS]),
        );
        let levels = if scenario.read_levels.is_empty() {
            &[ReadLevel::Linearizable]
        } else {
            &scenario.read_levels[..]
        };
        let one_level = pick(&mut swarm.random, levels);
        let read_levels = if swarm.random.once_in(2) {
            levels.to_vec()
        } else {
            vec![one_level]
        };
        let mut knobs = Knobs {
            calm,
            duration: pick(&mut swarm.random, &[300, 800, 2000, 4000]) * MS,
            network,
            sync,
            stall: swarm.on(faults.slow_disk).then_some(stall),
            crash: swarm.recurring(
                faults.crash,
                &[80 * MS, 300 * MS, 1200 * MS],
                &[20 * MS, 300 * MS, 2000 * MS],
            ),
            crash_in_sync: swarm.chance(faults.crash, &[0.005, 0.02, 0.1]),
            blackout: swarm.recurring(
                faults.crash && disk,
                &[500 * MS, 2000 * MS],
                &[10 * MS, 300 * MS],
            ),
            most_down,
            pause: swarm.recurring(
                faults.pause,
                &[80 * MS, 400 * MS],
                &[30 * MS, 500 * MS, 3000 * MS],
            ),
            drain: drain(seed).filter(|_| faults.slow_disk && !calm),
            partition: swarm.recurring(
                faults.partition,
                &[150 * MS, 600 * MS],
                &[60 * MS, 500 * MS, 2000 * MS],
            ),
            slow_link: swarm.recurring(faults.delay, &[100 * MS, 500 * MS], &[100 * MS, 1000 * MS]),
            clock_ahead: if swarm.on(faults.clock) { 5000 * MS } else { 0 },
            clock_drift_ppm: if swarm.on(faults.clock) { 20_000 } else { 0 },
            burst: pick(&mut swarm.random, &[1, 3, 10, 1000]),
            burst_goes_on: pick(&mut swarm.random, &[0.0, 0.1, 0.5]),
            step: pick(&mut swarm.random, &[(1, 10), (1, 200), (20, 2 * MS)]),
            read_levels,
            keys: swarm.random.between(1, scenario.keys.max(1)),
            threads: swarm.random.between(1, scenario.threads_per_lane.max(1)),
            options: options(&mut swarm.random, scenario),
            segment_bytes: pick(&mut swarm.random, &[8 << 10, 16 << 10]),
            // In calm seeds too. Drawn last, so that scenarios without changes keep their draws.
            early_clock: None,
            snapshots: snapshots(seed, faults.disk_error && !calm),
            change_every: (!scenario.changes.is_empty() || scenario.tunes)
                .then(|| pick(&mut swarm.random, &CHANGE_EVERY)),
            founding_level: founding_level(seed, scenario),
            cut: None,
            strand: None,
            disk_error: None,
            victims: None,
            meddle: None,
            in_turn: false,
            apart: false,
            late: BTreeMap::new(),
            loses: disk && loses(seed, scenario, readmits) && !calm,
            operations: scenario.operations,
            length: 1,
            bursts: false,
            large: None,
            timed: false,
            pairs: false,
            spans: false,
        };
        if scenario.vary_options {
            vary_own(&mut knobs.options, own, seed);
            knobs.options.loops = loops(seed);
        }
        let leases = knobs.options.own.get("lease_ms").is_some_and(|ms| *ms > 0);
        if leases && knobs.clock_drift_ppm > 0 && seed.is_multiple_of(3) {
            // The rates of two clocks then differ by up to 9.4 %. Leases allow for a tenth.
            knobs.clock_drift_ppm = 45_000;
        }
        knobs.early_clock = early_clock(seed).filter(|_| faults.clock && !calm);
        if swarm.random.once_in(8) {
            return knobs;
        }
        knobs.draw_more(
            &mut Swarm {
                random: Random::new(seed ^ 0x0e5c_a1a7),
                calm,
            },
            scenario,
        );
        knobs
    }

    /// What most seeds add.
    fn draw_more(&mut self, swarm: &mut Swarm, scenario: &Scenario) {
        let faults = scenario.faults;
        self.cut = swarm.recurring(
            faults.partition,
            &[150 * MS, 600 * MS],
            &[60 * MS, 500 * MS, 2000 * MS],
        );
        let loses = faults.drop && faults.delay;
        self.meddle = swarm.recurring(
            loses,
            &[60 * MS, 300 * MS, 1000 * MS],
            &[200 * MS, 1000 * MS, 4000 * MS],
        );
        self.network.meddles = self.meddle.is_some();
        self.in_turn =
            swarm.on(faults.crash) && scenario.durability == (Durability::Memory { returns: true });
        self.strand = swarm.recurring(
            faults.partition,
            &[800 * MS, 2500 * MS],
            &[900 * MS, 2500 * MS],
        );
        if self.strand.is_some() && self.duration < 4000 * MS {
            // It takes its time until another leads.
            self.duration = 4000 * MS;
        }
        let kinds = scenario.layout.instances.len() as u64;
        self.victims = swarm
            .random
            .once_in(2)
            .then(|| swarm.random.below(kinds) as u8);
        if self.in_turn {
            let (every, lasts) = ([20 * MS, 80 * MS, 300 * MS], [3 * MS, 30 * MS, 300 * MS]);
            let lasts = pick(&mut swarm.random, &lasts);
            self.crash = Some(Recurring {
                every: pick(&mut swarm.random, &every),
                lasts: (lasts / 20, lasts),
            });
        }
        if swarm.random.once_in(4) && swarm.on(faults.crash) {
            self.draw_late(&mut swarm.random, scenario);
        }
        match swarm.random.below(40) {
            _ if !scenario.vary_options => {}
            0 | 1 => {
                (self.length, self.keys) = (6, self.keys.max(4));
                self.duration = 3000 * MS * self.length;
                self.operations *= self.length;
            }
            2 => {
                (self.length, self.keys, self.threads) = (16, 24, 16);
                (self.operations, self.bursts) = (BURST * scenario.layout.count(0) as u64, true);
            }
            _ => {}
        }
        let large = pick(&mut swarm.random, &[4 << 10, 60 << 10, 250 << 10]);
        self.large = (swarm.random.once_in(12) && scenario.vary_options).then_some(large);
        let narrow = pick(&mut swarm.random, &[100, 2000, 20_000]);
        let often = if self.large.is_some() { 2 } else { 12 };
        self.network.bytes_a_ms =
            (swarm.random.once_in(often) && swarm.on(faults.delay)).then_some(narrow);
        if swarm.random.once_in(10) && swarm.on(faults.clock) {
            self.clock_ahead = 3_600_000 * MS;
        }
        if scenario.vary_options && swarm.random.once_in(10) {
            let expiry = Duration::from_millis(pick(&mut swarm.random, &[1500, 5000]));
            self.options.session_expiry = expiry;
            // As deployments must have it: else sessions expire while their commands wait.
            let lane = &mut self.options.lane;
            lane.patience = lane.patience.min(expiry / 3);
            lane.retry_after = lane.retry_after.min(lane.patience / 2);
        }
        let may_fail =
            scenario.layout.f > 0 && scenario.durability != (Durability::Memory { returns: false });
        self.apart = swarm.random.once_in(4)
            && swarm.on(faults.partition && may_fail && scenario.changes.is_empty());
        // Drawn last, as above.
        self.timed = swarm.random.once_in(2) && scenario.vary_options;
        let disk_error = swarm.recurring(
            faults.disk_error,
            &[100 * MS, 400 * MS, 1500 * MS],
            &[30 * MS, 300 * MS, 2000 * MS],
        );
        self.disk_error = disk_error.filter(|_| swarm.random.once_in(2));
        // The histories of keys that are read together are checked together, which takes longer
        // the longer they are.
        let short = self.length == 1 && !self.bursts;
        self.pairs = swarm.random.once_in(3) && scenario.vary_options && short;
        self.spans = swarm.random.once_in(3) && scenario.vary_options && short;
        if self.spans {
            self.read_levels = vec![ReadLevel::Linearizable];
        }
    }

    /// Nodes that start late: those that a change brings in, and up to f of the others.
    fn draw_late(&mut self, random: &mut Random, scenario: &Scenario) {
        let founding = scenario.layout.nodes();
        let mut left = scenario.layout.f;
        for node in 0..scenario.nodes() {
            let founds = founding
                .iter()
                .any(|founder| usize::from(founder.0) == node);
            let (is_late, at) = (random.once_in(3), random.below(2 * self.duration));
            if is_late && (!founds || left > 0) {
                left -= usize::from(founds);
                self.late.insert(node, at);
            }
        }
    }

    /// The kinds of fault that are on and the options that differ from the scenario's, for reports.
    pub(crate) fn summary(&self, scenario: &Scenario, own: &[Setting]) -> String {
        let mut words = self.switches();
        let ours = listed(&self.options, own);
        let theirs = listed(&scenario.layout.options, own);
        let changed = ours
            .into_iter()
            .zip(theirs)
            .filter(|(our, their)| our != their);
        words.extend(changed.map(|((name, value), _)| format!("{name}={value}")));
        words.join(" ")
    }

    fn switches(&self) -> Vec<String> {
        let network = &self.network;
        let switches = [
            ("calm", self.calm),
            ("lose", network.drop > 0.0),
            ("hate", network.hated.is_some()),
            ("duplicate", network.duplicate > 0.0),
            ("straggle", network.straggle > 0.0),
            ("ordered", network.ordered),
            ("slow-links", self.slow_link.is_some()),
            ("narrow-links", self.network.bytes_a_ms.is_some()),
            ("partition", self.partition.is_some()),
            ("cut", self.cut.is_some()),
            ("strand", self.strand.is_some()),
            ("victims", self.victims.is_some() && self.crash.is_some()),
            ("meddle", self.meddle.is_some()),
            ("in-turn", self.in_turn),
            ("apart", self.apart),
            ("late", !self.late.is_empty()),
            ("long", self.length > 1 && !self.bursts),
            ("bursts", self.bursts),
            ("large", self.large.is_some()),
            ("timed", self.timed),
            ("pairs", self.pairs),
            ("spans", self.spans),
            ("disk-errors", self.disk_error.is_some()),
            ("full-disks", self.snapshots.refused_once_in > 0),
            ("pause", self.pause.is_some()),
            ("drain", self.drain.is_some()),
            ("crash", self.crash.is_some()),
            ("crash-in-sync", self.crash_in_sync > 0.0),
            ("blackout", self.blackout.is_some()),
            ("slow-disk", self.sync.1 > 3 * MS || self.stall.is_some()),
            ("clocks", self.clock_ahead > 0 || self.clock_drift_ppm > 0),
            ("wrong-clocks", self.clock_ahead > 60_000 * MS),
            ("early-clocks", self.early_clock.is_some()),
            ("lost-machine", self.loses),
            ("first-level", self.founding_level == Level::FIRST),
        ];
        switches
            .iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| (*name).to_owned())
            .collect()
    }
}

/// How often nodes read their clocks too early: in one seed of three, now and then. Drawn with
/// random numbers of their own: it changes no other draw.
fn early_clock(seed: u64) -> Option<u64> {
    let mut random = Random::new(seed ^ 0x0063_6c6f_636b);
    let once_in = pick(&mut random, &[2, 10, 100]);
    random.once_in(3).then_some(once_in)
}

/// The level that the cluster is founded with: that of the scenario, or in one seed of three the
/// first one. Drawn as above.
fn founding_level(seed: u64, scenario: &Scenario) -> Level {
    match Random::new(seed ^ 0x006c_6576_656c).once_in(3) {
        true => Level::FIRST,
        false => scenario.layout.founding_level,
    }
}

/// How often nodes lead nothing for a while: in one seed of four. Drawn as above.
fn drain(seed: u64) -> Option<Recurring> {
    let mut random = Random::new(seed ^ 0x6472_6169_6e73);
    let every = pick(&mut random, &[150 * MS, 600 * MS, 2000 * MS]);
    let lasts = (
        10 * MS,
        pick(&mut random, &[100 * MS, 1000 * MS, 5000 * MS]),
    );
    random.once_in(4).then_some(Recurring { every, lasts })
}

/// Whether a machine is lost for good: in some seeds in which members change. Or disks are, where
/// the protocol readmits nodes that have lost theirs. Drawn as above.
fn loses(seed: u64, scenario: &Scenario, readmits: bool) -> bool {
    let can_be_replaced = scenario.layout.f > 0 && (readmits || !scenario.changes.is_empty());
    let mut random = Random::new(seed ^ 0x006c_6f73_7365);
    random.once_in(3) && can_be_replaced && scenario.faults.crash
}

/// How many syncs may go before a snapshot is written: in two seeds of five, some. And how often
/// one finds no room: in one seed of three. Drawn with random numbers of their own, as above.
fn snapshots(seed: u64, fails: bool) -> SnapshotKnobs {
    let mut random = Random::new(seed ^ 0x0073_6e61_7073);
    let syncs_before = pick(&mut random, &[0, 0, 0, 3, 20]);
    let refused_once_in = pick(&mut random, &[0, 0, 0, 0, 2, 5]);
    SnapshotKnobs {
        syncs_before,
        refused_once_in: if fails { refused_once_in } else { 0 },
    }
}

#[cfg(test)]
mod tests;
