//! Clients that do not wait for answers: most of them write one key, some write with a time to
//! live, and some write keys of their own. Whatever the protocol makes of conflicts, what it
//! answers must not collapse.

use super::shapes;
use crate::wan::{SECOND, experiment};
use bytes::Bytes;
use core::ops::Range;
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::Layout;
use ionian_kernel::machine::StateMachine;
use ionian_kernel::time::Duration;
use ionian_machines::kv::{Command, Compound, Kv};
use ionian_sim::Simulated;
use ionian_sim::performance::Service;
use ionian_sim::performance::wan::{
    Experiment, Link, Network, Observed, Pace, PerMessage, Source, observe,
};

/// What is asked before this is not answered any more when the measurement ends, if answers take
/// longer than a few seconds.
const UNTIL: u64 = 9 * SECOND;
const ENDS: u64 = 13 * SECOND;

/// The clients of each lane: how many of each kind, each with ten commands a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// They write one key, the same for all.
    pub(crate) hot: usize,
    /// They write keys of their own with a time to live.
    pub(crate) timed: usize,
    /// They write keys of their own.
    pub(crate) other: usize,
}

/// What came of the commands of one kind, at all lanes together.
#[derive(Debug)]
pub(crate) struct Kind {
    /// How many were answered.
    pub(crate) answered: usize,
    /// How many are asked, about.
    pub(crate) expected: usize,
    pub(crate) refused: u64,
    /// How long the answers took.
    pub(crate) p50_ms: u64,
    pub(crate) p99_ms: u64,
}

impl Kind {
    /// The part that was answered.
    pub(crate) fn share(&self) -> f64 {
        self.answered as f64 / self.expected as f64
    }
}

impl Load {
    fn kinds(&self) -> [usize; 3] {
        [self.hot, self.timed, self.other]
    }

    /// Of which kind a client is, numbered over all lanes.
    fn kind_of(&self, client: usize) -> usize {
        let at = client % self.kinds().iter().sum::<usize>();
        match at {
            _ if at < self.hot => 0,
            _ if at < self.hot + self.timed => 1,
            _ => 2,
        }
    }
}

/// The command of these words, as a client sends it alone.
pub(crate) fn compound(words: &[&str]) -> Bytes {
    let words: Vec<Bytes> = words.iter().map(|it| it.to_string().into()).collect();
    let command = Command::parse(&words).expect("a command of the store");
    Compound::Pipeline(vec![command]).encode().into()
}

impl Service for Load {
    fn write(&self, client: usize, number: u64) -> Bytes {
        let own = format!("{client}:{number}");
        let words: &[&str] = match self.kind_of(client) {
            0 => &["INCR", "hot"],
            1 => &["SET", &own, "value", "EX", "100"],
            _ => &["SET", &own, "value"],
        };
        compound(words)
    }
    fn read(&self, _: usize, _: u64) -> Bytes {
        unreachable!("these clients write")
    }
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Kv::default())
    }
}

/// Applies a load at each of the first three lanes of a deployment whose nodes are so far apart.
pub(crate) fn apply(protocol: Simulated, layout: &Layout, delay_us: f64, load: Load) -> Vec<Kind> {
    let lanes: Vec<ClientId> = layout.all::<ClientId>(0).iter().take(3).collect();
    let source = |lane: &ClientId, clients| Source {
        lane: *lane,
        clients,
        pace: Pace::Waits {
            shortest_us: SECOND / 20,
            longest_us: 3 * SECOND / 20,
        },
        from_us: SECOND,
        until_us: UNTIL,
    };
    let of_lane = |lane| load.kinds().map(|clients| source(lane, clients));
    let link = Link {
        delay_us,
        bytes_per_second: f64::INFINITY,
    };
    let network = Network::clique(layout.nodes().len(), link);
    let experiment = Experiment {
        layout: layout.clone(),
        ends_us: ENDS,
        begins_us: SECOND,
        ..experiment(network, lanes.iter().flat_map(of_lane).collect())
    };
    let observed = observe(protocol, &experiment, &PerMessage { us: 1.0 }, &load).unwrap();
    let kind = |kind| of_kind(&observed, load, kind);
    (0..3).map(kind).collect()
}

