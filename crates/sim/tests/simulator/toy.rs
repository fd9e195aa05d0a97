//! A protocol as small as can be, with defects that can be built in: one server that executes,
//! writes down and answers, and client lanes that ask again until they are answered.

use bytes::Bytes;
use ionian_kernel::id::{Epoch, Slot};
use ionian_kernel::layout::{Address, Layout, LayoutError, NodeId, numbered};
use ionian_kernel::preset::Preset;
use ionian_kernel::protocol::{Birth, Invariants, Protocol, Transition};
use ionian_kernel::service::Service;
use ionian_kernel::status::{Metric, Metrics, Status};
use ionian_replication::batch::Outcome;
use ionian_sim::{Scenario, Simulated};

/// What is wrong with the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    Nothing,
    /// A command that arrives twice is executed twice.
    NoDeduplication,
    /// Reads are answered from a copy that is brought up to date now and then.
    StaleReads,
    /// Replies leave before the record is on disk.
    Unfenced,
    /// A lane that gives up says that the command had no effect.
    DeniesEffect,
    /// Replies are given to the application twice.
    AnswersTwice,
    /// Lanes ask once only and never give up.
    NeverAsksAgain,
    /// An assertion that does not hold.
    Panics,
    /// The copy executes two commands in the wrong order.
    Swaps,
    /// A write sent as a read is executed.
    ReadsWrite,
    /// A lane answers reads itself, with the last list it saw.
    MakesUpAnswers,
    /// A lane that was restarted takes answers meant for its earlier life.
    MistakesLives,
    /// An invariant that does not hold.
    BreaksInvariant,
    /// A server that never comes to rest.
    NeverRests,
}

pub struct Toy;

pub const TOY: Simulated = Simulated::of::<Toy>();

/// The option of the protocol that says what is wrong: a place among [`DEFECTS`].
const DEFECT: &str = "defect";

const DEFECTS: [Defect; 14] = [
    Defect::Nothing,
    Defect::NoDeduplication,
    Defect::StaleReads,
    Defect::Unfenced,
    Defect::DeniesEffect,
    Defect::AnswersTwice,
    Defect::NeverAsksAgain,
    Defect::Panics,
    Defect::Swaps,
    Defect::ReadsWrite,
    Defect::MakesUpAnswers,
    Defect::MistakesLives,
    Defect::BreaksInvariant,
    Defect::NeverRests,
];

ionian_kernel::ids! {
    /// What a client lane asks.
    ServerId "server"
}

pub mod client {
    use super::*;
    use super::{Envelope, server};
    use ionian_kernel::client::{Operation, Refusal, Reply, Request};
    use ionian_kernel::id::{ClientId, Set, Slot};
    use ionian_kernel::role::{Out, Role};
    use ionian_kernel::time::{Duration, Instant, earliest};
    use ionian_kernel::wire::Never;
    use std::collections::BTreeMap;

    ionian_kernel::messages! {
        /// To a client lane.
        "client" In {
            0 => Submit { request: Request },
            1 => Answer { nonce: u64, number: u64, outcome: Outcome },
        }
    }

    pub struct Client {
        pub id: ClientId,
        pub nonce: u64,
        pub next: u64,
        pub open: BTreeMap<u64, (Request, Instant, Instant)>,
        pub patience: Duration,
        pub retry_after: Duration,
        pub defect: Defect,
        pub last: Option<Bytes>,
    }

    impl Client {
        fn ask(&self, number: u64, request: &Request, out: &mut Out<'_, Self>) {
            let (read, payload) = (
                request.operation != Operation::Write,
                request.payload.clone(),
            );
            let message = server::In::Execute {
                client: self.id,
                nonce: self.nonce,
                number,
                read,
                payload,
            };
            out.send(Envelope::ToServer(Set::one(ServerId(0)), message));
        }

        fn reply(&mut self, token: u64, outcome: Result<Bytes, Refusal>, out: &mut Out<'_, Self>) {
            for _ in 0..if self.defect == Defect::AnswersTwice {
                2
            } else {
                1
            } {
                out.send(Envelope::ToApplication(
                    self.id,
                    Reply {
                        token,
                        command: None,
                        outcome: outcome.clone(),
                        seen: Slot::ZERO,
                    },
                ));
            }
        }
    }

    impl Role for Client {
        type In = In;
        type Send = Envelope;
        type Config = Layout;
        type Record = Never;

        fn recover(&mut self, record: Never) {
            match record {}
        }

