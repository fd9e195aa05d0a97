//! The network: a delay that varies slightly, and links that preserve order.

use super::Setting;
use super::server::Nanos;
use ionian_kernel::random::Random;

/// All links, each in one direction.
pub(super) struct Links {
    shortest: Nanos,
    longest: Nanos,
    random: Random,
    /// When the last message of each link arrives, by sender and receiver.
    last: Vec<Vec<Nanos>>,
}

impl Links {
    /// Between this number of servers.
    pub(super) fn new(servers: usize, setting: &Setting) -> Self {
        let Setting {
            network_delay_us,
            network_jitter,
            ..
        } = *setting;
        let delay = |part: f64| (network_delay_us * part * 1000.0) as Nanos;
        let last = vec![vec![0; servers]; servers];
        let (shortest, longest) = (delay(1.0 - network_jitter), delay(1.0 + network_jitter));
        Links {
            shortest,
            longest,
            random: Random::new(2),
            last,
        }
    }

    /// When a message that leaves `from` now arrives at `to`.
    pub(super) fn arrival(&mut self, from: usize, to: usize, leaves: Nanos) -> Nanos {
        let last = &mut self.last[from][to];
        *last = (*last).max(leaves + self.random.between(self.shortest, self.longest));
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_its_order_and_others_do_not_wait_for_it() {
        let (shortest, longest, last) = (1_000, 9_000, vec![vec![0; 2]; 2]);
        let mut links = Links {
            shortest,
            longest,
            random: Random::new(1),
            last,
        };
        let arrivals: Vec<Nanos> = (0..100).map(|leaves| links.arrival(0, 1, leaves)).collect();
        assert!(arrivals.is_sorted());
        assert!(
            arrivals
                .iter()
                .zip(0..)
                .all(|(at, leaves)| (leaves + 1_000..=99 + 9_000).contains(at))
        );
        let other: Vec<Nanos> = (0..100).map(|_| links.arrival(1, 0, 0)).collect();
        assert!(
            other[0] < arrivals[99] && other[0] != other[99],
            "it varies"
        );
    }
}
