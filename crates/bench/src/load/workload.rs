//! What is asked: which key, and whether it is read or written.

use rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The theta of `zipfian` alone, which is that of YCSB.
const THETA: f64 = 0.99;

/// How operations are spread over the keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Skew {
    /// All alike.
    Uniform,
    /// The n-th key by n to the power of minus theta.
    Zipfian(f64),
    /// This fraction to one key, the others alike (compartmentalization 8.6).
    Point(f64),
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, number) = text
            .split_once(':')
            .map_or((text, None), |(kind, number)| (kind, Some(number)));
        let number = number.map(str::parse::<f64>);
        match (kind, number) {
            ("uniform", None) => Ok(Skew::Uniform),
            ("zipfian", None) => Ok(Skew::Zipfian(THETA)),
            ("zipfian", Some(Ok(theta))) if (0.0..=10.0).contains(&theta) => Ok(Skew::Zipfian(theta)),
            ("point", Some(Ok(fraction))) if (0.0..=1.0).contains(&fraction) => Ok(Skew::Point(fraction)),
            _ => Err("must be uniform, zipfian, zipfian:THETA with THETA from 0 to 10, or point:P with P from 0 to 1"
                .to_owned()),
        }
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skew::Uniform => f.write_str("uniform"),
            Skew::Zipfian(theta) => write!(f, "zipfian:{theta}"),
            Skew::Point(fraction) => write!(f, "point:{fraction}"),
        }
    }
}

/// What operations are like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Mix {
    /// How many keys there are.
    pub(crate) keys: u64,
    /// How operations are spread over them.
    pub(crate) skew: Skew,
    /// Of a hundred operations.
    pub(crate) reads: u8,
    /// How long values are.
    pub(crate) value_bytes: usize,
    /// Whether keys are streams.
    pub(crate) append: bool,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) key: u64,
    pub(crate) is_read: bool,
}

/// Operations, one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Workload {
    /// Drawn at random, without end.
    Drawn(Drawn),
    /// Each of these keys is written once.
    Each(Range<u64>),
}

#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    mix: Mix,
    zipf: Option<Zipf<f64>>,
    random: Xoshiro256PlusPlus,
}

impl Workload {
    /// At random: the same seed gives the same operations.
    pub(crate) fn drawn(mix: Mix, seed: u64) -> Self {
        let zipf = match mix.skew {
            Skew::Zipfian(theta) => Some(
                Zipf::new(mix.keys as f64, theta).expect("there are keys, and theta is checked"),
            ),
            Skew::Uniform | Skew::Point(_) => None,
        };
        Workload::Drawn(Drawn {
            mix,
            zipf,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        })
    }

    /// The next, if there is one.
    pub(crate) fn next(&mut self) -> Option<Ask> {
        match self {
            Workload::Drawn(drawn) => Some(drawn.next()),
            Workload::Each(keys) => keys.next().map(|key| Ask {
                key,
                is_read: false,
            }),
        }
    }
}

impl Drawn {
    fn next(&mut self) -> Ask {
        let Mix {
            keys, skew, reads, ..
        } = self.mix;
        let key = match (skew, &self.zipf) {
            (_, Some(zipf)) => (zipf.sample(&mut self.random) as u64).clamp(1, keys) - 1,
            (Skew::Point(fraction), None) => match self.fraction() < fraction || keys == 1 {
                true => 0,
                false => 1 + self.below(keys - 1),
            },
            (_, None) => self.below(keys),
        };
        let is_read = reads > 0 && self.below(100) < u64::from(reads);
        Ask { key, is_read }
    }

    /// By multiplying down, which is off by less than bound / 2^64.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 to 1, which it does not reach.
    fn fraction(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 100_000;

    fn asks(skew: Skew, reads: u8, seed: u64) -> Vec<Ask> {
        let mut workload = Workload::drawn(
            Mix {
                keys: 1000,
                skew,
                reads,
                value_bytes: 16,
                append: false,
            },
            seed,
        );
        (0..MANY).map(|_| workload.next().unwrap()).collect()
    }

    /// The fraction of the operations that goes to this key.
    fn share(asks: &[Ask], key: u64) -> f64 {
        asks.iter().filter(|ask| ask.key == key).count() as f64 / asks.len() as f64
    }

    #[test]
    fn a_seed_decides_everything() {
        for skew in [Skew::Uniform, Skew::Zipfian(0.99), Skew::Point(0.5)] {
            assert_eq!(asks(skew, 50, 7), asks(skew, 50, 7));
            assert_ne!(asks(skew, 50, 7), asks(skew, 50, 8));
            assert!(asks(skew, 50, 7).iter().all(|ask| ask.key < 1000));
        }
    }

    #[test]
    fn keys_are_as_skewed_as_was_asked_for() {
        assert!((share(&asks(Skew::Uniform, 0, 1), 3) - 0.001).abs() < 0.0005);
        let point = asks(Skew::Point(0.3), 0, 1);
        assert!(
            (share(&point, 0) - 0.3).abs() < 0.01 && (share(&point, 999) - 0.0007).abs() < 0.0005
        );
        assert!(
            share(&asks(Skew::Point(1.0), 0, 1), 0) == 1.0
                && share(&asks(Skew::Point(0.0), 0, 1), 0) == 0.0
        );
        // By the law: the second key has half of the first's share when theta is 1.
        let zipfian = asks(Skew::Zipfian(1.0), 0, 1);
        assert!((share(&zipfian, 0) / share(&zipfian, 1) - 2.0).abs() < 0.15);
        assert!(
            (share(&zipfian, 0) - 0.1336).abs() < 0.01,
            "1 / (1 + 1/2 + ... + 1/1000)"
        );
    }

    #[test]
    fn so_many_are_reads() {
        let reads = |percent| {
            asks(Skew::Uniform, percent, 1)
                .iter()
                .filter(|ask| ask.is_read)
                .count()
        };
        assert_eq!((reads(0), reads(100)), (0, MANY));
        assert!(reads(90).abs_diff(MANY * 9 / 10) < MANY / 100);
    }

    #[test]
    fn each_key_is_written_once() {
        let mut all = Workload::Each(3..6);
        let asked: Vec<Ask> = std::iter::from_fn(|| all.next()).collect();
        assert_eq!(
            asked,
            [3, 4, 5].map(|key| Ask {
                key,
                is_read: false
            })
        );
    }

    #[test]
    fn skews_are_read_as_they_are_written() {
        for text in ["uniform", "zipfian:0.5", "point:0.25"] {
            assert_eq!(text.parse::<Skew>().unwrap().to_string(), text);
        }
        assert_eq!("zipfian".parse(), Ok(Skew::Zipfian(0.99)));
        for text in [
            "",
            "zipf",
            "point",
            "point:2",
            "point:-1",
            "zipfian:NaN",
            "zipfian:x",
            "uniform:1",
        ] {
            assert!(
                text.parse::<Skew>().unwrap_err().contains("point:P"),
                "{text}"
            );
        }
    }
}
