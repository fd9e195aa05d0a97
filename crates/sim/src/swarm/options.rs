//! The options of the deployment, of which seeds draw some.

use super::pick;
use crate::scenario::Scenario;
use ionian_kernel::layout::Options;
use ionian_kernel::random::Random;
use ionian_kernel::setting::{Place, Setting};
use std::time::Duration;

/// The options that seeds vary.
pub(super) fn listed(options: &Options, own: &[Setting]) -> Vec<(&'static str, String)> {
    let times = |duration: Duration| format!("{duration:?}");
    let own = own
        .iter()
        .map(|setting| (setting.key, setting.value(options).to_string()));
    let common = [
        ("batch_commands", options.batch_commands.to_string()),
        ("batch_bytes", options.batch_bytes.to_string()),
        ("batch_delay", times(options.batch_delay)),
        ("batches_in_flight", options.batches_in_flight.to_string()),
        ("window_slots", options.window_slots.to_string()),
        ("window_bytes", options.window_bytes.to_string()),
        ("retained_slots", options.retained_slots.to_string()),
        ("snapshot_slots", options.snapshot_slots.to_string()),
        (
            "snapshot_bytes_per_second",
            options.snapshot_bytes_per_second.to_string(),
        ),
        ("resend_after", times(options.resend_after)),
        ("thrifty", options.thrifty.to_string()),
        ("loops", options.loops.to_string()),
        ("session_expiry", times(options.session_expiry)),
        ("lane.in_flight", options.lane.in_flight.to_string()),
        (
            "lane.in_flight_bytes",
            options.lane.in_flight_bytes.to_string(),
        ),
        ("lane.payload_bytes", options.lane.payload_bytes.to_string()),
        ("lane.retry_after", times(options.lane.retry_after)),
        ("lane.patience", times(options.lane.patience)),
    ];
    common.into_iter().chain(own).collect()
}

/// Gives each setting that the protocol alone has one of the values that it wants tried. Drawn with
/// random numbers of their own: another setting changes no other draw.
pub(super) fn vary_own(options: &mut Options, own: &[Setting], seed: u64) {
    let mut random = Random::new(seed ^ 0x0005_e771_4650);
    for setting in own {
        if let Place::Own { trials, .. } = setting.place {
            let trials = trials(options);
            if !trials.is_empty() {
                setting.state(options, pick(&mut random, trials));
            }
        }
    }
}

/// On how many event loops nodes run their roles: in one seed of four, several. Drawn with random
/// numbers of their own, as above.
pub(super) fn loops(seed: u64) -> usize {
    let mut random = Random::new(seed ^ 0x006c_6f6f_7073);
    match random.once_in(4) {
        true => random.between(2, 4) as usize,
        false => 1,
    }
}

/// The layout's options, in some seeds much smaller than in practice: limits that are
/// never reached are never tested.
pub(super) fn options(random: &mut Random, scenario: &Scenario) -> Options {
    let mut options = scenario.layout.options.clone();
    // Drawn in any case, so that forbidding one kind leaves the other draws as they are.
    let small = |random: &mut Random, to: &[usize]| {
        (random.once_in(3) && scenario.vary_options).then(|| pick(random, to))
    };
    let shrink =
        |value: &mut usize, to: Option<usize>| *value = to.map_or(*value, |to| to.min(*value));
    shrink(&mut options.batch_commands, small(random, &[1, 2, 5]));
    shrink(&mut options.batch_bytes, small(random, &[100, 400]));
    shrink(&mut options.batches_in_flight, small(random, &[1, 2]));
    shrink(&mut options.window_slots, small(random, &[4, 8, 32]));
    shrink(&mut options.retained_slots, small(random, &[4, 8, 32]));
    shrink(&mut options.snapshot_slots, small(random, &[1, 5, 20]));
    shrink(
        &mut options.snapshot_bytes_per_second,
        small(random, &[4 << 10, 64 << 10]),
    );
    shrink(&mut options.lane.in_flight, small(random, &[1, 2]));
    shrink(&mut options.lane.payload_bytes, small(random, &[200, 400]));
    if let Some(ms) = small(random, &[0, 5, 20]) {
        options.batch_delay = Duration::from_millis(ms as u64);
    }
    if let Some(ms) = small(random, &[10, 100, 300]) {
        options.resend_after = Duration::from_millis(ms as u64);
    }
    if let Some(ms) = small(random, &[100, 800]) {
        options.lane.retry_after = Duration::from_millis(ms as u64);
    }
    if let Some(ms) = small(random, &[300, 1500]) {
        options.lane.patience = Duration::from_millis(ms as u64).max(options.lane.retry_after * 2);
    }
    options.thrifty ^= small(random, &[1]).is_some();
    shrink(&mut options.window_bytes, small(random, &[30, 200, 1000]));
    shrink(
        &mut options.lane.in_flight_bytes,
        small(random, &[100, 400]),
    );
    options
}
