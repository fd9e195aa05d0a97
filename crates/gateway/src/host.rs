//! What the connections of one gateway share: limits, counters, and the list of clients.

use crate::audit::AuditCheck;
use crate::awaited::Awaited;
use crate::info::{InfoWriter, Keys};
use crate::limits::Limits;
use crate::login::Logins;
use crate::measured::Meter;
use crate::memory::Memory;
use crate::peers::Peer;
use crate::process;
use crate::quotas::Account;
use crate::rights::{Cached, Rights};
use crate::slowlog::SlowLog;
use crate::traces::{Traces, Tracing};
use crate::usage::Usage;
use bytes::Bytes;
use ionian_kernel::client::{DiskRoom, ReadLevel};
use ionian_kernel::level::Level;
use ionian_machines::acl::DEFAULT;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// The version of Redis whose replies the gateway imitates. Clients use it to decide which commands
/// exist.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

type Info = Box<dyn Fn(&mut InfoWriter)>;

type Clock = Box<dyn Fn() -> Instant>;

/// What the connections of one gateway share.
pub struct Host {
    pub(crate) limits: Limits,
    pub(crate) stats: Stats,
    pub(crate) started: Instant,
    /// The address where clients connect; empty while the gateway does not listen.
    pub(crate) listening: RefCell<String>,
    info: Info,
    /// What the disk of the node has room for.
    pub(crate) disk_room: Cell<DiskRoom>,
    clients: RefCell<BTreeMap<u64, Rc<Client>>>,
    next_id: Cell<u64>,
    /// Memory of all clients together.
    held: Cell<usize>,
    /// Clients whose XREAD with BLOCK is not answered.
    pub(crate) awaited: RefCell<Awaited>,
    pub(crate) usage: Usage,
    pub(crate) meter: Meter,
    pub(crate) slow: SlowLog,
    pub(crate) traces: Traces,
    pub(crate) rights: Rights,
    pub(crate) memory: Memory,
    pub(crate) logins: Logins,
    pub(crate) audit: AuditCheck,
    /// The clock of quotas; `None` stands for the system's.
    pub(crate) clock: RefCell<Option<Clock>>,
    /// Whether CLIENT KILL has named connections that are not closed yet.
    pub(crate) any_killed: Cell<bool>,
    /// How often a client was looked at, to find some of them.
    pub(crate) looks: Cell<u64>,
    /// All gateways of the cluster, this one first; empty until it is set.
    pub(crate) gateways: RefCell<Vec<Peer>>,
}

/// Counters of one gateway, which never decrease.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) connections: Cell<u64>,
    pub(crate) connections_rejected: Cell<u64>,
    pub(crate) commands: Cell<u64>,
    pub(crate) compounds: Cell<u64>,
    pub(crate) compounds_refused: Cell<u64>,
    pub(crate) deadlines_passed: Cell<u64>,
    pub(crate) bytes_in: Cell<u64>,
    pub(crate) bytes_out: Cell<u64>,
    pub(crate) protocol_errors: Cell<u64>,
    pub(crate) handshakes_failed: Cell<u64>,
    pub(crate) evicted: Cell<u64>,
    pub(crate) unfinished: Cell<u64>,
    pub(crate) idle: Cell<u64>,
    pub(crate) woken: Cell<u64>,
    pub(crate) logins_delayed: Cell<u64>,
    pub(crate) unauthenticated_closed: Cell<u64>,
    pub(crate) quota_delayed: Cell<u64>,
    pub(crate) quota_refused: Cell<u64>,
    pub(crate) quota_connections: Cell<u64>,
}

impl Stats {
    /// Calls `each` with every counter and its name in INFO.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
        each("total_connections_received", self.connections.get());
        each("rejected_connections", self.connections_rejected.get());
        each("total_commands_processed", self.commands.get());
        each("total_net_input_bytes", self.bytes_in.get());
        each("total_net_output_bytes", self.bytes_out.get());
        each("protocol_errors", self.protocol_errors.get());
        each("tls_handshakes_failed", self.handshakes_failed.get());
        each("evicted_clients", self.evicted.get());
        each("unfinished_commands_closed", self.unfinished.get());
        each("idle_clients_closed", self.idle.get());
        each("woken_clients", self.woken.get());
        each("logins_delayed", self.logins_delayed.get());
        each(
            "unauthenticated_clients_closed",
            self.unauthenticated_closed.get(),
        );
        each("quota_delayed_commands", self.quota_delayed.get());
        each("quota_refused_commands", self.quota_refused.get());
        each("quota_refused_connections", self.quota_connections.get());
        each("compounds", self.compounds.get());
        each("compounds_refused", self.compounds_refused.get());
        each("deadlines_passed", self.deadlines_passed.get());
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get().wrapping_add(by));
}

