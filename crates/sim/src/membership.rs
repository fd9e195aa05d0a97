//! Changes of the membership in a run: what an operator asks for, and how nodes learn of it.
//!
//! The text of a configuration is two bytes: its place among the scenario's layouts, and that of
//! its options among those that the operator chooses from. As in life, every message brings the
//! news that its sender has, a sender of stale ones gets a notice, and a node writes down what it
//! has learned before it acts on it.

use crate::event::Micros;
use crate::journal::Recorded;
use crate::model::Model;
use crate::node::Boot;
use crate::report::FailureKind;
use crate::scenario::Scenario;
use crate::trace::mix;
use crate::world::{Event, Parcel, Simulation, Step};
use bytes::Bytes;
use ionian_kernel::client::{Operation, Request};
use ionian_kernel::id::{ClientId, Epoch};
use ionian_kernel::layout::{Layout, Options};
use ionian_kernel::membership::{Change, Membership};
use ionian_kernel::protocol::{Protocol, Transition};
use ionian_kernel::setting::Setting;
use ionian_kernel::wire::encode_all;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The operator's requests have tokens from this one on.
pub(crate) const OPERATOR: u64 = 1 << 63;

/// A configuration that some node has, ready for use.
pub(crate) struct Configuration<P: Protocol> {
    pub(crate) layout: Layout,
    pub(crate) config: P::Config,
}

/// The configurations of a run.
pub(crate) struct Configurations<P: Protocol> {
    /// What the operator chooses from; the first is the one that the cluster was founded with.
    layouts: Vec<Layout>,
    /// And the options; the first are those that it was founded with.
    tunings: Vec<Options>,
    /// Those in use so far: the log decides one an epoch.
    known: BTreeMap<Epoch, (Membership, Rc<Configuration<P>>)>,
    requests: u64,
}

impl<P: Protocol> Configurations<P> {
    /// Those of a scenario.
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, String> {
        let layouts: Vec<Layout> = core::iter::once(&scenario.layout)
            .chain(&scenario.changes)
            .map(|layout| Layout {
                options: scenario.layout.options.clone(),
                ..layout.clone()
            })
            .collect();
        let founded = scenario.layout.options.clone();
        let others = if scenario.tunes {
            tunings(&founded, P::SETTINGS).to_vec()
        } else {
            Vec::new()
        };
        let tunings = core::iter::once(founded).chain(others).collect();
        let mut configurations = Configurations {
            layouts,
            tunings,
            known: BTreeMap::new(),
            requests: 0,
        };
        configurations.of(&Membership::default())?;
        Ok(configurations)
    }

    fn layout(&self, text: &Bytes) -> Layout {
        let [layout, tuning] = places(text);
        let options = self.tunings[usize::from(tuning)].clone();
        Layout {
            options,
            ..self.layouts[usize::from(layout)].clone()
        }
    }

    /// How many of each kind of instance there can be.
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

    /// The configuration that a membership means.
    pub(crate) fn of(&mut self, membership: &Membership) -> Result<Rc<Configuration<P>>, String> {
        if let Some((known, configuration)) = self.known.get(&membership.epoch) {
            if known != membership {
                return Err(format!(
                    "two memberships in one epoch: {known:?} and {membership:?}"
                ));
            }
            return Ok(configuration.clone());
        }
        let Membership {
            epoch,
            since,
            frontier,
            text,
            next,
            expiry,
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
        let config = P::configure(layout.clone()).map_err(|error| error.to_string())?;
        let configuration = Rc::new(Configuration { layout, config });
        self.known
            .insert(epoch, (membership.clone(), configuration.clone()));
        Ok(configuration)
    }

    /// What the operator asks for: now and then to abandon, else to change into one of the other
    /// layouts.
    fn request(&mut self, membership: &Membership, turn: u64) -> Option<Request> {
        let change = if membership.is_changing() {
            Change::Abandon {
                epoch: membership.epoch,
            }
        } else if self.layouts.len() == 1 || self.tunings.len() > 1 && turn.is_multiple_of(2) {
            let [here, before] = places(&membership.text);
            let after = (turn / 2 % self.tunings.len() as u64) as u8;
            let expiry_ms = [before, after]
                .map(|place| self.tunings[usize::from(place)].session_expiry.as_millis() as u64);
            Change::Tune {
                base: membership.epoch,
                from: Bytes::copy_from_slice(&[here, before]),
                to: Bytes::copy_from_slice(&[here, after]),
                expiry_ms: expiry_ms.into(),
            }
        } else {
            let [here, tuning] = places(&membership.text);
            let to = (turn / 2 % self.layouts.len() as u64) as u8;
            let (from, next) = (
                &self.layouts[usize::from(here)],
                &self.layouts[usize::from(to)],
            );
            let joint = P::transition(from, next).ok()? == Transition::Joint;
            Change::Begin {
                base: membership.epoch,
                from: Bytes::copy_from_slice(&[here, tuning]),
                to: Bytes::copy_from_slice(&[to, tuning]),
                joint,
            }
        };
        self.requests += 1;
        let payload = Bytes::from(encode_all(&change));
        Some(Request {
            token: OPERATOR + self.requests,
            operation: Operation::Change,
            payload,
        })
    }
}

/// What a text names: a layout, and options.
fn places(text: &Bytes) -> [u8; 2] {
    core::array::from_fn(|place| text.get(place).copied().unwrap_or(0))
}

/// What the operator tries: slower and smaller, and quicker and larger. Whether commands overtake
/// is left alone, because the order in which replicas execute is checked by it.
fn tunings(founded: &Options, own: &[Setting]) -> [Options; 2] {
    let less = |count: usize| (count / 4).max(1);
    let mut slow = Options {
        heartbeat: founded.heartbeat * 2,
        election_timeout: founded.election_timeout * 2,
        resend_after: founded.resend_after * 2,
        batch_commands: less(founded.batch_commands),
        batches_in_flight: less(founded.batches_in_flight),
        window_slots: less(founded.window_slots),
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
        setting.state(&mut slow, value / 4);
        setting.state(&mut quick, value * 2);
    }
    [slow, quick]
}

impl<P: Protocol, M: Model> Simulation<P, M> {
    /// Plans the operator's next step.
    pub(crate) fn plan_change(&mut self) {
        if let Some(every) = self.knobs.change_every {
            let after = self.random.between(1, 2 * every);
            self.heap.plan(self.now() + after, Event::Operate);
        }
    }

