//! The two text formats: OpenMetrics 1.0, and the older one of Prometheus (0.0.4).

use crate::registry::Scrape;
use crate::view::{Answers, Sources, View};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::fmt::Write;

/// The media type of OpenMetrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of the format of Prometheus.
pub(crate) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Sources {
    /// All metrics in the format of Prometheus (0.0.4), for a program that serves them itself. What
    /// a server here would count of itself is zero.
    pub fn prometheus(&self) -> String {
        metrics(self, &Answers::default(), false)
    }
}

/// All metrics, in OpenMetrics if `open`, or else in the format of Prometheus.
pub(crate) fn metrics(sources: &Sources, answers: &Answers, open: bool) -> String {
    let scrape = Scrape::of(&View::of(sources, answers));
    let label = |name: &'static str, value: &str| (Cow::from(name), Cow::from(value.to_owned()));
    let labels = [
        label("cluster", sources.cluster.get().map_or("", String::as_str)),
        label("node", &sources.node),
    ];
    let mut registry = Registry::with_labels(labels.into_iter());
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes any text");
    match open {
        true => text,
        false => as_prometheus(&text),
    }
}

/// OpenMetrics in the format of Prometheus, in which the descriptions of a counter have the name of
/// its samples, and the text has no end mark.
fn as_prometheus(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines().filter(|line| *line != "# EOF") {
        if line.starts_with("# HELP ") {
            // The next line has the type.
            help = Some(line);
            continue;
        }
        let of_counter = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.strip_suffix(" counter"));
        for described in help.take().into_iter().chain([line]) {
            let _ = match of_counter {
                Some(name) => {
                    let renamed = described.replacen(name, &format!("{name}_total"), 1);
                    writeln!(plain, "{renamed}")
                }
                None => writeln!(plain, "{described}"),
            };
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_counters_have_the_name_of_their_samples() {
        let open = "# HELP a_b x a_b.\n# TYPE a_b counter\na_b_total{n=\"0\"} 1\n\
                    # HELP c y.\n# TYPE c gauge\nc 2\n# EOF\n";
        let plain = "# HELP a_b_total x a_b.\n# TYPE a_b_total counter\na_b_total{n=\"0\"} 1\n\
                     # HELP c y.\n# TYPE c gauge\nc 2\n";
        assert_eq!(as_prometheus(open), plain);
    }
}