fn of_kind(observed: &Observed, load: Load, kind: usize) -> Kind {
    let series = || observed.sources.iter().skip(kind).step_by(3);
    let mut latencies: Vec<u64> = series().flat_map(|it| it.latencies()).collect();
    latencies.sort_unstable();
    let at = |part: usize| latencies.get(latencies.len() * part / 100).copied();
    let seconds = (UNTIL - SECOND) / SECOND;
    Kind {
        answered: latencies.len(),
        expected: series().count() * load.kinds()[kind] * seconds as usize * 10,
        refused: series().map(|it| it.refused).sum(),
        p50_ms: at(50).unwrap_or_default() / 1000,
        p99_ms: at(99).unwrap_or_default() / 1000,
    }
}

/// All that is asked is answered, in each preset, over a wide area and in one room.
pub(crate) fn is_answered(protocol: Simulated) {
    let load = Load {
        hot: 10,
        timed: 2,
        other: 2,
    };
    for shape in shapes::usual(protocol) {
        for delay_us in [50.0, 50_000.0] {
            for (kind, of) in
                ["hot", "timed", "other"]
                    .iter()
                    .zip(apply(protocol, &shape.layout, delay_us, load))
            {
                let named = format!("{}, {delay_us} us apart, {kind}: {of:?}", shape.name);
                println!("{named}");
                assert!(of.share() > 0.95 && of.refused == 0, "{named}");
            }
        }
    }
}

/// Until here clients ask for far more than a small window lets through, and give up.
const RUSH_ENDS: u64 = 4 * SECOND;
/// What is asked from here on is answered: by then those have given up what they asked for.
const RESTED: u64 = 7 * SECOND;
const QUIET_ENDS: u64 = 13 * SECOND;

/// Commands that clients have given up do not delay those that clients wait for: after a short rush
/// queues become shorter than the clients' patience again, although clients go on and repeat.
pub(crate) fn what_is_given_up_holds_up_nothing(protocol: Simulated) {
    for shape in shapes::presets(protocol).into_iter().take(2) {
        let mut layout = shape.layout;
        let options = &mut layout.options;
        (options.batch_commands, options.window_slots) = (1, 2);
        options.lane.patience = Duration::from_millis(1500);
        let lanes: Vec<ClientId> = layout.all::<ClientId>(0).iter().take(3).collect();
        let source = |lane: &ClientId, clients, times: Range<u64>| Source {
            lane: *lane,
            clients,
            pace: Pace::Waits {
                shortest_us: SECOND / 5,
                longest_us: 3 * SECOND / 5,
            },
            from_us: times.start,
            until_us: times.end,
        };
        let rush = lanes.iter().map(|lane| source(lane, 40, SECOND..RUSH_ENDS));
        let later = lanes.iter().map(|lane| source(lane, 1, RESTED..QUIET_ENDS));
        let link = Link {
            delay_us: 10_000.0,
            bytes_per_second: f64::INFINITY,
        };
        let network = Network::clique(layout.nodes().len(), link);
        let experiment = Experiment {
            layout,
            begins_us: RESTED,
            ends_us: QUIET_ENDS + 2 * SECOND,
            ..experiment(network, rush.chain(later).collect())
        };
        let own_keys = Load {
            hot: 0,
            timed: 0,
            other: 1,
        };
        let observed = observe(protocol, &experiment, &PerMessage { us: 1.0 }, &own_keys).unwrap();
        let later = || observed.sources.iter().skip(lanes.len());
        let answered: usize = later().map(|it| it.latencies().count()).sum();
        let refused: u64 = later().map(|it| it.refused).sum();
        let named = format!("{}: {answered} answered, {refused} refused", shape.name);
        println!("{named}");
        assert!(refused == 0 && answered > 10 * lanes.len(), "{named}");
    }
}