/// One connection and its settings.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) local_address: String,
    pub(crate) since: Instant,
    pub(crate) name: RefCell<Bytes>,
    pub(crate) library: RefCell<Bytes>,
    pub(crate) library_version: RefCell<Bytes>,
    pub(crate) resp3: Cell<bool>,
    /// The consistency level of reads that are sent alone.
    pub(crate) level: Cell<ReadLevel>,
    /// The number of commands that MULTI has queued, if a transaction is open.
    pub(crate) queued: Cell<Option<usize>>,
    pub(crate) watched: Cell<usize>,
    /// Whether its XREAD with BLOCK is not answered.
    pub(crate) blocked: Cell<bool>,
    pub(crate) commands: Cell<u64>,
    /// The name of the last command, in lower case.
    pub(crate) last_command: Cell<&'static str>,
    pub(crate) last_active: Cell<Instant>,
    pub(crate) memory: Cell<ClientMemory>,
    pub(crate) tracking: Cell<Tracking>,
    /// The argument of CLIENT CACHING for the next command or transaction.
    pub(crate) caching: Cell<Option<bool>>,
    /// Whether its commands are traced.
    pub(crate) tracing: Cell<Tracing>,
    /// The number of the last kept command whose reply is not written, and when the last write
    /// began.
    pub(crate) unwritten: Cell<Option<(u64, Instant)>>,
    /// The name of its user.
    pub(crate) user: RefCell<Bytes>,
    /// When the user as which it has logged in [began](ionian_machines::acl::Users::begun).
    pub(crate) user_begun: Cell<u64>,
    /// Whether it has logged in, by AUTH, HELLO or its certificate.
    pub(crate) logged_in: Cell<bool>,
    /// Since when it has had to log in, if it has not.
    pub(crate) unauthenticated: Cell<Option<Instant>>,
    /// The user that its certificate names.
    pub(crate) certified: RefCell<Option<Bytes>>,
    /// Whether it is not known yet if there is that user.
    pub(crate) looks_up_user: Cell<bool>,
    /// How CLIENT KILL ends the connection, until that is done.
    pub(crate) killed: Cell<Option<Kill>>,
    /// That user, if there is one, at an epoch of the users.
    pub(crate) rights: RefCell<Cached>,
    /// What its user has taken of the gateway.
    pub(crate) account: RefCell<Rc<Account>>,
    /// Whether it could not log in because of a quota of connections.
    pub(crate) over_quota: Cell<bool>,
}

/// How CLIENT KILL ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// At once, without the replies that the client has not read.
    Now,
    /// After the reply: the client has named itself.
    Answered,
}

/// Which keys a caching client tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracking {
    #[default]
    Off,
    /// All keys that it reads.
    On,
    /// The keys that it reads after CLIENT CACHING YES.
    OptIn,
    /// The keys that it reads, except after CLIENT CACHING NO.
    OptOut,
}

impl Client {
    /// Whether the client tracks the keys of its next command.
    pub(crate) fn tracks(&self) -> bool {
        match self.tracking.get() {
            Tracking::Off => false,
            Tracking::On => true,
            Tracking::OptIn => self.caching.get() == Some(true),
            Tracking::OptOut => self.caching.get() != Some(false),
        }
    }
}

/// The memory of a connection, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientMemory {
    /// Incomplete or unparsed commands.
    pub(crate) input: usize,
    /// Commands that wait or are in flight.
    pub(crate) commands: usize,
    /// Commands queued by MULTI, and watched keys.
    pub(crate) transaction: usize,
    /// Replies that the client has not read, including their buffer.
    pub(crate) output: usize,
    /// These replies alone.
    pub(crate) replies: usize,
}

impl ClientMemory {
    pub(crate) fn total(&self) -> usize {
        self.input + self.commands + self.transaction + self.output
    }

    /// Commands without an answer: those that MULTI has queued are answered by EXEC.
    pub(crate) fn unanswered(&self) -> usize {
        self.commands + self.transaction
    }
}

impl Host {
    /// A host for connections. `info` adds the node's own sections to INFO.
    pub fn new(limits: Limits, info: Box<dyn Fn(&mut InfoWriter)>) -> Rc<Host> {
        Rc::new(Host {
            limits,
            disk_room: Cell::default(),
            stats: Stats::default(),
            started: Instant::now(),
            listening: RefCell::default(),
            info,
            clients: RefCell::default(),
            next_id: Cell::new(1),
            held: Cell::new(0),
            awaited: RefCell::new(Awaited::new(limits.asks_by_ranges)),
            usage: Usage::default(),
            meter: Meter::default(),
            slow: SlowLog::default(),
            traces: Traces::default(),
            rights: Rights::default(),
            memory: Memory::default(),
            logins: Logins::default(),
            audit: AuditCheck::default(),
            clock: RefCell::default(),
            any_killed: Cell::default(),
            looks: Cell::default(),
            gateways: RefCell::default(),
        })
    }

    /// Sets the level of the cluster, which decides whether it has users.
    pub fn set_level(&self, level: Level) {
        self.rights.set_level(level);
    }

    /// Clusters of this protocol keep their level: what needs a higher one is refused with its
    /// name.
    pub fn set_fixed_level(&self, protocol: &str) {
        self.rights.set_fixed_level(protocol);
    }

    /// Commands for which the disk of the node has no room are refused from now on.
    pub fn set_disk_room(&self, room: DiskRoom) {
        self.disk_room.set(room);
    }

