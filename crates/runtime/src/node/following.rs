//! Following the membership: what a node does when it learns that the log has led to another one.
//!
//! The order matters. The membership is on disk before anything is done that assumes it, so that a
//! node which is started again is not of an earlier mind than it was; peers are told before a role
//! says anything that assumes it, so that nobody receives a message of an epoch that it has not
//! heard of; then roles are told.

use super::application::Submissions;
use super::instances::Nursery;
use super::io::Outside;
use super::settings::addresses;
use crate::error::NodeError;
use crate::storage::membership_file;
use crate::transport::admission::Admission;
use crate::transport::frame::encode_frame;
use ionian_deployment::{Configuration, Deployment};
use ionian_kernel::id::ClientId;
use ionian_kernel::layout::Layout;
use ionian_kernel::membership::Membership;
use ionian_kernel::node::Node;
use ionian_kernel::protocol::Protocol;
use std::path::PathBuf;
use std::rc::Rc;

/// What a node knows of the membership, and what it needs to follow it.
pub(crate) struct Following {
    /// None where the membership cannot change.
    pub(crate) configuration: Option<Configuration>,
    name: String,
    /// What the node was started with: some options are its own, whatever a later deployment says.
    given: Option<Deployment>,
    data: Option<PathBuf>,
    nursery: Nursery,
    admission: Rc<Admission>,
    /// Whether the roles are started.
    started: bool,
    /// Whether the roles were made for an earlier membership, and are to be told when they are
    /// started.
    roles_are_behind: bool,
}

impl Following {
    pub(crate) fn new(
        configuration: Option<Configuration>,
        name: &str,
        data: Option<PathBuf>,
        nursery: Nursery,
        admission: Rc<Admission>,
    ) -> Self {
        let (name, started, roles_are_behind) = (name.to_owned(), false, false);
        let given = configuration.as_ref().map(|known| known.deployment.clone());
        Following {
            configuration,
            name,
            given,
            data,
            nursery,
            admission,
            started,
            roles_are_behind,
        }
    }

    /// The roles have just been started.
    pub(crate) fn start<P: Protocol>(
        &mut self,
        node: &mut Node<P>,
        outside: &mut Outside,
        submissions: &Submissions,
    ) -> Result<(), NodeError> {
        self.started = true;
        if core::mem::take(&mut self.roles_are_behind)
            && let Some(known) = &self.configuration
        {
            let (layout, config) = self.read::<P>(known)?;
            self.tell_roles(&layout, &config, node, outside, submissions);
        }
        Ok(())
    }

    /// Takes over a membership if it is a later one than what is known. False when this node is not
    /// a member of it: it has told the others, and is to stop.
    pub(crate) fn follow<P: Protocol>(
        &mut self,
        membership: Membership,
        node: &mut Node<P>,
        outside: &mut Outside,
        submissions: &Submissions,
    ) -> Result<bool, NodeError> {
        let epoch = membership.epoch;
        let unusable = |text: String| NodeError::Membership {
            epoch: epoch.0,
            text,
        };
        let Some(known) = &self.configuration else {
            return Err(unusable(
                "this node was started without the deployment that it belongs to".into(),
            ));
        };
        if epoch <= known.epoch() {
            return Ok(true);
        }
        let mut configuration = known
            .advanced(membership)
            .map_err(|error| unusable(error.to_string()))?;
        if let Some(given) = &self.given {
            configuration.deployment.take_local(given);
        }
        let whose = |known: &Configuration| {
            (
                known.target().cluster.clone(),
                known.target().protocol.clone(),
            )
        };
        if whose(&configuration) != whose(known) {
            return Err(unusable(format!(
                "it is one of cluster '{}'",
                whose(&configuration).0
            )));
        }
        let (layout, config) = self.read::<P>(&configuration)?;
        if let Some(data) = &self.data {
            membership_file::store(data, &configuration)?;
        }
        let mut news = Vec::new();
        encode_frame(&mut news, 0, &configuration.membership)
            .map_err(|error| unusable(error.to_string()))?;
        let addresses = addresses(&configuration);
        outside.peers.change(epoch, &addresses, news);
        let here = self.nursery.node;
        outside.peers.set_distances(&configuration.distances(here));
        say(known, &configuration);
        let is_member = configuration
            .member(&self.name)
            .is_some_and(|(id, _)| id == here);
        let left = names_that_left(known, &configuration);
        self.configuration = Some(configuration);
        if !is_member {
            return Ok(false);
        }
        self.admission.change(addresses.len() - 1, &left)?;
        outside.place(&layout);
        match self.started {
            true => self.tell_roles(&layout, &config, node, outside, submissions),
            false => self.roles_are_behind = true,
        }
        Ok(true)
    }

    /// The layout and the protocol's view of it.
    fn read<P: Protocol>(
        &self,
        configuration: &Configuration,
    ) -> Result<(Layout, P::Config), NodeError> {
        let unusable = |text: String| NodeError::Membership {
            epoch: configuration.epoch().0,
            text,
        };
        let layout = configuration
            .layout(P::KINDS)
            .map_err(|error| unusable(error.to_string()))?;
        let config = P::configure(layout.clone()).map_err(|error| unusable(error.to_string()))?;
        Ok((layout, config))
    }

    fn tell_roles<P: Protocol>(
        &self,
        layout: &Layout,
        config: &P::Config,
        node: &mut Node<P>,
        outside: &mut Outside,
        submissions: &Submissions,
    ) {
        let here = self.nursery.node;
        node.reconfigure(outside.now, (layout, config, here), outside);
        self.nursery.populate(node, (layout, config), false);
        node.start(outside.now, outside);
        let lanes: Vec<ClientId> = layout.near(0, here).iter().collect();
        if *submissions.lanes.borrow() != lanes {
            // Whoever waits for the answer of a lane that has left asks again.
            outside.operator.forget();
            outside.unanswered = 0;
            *submissions.lanes.borrow_mut() = lanes;
        }
    }
}

fn names_that_left(before: &Configuration, after: &Configuration) -> Vec<String> {
    let names = before.nodes().into_values().map(|node| node.name.clone());
    names.filter(|name| after.member(name).is_none()).collect()
}

fn say(before: &Configuration, configuration: &Configuration) {
    let names = |nodes: &[ionian_deployment::Node]| {
        nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (epoch, now) = (
        configuration.epoch().0,
        names(&configuration.deployment.nodes),
    );
    let value = |of: &Configuration, setting| of.deployment.options.value(setting);
    for setting in before
        .deployment
        .settings()
        .filter(|setting| value(before, setting) != value(configuration, setting))
    {
        tracing::info!(
            "epoch {epoch}: options.{} = {}",
            setting.key,
            value(configuration, setting)
        );
    }
    match &configuration.next {
        None => tracing::info!("epoch {epoch}: the nodes are {now}"),
        Some(next) => tracing::info!(
            "epoch {epoch}: changing from nodes {now} to {}",
            names(&next.nodes)
        ),
    }
}
