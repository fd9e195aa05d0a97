//! Selective faults: for a while, messages of a few kinds are lost or delayed, everywhere or on
//! some links. Uniform losses hide defects that need the loss of a single kind of message.

use crate::event::Micros;
use crate::trace::hash_bytes;
use ionian_kernel::random::Random;

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddled {
    Not,
    Lost,
    /// It arrives this much later.
    Held(Micros),
}

/// The rules in force.
#[derive(Default)]
pub(crate) struct Meddling {
    /// The kinds of messages sent so far, in the order of their first message.
    seen: Vec<&'static str>,
    rules: Vec<Rule>,
    turns: u64,
}

struct Rule {
    turn: u64,
    kinds: Kinds,
    /// Of this sender, or of all nodes.
    from: Option<usize>,
    /// To this node, or to all nodes.
    to: Option<usize>,
    chance: f64,
    /// Maximum delay; `None` means that the message is lost.
    held: Option<Micros>,
}

enum Kinds {
    These(Vec<&'static str>),
    /// Kinds whose name hashes to this remainder, even if none was sent yet.
    Hashed(u64),
}

/// The number of classes of kinds.
const CLASSES: u64 = 24;

impl Kinds {
    fn have(&self, name: &str) -> bool {
        match self {
            Kinds::These(kinds) => kinds.contains(&name),
            Kinds::Hashed(remainder) => hash_bytes(name.as_bytes()) % CLASSES == *remainder,
        }
    }
}

impl Meddling {
    /// Decides about a message of kind `name`.
    pub(crate) fn judge(
        &mut self,
        random: &mut Random,
        from: usize,
        to: usize,
        name: &'static str,
    ) -> Meddled {
        if !self.seen.contains(&name) {
            self.seen.push(name);
        }
        for rule in &self.rules {
            let link =
                rule.from.is_none_or(|one| one == from) && rule.to.is_none_or(|one| one == to);
            if link && rule.kinds.have(name) && random.chance(rule.chance) {
                return rule.held.map_or(Meddled::Lost, |most| {
                    Meddled::Held(random.below(most.max(1)))
                });
            }
        }
        Meddled::Not
    }

    /// Adds a rule; returns its description and the turn that ends it.
    pub(crate) fn begin(&mut self, random: &mut Random, nodes: usize) -> (u64, String) {
        let pick =
            |random: &mut Random, from: &[f64]| from[random.below(from.len() as u64) as usize];
        let one = |random: &mut Random| Some(random.below(nodes.max(1) as u64) as usize);
        let (from, to) = match random.below(4) {
            0 => (None, None),
            1 => (one(random), None),
            2 => (None, one(random)),
            _ => (one(random), one(random)),
        };
        let kinds = if self.seen.is_empty() || random.once_in(3) {
            Kinds::Hashed(random.below(CLASSES))
        } else {
            let count = random.between(1, 3);
            Kinds::These(
                (0..count)
                    .map(|_| self.seen[random.below(self.seen.len() as u64) as usize])
                    .collect(),
            )
        };
        let (lost, held) = (pick(random, &[0.5, 0.9, 1.0]), pick(random, &[0.3, 1.0]));
        let most = [100_000, 1_200_000][random.below(2) as usize];
        let holds = random.once_in(3);
        let (chance, held) = if holds {
            (held, Some(most))
        } else {
            (lost, None)
        };
        self.turns += 1;
        let rule = Rule {
            turn: self.turns,
            kinds,
            from,
            to,
            chance,
            held,
        };
        let text = rule.to_string();
        self.rules.push(rule);
        (self.turns, text)
    }

    pub(crate) fn end(&mut self, turn: u64) {
        self.rules.retain(|rule| rule.turn != turn);
    }

    pub(crate) fn end_all(&mut self) {
        self.rules.clear();
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.held {
            None => write!(f, "loses {:.0} % of ", self.chance * 100.0)?,
            Some(most) => write!(
                f,
                "holds {:.0} % back for up to {most} us of ",
                self.chance * 100.0
            )?,
        }
        match &self.kinds {
            Kinds::These(kinds) => write!(f, "{kinds:?}")?,
            Kinds::Hashed(remainder) => write!(f, "class {remainder} of {CLASSES}")?,
        }
        let node = |node: Option<usize>| node.map_or("all".into(), |node| format!("n{node}"));
        write!(f, " from {} to {}", node(self.from), node(self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rules_strike_some_kinds_on_some_links_for_a_while() {
        let (mut random, mut effects) = (Random::new(3), BTreeSet::new());
        for _ in 0..400 {
            let mut meddling = Meddling::default();
            for name in ["a", "b", "c"] {
                assert_eq!(meddling.judge(&mut random, 0, 1, name), Meddled::Not);
            }
            let (turn, text) = meddling.begin(&mut random, 3);
            for _ in 0..60 {
                let (from, to) = (random.below(3) as usize, random.below(3) as usize);
                let name = ["a", "b", "c"][random.below(3) as usize];
                let (from_all, to_all) = (text.contains("from all"), text.contains("to all"));
                match meddling.judge(&mut random, from, to, name) {
                    Meddled::Not => false,
                    Meddled::Lost => effects.insert((from_all, to_all, false)),
                    Meddled::Held(_) => effects.insert((from_all, to_all, true)),
                };
            }
            meddling.end(turn);
            assert_eq!(meddling.judge(&mut random, 0, 1, "a"), Meddled::Not);
        }
        assert_eq!(effects.len(), 8, "{effects:?}");
    }
}
