//! `docs/metrics.md` is written from the registry.

use ionian_metrics::{Line, all};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

const HEAD: &str = "\
# Metrics

Written from the registry, by `WRITE_DOCS=1 cargo test -p ionian-metrics --test page`.
`ionian metrics list` prints the same.

`ionian node --http HOST:PORT` serves, and `ionian up` for each node:

| path | answer |
|---|---|
| `/` | the [dashboard](dashboard.md) |
| `/metrics` | all metrics, in OpenMetrics or in the text format of Prometheus, by the header `Accept` |
| `/livez` | 200, or 503 if the event loop has not turned for 10 s: restart the node then |
| `/readyz` | 200 if this node would serve when the cluster can: it has recovered, takes part, does not \
drain, holds what is chosen (unless it sees no quorum) and is not far behind, has a session for its clients (unless it sees no quorum), and its \
certificate has not ended; otherwise 503 |
| `/healthz/cluster` | 200 if a command passes the log within 1 s, otherwise 503; only nodes with a \
client lane can answer 200 |

`?verbose` lists each check, `?exclude=NAME,NAME` leaves checks out. The answers come from a thread
of its own, which reads what the event loop publishes once a second. The server only reads: it takes
GET and HEAD, heads of at most 8 KiB, and 100 connections, and closes one whose client reads nothing
for 15 s. It refuses requests whose `Host` is neither an IP address nor `localhost` nor named by
`--http` or `--http-host`: a web page can make a browser connect here, but the browser then sends
the page's name.

Every sample has the labels `cluster` and `node`. Counters begin with 0 when the process starts.
Alert rules are in [monitoring](../monitoring/ionian.rules.yaml), beside a
[dashboard for Grafana](alerts.md#a-dashboard-for-grafana); [alerts.md](alerts.md) says what to do
when one fires.
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    for of_subject in all() {
        let _ = write!(text, "\n## {}\n\n", of_subject.subject);
        let of_roles = of_subject
            .lines
            .iter()
            .any(|line| !line.protocols.is_empty());
        text += match of_roles {
            true => "| metric | type | protocols | meaning |\n|---|---|---|---|\n",
            false => "| metric | type | labels | meaning |\n|---|---|---|---|\n",
        };
        for Line {
            name,
            kind,
            labels,
            help,
            protocols,
        } in &of_subject.lines
        {
            let column = match of_roles {
                true => protocols.join(", "),
                false => labels.join(", "),
            };
            let _ = writeln!(text, "| `{name}` | {} | {column} | {help} |", kind.name());
        }
    }
    text
}

#[test]
fn the_page_lists_the_registry() {
    let expected = page();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(PAGE, &expected).unwrap();
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        found == expected,
        "docs/metrics.md is out of date: WRITE_DOCS=1 cargo test -p ionian-metrics --test page"
    );
}
