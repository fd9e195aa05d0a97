//! Load through a client lane of the library: this process is a node of the cluster, and its
//! application keeps a number of requests in flight. No socket is between client and lane, as in a
//! service that uses the library.

use super::encode::Encoder;
use super::event_loop::{Shared, nanoseconds};
use super::ledger::{Effort, Ledger, Loop, Tally, Window};
use super::scan::{Reply as Answer, Scanner};
use super::workload::Workload;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use ionian_deployment::Configuration;
use ionian_kernel::client::{Operation, ReadLevel, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_machines::kv;
use ionian_runtime::{Application, LaneHandle};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// The node that this process is to be.
pub struct ThisNode {
    /// The cluster.
    pub configuration: Configuration,
    /// Which of its nodes.
    pub name: String,
    /// Where it keeps what survives it.
    pub data: PathBuf,
    /// What uses its client lanes.
    pub application: Box<dyn FnOnce(LaneHandle) -> Box<dyn Application> + Send>,
    /// It stops when the other end is dropped.
    pub stop: oneshot::Receiver<()>,
}

/// Runs a node on the calling thread, whatever its protocol.
pub type RunNode = fn(ThisNode) -> Result<()>;

/// What is to be asked.
pub(crate) struct Order {
    pub(crate) workload: Workload,
    pub(crate) encoder: Encoder,
    pub(crate) level: ReadLevel,
    pub(crate) in_flight: usize,
    /// What counts, in nanoseconds since `origin`.
    pub(crate) window: Window,
    pub(crate) origin: Instant,
    pub(crate) shared: Arc<Shared>,
}

/// The node, on a thread of its own.
pub(crate) struct Lanes {
    orders: mpsc::UnboundedSender<(Order, Sender<Result<Tally>>)>,
    /// Dropped to stop the node.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Lanes {
    /// Starts the node.
    pub(crate) fn start(
        configuration: Configuration,
        name: &str,
        data: PathBuf,
        run: RunNode,
    ) -> Result<Self> {
        let (orders, queue) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let application = Box::new(|handle| begin(handle, queue));
        let node = ThisNode {
            configuration,
            name: name.to_owned(),
            data,
            application,
            stop: stopped,
        };
        let thread = std::thread::Builder::new()
            .name(format!("ionian-{name}"))
            .spawn(move || run(node))?;
        Ok(Lanes {
            orders,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Has the node's application ask.
    pub(crate) fn ask(&self, order: Order) -> Receiver<Result<Tally>> {
        let (tell, told) = channel();
        // Where the node has ended, the other end of `tell` is dropped, which says it.
        let _ = self.orders.send((order, tell));
        told
    }

    /// Makes sure that the node runs.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(thread) => match thread.join() {
                Ok(Ok(())) => bail!("the node of this process has stopped"),
                Ok(Err(error)) => Err(error.context("the node of this process has ended")),
                Err(_) => Err(anyhow!("the node of this process has panicked")),
            },
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its result does not matter any more.
            let _ = thread.join();
        }
    }
}

/// The application, on the node's event loop.
struct Load {
    handle: LaneHandle,
    work: Rc<RefCell<Option<Work>>>,
}

/// An order that is being worked off.
struct Work {
    order: Order,
    tell: Sender<Result<Tally>>,
    ledger: Ledger,
    /// When each request on its way began; its place is its token.
    begun: Vec<u64>,
    outstanding: usize,
    /// When the burst of replies that is being taken came.
    now: Option<u64>,
    answered: u64,
    errors: u64,
}

fn begin(
    handle: LaneHandle,
    mut queue: mpsc::UnboundedReceiver<(Order, Sender<Result<Tally>>)>,
) -> Box<dyn Application> {
    let work = Rc::new(RefCell::new(None));
    let (lane, slot) = (handle.clone(), work.clone());
    tokio::task::spawn_local(async move {
        while let Some((order, tell)) = queue.recv().await {
            let mut work = Work::new(order, tell);
            let now = nanoseconds(work.order.origin);
            for token in 0..work.order.in_flight {
                work.begin(token as u64, now, &lane);
            }
            match work.outstanding {
                0 => work.close(),
                _ => drop(slot.replace(Some(work))),
            }
        }
    });
    Box::new(Load { handle, work })
}

impl Work {
    fn new(order: Order, tell: Sender<Result<Tally>>) -> Self {
        let ledger = Ledger::new(order.window, Loop::Closed);
        let begun = vec![0; order.in_flight];
        Work {
            order,
            tell,
            ledger,
            begun,
            outstanding: 0,
            now: None,
            answered: 0,
            errors: 0,
        }
    }

    /// Begins the next request under this token, if there is to be one.
    fn begin(&mut self, token: u64, now: u64, handle: &LaneHandle) {
        if now >= self.order.window.end || self.order.shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let (Some(lane), Some(ask)) = (handle.first_lane(), self.order.workload.next()) else {
            return;
        };
        let mut payload = Vec::new();
        self.order.encoder.push(ask, &mut payload);
        let operation = if ask.is_read {
            Operation::Read(self.order.level)
        } else {
            Operation::Write
        };
        self.begun[token as usize] = now;
        self.outstanding += 1;
        handle.submit(
            lane,
            Request {
                token,
                operation,
                payload: Bytes::from(payload),
            },
        );
    }

    fn on_reply(&mut self, reply: Reply, handle: &LaneHandle) {
        let origin = self.order.origin;
        let now = *self.now.get_or_insert_with(|| nanoseconds(origin));
        let begun = self.begun[reply.token as usize];
        self.outstanding -= 1;
        match &reply.outcome {
            Err(refusal) => self.error(now, &format!("{refusal:?}")),
            Ok(bytes) => {
                let mut answer = None;
                let (_, replies) = kv::answered(bytes);
                let scanned = Scanner::default().take(&replies, |reply| {
                    answer = Some(match reply {
                        Answer::Error(word) => Err(word.to_owned()),
                        Answer::Nothing => Ok(1),
                        Answer::Something => Ok(0),
                    });
                });
                match answer.filter(|_| scanned.is_ok()) {
                    Some(Ok(nothing)) => {
                        self.answered += 1;
                        self.ledger.answered(begun, now, 1, nothing);
                    }
                    Some(Err(word)) => self.error(now, &word),
                    None => self.error(now, "(no reply)"),
                }
            }
        }
        self.begin(reply.token, now, handle);
    }

    fn close(self) {
        // There is no receiver any more when the run has failed.
        let _ = self.tell.send(Ok(self.ledger.close(Effort::default())));
    }

    fn error(&mut self, now: u64, word: &str) {
        self.errors += 1;
        self.ledger.error(now, word);
    }
}

impl Application for Load {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        if let Some(work) = &mut *self.work.borrow_mut() {
            work.on_reply(reply, &self.handle);
        }
    }

    fn on_burst_end(&mut self) {
        let mut slot = self.work.borrow_mut();
        let Some(work) = &mut *slot else { return };
        work.now = None;
        work.order
            .shared
            .answered
            .fetch_add(std::mem::take(&mut work.answered), Ordering::Relaxed);
        work.order
            .shared
            .errors
            .fetch_add(std::mem::take(&mut work.errors), Ordering::Relaxed);
        if work.outstanding == 0
            && let Some(work) = slot.take()
        {
            work.close();
        }
    }
}

/// Waits until the lane carries writes. In between `check` looks whether it still can.
///
/// # Errors
/// When the node ends, or it takes longer than `patience`.
pub(crate) fn wait_until_served(
    lanes: &mut Lanes,
    patience: Duration,
    encoder: &Encoder,
    shared: &Arc<Shared>,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        check()?;
        let order = Order {
            workload: Workload::Each(0..1),
            encoder: encoder.clone(),
            level: ReadLevel::default(),
            in_flight: 1,
            window: Window {
                begin: 0,
                end: patience.as_nanos() as u64,
            },
            origin: Instant::now(),
            shared: shared.clone(),
        };
        let told = lanes.ask(order).recv();
        lanes.check()?;
        let tally = told.context("the node of this process has ended")??;
        if tally.answered > 0 || shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let word = tally
                .errors
                .keys()
                .next()
                .map_or("no answer", String::as_str)
                .to_owned();
            bail!("the cluster takes no writes through the client lane: {word}");
        }
    }
}
