//! The configurations of a run, and how their texts encode them.
//!
//! The text of a configuration is two bytes: its index among the scenario's layouts, and the index
//! of its options among those that the operator chooses from.

use crate::event::Micros;
use crate::scenario::Scenario;
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::{Layout, NodeId, Options};
use ionian_kernel::level::Level;
use ionian_kernel::membership::{Change, Membership};
use ionian_kernel::protocol::{AnyProtocol, Description, Transition};
use ionian_kernel::setting::Setting;
use ionian_kernel::wire::encode_all;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Tokens of the operator's requests start here.
pub(crate) const OPERATOR: u64 = 1 << 63;

/// Intervals between two requests of the operator, in microseconds.
pub(crate) const CHANGE_EVERY: [Micros; 3] = [100_000, 400_000, 1_500_000];

/// The configurations of a run.
pub(crate) struct Configurations {
    protocol: &'static dyn AnyProtocol,
    /// The layouts that the operator chooses from; the first is the founding one.
    layouts: Vec<Layout>,
    /// The options that the operator chooses from; the first are the founding ones.
    tunings: Vec<Options>,
    /// The configurations so far: the log decides one per epoch.
    known: BTreeMap<Epoch, (Membership, Rc<Layout>)>,
    requests: u64,
}

impl Configurations {
    /// The configurations of a scenario.
    pub(crate) fn new(
        protocol: &'static dyn AnyProtocol,
        scenario: &Scenario,
    ) -> Result<Self, String> {
        let layouts: Vec<Layout> = core::iter::once(&scenario.layout)
            .chain(&scenario.changes)
            .map(|layout| Layout {
                options: scenario.layout.options.clone(),
                founding_level: scenario.layout.founding_level,
                ..layout.clone()
            })
            .collect();
        let founded = scenario.layout.options.clone();
        let others = if scenario.tunes && protocol.check_tunable().is_ok() {
            let Description {
                commutes, settings, ..
            } = protocol.description();
            let accepts = |options: &Options| {
                let options = options.clone();
                let keeps_order = commutes(&options) == commutes(&founded);
                let layout = Layout {
                    options,
                    ..scenario.layout.clone()
                };
                keeps_order && protocol.configure(layout).is_ok()
            };
            tunings(&founded, settings, accepts).to_vec()
        } else {
            Vec::new()
        };
        let tunings = core::iter::once(founded).chain(others).collect();
        let mut configurations = Configurations {
            protocol,
            layouts,
            tunings,
            known: BTreeMap::new(),
            requests: 0,
        };
        configurations.founding()?;
        Ok(configurations)
    }

    /// The configuration that nodes are founded with.
    pub(crate) fn founding(&mut self) -> Result<Rc<Layout>, String> {
        self.of(&Membership::founding(self.layouts[0].founding_level))
    }

    fn layout(&self, text: &Bytes) -> Layout {
        let [layout, tuning] = places(text);
        let options = self.tunings[usize::from(tuning)].clone();
        Layout {
            options,
            ..self.layouts[usize::from(layout)].clone()
        }
    }

    /// The maximum number of client lanes.
    pub(crate) fn lanes(&self) -> usize {
        let lanes = self
            .layouts
            .iter()
            .flat_map(|layout| layout.instances[0].iter().last());
        lanes
            .map(|(index, _)| usize::from(index) + 1)
            .max()
            .unwrap_or(0)
    }

    /// The configuration of a membership.
    pub(crate) fn of(&mut self, membership: &Membership) -> Result<Rc<Layout>, String> {
        if let Some((known, layout)) = self.known.get(&membership.epoch) {
            if known != membership {
                return Err(format!(
                    "two memberships in one epoch: {known:?} and {membership:?}"
                ));
            }
            return Ok(layout.clone());
        }
        let Membership {
            epoch,
            since,
            frontier,
            text,
            next,
            expiry,
            level: _,
        } = membership;
        let next = next.as_ref().map(|next| Box::new(self.layout(next)));
        let founding_expiry = expiry.map(|expiry| Duration::from_millis(expiry.founded_ms));
        let (epoch, since, frontier) = (*epoch, *since, *frontier);
        let layout = Layout {
            epoch,
            since,
            frontier,
            next,
            founding_expiry,
            ..self.layout(text)
        };
        let checked = self.protocol.configure(layout.clone());
        checked.map_err(|error| error.to_string())?;
        let layout = Rc::new(layout);
        self.known
            .insert(epoch, (membership.clone(), layout.clone()));
        Ok(layout)
    }

    /// The next request of the operator: to abandon a change in progress, or to change to other
    /// options, another level or another layout.
    pub(crate) fn request(&mut self, membership: &Membership, turn: u64) -> Option<Request> {
        let is_last = membership.level == Level::LATEST;
        let protocol = self.protocol;
        let changes_level =
            protocol.check_level().is_ok() && (!is_last || protocol.check_lowering().is_ok());
        if membership.is_changing() {
            Some(self.abandon(membership))
        } else if turn % 5 == 4 && changes_level {
            Some(self.change_level(membership))
        } else if self.layouts.len() == 1 || self.tunings.len() > 1 && turn.is_multiple_of(2) {
            let [here, before] = places(&membership.text);
            let after = (turn / 2 % self.tunings.len() as u64) as u8;
            let expiry_ms = [before, after]
                .map(|place| self.tunings[usize::from(place)].session_expiry.as_millis() as u64);
            Some(self.of_change(&Change::Tune {
                base: membership.epoch,
                from: Bytes::copy_from_slice(&[here, before]),
                to: Bytes::copy_from_slice(&[here, after]),
                expiry_ms: expiry_ms.into(),
            }))
        } else {
            let to = (turn / 2 % self.layouts.len() as u64) as u8;
            self.change(membership, to).ok()
        }
    }

