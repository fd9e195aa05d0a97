//! What a connection may use, and what happens at each limit.

use std::time::Duration;

/// Limits of the gateway. Whatever a client sends, its connection keeps no more than these allow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; one more gets `max number of clients reached` and is closed.
    pub connections: usize,
    /// Words of one command, its name included; more are a protocol error.
    pub args: usize,
    /// Bytes of one word, and of all words of one command together; more are a protocol error. Keep
    /// it at `payload_bytes` of the kernel's `LaneLimits` or below: nothing larger can be carried.
    pub bulk_bytes: usize,
    /// Bytes of one line: of an inline command, or of the head of an array or a bulk string.
    pub inline_bytes: usize,
    /// Commands that travel as one compound.
    pub compound_commands: usize,
    /// Bytes that travel as one compound, unless one command alone is larger.
    pub compound_bytes: usize,
    /// Commands that MULTI queues; one more is refused and makes EXEC fail.
    pub transaction_commands: usize,
    /// Bytes of the commands that MULTI queues, and of the replies that the gateway keeps for EXEC.
    pub transaction_bytes: usize,
    /// Keys that a connection watches at once.
    pub watched_keys: usize,
    /// Bytes of replies waiting for a slow reader at which the gateway stops reading its commands.
    pub output_bytes_soft: usize,
    /// Bytes that the gateway holds for all clients together: of commands and of replies. Beyond
    /// it, the connection that holds most is closed, then the next.
    pub memory_bytes: usize,
    /// Bytes of replies that are expected and not here yet, for all clients together: commands are
    /// sent on as far as there is room for their replies, by the size of each connection's last
    /// ones.
    pub expected_bytes: usize,
    /// Bytes that the gateway holds for one client; beyond it, its connection is closed.
    pub client_bytes: usize,
    /// How long a command may stay unfinished, if it comes at less than 64 kilobit a second; then
    /// its connection is closed.
    pub unfinished: Duration,
    /// How long a connection is read from, and what comes discarded, after the client was told why
    /// it is closed. Closing at once would make its system drop what it was told along with what it
    /// still sends.
    pub linger: Duration,
    /// Bytes that are discarded so, at most.
    pub linger_bytes: usize,
    /// How long to wait for the answer to a compound. It is a safety net: the client lane answers
    /// within its own patience, which is to be shorter.
    pub deadline: Duration,
    /// What WAIT answers: on how many machines besides one a write is safe when it is acknowledged.
    /// For majorities this is `f`.
    pub copies: u32,
}

/// What a client waits for is not sent slower than this: 64 kilobit a second.
pub(crate) const MIN_BYTES_PER_SECOND: u32 = 8 << 10;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            args: 65_536,
            bulk_bytes: 8 << 20,
            inline_bytes: 64 << 10,
            // More gain nothing: at 16 commands to a compound its fixed cost is already a small
            // part.
            compound_commands: 1024,
            // A client that sends without an end has so much under way at a time; what others send
            // waits behind it.
            compound_bytes: 64 << 10,
            transaction_commands: 65_536,
            transaction_bytes: 8 << 20,
            watched_keys: 65_536,
            // Whatever waits here waits behind a full socket, which holds more than enough for a
            // fast reader.
            output_bytes_soft: 64 << 10,
            // A node with many clients stays below half a gigabyte: what a client holds here is on
            // its way through the roles as well.
            memory_bytes: 128 << 20,
            // A second of what a small machine carries, as the lane reckons
            // (`kernel::time::transit`).
            expected_bytes: 32 << 20,
            // The largest reply.
            client_bytes: 80 << 20,
            unfinished: Duration::from_secs(60),
            linger: Duration::from_secs(30),
            linger_bytes: 1 << 30,
            // The default patience of `LaneLimits`, and a second.
            deadline: Duration::from_secs(6),
            copies: 1,
        }
    }
}
