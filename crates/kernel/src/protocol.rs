//! What a protocol is to a driver: a list of role kinds, a way to build each instance, and one
//! enumeration each of messages, envelopes and instances, which the [`protocol!`](crate::protocol!)
//! macro writes from a table.

mod any;
mod description;

pub use self::any::{AnyProtocol, any};
pub use self::description::Description;
use crate::client::{Reply, Request};
use crate::guard::Guard;
use crate::id::{ClientId, Epoch, Members, SessionId, Slot};
use crate::layout::{Address, Layout, LayoutError, NodeId, Options};
use crate::level::Level;
use crate::machine::{RestoreError, StateMachine};
use crate::preset::Preset;
use crate::role::{Cover, Lsn, Outbox, Picture};
use crate::salvage::Salvage;
use crate::service::Service;
use crate::setting::Setting;
use crate::status::{Metrics, Status};
use crate::time::Instant;
use crate::trace::Subject;
use crate::wire::{Reader, Wire, WireError};
use crate::work::HireWorkers;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt::Debug;

/// A replication protocol, made of roles.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// Its name in deployment files.
    const NAME: &'static str;
    /// The names of its role kinds in deployment files, in the order data flows. The first is the
    /// client lane.
    const KINDS: &'static [&'static str];
    /// What the roles of each kind report of themselves, in the order of the kinds.
    const METRICS: &'static [Metrics];
    /// The deployments that come with it.
    const PRESETS: &'static [Preset];
    /// The kinds whose instances execute the commands of clients and store snapshots of that state.
    const EXECUTORS: &'static [u8];
    /// Whether its executors may execute what no disk holds yet: they forget it together with the
    /// replies, which they hold back.
    const EXECUTES_BEFORE_STABLE: bool = false;
    /// Whether a read that touches several parts of the machine goes through the log, as a command
    /// does: what is asked all the time had better be asked of one part at a time.
    const LOGS_SPANNING_READS: bool = false;
    /// Whether linearizable reads are in the log, all or those of several parts.
    const LOGS_READS: bool = Self::LOGS_SPANNING_READS;
    /// Its settings beside those of all protocols. Another protocol may have the same.
    const SETTINGS: &'static [Setting] = &[];
    /// Whether a node that has lost its data directory may take part again with an empty one: its
    /// roles then contradict nothing that [those before](Birth::predecessors) have promised.
    const READMITS: bool = false;
    /// The lowest level with which its clusters can be founded.
    const FOUNDED_SINCE: Level = Level::FIRST;
    /// A message to any of its roles.
    type Message: Message;
    /// A message with its typed destination.
    type Envelope: Into<Routed<Self::Message>> + Send;
    /// One instance of any of its roles.
    type Instance: Instance<Message = Self::Message, Envelope = Self::Envelope, Config = Self::Config>
        + Send;
    /// A checked layout.
    type Config: Clone + Send + Sync;
    /// What must hold over all instances at once; [`NoInvariants`] where nothing is said.
    type Invariants: Invariants<Self>;

    /// Checks that `layout` is a deployment of this protocol.
    ///
    /// # Errors
    /// Says why it is not, in terms of the protocol.
    fn configure(layout: Layout) -> Result<Self::Config, LayoutError>;

    /// What an operator must know of a layout that is a deployment of this protocol, and may not
    /// expect: each a sentence.
    fn cautions(config: &Self::Config) -> Vec<String> {
        let _ = config;
        Vec::new()
    }

    /// Whether a cluster can be changed from one layout into another, and whether there must be a
    /// time in which both are in force.
    ///
    /// # Errors
    /// Says why it cannot, in terms of the protocol.
    fn transition(from: &Layout, to: &Layout) -> Result<Transition, LayoutError>;

    /// The latest epoch of which the configuration knows the quorums. Messages that
    /// [name](Wire::latest_epoch) a later one are [ignored](crate::node::Node::run).
    fn latest_epoch(config: &Self::Config) -> Epoch;

    /// Whether the options of a running cluster can be changed through its log.
    ///
    /// # Errors
    /// Says why they cannot.
    fn check_tunable() -> Result<(), LayoutError> {
        Ok(())
    }

    /// Whether the level of a running cluster can be changed through its log.
    ///
    /// # Errors
    /// Says why it cannot.
    fn check_level() -> Result<(), LayoutError> {
        Self::check_tunable()
    }

    /// Whether it can be lowered.
    ///
    /// # Errors
    /// Says why it cannot.
    fn check_lowering() -> Result<(), LayoutError> {
        Self::check_level()
    }

    /// The rare branches of its roles, which [say so](crate::role::Out::reached) when they take
    /// one: what testers must have reached to claim that they have tried the protocol.
    fn branches() -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether replicas may execute commands that commute in different orders.
    fn commutes(options: &Options) -> bool {
        let _ = options;
        false
    }

    /// How many quorum systems there are, each in the arrangement of the deployment and each with
    /// an equal share of the voters.
    fn quorum_systems(options: &Options) -> usize {
        let _ = options;
        1
    }

    /// What a cluster of this configuration needs to serve its clients, and what it cannot lose,
    /// while rounds of `epoch` choose.
    fn service(config: &Self::Config, epoch: Epoch) -> Service;

    /// With which records of its log the instance `at` begins in a cluster that goes on from a
    /// snapshot of all slots below `slot`: it knows nothing of these.
    fn founding_records(config: &Self::Config, at: Address, slot: Slot) -> Vec<Vec<u8>>;

    /// What reads the records of stopped nodes, when more nodes are lost than the protocol
    /// tolerates.
    ///
    /// # Errors
    /// Says why nothing does.
    fn salvage() -> Result<Box<dyn Salvage>, LayoutError> {
        Err(LayoutError("its log cannot be salvaged".into()))
    }

    /// The state machine with its sessions, in a snapshot that an instance of [`Self::EXECUTORS`]
    /// has stored: what a cluster can be founded with.
    ///
    /// # Errors
    /// Says why it cannot be read.
    fn state_in(stored: &Bytes) -> Result<Bytes, RestoreError> {
        Ok(stored.clone())
    }

    /// How far the log of a session was executed in a snapshot that an instance of
    /// [`Self::EXECUTORS`] has stored with this stamp: every slot below is.
    ///
    /// # Errors
    /// Says why the snapshot cannot be read.
    fn executed_in(stored: &Bytes, stamp: Slot, session: SessionId) -> Result<Slot, RestoreError> {
        let _ = (stored, session);
        Ok(stamp)
    }

    /// Builds one instance.
    fn instantiate(config: &Self::Config, birth: Birth<'_>) -> Self::Instance;
}

