//! A plan as text.

use crate::plan::{Limit, Plan, Step};
use crate::search::MAX_AFTER_FAILURES;
use std::fmt::Write;

impl Plan {
    /// The page that a person reads.
    pub fn page(&self) -> String {
        let mut text = format!(
            "{} nodes: {}, grown from the preset {}; any {} may fail\n",
            self.nodes, self.protocol, self.preset, self.f
        );
        text += &format!(
            "{} commands a second are asked for; all limits hold up to {}; it ends at {}: {}\n",
            rate(self.commands),
            rate(self.within_limits),
            rate(self.peak),
            self.ends_at()
        );
        text += &format!(
            "{} connections ask for so much if answers take {:.2} ms; with more, messages share more, and fewer nodes \
             suffice (--connections)\n\n",
            self.connections, self.answer_ms
        );
        self.table(&mut text);
        text.push('\n');
        let steps = [("one more", &self.one_more), ("one less", &self.one_less)];
        for (name, step) in steps {
            text += &match step {
                Some(step) => format!("{name}: {}\n", in_words(step)),
                None => format!("{name}: not possible with {} of this preset\n", self.binds),
            };
        }
        self.alternatives(&mut text);
        self.assumptions(&mut text);
        text
    }

    /// The group of which a node is busy first.
    fn ends_at(&self) -> &str {
        let busiest = self.groups.iter().reduce(
            |best, group| {
                if group.busy > best.busy { group } else { best }
            },
        );
        busiest.map_or("", |group| &group.title)
    }

    fn table(&self, text: &mut String) {
        let width = self.groups.iter().map(|group| group.title.len());
        let width = width.max().unwrap_or(0).max("nodes with".len());
        let header = format!(
            "{:<width$}  count  busy %  after failures %  MB/s out  nearest limit",
            "nodes with"
        );
        let _ = writeln!(text, "{header}");
        for group in &self.groups {
            let nearest = match group.nearest {
                Limit::Headroom => format!("headroom, {:.0} %", self.headroom * 100.0),
                Limit::AfterFailures => {
                    format!("after failures, {:.0} %", MAX_AFTER_FAILURES * 100.0)
                }
            };
            let binds = if group.title == self.binds {
                " <- binds"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "{:<width$}  {:>5}  {:>6.1}  {:>16.1}  {:>8.1}  {nearest}{binds}",
                group.title,
                group.count,
                group.busy * 100.0,
                group.after_failures * 100.0,
                group.bytes_out / 1e6,
            );
        }
    }

    fn alternatives(&self, text: &mut String) {
        if self.others.is_empty() {
            return;
        }
        text.push_str("\nwhy not another preset:\n");
        for other in &self.others {
            let why = match (&other.why, other.nodes) {
                (Some(why), _) => why.clone(),
                (None, Some(nodes)) if nodes == self.nodes => "as many nodes".to_owned(),
                (None, nodes) => format!("takes {} nodes", nodes.unwrap_or(0)),
            };
            let _ = writeln!(text, "  {}: {why}", other.preset);
        }
    }

    fn assumptions(&self, text: &mut String) {
        let demands = &self.demands;
        let _ = write!(
            text,
            "\nassumptions:\n  \
             each node has one processor of its own, {}\n  \
             demands of {} with Ionian {}, from {}\n  \
             ({})\n  \
             not in the model: syncs of disks (--durability is for the file), TLS, networks, memory, \
             latency, and clients that are not spread evenly over gateways and keys\n  \
             no real cluster of this size was measured: docs/plan.md says what is validated\n",
            match self.speed {
                1.0 => "as fast as that of the demands".to_owned(),
                speed => format!("{speed} times as fast as that of the demands"),
            },
            demands.date,
            demands.version,
            demands.machine,
            demands.command,
        );
    }
}

fn in_words(step: &Step) -> String {
    let ends = format!(
        "{} {}, {} nodes: it ends at {}",
        step.count,
        step.group,
        step.nodes,
        rate(step.peak)
    );
    match step.fits {
        true => format!("{ends}, and {} binds", step.binds),
        false => format!(
            "{ends}, and {} would use {:.0} % of what it may",
            step.binds,
            step.used * 100.0
        ),
    }
}

/// A rate with three digits.
fn rate(per_second: f64) -> String {
    match per_second {
        large if large >= 999_500.0 => format!("{:.2} million/s", large / 1e6),
        middle if middle >= 99_950.0 => format!("{:.0}k/s", middle / 1e3),
        middle if middle >= 9_995.0 => format!("{:.1}k/s", middle / 1e3),
        middle if middle >= 999.5 => format!("{:.2}k/s", middle / 1e3),
        small => format!("{small:.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_have_three_digits() {
        let of = [12.0, 999.4, 1234.0, 12_345.0, 123_456.0, 1_234_567.0].map(rate);
        let expected = [
            "12/s",
            "999/s",
            "1.23k/s",
            "12.3k/s",
            "123k/s",
            "1.23 million/s",
        ];
        assert_eq!(of, expected);
    }
}