    /// The level in an epoch; none if no node has heard of it yet.
    pub(crate) fn level(&self, epoch: Epoch) -> Option<Level> {
        self.known
            .get(&epoch)
            .map(|(membership, _)| membership.level)
    }

    /// A request for the next level, or after the last for the first.
    fn change_level(&mut self, membership: &Membership) -> Request {
        let (base, up) = (membership.epoch, membership.level < Level::LATEST);
        let to = match up {
            true => Level(membership.level.0 + 1),
            false => Level::OLDEST,
        };
        self.of_change(&Change::Level { base, to })
    }

    /// The next request of an operator who wants this node out of the cluster, if there is anything
    /// to do.
    pub(crate) fn replace(
        &mut self,
        membership: &Membership,
        node: NodeId,
        turn: u64,
    ) -> Option<Request> {
        if let Some(next) = &membership.next {
            return self.has(next, node).then(|| self.abandon(membership));
        }
        let to = self.layout_without(membership, node, turn)?;
        self.change(membership, to).ok()
    }

    /// Whether a layout is without this node, which is a member, and the cluster can change to it.
    pub(crate) fn can_replace(&self, membership: &Membership, node: NodeId) -> bool {
        self.layout_without(membership, node, 0).is_some()
    }

    fn has(&self, text: &Bytes, node: NodeId) -> bool {
        !self.layout(text).on_node(node).is_empty()
    }

    fn layout_without(&self, membership: &Membership, node: NodeId, turn: u64) -> Option<u8> {
        let from = self.layout(&membership.text);
        let count = self.layouts.len() as u64;
        let places = (0..count).map(|step| (turn.wrapping_add(step) % count) as usize);
        let mut others = places.filter(|place| self.layouts[*place].on_node(node).is_empty());
        others
            .find(|place| {
                self.protocol
                    .transition(&from, &self.layouts[*place])
                    .is_ok()
            })
            .filter(|_| !from.on_node(node).is_empty())
            .map(|place| place as u8)
    }

    /// A request to change to this one of the layouts.
    ///
    /// # Errors
    /// If there is no such layout, or the protocol does not allow the change.
    pub(crate) fn change(&mut self, membership: &Membership, to: u8) -> Result<Request, String> {
        let [here, tuning] = places(&membership.text);
        let from = Layout {
            since: membership.since,
            ..self.layouts[usize::from(here)].clone()
        };
        let next = self.layouts.get(usize::from(to));
        let next = next.ok_or_else(|| {
            let last = self.layouts.len() - 1;
            format!("there is no layout {to}: the last is {last}")
        })?;
        let transition = self
            .protocol
            .transition(&from, next)
            .map_err(|error| error.to_string())?;
        Ok(self.of_change(&Change::Begin {
            base: membership.epoch,
            from: Bytes::copy_from_slice(&[here, tuning]),
            to: Bytes::copy_from_slice(&[to, tuning]),
            joint: transition == Transition::Joint,
        }))
    }

    /// A request to abandon the change in progress.
    pub(crate) fn abandon(&mut self, membership: &Membership) -> Request {
        self.of_change(&Change::Abandon {
            epoch: membership.epoch,
        })
    }

    fn of_change(&mut self, change: &Change) -> Request {
        self.requests += 1;
        Request {
            token: OPERATOR + self.requests,
            operation: Operation::Change,
            payload: Bytes::from(encode_all(change)),
        }
    }
}

/// The layout and the options that a text names.
fn places(text: &Bytes) -> [u8; 2] {
    core::array::from_fn(|place| text.get(place).copied().unwrap_or(0))
}

/// The options that the operator tries: slower and smaller, faster and larger, as far as the
/// deployment `accepts` them. Whether commands that commute are executed in order does not change,
/// because the check of the order depends on it.
fn tunings(founded: &Options, own: &[Setting], accepts: impl Fn(&Options) -> bool) -> [Options; 2] {
    let less = |count: usize| (count / 4).max(1);
    let mut slow = Options {
        heartbeat: founded.heartbeat * 2,
        election_timeout: founded.election_timeout * 2,
        resend_after: founded.resend_after * 2,
        batch_commands: less(founded.batch_commands),
        batches_in_flight: less(founded.batches_in_flight),
        // One slot at a time is less than what clients ask for who give up soon.
        window_slots: less(founded.window_slots).max(2),
        retained_slots: less(founded.retained_slots),
        thrifty: !founded.thrifty,
        session_expiry: founded.lane.patience + Duration::from_secs(1),
        ..founded.clone()
    };
    let mut quick = Options {
        heartbeat: founded.heartbeat / 2,
        election_timeout: founded.election_timeout / 2,
        resend_after: founded.resend_after / 2,
        window_slots: founded.window_slots * 2,
        retained_slots: founded.retained_slots * 2,
        ..founded.clone()
    };
    for setting in own.iter().filter(|setting| *setting.allowed.end() > 1) {
        let value = setting.value(founded);
        let (low, high) = (*setting.allowed.start(), *setting.allowed.end());
        for (options, other) in [(&mut slow, value / 4), (&mut quick, value * 2)] {
            // The last for what must be larger the slower something else is.
            let values = [other, value, value * 4].map(|value| value.clamp(low, high));
            let accepted = values.into_iter().find(|value| {
                setting.state(options, *value);
                accepts(options)
            });
            setting.state(options, accepted.unwrap_or(value));
        }
    }
    [slow, quick]
}
