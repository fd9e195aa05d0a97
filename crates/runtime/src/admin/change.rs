//! Changes of the membership: plans them, checks them, and submits them.

use super::contact::Contact;
use super::query::{QueryError, ask};
use crate::transport::hello::{self, AdminRequest, HandshakeError, Hello};
use crate::transport::membership_exchange::{receive_bytes, send_bytes};
use bytes::Bytes;
use ionian_deployment::{Configuration, Deployment, DeploymentError};
use ionian_kernel::id::Epoch;
use ionian_kernel::layout::{Layout, LayoutError};
use ionian_kernel::level::Level;
use ionian_kernel::membership::{Change, Verdict, verdict};
use ionian_kernel::protocol::{AnyProtocol, Transition};
use ionian_kernel::wire::encode_all;
use std::time::Duration;

/// Why a change of the membership is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    /// Another change is in progress; there can be only one.
    #[error(
        "another change is under way, in epoch {epoch}: it must be finished or abandoned first"
    )]
    UnderWay {
        /// The epoch of that change.
        epoch: u32,
    },
    /// There is no change to abandon.
    #[error("no change is under way")]
    None,
    /// The new deployment cannot follow the present one.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// The protocol cannot change from one layout to the other.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// The level is not next to that of the cluster, or this program does not support it.
    #[error(
        "the cluster is at level {now}: it cannot change to {to} with this program, which supports {} to {} and changes a level by one",
        Level::OLDEST,
        Level::LATEST
    )]
    Level {
        /// The level of the cluster.
        now: Level,
        /// The level that was asked for.
        to: Level,
    },
    /// Programs that do not know the level with which the cluster was founded cannot read its
    /// deployment.
    #[error("the cluster was founded at level {0}: no program of a lower level can be a member")]
    Founded(Level),
    /// Programs of the level do not know an option.
    #[error(
        "programs of level {to} do not know options.{key}, which the deployment states: it is there since level {since}"
    )]
    Option {
        /// Its key.
        key: &'static str,
        /// The level since which programs know it.
        since: Level,
        /// The level that was asked for.
        to: Level,
    },
    /// The change was planned for an epoch that this node does not know yet. Another node knows it,
    /// and this node will.
    #[error("this node does not know epoch {0} yet")]
    Ahead(u32),
    /// The change was planned for another state of the cluster.
    #[error("{0}")]
    Stale(String),
}

/// Whether the protocol can change the members of a running cluster at all.
///
/// # Errors
/// The reason why it cannot.
pub fn check_protocol(
    protocol: &dyn AnyProtocol,
    configuration: &Configuration,
) -> Result<(), ChangeError> {
    let layout = configuration
        .deployment
        .layout(protocol.description().kinds)?;
    protocol.transition(&layout, &layout)?;
    Ok(())
}

/// The epoch that a change begins from: one in which no other change is under way.
fn base(configuration: &Configuration) -> Result<Epoch, ChangeError> {
    let base = configuration.epoch();
    match configuration.next {
        Some(_) => Err(ChangeError::UnderWay { epoch: base.0 }),
        None => Ok(base),
    }
}

/// Both sides of a change, as the log has them.
fn texts(configuration: &Configuration, to: &Deployment) -> Result<(Bytes, Bytes), ChangeError> {
    Ok((configuration.text()?, to.numbered()?.to_text().into()))
}

/// The command that changes a cluster into `to`.
///
/// # Errors
/// The reason why it cannot be done.
pub fn begin(
    protocol: &dyn AnyProtocol,

    configuration: &Configuration,
    to: &Deployment,
) -> Result<Change, ChangeError> {
    let base = base(configuration)?;
    let joint = is_joint(protocol, configuration, &configuration.deployment, to)?;
    let (from, to) = texts(configuration, to)?;
    Ok(Change::Begin {
        base,
        from,
        to,
        joint,
    })
}

/// The command that changes the options of a cluster to those of `to`.
///
/// # Errors
/// The reason why it cannot be done.
pub fn tune(
    protocol: &dyn AnyProtocol,

    configuration: &Configuration,
    to: &Deployment,
) -> Result<Change, ChangeError> {
    let base = base(configuration)?;
    let expiry_ms = tuning(protocol, &configuration.deployment, to)?;
    let (from, to) = texts(configuration, to)?;
    Ok(Change::Tune {
        base,
        from,
        to,
        expiry_ms,
    })
}

/// The command that changes the level of a cluster.
///
/// # Errors
/// The reason why it cannot be done. Whether all members support the level is for the caller to
/// find out.
pub fn level(
    protocol: &dyn AnyProtocol,
    configuration: &Configuration,
    to: Level,
) -> Result<Change, ChangeError> {
    let base = base(configuration)?;
    check_level(protocol, configuration, to)?;
    Ok(Change::Level { base, to })
}

fn check_level(
    protocol: &dyn AnyProtocol,
    configuration: &Configuration,
    to: Level,
) -> Result<(), ChangeError> {
    protocol.check_level()?;
    let now = configuration.membership.level;
    if !to.is_supported() || to.0.abs_diff(now.0) != 1 {
        return Err(ChangeError::Level { now, to });
    }
    if to < now {
        protocol.check_lowering()?;
        if let Some((key, since)) = configuration.deployment.options.later_than(to) {
            return Err(ChangeError::Option { key, since, to });
        }
    }
    match configuration.deployment.level {
        founded if to < founded => Err(ChangeError::Founded(founded)),
        _ => Ok(()),
    }
}

