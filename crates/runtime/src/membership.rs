//! What a node knows of the membership, kept in its data directory, and talk about it between nodes
//! and with operators: news, questions, changes.

use crate::handshake::{self, HANDSHAKE_LIMIT, HandshakeError, Hello};
use crate::log::{LogError, io_error};
use crate::status::StatusError;
use bytes::Bytes;
use ionian_deployment::{Configuration, Deployment, DeploymentError, MAX_TEXT};
use ionian_kernel::layout::{Layout, LayoutError};
use ionian_kernel::membership::{Change, Membership, Verdict, verdict};
use ionian_kernel::protocol::{Protocol, Transition};
use ionian_kernel::wire::{WireError, decode_all, encode_all};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most bytes of anything that is said of a membership: two texts, quoted, and a little around
/// them.
pub(crate) const MAX_NEWS: usize = 4 * MAX_TEXT;

/// Where a node keeps the membership.
fn file(data: &Path) -> PathBuf {
    data.join("membership.toml")
}

/// What the node with this data directory knew last of the membership; none when it never changed.
///
/// # Errors
/// When the file cannot be read, or says no membership.
pub fn stored(data: &Path) -> Result<Option<Configuration>, LogError> {
    let path = file(data);
    match fs::read_to_string(&path) {
        // Where the directory should be there may be something else: whoever opens it says so.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(io_error("read", &path)(error)),
        Ok(text) => Configuration::parse(&text)
            .map(Some)
            .map_err(|error| LogError::Corrupt {
                offset: 0,
                text: error.to_string(),
                path,
            }),
    }
}

/// Writes it down. It is there for good on return, whole or not at all.
pub(crate) fn store(data: &Path, configuration: &Configuration) -> Result<(), LogError> {
    let path = file(data);
    let draft = path.with_extension("toml.new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(configuration.to_toml().as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(data)?.sync_all()
    };
    write().map_err(io_error("write", &path))
}

/// Why a change of the membership is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    /// One change at a time.
    #[error(
        "another change is under way, in epoch {epoch}: it must be finished or abandoned first"
    )]
    UnderWay {
        /// The epoch of that change.
        epoch: u32,
    },
    /// There is none that could be abandoned.
    #[error("no change is under way")]
    None,
    /// The deployments do not follow each other.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// The protocol cannot get from one to the other.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// It was planned for an epoch of which this node has not heard: another node has, and so will
    /// this one.
    #[error("this node has not heard of epoch {0} yet")]
    Ahead(u32),
    /// It was planned by somebody who knew something else.
    #[error("{0}")]
    Stale(String),
}

/// Whether the protocol can change the members of a running cluster at all.
///
/// # Errors
/// Says why it cannot.
pub fn check_protocol<P: Protocol>(configuration: &Configuration) -> Result<(), ChangeError> {
    let layout = configuration.deployment.layout(P::KINDS)?;
    Ok(P::transition(&layout, &layout).map(drop)?)
}

/// The command that changes a cluster into `to`.
///
/// # Errors
/// Says why it cannot be done.
pub fn begin<P: Protocol>(
    configuration: &Configuration,
    to: &Deployment,
) -> Result<Change, ChangeError> {
    let base = configuration.epoch();
    if configuration.next.is_some() {
        return Err(ChangeError::UnderWay { epoch: base.0 });
    }
    let joint = is_joint::<P>(&configuration.deployment, to)?;
    let (from, to) = (configuration.text()?, Bytes::from(to.numbered()?.to_toml()));
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
/// Says why it cannot be done.
pub fn tune<P: Protocol>(
    configuration: &Configuration,
    to: &Deployment,
) -> Result<Change, ChangeError> {
    let base = configuration.epoch();
    if configuration.next.is_some() {
        return Err(ChangeError::UnderWay { epoch: base.0 });
    }
    let expiry_ms = tuning::<P>(&configuration.deployment, to)?;
    let (from, to) = (configuration.text()?, Bytes::from(to.numbered()?.to_toml()));
    Ok(Change::Tune {
        base,
        from,
        to,
        expiry_ms,
    })
}

/// Checks a change of options, and says how long sessions live by the one and the other.
fn tuning<P: Protocol>(from: &Deployment, to: &Deployment) -> Result<(u64, u64), ChangeError> {
    P::check_tunable()?;
    from.check_tuning(to)?;
    P::configure(to.layout(P::KINDS)?)?;
    let expiry_ms = |of: &Deployment| of.options.options().session_expiry.as_millis() as u64;
    Ok((expiry_ms(from), expiry_ms(to)))
}

fn is_joint<P: Protocol>(from: &Deployment, to: &Deployment) -> Result<bool, ChangeError> {
    from.check_change(to)?;
    let layouts: (Layout, Layout) = (from.layout(P::KINDS)?, to.layout(P::KINDS)?);
    Ok(P::transition(&layouts.0, &layouts.1)? == Transition::Joint)
}

/// The command that goes back to the deployment before the change that is under way.
///
/// # Errors
/// When none is.
pub fn abandon(configuration: &Configuration) -> Result<Change, ChangeError> {
    match configuration.next {
        Some(_) => Ok(Change::Abandon {
            epoch: configuration.epoch(),
        }),
        None => Err(ChangeError::None),
    }
}

/// Checks a change that somebody has sent: nothing goes into the log that its readers could not
/// follow.
pub(crate) fn check<P: Protocol>(
    configuration: &Configuration,
    change: &Change,
) -> Result<(), ChangeError> {
    let stale = |text: &str| Err(ChangeError::Stale(text.to_owned()));
    match change {
        // The log decides what becomes of it; that it was carried out before is found there too.
        Change::Abandon { .. } => Ok(()),
        Change::Finish { .. } => stale("a change is finished by the leader, not by request"),
        Change::Begin { base, .. } | Change::Tune { base, .. } if *base < configuration.epoch() => {
            Ok(())
        }
        Change::Begin { base, .. } | Change::Tune { base, .. } if *base > configuration.epoch() => {
            Err(ChangeError::Ahead(base.0))
        }
        Change::Begin { from, to, .. } | Change::Tune { from, to, .. } => {
            let read = |bytes: &Bytes| {
                let text =
                    str::from_utf8(bytes).map_err(|error| ChangeError::Stale(error.to_string()))?;
                Ok::<_, ChangeError>(Deployment::parse(text)?)
            };
            // Founding files may differ in what concerns one node alone.
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
                Change::Begin { joint, .. } => is_joint::<P>(&from, &to)? == *joint,
                Change::Tune { expiry_ms, .. } => tuning::<P>(&from, &to)? == *expiry_ms,
                Change::Finish { .. } | Change::Abandon { .. } => true,
            };
            match as_planned {
                true => Ok(()),
                false => stale("the change is planned in a way that the protocol does not allow"),
            }
        }
    }
}

