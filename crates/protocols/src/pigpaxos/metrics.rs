//! What relays report beside what every protocol has, and what proxy leaders report of relays.

use ionian_kernel::status::Metric;

/// The work of a relay.
pub(crate) const RELAY: &[Metric] = &[
    Metric::gauge(
        "relaying",
        "requests",
        "unanswered requests and questions, which wait for acceptors",
    )
    .settling(),
    Metric::counter("relayed", "requests", "requests for votes passed on"),
    Metric::counter(
        "gave_up",
        "requests",
        "requests and questions answered before enough acceptors had",
    ),
    Metric::gauge(
        "answer_time_us",
        "us",
        "how long the acceptors of a request take lately",
    )
    .of_the_highest(),
];

/// What a proxy leader makes of relays.
pub(crate) const FANOUT: &[Metric] = &[Metric::gauge(
    "suspected_relays",
    "relays",
    "relays that do not answer; 0 when nothing was requested for 10 s",
)
.of_the_highest()];
