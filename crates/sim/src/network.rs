//! The simulated network between nodes: delays, losses, duplicates, partitions and slow links.

use crate::event::Micros;
use crate::swarm::NetworkKnobs;
use crate::trace::hash_bytes;
use ionian_kernel::random::Random;

/// What the network does with one message.
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
    /// Added to each delay of the link.
    slow: Vec<Micros>,
    /// When the last message of the link arrives, for links that keep order.
    last: Vec<Micros>,
}

impl Network {
    pub(crate) fn new(nodes: usize, knobs: NetworkKnobs) -> Self {
        let links = nodes * nodes;
        Network { nodes, knobs, blocked: vec![false; links], slow: vec![0; links], last: vec![0; links] }
    }

    fn link(&self, from: usize, to: usize) -> usize {
        from * self.nodes + to
    }

    /// Decides over a message of kind `name`.
    pub(crate) fn pass(&mut self, random: &mut Random, now: Micros, from: usize, to: usize, name: &str) -> Passage {
        let link = self.link(from, to);
        if self.blocked[link] {
            return Passage::Lost("partition");
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
        let at = self.arrival(random, now, link);
        let twice = self.knobs.duplicate > 0.0 && random.chance(self.knobs.duplicate);
        let again = twice.then(|| self.arrival(random, now, link));
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

    /// Cuts links by a random pattern and says which. An earlier partition ends.
    pub(crate) fn partition(&mut self, random: &mut Random) -> String {
        self.blocked.fill(false);
        if self.nodes < 2 {
            return "nobody to part".into();
        }
        // Both halves have a member: a random split of the nodes with one put in each by hand.
        let mut half: Vec<bool> = (0..self.nodes).map(|_| random.once_in(2)).collect();
        let one = random.below(self.nodes as u64) as usize;
        let other = (one + 1 + random.below(self.nodes as u64 - 1) as usize) % self.nodes;
        (half[one], half[other]) = (true, false);
        let bridge = (self.nodes > 2 && random.once_in(4))
            .then(|| (0..self.nodes).find(|node| *node != one && *node != other))
            .flatten();
        let single = bridge.is_none() && random.once_in(3);
        if single {
            half.iter_mut().enumerate().for_each(|(node, half)| *half = node == one);
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

    /// Makes a link slow, or (`extra` zero) quick again.
    pub(crate) fn slow_down(&mut self, from: usize, to: usize, extra: Micros) {
        let link = self.link(from, to);
        self.slow[link] = extra;
    }

    /// Ends all faults: from now on messages arrive once and in their time.
    pub(crate) fn heal(&mut self) {
        self.rejoin();
        self.slow.fill(0);
        self.knobs = self.knobs.healed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs() -> NetworkKnobs {
        NetworkKnobs { delay: (10, 1000), ..NetworkKnobs::default() }
    }

    #[test]
    fn partitions_of_every_shape_part_somebody_and_end() {
        let mut random = Random::new(5);
        let (mut shapes, mut network) = (std::collections::BTreeSet::new(), Network::new(5, knobs()));
        for _ in 0..300 {
            let shape = network.partition(&mut random);
            shapes.insert((shape.contains("bridge"), shape.contains("-/->")));
            let cut = network.blocked.iter().filter(|blocked| **blocked).count();
            assert!(cut > 0 && cut <= 12, "{shape} cuts {cut}");
            assert!((0..5).all(|node| !network.blocked[node * 5 + node]));
        }
        assert_eq!(shapes.len(), 4);
        network.heal();
        assert!(matches!(network.pass(&mut random, 0, 0, 1, "a"), Passage::Arrives { .. }));
    }

    #[test]
    fn ordered_links_keep_order_and_others_do_not() {
        for ordered in [true, false] {
            let mut network = Network::new(2, NetworkKnobs { ordered, ..knobs() });
            let mut random = Random::new(1);
            let arrivals: Vec<Micros> = (0..50)
                .map(|now| match network.pass(&mut random, now, 0, 1, "a") {
                    Passage::Arrives { at, again: None } => at,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(arrivals.is_sorted(), ordered);
        }
    }
}
