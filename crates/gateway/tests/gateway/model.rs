//! Whatever is pipelined, however it is cut, and however late the cluster answers: the replies are
//! those to the same commands sent one at a time.

use crate::common::{Client, Cluster, host, text};
use ionian_gateway::Limits;
use proptest::prelude::*;

const LINES: &[&str] = &[
    "GET a",
    "SET a 1",
    "INCR a",
    "APPEND b x",
    "MGET a b c",
    "DEL a b",
    "STRLEN b",
    "PING",
    "ECHO x",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH a b",
    "WATCH c",
    "UNWATCH",
    "FOO",
    "GET",
    "HELLO 3",
    "HELLO 2",
    "RESET",
    "SELECT 0",
    "IONIAN CONSISTENCY",
    "IONIAN CONSISTENCY eventual",
    "CLIENT GETNAME",
    "CLIENT SETNAME x",
    "INCR b",
    "SET c 'x y'",
    "XADD s 0-* f v",
    "XADD s NOMKSTREAM 0-* f v",
    "XREAD STREAMS s s 0 0",
    "XREAD STREAMS s $",
    "XINFO STREAM s",
    "XGROUP CREATE s g 0",
    "OBJECT ENCODING a",
    "OBJECT HELP",
    "MEMORY USAGE b",
    "MEMORY DOCTOR",
];

/// Commands one at a time.
fn one_by_one(lines: &[&str]) -> String {
    let (mut client, mut cluster) = (Client::new(&host(Limits::default())), Cluster::default());
    lines
        .iter()
        .map(|line| client.ask(&mut cluster, line))
        .collect()
}

proptest! {
    #[test]
    fn a_pipeline_is_its_commands_one_at_a_time(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 1..60),
        pieces in proptest::collection::vec((1usize..80, 0usize..3), 1..20),
        compound_commands in 1usize..10,
        output_bytes_soft in 1usize..200,
    ) {
        let limits = Limits { compound_commands, output_bytes_soft, ..Limits::default() };
        let (mut client, mut cluster) = (Client::new(&host(limits)), Cluster::default());
        let bytes: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\r\n").into_bytes()).collect();
        let mut replies = Vec::new();
        let mut rest = &bytes[..];
        for (len, steps) in pieces.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*len));
            client.send(piece);
            // The cluster is late, or the client is slow to take its replies, or neither.
            (0..*steps).for_each(|_| { client.step(&mut cluster); });
            if steps % 2 == 1 {
                replies.extend(client.take());
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        replies.extend(client.finish(&mut cluster));
        prop_assert_eq!(client.unsent(), 0);
        prop_assert_eq!(text(&replies), one_by_one(&lines));
    }
}
