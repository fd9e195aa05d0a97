//! Accepts connections, finds out what each caller wants, and hands it to the peer transport or to
//! administration.

use super::audit::AuditCheck;
use super::audit_lines::{Asker, RefusedLines};
use crate::admin::server::{AdminServer, LongRequest};
use crate::tasks::Tasks;
use crate::transport::caller::Caller;
use crate::transport::connection::Transport;
use crate::transport::hello::{self, HandshakeError, Hello, Introduction, within_handshake_limit};
use crate::transport::peer::Shared;
use crate::transport::security;
use crate::transport::stream::NodeStream;
use crate::transport::welcome::welcome;
use nix::unistd::{Uid, geteuid};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// How many callers may be in the handshake at once. One more evicts the oldest: a peer needs a
/// millisecond, a caller that sends nothing stays.
const PENDING_LIMIT: usize = 64;

/// The pause after a connection could not be accepted: mostly there are too many open files, and
/// other connections end in time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const SECOND: Duration = Duration::from_secs(1);

/// How many callers a second are refused with a warning. More are logged as `debug`: a caller that
/// connects in a loop must not fill the disk.
const WARNINGS_PER_SECOND: u32 = 5;

/// What connections from outside are answered with.
pub(crate) struct Listener {
    pub(crate) transport: Rc<Transport>,
    pub(crate) admin: AdminServer,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) warnings: Warnings,
    pub(crate) refused: RefusedLines,
    pub(crate) audit: AuditCheck,
}

/// The warnings about callers in the present second.
#[derive(Default)]
pub(crate) struct Warnings(Cell<Option<(Instant, u32)>>);

impl Warnings {
    /// Whether another caller may be refused with a warning.
    fn permit(&self, now: Instant) -> bool {
        let present = self.0.get().filter(|(since, _)| now - *since < SECOND);
        let (since, count) = present.unwrap_or((now, 0));
        self.0.set(Some((since, count.saturating_add(1))));
        count < WARNINGS_PER_SECOND
    }

    fn log(&self, text: &str) {
        match self.permit(Instant::now()) {
            true => tracing::warn!(id = "E0301", "{text}"),
            false => tracing::debug!("{text}"),
        }
    }
}

/// What a caller wants after the handshake.
enum Greeted {
    /// To be this peer.
    Peer(Introduction, Shared),
    /// An answer that may take longer than a handshake.
    Admin(Asker, LongRequest),
    /// Nothing.
    Done,
}