/// How one configuration is changed into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// As soon as a node hears of it.
    AtOnce,
    /// By way of a time in which both are in force.
    Joint,
}

/// What must hold over all instances of a cluster at once: checked by the simulator, which sees
/// them all.
pub trait Invariants<P: Protocol> {
    /// For a run of its own.
    fn new(config: &P::Config) -> Self;

    /// Looks at an instance that was just called.
    ///
    /// # Errors
    /// Says what does not hold.
    fn check(&mut self, address: Address, instance: &P::Instance) -> Result<(), String>;

    /// The membership has changed, somewhere at least.
    fn reconfigured(&mut self, config: &P::Config) {
        let _ = config;
    }

    /// An instance crashed: what it held in memory is gone.
    fn crashed(&mut self, address: Address);

    /// What an idle deployment without faults has not restored yet, if anything: every role must
    /// resume its own work. `instances` are those that are up.
    fn awaited(&self, instances: &[(Address, &P::Instance)]) -> Option<String> {
        let _ = instances;
        None
    }
}

/// Nothing is said over all instances at once.
pub struct NoInvariants;

impl<P: Protocol> Invariants<P> for NoInvariants {
    fn new(_: &P::Config) -> Self {
        NoInvariants
    }
    fn check(&mut self, _: Address, _: &P::Instance) -> Result<(), String> {
        Ok(())
    }
    fn crashed(&mut self, _: Address) {}
}

/// The most [predecessors](Birth::predecessors) of a data directory.
pub const MAX_PREDECESSORS: u32 = u8::MAX as u32;