    /// Adds a new connection to the list.
    pub(crate) fn connect(&self, address: String, local_address: String) -> Rc<Client> {
        let client = Rc::new(Client {
            id: self.next_id.replace(self.next_id.get() + 1),
            address,
            local_address,
            since: Instant::now(),
            name: RefCell::default(),
            library: RefCell::default(),
            library_version: RefCell::default(),
            resp3: Cell::new(false),
            level: Cell::new(ReadLevel::default()),
            queued: Cell::new(None),
            watched: Cell::new(0),
            blocked: Cell::new(false),
            commands: Cell::new(0),
            last_command: Cell::new("NULL"),
            last_active: Cell::new(Instant::now()),
            memory: Cell::default(),
            tracking: Cell::default(),
            caching: Cell::default(),
            tracing: Cell::default(),
            unwritten: Cell::default(),
            user: RefCell::new(Bytes::from_static(DEFAULT)),
            user_begun: Cell::new(0),
            logged_in: Cell::new(false),
            unauthenticated: Cell::default(),
            certified: RefCell::default(),
            looks_up_user: Cell::default(),
            killed: Cell::default(),
            rights: RefCell::default(),
            account: RefCell::new(self.new_account()),
            over_quota: Cell::new(false),
        });
        count(&self.stats.connections, 1);
        self.count_unauthenticated(&client);
        self.clients.borrow_mut().insert(client.id, client.clone());
        client
    }

    /// Memory of all clients together in bytes.
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Sets the memory of a client.
    pub(crate) fn account(&self, client: &Client, memory: ClientMemory) {
        let before = client.memory.replace(memory);
        self.held
            .set(self.held.get() + memory.total() - before.total());
        let (before, after) = (before.unanswered(), memory.unanswered());
        if before != after {
            client.account.borrow().count_unanswered(before, after);
        }
    }

    pub(crate) fn disconnect(&self, client: &Client) {
        self.account(client, ClientMemory::default());
        self.leave_account(client);
        self.no_longer_unauthenticated(client);
        self.clients.borrow_mut().remove(&client.id);
    }

    /// Calls `each` for every connection, the oldest first.
    pub(crate) fn for_each_client(&self, mut each: impl FnMut(&Client)) {
        let clients = self.clients.borrow();
        count(&self.looks, clients.len() as u64);
        clients.values().for_each(|client| each(client));
    }

    /// Has the connection of `client` closed.
    pub(crate) fn kill(&self, client: &Client, how: Kill) {
        client.killed.set(Some(how));
        self.any_killed.set(true);
    }

    /// Writes the gateway's sections of INFO, then the node's. What there is to say of `keys` is
    /// known to replicas only.
    pub(crate) fn write_info(&self, info: &mut InfoWriter, keys: Option<Keys>) {
        let uptime = self.started.elapsed().as_secs();
        info.section("Server")
            .field("redis_version", REDIS_VERSION)
            .field("redis_mode", "standalone")
            .field("ionian_version", env!("CARGO_PKG_VERSION"))
            .field("os", std::env::consts::OS)
            .field("arch_bits", usize::BITS)
            .field("process_id", std::process::id());
        if let Some((_, port)) = self.listening.borrow().rsplit_once(':') {
            info.field("tcp_port", port);
        }
        info.field("uptime_in_seconds", uptime)
            .field("uptime_in_days", uptime / 86_400);
        info.section("Clients")
            .field("connected_clients", self.clients.borrow().len())
            .field("maxclients", self.limits.connections)
            .field("client_memory", self.held())
            .field("maxmemory_clients", self.limits.memory_bytes)
            .field("blocked_clients", self.awaited.borrow().clients());
        process::write_memory(info);
        let memory = self.memory.known();
        if memory.limit > 0 {
            info.field("used_memory_dataset", memory.used);
        }
        info.field("maxmemory", memory.limit)
            .field("maxmemory_policy", "noeviction")
            .field("mem_clients_normal", self.held());
        // Some clients wait for this before they send commands.
        info.section("Persistence").field("loading", 0);
        info.section("Stats");
        self.stats.for_each(|name, value| {
            info.field(name, value);
        });
        info.field("acl_access_denied_auth", self.rights.denied_auth.get())
            .field("acl_access_denied_cmd", self.rights.denied_commands.get())
            .field("acl_access_denied_key", self.rights.denied_keys.get());
        (self.info)(info);
        process::write_cpu(info);
        self.usage.write(info);
        // There are no slots and no redirections, although CLUSTER SLOTS lists the gateways.
        info.section("Cluster").field("cluster_enabled", 0);
        info.section("Keyspace");
        if let Some(keys) = keys.filter(|keys| keys.total > 0) {
            info.field("db0", keys);
        }
    }
}

impl Client {
    /// Restores the initial settings of the connection but its user, for RESET.
    pub(crate) fn reset(&self) {
        self.name.take();
        self.resp3.set(false);
        self.level.set(ReadLevel::default());
        self.tracking.set(Tracking::Off);
        self.caching.set(None);
        self.tracing.set(Tracing::Off);
    }
}