impl Listener {
    /// Accepts connections until the node ends.
    pub(crate) async fn run(self: Rc<Self>, listener: TcpListener) {
        let pending = Rc::new(PendingHandshakes::default());
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let (guard, started) = pending.begin();
                    let arrived = Arrived::Tcp(stream);
                    let task = self.clone().serve(arrived, from.to_string(), guard);
                    started(self.tasks.spawn(task));
                }
                Err(error) => pause(error).await,
            }
        }
    }

    /// Accepts connections of processes of this machine until the node ends.
    pub(crate) async fn run_local(self: Rc<Self>, listener: UnixListener) {
        let pending = Rc::new(PendingHandshakes::default());
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let user = stream.peer_cred().map(|process| process.uid());
                    if !user.as_ref().is_ok_and(|user| is_trusted(*user, geteuid())) {
                        let refused = format!("refused user {user:?} on the Unix socket");
                        self.warnings.log(&refused);
                        continue;
                    }
                    let (guard, started) = pending.begin();
                    let arrived = Arrived::Ready(NodeStream::Local(stream));
                    let task = self.clone().serve(arrived, "the Unix socket".into(), guard);
                    started(self.tasks.spawn(task));
                }
                Err(error) => pause(error).await,
            }
        }
    }

    async fn serve(self: Rc<Self>, arrived: Arrived, from: String, pending: PendingHandshake) {
        let (mut stream, greeted) = match within_handshake_limit(self.greet(arrived, &from)).await {
            Ok(greeted) => greeted,
            Err(error) => return self.log_failure(&from, error),
        };
        match greeted {
            Greeted::Peer(caller, peer) => {
                drop(pending);
                self.transport
                    .serve(&peer, caller.sender_name.0, caller.epoch, stream)
                    .await;
            }
            Greeted::Admin(asker, LongRequest::Change(change)) => {
                let answer = self.admin.carry_out(&change).await;
                asker.ends(&change, &answer);
                if let Err(error) = self.admin.tell(&mut stream, answer).await {
                    tracing::warn!(
                        id = "E0303",
                        "the result of a membership change could not be sent to {from}: {error}"
                    );
                }
            }
            Greeted::Admin(asker, LongRequest::Snapshot(at)) => {
                drop(pending);
                if let Err(error) = self.admin.send_snapshot(&mut stream, at).await {
                    asker.is_declined(Some(&error));
                    tracing::warn!(
                        id = "E0304",
                        "a snapshot could not be sent to {from} completely: {error}"
                    );
                }
            }
            Greeted::Done => {}
        }
    }

    fn log_failure(&self, from: &str, error: HandshakeError) {
        match error {
            HandshakeError::Refused(reason) => {
                self.warnings
                    .log(&format!("refused a connection from {from}: {reason}"));
            }
            error @ HandshakeError::RefusedByCaller(_) => {
                self.warnings
                    .log(&format!("the connection from {from} ends: {error}"));
            }
            // It is logged already, with its reason.
            HandshakeError::IdentityMismatch { .. } => {}
            HandshakeError::ClosedBeforeHello => tracing::debug!("{from} connected and left"),
            error => {
                self.warnings.log(&format!(
                    "dropped a connection from {from}, which is not a peer: {error}"
                ));
            }
        }
    }

    /// Finds out what the caller wants, and answers what can be answered at once.
    async fn greet(
        &self,
        arrived: Arrived,
        from: &str,
    ) -> Result<(NodeStream, Greeted), HandshakeError> {
        let mut stream = match arrived {
            Arrived::Tcp(stream) => security::accept(stream, self.transport.tls.as_ref()).await?,
            Arrived::Ready(stream) => stream,
        };
        let hello = hello::receive_hello(&mut stream).await?;
        let asker = match self.permit(&stream, from, &hello) {
            Ok(asker) => asker,
            Err(reason) => {
                hello::decline(&mut stream, &reason).await?;
                return Err(HandshakeError::Refused(reason));
            }
        };
        let greeted = match hello {
            Hello::Admin(request) => {
                let answered = self.admin.answer(&mut stream, request).await;
                asker.is_declined(answered.as_ref().err());
                let request = answered?;
                if let Some(LongRequest::Change(change)) = &request {
                    asker.begins(change);
                }
                request.map_or(Greeted::Done, |request| Greeted::Admin(asker, request))
            }
            // The epochs say which of the two memberships is the later one.
            Hello::Peer(_, caller) => {
                let peer = welcome(&self.transport, &mut stream, &caller).await;
                let is_refused = matches!(peer, Err(HandshakeError::Refused(_)));
                // A caller without a certificate could be anyone.
                if is_refused && stream.certificate().is_some() {
                    asker.is_refused(&self.refused);
                }
                peer?.map_or(Greeted::Done, |peer| Greeted::Peer(caller, peer))
            }
        };
        Ok((stream, greeted))
    }

    /// Checks whether a caller may make a request, and notes it.
    ///
    /// # Errors
    /// Why it may not.
    fn permit(&self, stream: &NodeStream, from: &str, hello: &Hello) -> Result<Asker, String> {
        let caller = Caller::of(stream);
        let asker = Asker::new(&caller, from, hello);
        let cluster = &self.transport.identity.cluster;
        let known = caller.and_then(|caller| caller.check(cluster, hello));
        match (&self.transport.tls, &known) {
            (Some(tls), Ok(())) => tls.live.has_admitted(stream.chain()),
            (Some(tls), Err(_)) => tls.has_refused(),
            (None, _) => {}
        }
        let permitted = known.and_then(|()| self.audit.permits(hello.purpose()));
        match permitted.is_ok() {
            true => asker.is_permitted(),
            false => asker.is_refused(&self.refused),
        }
        permitted.map(|()| asker)
    }
}

/// A connection that was accepted.
enum Arrived {
    /// Over the network.
    Tcp(TcpStream),
    /// From a process that this node trusts.
    Ready(NodeStream),
}

async fn pause(error: std::io::Error) {
    tracing::warn!(id = "E0302", "cannot accept a connection: {error}");
    sleep(ACCEPT_PAUSE).await;
}

/// Whether a user may administer a node that runs as `own`.
fn is_trusted(user: u32, own: Uid) -> bool {
    user == 0 || user == own.as_raw()
}

/// The callers in the handshake, oldest first.
#[derive(Default)]
struct PendingHandshakes {
    tasks: RefCell<VecDeque<(u64, AbortHandle)>>,
    next_number: Cell<u64>,
}

impl PendingHandshakes {
    /// Begins a handshake; its task must be given to the function that is returned.
    fn begin(self: &Rc<Self>) -> (PendingHandshake, impl FnOnce(AbortHandle)) {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let guard = PendingHandshake {
            number,
            among: self.clone(),
        };
        let pending = self.clone();
        let started = move |task| {
            let mut tasks = pending.tasks.borrow_mut();
            tasks.push_back((number, task));
            if tasks.len() > PENDING_LIMIT {
                let (_, oldest) = tasks.pop_front().expect("the limit is not zero");
                oldest.abort();
            }
        };
        (guard, started)
    }
}

/// One caller in the handshake. Dropping it makes room for another.
struct PendingHandshake {
    number: u64,
    among: Rc<PendingHandshakes>,
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        self.among
            .tasks
            .borrow_mut()
            .retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_own_user_are_trusted_on_the_unix_socket() {
        let own = Uid::from_raw(1000);
        assert_eq!(
            [0, 1000, 1001].map(|user| is_trusted(user, own)),
            [true, true, false]
        );
    }

    #[test]
    fn a_few_callers_a_second_are_refused_with_a_warning() {
        let (warnings, begin) = (Warnings::default(), Instant::now());
        let permitted = |at| (0..1000).filter(|_| warnings.permit(at)).count();
        assert_eq!(permitted(begin), 5);
        assert_eq!(permitted(begin + SECOND / 2), 0);
        assert_eq!(permitted(begin + SECOND), 5);
        assert_eq!(permitted(begin + SECOND * 7), 5);
    }
}