    /// The operator asks some node for a change, as that node sees the cluster.
    pub(crate) fn operate(&mut self) -> Step {
        if self.is_calm() {
            return Ok(());
        }
        self.plan_change();
        let able =
            |node: &usize| self.nodes[*node].runs() && self.nodes[*node].lanes().next().is_some();
        let able: Vec<usize> = (0..self.nodes.len()).filter(able).collect();
        let (turn, abandons) = (self.random.any(), self.random.once_in(3));
        let place = self.random.below(able.len().max(1) as u64) as usize;
        let Some(node) = able.get(place).copied() else {
            return Ok(());
        };
        let membership = self.nodes[node].membership.clone();
        let lane = self.nodes[node].lanes().next().expect("a node with lanes");
        if (abandons || !membership.is_changing())
            && let Some(request) = self.configurations.request(&membership, turn)
        {
            let now = self.now();
            self.trace.note(now, node, "operate", turn, || {
                format!("{:?}", request.payload)
            });
            self.nodes[node]
                .host
                .as_mut()
                .expect("it runs")
                .submit(lane, request);
            self.report.changes_asked += 1;
            self.rouse(node, now);
        }
        Ok(())
    }

    /// A node learns of a membership.
    pub(crate) fn adopt(&mut self, node: usize, membership: &Membership) -> Step {
        if membership.epoch <= self.nodes[node].membership.epoch {
            return Ok(());
        }
        let found = self.configurations.of(membership);
        let configuration = found.map_err(|what| self.fail(FailureKind::Divergence, what))?;
        let now = self.now();
        self.trace
            .note(now, node, "adopt", u64::from(membership.epoch.0), || {
                format!("{membership:?}")
            });
        self.report.epochs = self.report.epochs.max(u64::from(membership.epoch.0));
        self.oracles
            .iter_mut()
            .for_each(|oracle| oracle.on_reconfigure(&configuration.config));
        let before: Vec<ClientId> = self.nodes[node].lanes().collect();
        self.nodes[node].membership = membership.clone();
        self.nodes[node].configuration = configuration;
        if self.nodes[node].host.is_some() {
            self.reconfigure(node);
            let after: Vec<ClientId> = self.nodes[node].lanes().collect();
            for lane in before.iter().filter(|lane| !after.contains(lane)) {
                self.workload.lane_down(*lane, &mut self.report);
            }
            for lane in after.iter().filter(|lane| !before.contains(lane)) {
                let plans = self.workload.lane_up(*lane);
                self.plan_threads(&plans);
            }
        }
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            self.tell(node, to);
        }
        self.carry_out(node)
    }

    fn reconfigure(&mut self, node: usize) {
        let (journal, model, canary) = (&self.journal, &self.workload.model, self.scenario.canary);
        let machine =
            |address, life| Recorded::of::<P>((node, address, life), journal, model, canary);
        let boot = Boot::new(&self.scenario, mix(self.seed, 2), &machine);
        let now = self.heap.now();
        self.nodes[node].reconfigure(now, &boot, &mut self.effects);
    }

    /// Brings a node another's news, by way of the network.
    pub(crate) fn tell(&mut self, from: usize, to: usize) {
        let news = self.nodes[from].membership.clone();
        let digest = mix(u64::from(news.epoch.0), 77);
        self.post(Parcel {
            from,
            to,
            members: 0,
            bytes: Bytes::new(),
            name: "membership",
            digest,
            news,
        });
    }

    /// The news that came with a message, and those that its sender does not have.
    pub(crate) fn exchange_news(&mut self, from: usize, to: usize, news: &Membership) -> Step {
        if self.nodes[to].host.is_none() {
            return Ok(());
        }
        if self.nodes[to].membership.epoch > news.epoch {
            self.tell(to, from);
        }
        self.adopt(to, news)
    }
}

/// How often an operator asks for something.
pub(crate) const CHANGE_EVERY: [Micros; 3] = [100_000, 400_000, 1_500_000];