/// What a protocol needs to build an instance.
pub struct Birth<'a> {
    /// Who it is.
    pub address: Address,
    /// Where it lives.
    pub node: NodeId,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Whether an earlier process of this node has taken part in the cluster and what that process
    /// kept in memory is lost: only what it persisted, or persisted as vital, can be recovered.
    pub amnesiac: bool,
    /// How many data directories of this node were lost before the present one, with all that they
    /// had recorded: at most [`MAX_PREDECESSORS`], none where the protocol does not
    /// [readmit](Protocol::READMITS) such a node.
    pub predecessors: u32,
    /// Whether the node stores every record, or only vital ones.
    pub keeps_records: bool,
    /// Makes an empty state machine.
    pub machine: &'a dyn Fn() -> Box<dyn StateMachine>,
    /// By whom its machine is called; none where the role itself does.
    pub guard: Option<&'a Arc<dyn Guard>>,
    /// Who works for it beside its own thread; none where it works alone.
    pub workers: Option<HireWorkers<'a>>,
}

/// A message to one of a protocol's roles.
pub trait Message: Wire + Clone + Debug + Send {
    /// Hands an application's request to a client lane.
    fn submit(request: Request) -> Self;
    /// The place among [`Protocol::KINDS`] of the role that accepts it.
    fn kind(&self) -> u8;
    /// Its name, for traces and counters: the role's and the variant's.
    fn name(&self) -> &'static str;
    /// What it is about, if traces show it.
    fn subject(&self) -> Option<Subject<'_>> {
        None
    }
}

/// Where a message goes, untyped.
#[derive(Clone, Debug)]
pub enum Routed<M> {
    /// To role instances.
    Roles {
        /// The place of their kind among [`Protocol::KINDS`].
        kind: u8,
        /// The instances that are meant.
        members: Members,
        /// What to say to each.
        message: M,
    },
    /// Out of the protocol, to the application of a client lane.
    Application {
        /// The lane.
        lane: ClientId,
        /// The answer to one of its requests.
        reply: Reply,
    },
}

/// A role instance of any kind, as a driver handles it; see [`Role`](crate::role::Role).
pub trait Instance {
    /// A message to any role of the protocol.
    type Message;
    /// A message with its destination.
    type Envelope;
    /// What the protocol makes of a layout.
    type Config;

