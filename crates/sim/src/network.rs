//! The simulated network between nodes: delays, losses, duplicates, partitions, cuts, slow and
//! narrow links.

use crate::event::Micros;
use crate::meddling::{Meddled, Meddling};
use crate::swarm::NetworkKnobs;
use crate::trace::hash_bytes;
use ionian_kernel::random::Random;
use std::collections::BTreeMap;

/// The fate of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Lost(&'static str),
    Arrives { at: Micros, again: Option<Micros> },
}

/// All links, each in one direction.
pub(crate) struct Network {
    nodes: usize,
    knobs: NetworkKnobs,
    blocked: Vec<bool>,
    /// Additional delay of the link.
    slow: Vec<Micros>,
    /// When the last message of the link arrives, for ordered links.
    last: Vec<Micros>,
    /// When the link is free, if bytes take time.
    free: Vec<Micros>,
    /// The number of cuts that include each link.
    severed: Vec<u32>,
    /// The links of each cut, by turn.
    cuts: BTreeMap<u64, Vec<usize>>,
    cut_turns: u64,
    /// Faults that affect some kinds of messages only.
    pub(crate) meddling: Meddling,
}

impl Network {
    pub(crate) fn new(nodes: usize, knobs: NetworkKnobs) -> Self {
        let links = nodes * nodes;
        Network {
            nodes,
            knobs,
            blocked: vec![false; links],
            slow: vec![0; links],
            last: vec![0; links],
            free: vec![0; links],
            severed: vec![0; links],
            cuts: BTreeMap::new(),
            cut_turns: 0,
            meddling: Meddling::default(),
        }
    }

    fn link(&self, from: usize, to: usize) -> usize {
        from * self.nodes + to
    }

    /// A node's process has started: no message waits on its new connections behind those of the
    /// old ones.
    pub(crate) fn connect(&mut self, node: usize, now: Micros) {
        for other in 0..self.nodes {
            for link in [self.link(node, other), self.link(other, node)] {
                (self.free[link], self.last[link]) = (now, now);
            }
        }
    }

    /// Decides about a message of kind `name` with this many bytes.
    pub(crate) fn pass(
        &mut self,
        random: &mut Random,
        now: Micros,
        (from, to): (usize, usize),
        name: &'static str,
        bytes: usize,
    ) -> Passage {
        let link = self.link(from, to);
        if self.blocked[link] {
            return Passage::Lost("partition");
        }
        if self.severed[link] > 0 {
            return Passage::Lost("cut");
        }
        let meddled = if self.knobs.meddles {
            self.meddling.judge(random, from, to, name)
        } else {
            Meddled::Not
        };
        if meddled == Meddled::Lost {
            return Passage::Lost("meddling");
        }
        if let Some((remainder, chance)) = self.knobs.hated
            && hash_bytes(name.as_bytes()) % 8 == remainder
            && random.chance(chance)
        {
            return Passage::Lost("hated kind");
        }
        if self.knobs.drop > 0.0 && random.chance(self.knobs.drop) {
            return Passage::Lost("loss");
        }
        // Bytes leave one after the other; later messages wait.
        let mut leaves = now;
        if let Some(bytes_a_ms) = self.knobs.bytes_a_ms {
            leaves = now.max(self.free[link]) + bytes as u64 * 1000 / bytes_a_ms;
            self.free[link] = leaves;
        }
        let mut at = self.arrival(random, leaves, link);
        if let Meddled::Held(longer) = meddled {
            at += longer;
        }
        let twice = self.knobs.duplicate > 0.0 && random.chance(self.knobs.duplicate);
        let again = twice.then(|| self.arrival(random, leaves, link));
        Passage::Arrives { at, again }
    }

    fn arrival(&mut self, random: &mut Random, now: Micros, link: usize) -> Micros {
        let mut delay = random.between(self.knobs.delay.0, self.knobs.delay.1) + self.slow[link];
        if self.knobs.straggle > 0.0 && random.chance(self.knobs.straggle) {
            delay += random.below(self.knobs.straggle_delay.max(1));
        }
        let mut at = now + delay;
        if self.knobs.ordered {
            at = at.max(self.last[link]);
            self.last[link] = at;
        }
        at
    }

    /// Cuts links by a random pattern; returns a description. An earlier partition ends.
    pub(crate) fn partition(&mut self, random: &mut Random) -> String {
        self.blocked.fill(false);
        if self.nodes < 2 {
            return "no nodes to part".into();
        }
        // Both halves have a member: a random split, with one node put into each half.
        let mut half: Vec<bool> = (0..self.nodes).map(|_| random.once_in(2)).collect();
        let one = random.below(self.nodes as u64) as usize;
        let other = (one + 1 + random.below(self.nodes as u64 - 1) as usize) % self.nodes;
        (half[one], half[other]) = (true, false);
        let bridge = (self.nodes > 2 && random.once_in(4))
            .then(|| (0..self.nodes).find(|node| *node != one && *node != other))
            .flatten();
        let single = bridge.is_none() && random.once_in(3);
        if single {
            half.iter_mut()
                .enumerate()
                .for_each(|(node, half)| *half = node == one);
        }
        let one_way = random.once_in(3);
        for from in 0..self.nodes {
            for to in 0..self.nodes {
                let parted = half[from] != half[to] && bridge != Some(from) && bridge != Some(to);
                let link = self.link(from, to);
                self.blocked[link] = parted && (half[from] || !one_way);
            }
        }
        let members: Vec<usize> = (0..self.nodes).filter(|node| half[*node]).collect();
        let arrow = if one_way { "-/->" } else { "</>" };
        let bridge = bridge.map_or(String::new(), |bridge| format!(", bridge n{bridge}"));
        format!("{members:?} {arrow} the others{bridge}")
    }