        fn on_message(&mut self, now: Instant, message: In, out: &mut Out<'_, Self>) {
            match message {
                In::Submit { request } => {
                    if let (Defect::MakesUpAnswers, Some(last)) = (self.defect, &self.last)
                        && request.operation != Operation::Write
                    {
                        return self.reply(request.token, Ok(last.clone()), out);
                    }
                    self.ask(self.next, &request, out);
                    self.open.insert(self.next, (request, now, now));
                    self.next += 1;
                }
                In::Answer {
                    nonce,
                    number,
                    outcome,
                } => {
                    if nonce != self.nonce && self.defect != Defect::MistakesLives {
                        return;
                    }
                    let Some((request, ..)) = self.open.remove(&number) else {
                        return;
                    };
                    match outcome {
                        Outcome::Done(bytes) => {
                            if request.operation != Operation::Write {
                                self.last = Some(bytes.clone());
                            }
                            self.reply(request.token, Ok(bytes), out);
                        }
                        _ => self.reply(request.token, Err(Refusal::NotARead), out),
                    }
                }
            }
        }

        fn on_timer(&mut self, now: Instant, out: &mut Out<'_, Self>) {
            if self.defect == Defect::NeverAsksAgain {
                return;
            }
            for (number, (request, since, asked)) in std::mem::take(&mut self.open) {
                if now >= since + self.patience {
                    let sure = request.operation != Operation::Write
                        || self.defect == Defect::DeniesEffect;
                    let refusal = if sure {
                        Refusal::Unavailable
                    } else {
                        Refusal::Unknown
                    };
                    self.reply(request.token, Err(refusal), out);
                } else if now >= asked + self.retry_after {
                    self.ask(number, &request, out);
                    self.open.insert(number, (request, since, now));
                } else {
                    self.open.insert(number, (request, since, asked));
                }
            }
        }

        fn next_timer(&self) -> Option<Instant> {
            let asleep = self.defect == Defect::NeverAsksAgain;
            let times = self
                .open
                .values()
                .map(|(_, since, asked)| (*asked + self.retry_after).min(*since + self.patience));
            if asleep {
                None
            } else {
                times.fold(None, |next, time| earliest(next, Some(time)))
            }
        }

        const METRICS: Metrics = &[&[Metric::gauge("client.open", "requests", "no answer yet")]];

        fn status(&self, status: &mut Status) {
            status.add([self.open.len() as u64]);
        }
    }
}

pub mod server {
    use super::*;
    use super::{Envelope, client};
    use ionian_kernel::id::{ClientId, Set};
    use ionian_kernel::machine::StateMachine;
    use ionian_kernel::role::{Out, Role};
    use ionian_kernel::time::{Duration, Instant};
    use ionian_kernel::wire_struct;
    use std::collections::BTreeMap;

    ionian_kernel::messages! {
        /// To the server.
        "server" In {
            0 => Execute { client: ClientId, nonce: u64, number: u64, read: bool, payload: Bytes },
        }
    }

    #[derive(Clone)]
    pub struct Executed {
        nonce: u64,
        number: u64,
        payload: Bytes,
    }
    wire_struct! { Executed { nonce, number, payload } }

    pub struct Server {
        pub machine: Box<dyn StateMachine>,
        /// The copy that [`Defect::StaleReads`] and [`Defect::Swaps`] use.
        pub copy: Box<dyn StateMachine>,
        pub late: Vec<Bytes>,
        pub next_copy: Instant,
        pub done: BTreeMap<(u64, u64), Bytes>,
        /// How many it has received since it started.
        pub messages: u64,
        pub defect: Defect,
    }

    impl Server {
        fn execute(&mut self, executed: &Executed) -> Bytes {
            let mut reply = Vec::new();
            self.machine
                .apply(Default::default(), &executed.payload, &mut reply);
            self.late.push(executed.payload.clone());
            let reply = Bytes::from(reply);
            self.done
                .insert((executed.nonce, executed.number), reply.clone());
            assert!(
                self.defect != Defect::Panics || self.done.len() < 20,
                "too much is done"
            );
            reply
        }
    }

    impl Role for Server {
        type In = In;
        type Send = Envelope;
        type Config = Layout;
        type Record = Executed;

        fn recover(&mut self, record: Executed) {
            self.execute(&record);
        }

        /// A toy takes no snapshots and needs all its records permanently.
        fn key(_: &Executed) -> Option<u64> {
            Some(0)
        }

        fn on_message(&mut self, _: Instant, message: In, out: &mut Out<'_, Self>) {
            let In::Execute {
                client,
                nonce,
                number,
                read,
                payload,
            } = message;
            self.messages += 1;
            let mut reply = Vec::new();
            let outcome = if read && self.defect != Defect::ReadsWrite {
                let machine = if self.defect == Defect::StaleReads {
                    &self.copy
                } else {
                    &self.machine
                };
                match machine.read(Default::default(), &payload, &mut reply) {
                    Ok(()) => Outcome::Done(Bytes::from(reply)),
                    Err(_) => Outcome::NotARead,
                }
            } else {
                match self.done.get(&(nonce, number)) {
                    Some(reply) if self.defect != Defect::NoDeduplication => {
                        Outcome::Done(reply.clone())
                    }
                    _ => {
                        let executed = Executed {
                            nonce,
                            number,
                            payload,
                        };
                        out.persist(executed.clone());
                        Outcome::Done(self.execute(&executed))
                    }
                }
            };
            let answer = Envelope::ToClient(
                Set::one(client),
                client::In::Answer {
                    nonce,
                    number,
                    outcome,
                },
            );
            if self.defect == Defect::Unfenced {
                out.send_unfenced(answer);
            } else {
                out.send(answer);
            }
        }

