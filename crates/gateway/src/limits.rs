//! The limits of a connection, and what happens at each of them.

use std::time::Duration;

/// Limits of the gateway. No connection uses more memory than these allow, whatever the client
/// sends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; one more gets `max number of clients reached` and is closed.
    pub connections: usize,
    /// Words of one command, including its name; more are a protocol error.
    pub args: usize,
    /// Bytes of one word, and of all words of one command together; more are a protocol error. Keep
    /// it at or below `payload_bytes` of the kernel's `LaneLimits`, because lanes refuse larger
    /// commands.
    pub bulk_bytes: usize,
    /// Bytes of one line: of an inline command, or of the head of an array or a bulk string.
    pub inline_bytes: usize,
    /// Commands per compound.
    pub compound_commands: usize,
    /// Bytes per compound, unless a single command is larger.
    pub compound_bytes: usize,
    /// Commands that MULTI queues; one more is refused and makes EXEC fail.
    pub transaction_commands: usize,
    /// Bytes of the commands that MULTI queues, and of the replies that the gateway stores for
    /// EXEC.
    pub transaction_bytes: usize,
    /// Streams that all clients together wait for with XREAD BLOCK, each as often as it is named;
    /// a command with more is refused.
    pub awaited_streams: usize,
    /// Whether a question for streams of several parts of the store costs the cluster as much as a
    /// command that is executed in all of them. Then the gateway asks for those of one range of
    /// keys at a time.
    pub asks_by_ranges: bool,
    /// Whether the protocol writes linearizable reads to the log.
    pub logs_reads: bool,
    /// Keys that a connection may watch at once.
    pub watched_keys: usize,
    /// If a slow reader has more than this many bytes of unread replies, the gateway stops reading
    /// its commands.
    pub output_bytes_soft: usize,
    /// Bytes of commands and replies of all clients together. Beyond it the gateway closes the
    /// connection that uses most, then the next.
    pub memory_bytes: usize,
    /// Bytes of expected replies of all clients together. The gateway sends commands only as far as
    /// this leaves room for their replies, estimated by the size of each connection's recent
    /// replies.
    pub expected_bytes: usize,
    /// Bytes of one client; beyond it the gateway closes its connection.
    pub client_bytes: usize,
    /// How long a command may remain incomplete if it arrives at less than 64 kilobit per second;
    /// then the connection is closed.
    pub unfinished: Duration,
    /// How long a client may send nothing and take nothing while it waits for nothing; then the
    /// connection is closed. Zero: without end.
    pub idle: Duration,
    /// How long a client may take for the TLS handshake.
    pub handshake: Duration,
    /// How long a client may stay that has to log in and has not; then the connection is closed.
    pub login: Duration,
    /// How long each attempt to log in waits after several wrong passwords from the same address.
    pub login_delay: Duration,
    /// How long the gateway reads and discards input after it has sent the client the reason for
    /// closing. Closing at once would make the client's system drop the reason together with the
    /// data that it still sends.
    pub linger: Duration,
    /// Maximum number of bytes that are discarded in this way.
    pub linger_bytes: usize,
    /// How long to wait for the answer to a compound. A safety net: the client lane answers within
    /// its own patience, which must be shorter.
    pub deadline: Duration,
    /// A command that takes this long, from its receipt to its reply, is slow.
    pub slower_than: Duration,
    /// The answer of WAIT: the number of further machines that have a write when it is
    /// acknowledged. For majorities this is `f`.
    pub copies: u32,
}

/// Minimum rate of a client whose command is incomplete: 64 kilobit per second.
pub(crate) const MIN_BYTES_PER_SECOND: u32 = 8 << 10;

impl Limits {
    /// The most clients that have to log in and have not.
    pub(crate) fn unauthenticated(&self) -> usize {
        self.connections.div_ceil(4)
    }

    /// Those of a client that has to log in, as in Redis: 10 words, of 16 KiB together.
    pub(crate) fn before_login(self) -> Limits {
        Limits {
            args: self.args.min(10),
            bulk_bytes: self.bulk_bytes.min(16 << 10),
            inline_bytes: self.inline_bytes.min(16 << 10),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            args: 65_536,
            bulk_bytes: 8 << 20,
            inline_bytes: 64 << 10,
            // More gains nothing: with 16 commands per compound its fixed cost is already small.
            compound_commands: 1024,
            // The data in flight of a client that sends continuously; commands of other clients
            // wait behind it.
            compound_bytes: 64 << 10,
            transaction_commands: 65_536,
            transaction_bytes: 8 << 20,
            // All are looked at after each question.
            awaited_streams: 16_384,
            asks_by_ranges: false,
            logs_reads: false,
            watched_keys: 65_536,
            // These replies wait behind a full socket buffer, which is large enough for a fast
            // reader.
            output_bytes_soft: 64 << 10,
            // A node with many clients stays below half a gigabyte, because the roles also hold
            // what a client has in flight.
            memory_bytes: 128 << 20,
            // One second of a small machine's throughput, as the lane assumes
            // (`kernel::time::transit`).
            expected_bytes: 32 << 20,
            // The largest reply.
            client_bytes: 80 << 20,
            unfinished: Duration::from_secs(60),
            // As in Redis.
            idle: Duration::ZERO,
            handshake: Duration::from_secs(5),
            login: Duration::from_secs(60),
            login_delay: Duration::from_secs(1),
            linger: Duration::from_secs(30),
            linger_bytes: 1 << 30,
            // The default patience of `LaneLimits` plus a second.
            deadline: Duration::from_secs(6),
            // The default of Redis's `slowlog-log-slower-than`.
            slower_than: Duration::from_millis(10),
            copies: 1,
        }
    }
}