    /// Ends the partition.
    pub(crate) fn rejoin(&mut self) {
        self.blocked.fill(false);
    }

    /// Cuts some links until the returned turn ends; other cuts and partitions remain. Returns a
    /// description.
    pub(crate) fn cut(&mut self, random: &mut Random) -> (u64, String) {
        let nodes = self.nodes as u64;
        let (one, other) = (random.below(nodes) as usize, random.below(nodes) as usize);
        let shape = random.below(6);
        let is_cut = |from: usize, to: usize| match shape {
            0 => (from, to) == (one, other),
            1 => (from, to) == (one, other) || (to, from) == (one, other),
            2 => to == one,
            3 => from == one,
            // Each node reaches only the hub.
            4 => from != one && to != one,
            // Each node reaches its neighbours.
            _ => from.abs_diff(to) > 1,
        };
        let text = match shape {
            0 => format!("n{one} -/-> n{other}"),
            1 => format!("n{one} </> n{other}"),
            2 => format!("n{one} is deaf"),
            3 => format!("n{one} is mute"),
            4 => format!("all reach only n{one}"),
            _ => "each reaches only its neighbours".into(),
        };
        (self.sever(is_cut), text)
    }

    /// Cuts these links, given by sender and receiver, until the returned turn ends.
    pub(crate) fn sever(&mut self, is_cut: impl Fn(usize, usize) -> bool) -> u64 {
        let pairs = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let links: Vec<usize> = pairs
            .filter(|(from, to)| from != to && is_cut(*from, *to))
            .map(|(from, to)| self.link(from, to))
            .collect();
        links.iter().for_each(|link| self.severed[*link] += 1);
        self.cut_turns += 1;
        self.cuts.insert(self.cut_turns, links);
        self.cut_turns
    }

    /// Ends a cut.
    pub(crate) fn splice(&mut self, turn: u64) {
        for link in self.cuts.remove(&turn).unwrap_or_default() {
            self.severed[link] -= 1;
        }
    }

    /// Makes a link slow or, with `extra` zero, fast again.
    pub(crate) fn slow_down(&mut self, from: usize, to: usize, extra: Micros) {
        let link = self.link(from, to);
        self.slow[link] = extra;
    }

    /// Ends all faults: from now on each message arrives once and in time.
    pub(crate) fn heal(&mut self) {
        self.rejoin();
        self.severed.fill(0);
        self.cuts.clear();
        self.meddling.end_all();
        self.slow.fill(0);
        self.knobs = self.knobs.healed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs() -> NetworkKnobs {
        NetworkKnobs {
            delay: (10, 1000),
            ..NetworkKnobs::default()
        }
    }

    #[test]
    fn partitions_of_every_shape_separate_nodes_and_end() {
        let mut random = Random::new(5);
        let (mut shapes, mut network) =
            (std::collections::BTreeSet::new(), Network::new(5, knobs()));
        for _ in 0..300 {
            let shape = network.partition(&mut random);
            shapes.insert((shape.contains("bridge"), shape.contains("-/->")));
            let cut = network.blocked.iter().filter(|blocked| **blocked).count();
            assert!(cut > 0 && cut <= 12, "{shape} cuts {cut}");
            assert!((0..5).all(|node| !network.blocked[node * 5 + node]));
        }
        assert_eq!(shapes.len(), 4);
        network.heal();
        assert!(matches!(
            network.pass(&mut random, 0, (0, 1), "a", 1),
            Passage::Arrives { .. }
        ));
    }

    #[test]
    fn cuts_of_every_shape_end_alone_and_when_all_is_healed() {
        let (mut random, mut shapes) = (Random::new(5), std::collections::BTreeSet::new());
        let mut network = Network::new(4, knobs());
        for _ in 0..200 {
            let (turn, text) = network.cut(&mut random);
            let severed = network.severed.iter().filter(|cuts| **cuts > 0).count();
            shapes.insert((severed, text.split(' ').next_back().map(str::to_owned)));
            network.splice(turn);
            assert!(network.severed.iter().all(|cuts| *cuts == 0));
        }
        assert!(
            shapes.iter().any(|(severed, _)| *severed == 6) && shapes.len() > 10,
            "{shapes:?}"
        );
        let (first, _) = network.cut(&mut random);
        network.cut(&mut random);
        network.heal();
        network.splice(first);
        assert!(matches!(
            network.pass(&mut random, 0, (0, 1), "a", 1),
            Passage::Arrives { .. }
        ));
    }

    #[test]
    fn bytes_take_time_on_a_narrow_link_and_wait_for_those_before_them() {
        let mut network = Network::new(
            2,
            NetworkKnobs {
                bytes_a_ms: Some(10),
                delay: (7, 7),
                ..knobs()
            },
        );
        let mut random = Random::new(1);
        let mut arrival = |to, bytes| match network.pass(&mut random, 0, (0, to), "a", bytes) {
            Passage::Arrives { at, .. } => at,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [arrival(1, 100), arrival(1, 10), arrival(0, 20)],
            [10_007, 11_007, 2_007]
        );
        network.connect(1, 0);
        assert_eq!(
            network.pass(&mut random, 0, (0, 1), "a", 10),
            Passage::Arrives {
                at: 1_007,
                again: None
            }
        );
    }

    #[test]
    fn ordered_links_keep_order_and_others_do_not() {
        for ordered in [true, false] {
            let mut network = Network::new(2, NetworkKnobs { ordered, ..knobs() });
            let mut random = Random::new(1);
            let arrivals: Vec<Micros> = (0..50)
                .map(|now| match network.pass(&mut random, now, (0, 1), "a", 1) {
                    Passage::Arrives { at, again: None } => at,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(arrivals.is_sorted(), ordered);
        }
    }
}