        fn on_timer(&mut self, now: Instant, _: &mut Out<'_, Self>) {
            if now >= self.next_copy {
                self.next_copy = now + Duration::from_millis(20);
                if self.defect == Defect::Swaps && self.late.len() > 1 {
                    self.late.swap(0, 1);
                }
                for command in self.late.drain(..) {
                    self.copy
                        .apply(Default::default(), &command, &mut Vec::new());
                }
            }
        }

        fn next_timer(&self) -> Option<Instant> {
            (!self.late.is_empty()).then_some(self.next_copy)
        }
    }
}

ionian_kernel::protocol! {
    config Layout;
    0 Client "client" ToClient(ionian_kernel::id::ClientId) client::Client,
    1 Server "server" ToServer(ServerId) server::Server,
}

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    const KINDS: &'static [&'static str] = KINDS;
    const METRICS: &'static [Metrics] = METRICS;
    const PRESETS: &'static [Preset] = &[];
    const EXECUTORS: &'static [u8] = &[kind::Server];
    type Message = Message;
    type Envelope = Envelope;
    type Instance = Instance;
    type Config = Layout;
    type Invariants = EachMessage;

    fn configure(layout: Layout) -> Result<Layout, LayoutError> {
        match layout.count(kind::Server) {
            1 => Ok(layout),
            count => Err(LayoutError(format!(
                "there must be 1 server, there are {count}"
            ))),
        }
    }

    fn transition(_: &Layout, _: &Layout) -> Result<Transition, LayoutError> {
        Err(LayoutError("a toy stays as it is".into()))
    }

    fn latest_epoch(config: &Self::Config) -> ionian_kernel::id::Epoch {
        config.epoch
    }

    fn service(_: &Layout, _: Epoch) -> Service {
        Service {
            hub: kind::Client,
            parts: Vec::new(),
            voters: None,
            needs: Vec::new(),
            memories: Vec::new(),
        }
    }

    fn founding_records(_: &Layout, _: Address, _: Slot) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn instantiate(config: &Layout, birth: Birth<'_>) -> Instance {
        let defect = config.options.own.get(DEFECT);
        let defect = DEFECTS[defect.map_or(0, |place| *place as usize)];
        if birth.address.kind == kind::Client {
            Instance::Client(client::Client {
                id: ionian_kernel::id::ClientId(birth.address.index),
                nonce: birth.seed,
                next: 0,
                open: Default::default(),
                patience: config.options.lane.patience,
                retry_after: config.options.lane.retry_after,
                defect,
                last: None,
            })
        } else {
            Instance::Server(server::Server {
                machine: (birth.machine)(),
                copy: (birth.machine)(),
                late: Vec::new(),
                next_copy: Default::default(),
                done: Default::default(),
                messages: 0,
                defect,
            })
        }
    }
}

/// The simulator looks at the server after each message, and says when it has crashed.
#[derive(Default)]
pub struct EachMessage {
    /// How many messages the server had received when it was looked at last, in this life.
    seen: u64,
    never_rests: bool,
}

impl Invariants<Toy> for EachMessage {
    fn new(_: &Layout) -> Self {
        EachMessage::default()
    }

    fn check(&mut self, _: Address, instance: &Instance) -> Result<(), String> {
        let Instance::Server(server) = instance else {
            return Ok(());
        };
        self.never_rests = server.defect == Defect::NeverRests;
        let before = std::mem::replace(&mut self.seen, server.messages);
        if server.messages < before || server.messages > before + 1 {
            return Err(format!("looked at after {before} and {}", server.messages));
        }
        match server.defect == Defect::BreaksInvariant && server.done.len() > 20 {
            true => Err("too much is done".into()),
            false => Ok(()),
        }
    }

    fn crashed(&mut self, address: Address) {
        if address.kind == kind::Server {
            self.seen = 0;
        }
    }

    fn awaited(&self, _: &[(Address, &Instance)]) -> Option<String> {
        self.never_rests.then(|| "rest".into())
    }
}

/// A server on one node and a client lane on each of two others.
pub fn scenario() -> Scenario {
    with(Defect::Nothing)
}

/// The same with a defect.
pub fn with(defect: Defect) -> Scenario {
    let mut layout = Layout {
        instances: numbered(vec![vec![NodeId(1), NodeId(2)], vec![NodeId(0)]]),
        ..Layout::default()
    };
    layout.options.own.insert(DEFECT, defect as u64);
    Scenario {
        stable_log: false,
        ..Scenario::new("toy", layout)
    }
}