    /// Takes in one message. One meant for another kind of role is a peer's mistake and ignored.
    fn on_message(
        &mut self,
        now: Instant,
        message: Self::Message,
        outbox: &mut Outbox<Self::Envelope>,
    );
    /// See [`Role::recover`](crate::role::Role::recover). Returns the record's
    /// [key](crate::role::Role::key).
    ///
    /// # Errors
    /// When the bytes are not a record of this role, or [records before it are
    /// missing](crate::role::Role::check_record).
    fn recover(&mut self, record: &mut Reader<'_>) -> Result<Option<u64>, WireError>;
    /// See [`Role::restore`](crate::role::Role::restore).
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    fn restore(&mut self, stamp: u64, snapshot: &Bytes) -> Result<(), RestoreError>;
    /// See [`Role::on_reconfigure`](crate::role::Role::on_reconfigure).
    fn on_reconfigure(
        &mut self,
        now: Instant,
        config: Self::Config,
        outbox: &mut Outbox<Self::Envelope>,
    );
    /// See [`Role::on_start`](crate::role::Role::on_start).
    fn on_start(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::on_timer`](crate::role::Role::on_timer).
    fn on_timer(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::next_timer`](crate::role::Role::next_timer).
    fn next_timer(&self) -> Option<Instant>;
    /// See [`Role::on_burst_end`](crate::role::Role::on_burst_end).
    fn on_burst_end(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::on_durable`](crate::role::Role::on_durable).
    fn on_durable(&mut self, lsn: Lsn, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::on_snapshot`](crate::role::Role::on_snapshot).
    fn on_snapshot(&mut self, stamp: u64, stored: bool, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::freeze`](crate::role::Role::freeze).
    fn freeze(&mut self, now: Instant, cover: Cover) -> Picture;
    /// See [`Role::checkpoint`](crate::role::Role::checkpoint).
    fn checkpoint(&self, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::on_drain`](crate::role::Role::on_drain).
    fn on_drain(&mut self, now: Instant, drains: bool, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::on_retire`](crate::role::Role::on_retire).
    fn on_retire(&mut self, now: Instant, outbox: &mut Outbox<Self::Envelope>);
    /// See [`Role::is_drained`](crate::role::Role::is_drained).
    fn is_drained(&self) -> bool;
    /// See [`Role::invariants`](crate::role::Role::invariants).
    fn invariants(&self);
    /// See [`Role::status`](crate::role::Role::status).
    fn status(&self) -> Status;
}

/// Writes a protocol's `Envelope`, `Message` and `Instance` from a table of its roles, one line
/// each: tag, name of the kind, name in deployment files, envelope variant (type of id), module,
/// role; and `internal` if what its messages say of commands is not about those of clients.
#[macro_export]
macro_rules! protocol {
    (config $config:ty; $($tag:literal $kind:ident $name:literal $to:ident($id:ty) $module:ident::$role:ident $($internal:ident)?),* $(,)?) => {
        /// A message of this protocol with its destinations.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Envelope {
            $(
                #[doc = concat!("To each of these instances of [`", stringify!($module), "`].")]
                $to($crate::id::Set<$id>, $module::In),
            )*
            /// Out of the protocol, to the application of this client lane.
            ToApplication($crate::id::ClientId, $crate::client::Reply),
        }

        /// A message to any role of this protocol.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {
            $(
                #[doc = concat!("To a [`", stringify!($module), "`].")]
                $kind($module::In),
            )*
        }

        /// One instance of any role of this protocol.
        // Instances are few and live in one vector per node: the size of the largest is no matter.
        #[allow(clippy::large_enum_variant)]
        pub enum Instance {
            $(
                #[doc = concat!("A [`", stringify!($module), "`].")]
                $kind($module::$role),
            )*
        }

        /// The names of the kinds, in the order data flows.
        pub const KINDS: &[&str] = &[$($name),*];

        /// The metrics of each kind, in the same order.
        pub const METRICS: &[$crate::status::Metrics] =
            &[$(<$module::$role as $crate::role::Role>::METRICS),*];

        /// The place of each kind in [`KINDS`].
        pub mod kind {
            $(
                #[doc = concat!("The place of `", $name, "`.")]
                #[allow(non_upper_case_globals)]
                pub const $kind: u8 = $tag;
            )*
        }

        impl From<Envelope> for $crate::protocol::Routed<Message> {
            fn from(envelope: Envelope) -> Self {
                match envelope {
                    $(Envelope::$to(members, message) => $crate::protocol::Routed::Roles {
                        kind: $tag,
                        members: members.members(),
                        message: Message::$kind(message),
                    },)*
                    Envelope::ToApplication(lane, reply) => $crate::protocol::Routed::Application { lane, reply },
                }
            }
        }

        $crate::wire_enum! { Message { $($tag => $kind(message)),* } }

        impl $crate::protocol::Message for Message {
            fn submit(request: $crate::client::Request) -> Self {
                Message::Client(client::In::Submit { request })
            }
            fn kind(&self) -> u8 {
                match self {
                    $(Message::$kind(_) => $tag,)*
                }
            }
            fn name(&self) -> &'static str {
                match self {
                    $(Message::$kind(message) => message.name(),)*
                }
            }
            fn subject(&self) -> Option<$crate::trace::Subject<'_>> {
                match self {
                    $(Message::$kind(message) => message.subject()$(.map($crate::trace::Subject::$internal))?,)*
                }
            }
        }

        impl $crate::protocol::Instance for Instance {
            type Message = Message;
            type Envelope = Envelope;
            type Config = $config;

            fn on_message(&mut self, now: $crate::time::Instant, message: Message, outbox: &mut $crate::role::Outbox<Envelope>) {
                match (self, message) {
                    $((Instance::$kind(role), Message::$kind(message)) => {
                        $crate::role::Role::on_message(role, now, message, &mut $crate::role::Out::new(outbox))
                    })*
                    _ => {}
                }
            }
            fn recover(&mut self, record: &mut $crate::wire::Reader<'_>) -> Result<Option<u64>, $crate::wire::WireError> {
                match self {
                    $(Instance::$kind(role) => {
                        let record = $crate::wire::Wire::decode(record)?;
                        $crate::role::Role::check_record(role, &record)?;
                        let key = <$module::$role as $crate::role::Role>::key(&record);
                        $crate::role::Role::recover(role, record);
                        Ok(key)
                    })*
                }
            }
            fn on_start(&mut self, now: $crate::time::Instant, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_start(role, now, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn on_reconfigure(&mut self, now: $crate::time::Instant, config: $config, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_reconfigure(role, now, config, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn on_timer(&mut self, now: $crate::time::Instant, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_timer(role, now, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn next_timer(&self) -> Option<$crate::time::Instant> {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::next_timer(role),)*
                }
            }
            fn on_burst_end(&mut self, now: $crate::time::Instant, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_burst_end(role, now, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn on_durable(&mut self, lsn: $crate::role::Lsn, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_durable(role, lsn, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn restore(&mut self, stamp: u64, snapshot: &bytes::Bytes) -> Result<(), $crate::machine::RestoreError> {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::restore(role, stamp, snapshot),)*
                }
            }
            fn on_snapshot(&mut self, stamp: u64, stored: bool, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_snapshot(role, stamp, stored, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn freeze(&mut self, now: $crate::time::Instant, cover: $crate::role::Cover) -> $crate::role::Picture {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::freeze(role, now, cover),)*
                }
            }
            fn checkpoint(&self, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::checkpoint(role, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn on_drain(&mut self, now: $crate::time::Instant, drains: bool, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_drain(role, now, drains, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn on_retire(&mut self, now: $crate::time::Instant, outbox: &mut $crate::role::Outbox<Envelope>) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::on_retire(role, now, &mut $crate::role::Out::new(outbox)),)*
                }
            }
            fn is_drained(&self) -> bool {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::is_drained(role),)*
                }
            }
            fn invariants(&self) {
                match self {
                    $(Instance::$kind(role) => $crate::role::Role::invariants(role),)*
                }
            }
            fn status(&self) -> $crate::status::Status {
                match self {
                    $(Instance::$kind(role) => $crate::status::Status::of(role),)*
                }
            }
        }
    };
}

/// Writes the `In` enumeration of a role: its variants with their fields, wire format and names. A
/// variant `via` one of its fields is called by that field's name: it carries a message of another
/// protocol's role, and is `internal` if the commands in it are not those of clients. A variant
/// `for "stage" of` some of its fields is shown in [traces](crate::trace): these fields say what it
/// is about (one `->` a function the slot that the function finds in it), the stage what the role
/// does then.
/// The slots of a variant `in` one of its fields are those of one of several logs.
#[macro_export]
macro_rules! messages {
    ($(#[$doc:meta])* $role:literal $name:ident {
        $($(#[$variant_doc:meta])* $tag:literal $(since $level:literal)? $(for $stage:literal of $($part:ident $(-> $slot:ident)?)+)? $(in $log:ident)? => $variant:ident $(via $inner:ident $($internal:ident)?)? { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }),* $(,)?
    }) => {
        $(#[$doc])* #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant { $($(#[$field_doc])* $field: $type),* },)*
        }

        $crate::wire_enum! { $name { $($tag $(since $level)? => $variant { $($field),* }),* } }

        impl $name {
            /// The role's and the variant's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $($name::$variant { $($inner,)? .. } => $crate::message_name!($role $variant $($inner)?),)*
                }
            }

            /// What the message is about, if traces show it.
            pub fn subject(&self) -> Option<$crate::trace::Subject<'_>> {
                match self {
                    $($name::$variant { $($inner,)? $($($part,)+)? $($log,)? .. } => $crate::message_subject!($($inner $(.$internal)?)? $($log)? $($stage $($part $(-> $slot)?)+)?),)*
                }
            }
        }
    };
}

/// The name of a message, for [`messages!`](crate::messages!).
#[doc(hidden)]
#[macro_export]
macro_rules! message_name {
    ($role:literal $variant:ident) => {
        concat!($role, "::", stringify!($variant))
    };
    ($role:literal $variant:ident $inner:ident) => {
        $inner.name()
    };
}