/// Checks a change of options; returns the session expiry before and after, in milliseconds.
fn tuning(
    protocol: &dyn AnyProtocol,
    from: &Deployment,
    to: &Deployment,
) -> Result<(u64, u64), ChangeError> {
    protocol.check_tunable()?;
    from.check_tuning(to)?;
    protocol.configure(to.layout(protocol.description().kinds)?)?;
    let expiry_ms = |of: &Deployment| of.options.options().session_expiry.as_millis() as u64;
    Ok((expiry_ms(from), expiry_ms(to)))
}

fn is_joint(
    protocol: &dyn AnyProtocol,

    configuration: &Configuration,
    from: &Deployment,
    to: &Deployment,
) -> Result<bool, ChangeError> {
    from.check_change(to)?;
    let from = Layout {
        since: configuration.membership.since,
        ..from.layout(protocol.description().kinds)?
    };
    Ok(protocol.transition(&from, &to.layout(protocol.description().kinds)?)? == Transition::Joint)
}

/// The command that abandons the change in progress and returns to the previous deployment.
///
/// # Errors
/// If no change is in progress.
pub fn abandon(configuration: &Configuration) -> Result<Change, ChangeError> {
    match configuration.next {
        Some(_) => Ok(Change::Abandon {
            epoch: configuration.epoch(),
        }),
        None => Err(ChangeError::None),
    }
}

/// A command that passes the log as every change does, and changes nothing: no change is ever in
/// progress in epoch 0.
pub fn probe() -> Change {
    Change::Abandon {
        epoch: Epoch::default(),
    }
}

/// Checks a change that an operator has sent: every command in the log must be executable.
pub(crate) fn check(
    protocol: &dyn AnyProtocol,

    configuration: &Configuration,
    change: &Change,
) -> Result<(), ChangeError> {
    let stale = |text: &str| Err(ChangeError::Stale(text.to_owned()));
    match change {
        // The log decides whether this is still possible, or was done before.
        Change::Abandon { .. } => Ok(()),
        Change::Finish { .. } => stale("a change is finished by the leader, not by request"),
        Change::Begin { base, .. } | Change::Tune { base, .. } | Change::Level { base, .. }
            if *base < configuration.epoch() =>
        {
            Ok(())
        }
        Change::Begin { base, .. } | Change::Tune { base, .. } | Change::Level { base, .. }
            if *base > configuration.epoch() =>
        {
            Err(ChangeError::Ahead(base.0))
        }
        Change::Level { to, .. } => check_level(protocol, configuration, *to),
        Change::Begin { from, to, .. } | Change::Tune { from, to, .. } => {
            let read = |bytes: &Bytes| {
                let text =
                    str::from_utf8(bytes).map_err(|error| ChangeError::Stale(error.to_string()))?;
                Ok::<_, ChangeError>(Deployment::parse_stored(text)?)
            };
            // The founding files of nodes may differ in settings that concern one node alone.
            let known = match configuration.membership.text.is_empty() {
                true => read(from)?.digest() == configuration.founding,
                false => *from == configuration.membership.text,
            };
            if !known {
                return stale(
                    "the change leads away from another deployment than the one in force",
                );
            }
            let (from, to) = (read(from)?, read(to)?);
            let as_planned = match change {
                Change::Begin { joint, .. } => {
                    is_joint(protocol, configuration, &from, &to)? == *joint
                }
                Change::Tune { expiry_ms, .. } => tuning(protocol, &from, &to)? == *expiry_ms,
                Change::Finish { .. } | Change::Abandon { .. } | Change::Level { .. } => true,
            };
            match as_planned {
                true => Ok(()),
                false => stale("the change is planned in a way that the protocol does not allow"),
            }
        }
    }
}

/// The answer to a request for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The log has decided.
    Decided(Verdict),
    /// The node has checked the change and refuses it.
    Refused(String),
    /// The node could not submit the change, or the log has not answered in time. Another node may,
    /// and asking again is harmless.
    Undecided(String),
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Response::Decided(verdict) => verdict.fmt(f),
            Response::Refused(reason) | Response::Undecided(reason) => f.write_str(reason),
        }
    }
}

/// Asks a node to put a change into the log.
///
/// # Errors
/// If the node cannot be reached, or does not answer within `limit`.
pub async fn request_change(
    contact: impl Into<Contact>,
    change: &Change,
    limit: Duration,
) -> Result<Response, QueryError> {
    let contact = contact.into();
    let exchange = async {
        let mut stream = contact.connect().await?;
        hello::send_hello(&mut stream, &Hello::Admin(AdminRequest::Change)).await?;
        send_bytes(&mut stream, &encode_all(change)).await?;
        Ok(match hello::receive_answer(&mut stream).await {
            Ok(_) => Response::Decided(verdict(&receive_bytes(&mut stream).await?)?),
            Err(HandshakeError::Refused(reason)) => Response::Refused(reason),
            Err(HandshakeError::Undecided(reason)) => Response::Undecided(reason),
            Err(error) => return Err(error),
        })
    };
    ask(limit, exchange).await
}