/// Says something of bounded length behind a greeting.
pub(crate) async fn send_bytes(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), HandshakeError> {
    stream.write_u32_le(bytes.len() as u32).await?;
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// Takes in what [`send_bytes`] said. Memory grows with what has arrived, not with what was
/// announced.
pub(crate) async fn receive_bytes(stream: &mut TcpStream) -> Result<Bytes, HandshakeError> {
    let length = stream.read_u32_le().await? as usize;
    if length > MAX_NEWS {
        return Err(WireError::OutOfRange {
            what: "length of what is said of the membership",
            value: length as u64,
        }
        .into());
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    match bytes.len() == length {
        true => Ok(bytes.into()),
        false => Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
    }
}

pub(crate) async fn send_membership(
    stream: &mut TcpStream,
    membership: &Membership,
) -> Result<(), HandshakeError> {
    send_bytes(stream, &encode_all(membership)).await
}

pub(crate) async fn receive_membership(
    stream: &mut TcpStream,
) -> Result<Membership, HandshakeError> {
    Ok(decode_all(&receive_bytes(stream).await?)?)
}

/// Asks the node that listens at `address` for the membership as it knows it.
///
/// # Errors
/// When nobody listens, nobody answers within `limit`, or the answer is no membership.
pub async fn query_membership(
    address: SocketAddr,
    limit: Duration,
) -> Result<Configuration, StatusError> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        handshake::send_hello(&mut stream, &Hello::Membership).await?;
        handshake::receive_answer(&mut stream).await?;
        receive_bytes(&mut stream).await
    };
    let document = within(address, limit, ask).await?;
    let no_node = |text: String| StatusError::NoNode { address, text };
    let text = str::from_utf8(&document).map_err(|error| no_node(error.to_string()))?;
    Configuration::parse(text)
        .map_err(|error| no_node(format!("an answer that is no membership: {error}")))
}

/// What became of a request for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The log has decided.
    Decided(Verdict),
    /// The node has checked it and refuses it.
    Refused(String),
    /// The node could not ask the log, or got no answer in time; another may, and asking again is
    /// harmless.
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

/// Asks the node that listens at `address` to put a change into the log.
///
/// # Errors
/// When nobody listens, or nobody answers within `limit`.
pub async fn request_change(
    address: SocketAddr,
    change: &Change,
    limit: Duration,
) -> Result<Response, StatusError> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        handshake::send_hello(&mut stream, &Hello::Change).await?;
        send_bytes(&mut stream, &encode_all(change)).await?;
        Ok(match handshake::receive_answer(&mut stream).await {
            Ok(_) => Response::Decided(verdict(&receive_bytes(&mut stream).await?)?),
            Err(HandshakeError::Refused(reason)) => Response::Refused(reason),
            Err(HandshakeError::Undecided(reason)) => Response::Undecided(reason),
            Err(error) => return Err(error),
        })
    };
    within(address, limit, ask).await
}

async fn within<T>(
    address: SocketAddr,
    limit: Duration,
    talk: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, StatusError> {
    let talked = tokio::time::timeout(limit, talk)
        .await
        .map_err(|_| StatusError::TimedOut { address, limit })?;
    talked.map_err(|error| match error {
        HandshakeError::Io(source) => StatusError::Io { address, source },
        other => StatusError::NoNode {
            address,
            text: other.to_string(),
        },
    })
}

/// Answers a question for the membership.
pub(crate) async fn send_document(
    stream: &mut TcpStream,
    name: &str,
    document: &str,
) -> Result<(), HandshakeError> {
    let answer = async {
        handshake::accept(stream, name.as_bytes()).await?;
        send_bytes(stream, document.as_bytes()).await?;
        Ok(stream.shutdown().await?)
    };
    tokio::time::timeout(HANDSHAKE_LIMIT, answer)
        .await
        .map_err(|_| HandshakeError::TimedOut)?
}
