//! Order, batching and backpressure of one connection.

use crate::common::{Client, Cluster, READ, WRITE, client, host, request, text};
use bytes::Bytes;
use ionian_gateway::Limits;
use ionian_kernel::client::{Operation, ReadLevel, Refusal};
use std::time::Instant;

#[test]
fn a_lone_command_leaves_at_once() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send(request(&[b"SET", b"a", b"1"]));
    assert_eq!(client.operations, [WRITE]);
    assert_eq!(client.finish(&mut cluster), b"+OK\r\n");
    client.send(request(&[b"GET", b"a"]));
    assert_eq!(client.finish(&mut cluster), b"$1\r\n1\r\n");
    assert_eq!(client.operations, [WRITE, READ]);
}

#[test]
fn what_waits_becomes_one_compound() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send(request(&[b"INCR", b"n"]));
    (0..100).for_each(|_| client.send(request(&[b"INCR", b"n"])));
    let replies = text(&client.finish(&mut cluster));
    assert_eq!(
        replies,
        (1..=101).map(|n| format!(":{n}\n")).collect::<String>()
    );
    assert_eq!(client.operations, [WRITE, WRITE]);
}

#[test]
fn one_read_of_a_pipeline_is_one_compound() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send(request(&[b"INCR", b"n"]).repeat(16));
    client.finish(&mut cluster);
    client.send(request(&[b"GET", b"n"]).repeat(16));
    assert_eq!(client.finish(&mut cluster), b"$2\r\n16\r\n".repeat(16));
    assert_eq!(client.operations, [WRITE, READ]);
}

#[test]
fn reads_in_front_go_as_a_read_and_reads_behind_a_write_go_with_it() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let replies = client.ask(&mut cluster, "GET a\nGET a\nSET a 1\nGET a\nSET a 2\nGET a");
    assert_eq!(replies, "$-1\n$-1\n+OK\n$1\n1\n+OK\n$1\n2\n");
    assert_eq!(client.operations, [READ, WRITE]);
}

#[test]
fn own_commands_keep_their_place() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let lines = "PING\nSET a 1\nPING x\nGET a\nECHO y\nFOO\nINCR a\nGET\nINCR a\nPING";
    let replies = client.ask(&mut cluster, lines);
    assert_eq!(
        replies,
        "+PONG\n+OK\n$1\nx\n$1\n1\n$1\ny\n-ERR unknown command 'FOO', with args beginning with: \n:2\n\
         -ERR wrong number of arguments for 'get' command\n:3\n+PONG\n"
    );
}

#[test]
fn input_behind_an_own_command_waits_for_the_reply_in_front() {
    let mut client = client();
    client.send("SET a 1\r\nPING\r\nSET a 2\r\n");
    assert!(!client.connection.wants_input());
    assert_eq!(client.take(), b"");
    client.answer(Ok(Bytes::from_static(b"+OK\r\n")));
    assert_eq!(client.take(), b"+OK\r\n+PONG\r\n");
    assert_eq!(client.operations, [WRITE, WRITE]);
}

#[test]
fn the_level_of_reads_is_that_of_the_connection() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let lines = "GET a\nIONIAN CONSISTENCY eventual\nGET a\nIONIAN CONSISTENCY SEQUENTIAL\nGET a\nWATCH a\nGET a\nUNWATCH\n\
                 MULTI\nGET a\nEXEC\nWATCH a\nMULTI\nGET a\nEXEC\nRESET\nGET a";
    client.ask(&mut cluster, lines);
    let eventual = Operation::Read(ReadLevel::Eventual);
    let sequential = Operation::Read(ReadLevel::Sequential);
    // WATCH, reads while it holds, and a transaction that relies on it, are linearizable whatever
    // the level.
    assert_eq!(
        client.operations,
        [
            READ, eventual, sequential, READ, READ, sequential, READ, READ, READ
        ]
    );
}

#[test]
fn compounds_have_limits() {
    let limits = Limits {
        compound_commands: 10,
        compound_bytes: 1000,
        ..Limits::default()
    };
    let (mut client, mut cluster) = (Client::new(&host(limits)), Cluster::default());
    client.send(request(&[b"INCR", b"n"]).repeat(25));
    assert_eq!(
        text(&client.finish(&mut cluster)),
        (1..=25).map(|n| format!(":{n}\n")).collect::<String>()
    );
    assert_eq!(client.operations.len(), 3);
    client.operations.clear();
    // One command larger than a compound goes alone, others as many as fit.
    client.send(request(&[b"SET", b"k", &[b'x'; 5000]]).repeat(2));
    client.send(request(&[b"SET", b"k", &[b'x'; 400]]).repeat(4));
    assert_eq!(text(&client.finish(&mut cluster)), "+OK\n".repeat(6));
    assert_eq!(client.operations.len(), 4);
}

#[test]
fn connections_are_answered_in_any_order() {
    let host = host(Limits::default());
    let mut cluster = Cluster::default();
    let mut clients: Vec<_> = (0..10).map(|_| Client::new(&host)).collect();
    for client in &mut clients {
        client.send("INCR n\r\nPING\r\n");
    }
    for (turn, at) in [7, 2, 9, 0, 4, 1, 3, 8, 6, 5].into_iter().enumerate() {
        assert_eq!(
            text(&clients[at].finish(&mut cluster)),
            format!(":{}\n+PONG\n", turn + 1)
        );
    }
}

#[test]
fn every_command_of_a_refused_compound_is_told() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let refusals = [
        (
            Refusal::Busy,
            "-BUSY Ionian is overloaded: too much in flight, the command was not executed, try again later\n",
        ),
        (
            Refusal::Unavailable,
            "-TRYAGAIN the cluster did not answer in time, the command was not executed\n",
        ),
        (
            Refusal::Unknown,
            "-TRYAGAIN the cluster did not answer in time, the command may or may not have been executed\n",
        ),
        (
            Refusal::NotARead,
            "-ERR the command changes state and cannot be sent as a read\n",
        ),
        (
            Refusal::TooLarge,
            "-ERR the command is larger than the cluster's limit\n",
        ),
        (
            Refusal::Failed,
            "-ERR the state machine fails on this command, which was not executed\n",
        ),
    ];
    for (refusal, error) in refusals {
        client.send("SET a 1\r\nSET b 1\r\nPING\r\nSET c 1\r\n");
        client.answer(Err(refusal));
        assert_eq!(
            text(&client.finish(&mut cluster)),
            error.repeat(2) + "+PONG\n+OK\n"
        );
    }
}

/// A command behind one that was not answered waited for twice as long.
#[test]
fn the_deadline_of_a_command_behind_an_unanswered_one_counts_from_when_it_came() {
    for (outcome, from_arrival) in [
        (Err(Refusal::Unknown), true),
        (Err(Refusal::Unavailable), true),
        (Ok(Bytes::from_static(b"+OK\r\n")), false),
    ] {
        let mut client = client();
        client.send("SET a 1\r\n");
        client.send("SET b 1\r\n");
        let came = Instant::now();
        client.answer(outcome.clone());
        let since = client
            .connection
            .in_flight_since()
            .expect("the second is in flight");
        assert_eq!(since <= came, from_arrival, "{outcome:?}");
    }
}

#[test]
fn what_is_given_up_before_it_was_sent_on_was_not_executed() {
    let mut client = client();
    client
        .connection
        .receive(Bytes::from_static(b"SET a 1\r\n"));
    assert!(client.connection.has_request());
    client.connection.give_up();
    client.connection.advance();
    assert!(!client.connection.has_request() && !client.connection.is_in_flight());
    let not_executed =
        "-TRYAGAIN the cluster did not answer in time, the command was not executed\n";
    assert_eq!(text(&client.take()), not_executed);
}

#[test]
fn what_is_given_up_when_it_was_sent_on_may_have_been_executed_unless_it_reads() {
    let given_up = |command: &'static [u8]| {
        let mut client = client();
        client.connection.receive(Bytes::from_static(command));
        assert!(client.connection.take_request().is_some());
        client.connection.give_up();
        client.connection.advance();
        text(&client.take())
    };
    let no_answer = "-TRYAGAIN the cluster did not answer in time, the command";
    let (not_executed, unknown) = ("was not", "may or may not have been");
    for (command, outcome) in [
        (&b"GET a\r\n"[..], not_executed),
        (&b"SET a 1\r\n"[..], unknown),
        (&b"MULTI\r\nGET a\r\nEXEC\r\n"[..], not_executed),
    ] {
        let given_up = given_up(command);
        let expected = format!("{no_answer} {outcome} executed\n");
        assert!(given_up.ends_with(&expected), "{given_up}");
        assert_eq!(given_up.matches("-TRYAGAIN").count(), 1);
    }
}

#[test]
fn a_slow_reader_is_not_read_from_and_loses_nothing() {
    let limits = Limits {
        output_bytes_soft: 10_000,
        ..Limits::default()
    };
    let (mut client, mut cluster) = (Client::new(&host(limits)), Cluster::default());
    client.send(request(&[b"SET", b"k", &[b'x'; 4000]]));
    client.finish(&mut cluster);
    for _ in 0..100 {
        client.send("GET k\r\nPING\r\n");
        client.step(&mut cluster);
    }
    // It stopped at the limit, with one reply more at most.
    assert!(client.connection.output().len() < 20_000);
    assert!(client.unsent() > 0 && !client.connection.wants_input());
    let replies = client.finish(&mut cluster);
    let one = format!("$4000\r\n{}\r\n+PONG\r\n", "x".repeat(4000));
    assert_eq!(text(&replies), text(one.repeat(100).as_bytes()));
}

#[test]
fn replies_of_own_commands_fill_the_output_no_further() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send("COMMAND\r\n".repeat(5000));
    assert!(client.connection.output().len() < 2 << 20);
    let mut total = 0;
    while !client.connection.output().is_empty() {
        total += client.take().len();
        assert!(client.connection.output().len() < 2 << 20);
    }
    assert_eq!(total % 5000, 0);
    assert_eq!(client.ask(&mut cluster, "PING"), "+PONG\n");
}

#[test]
fn a_client_that_takes_too_much_is_closed_and_told_why() {
    let limits = Limits {
        client_bytes: 100_000,
        ..Limits::default()
    };
    let closed = |mut client: Client| {
        let text = text(client.connection.output());
        assert!(
            text.contains("-ERR closed: commands and replies of this client use "),
            "{text}"
        );
        assert!(
            text.ends_with(" KiB, the limit is 97 KiB. A command that was not answered may or may not have been executed\n")
        );
        assert!(client.connection.is_closing() && client.connection.has_last_word());
        assert!(!client.connection.is_closed() && !client.connection.wants_input());
        client.take();
        assert!(client.connection.is_closed());
        text
    };
    // By the replies, of which it has seen the first.
    let mut client = Client::new(&host(limits));
    client.send("PING\r\nGET k\r\nPING\r\n");
    assert_eq!(client.take(), b"+PONG\r\n");
    client.answer(Ok(vec![b'x'; 100_001].into()));
    assert!(closed(client).starts_with("-ERR"));
    // By a command that is not complete.
    let mut client = Client::new(&host(limits));
    client.send(
        [
            &b"PING\r\n*2\r\n$3\r\nGET\r\n$200000\r\n"[..],
            &[b'x'; 150_000],
        ]
        .concat(),
    );
    assert!(closed(client).starts_with("+PONG\n-ERR"));
    // By commands that MULTI has queued.
    let mut client = Client::new(&host(limits));
    client.send("MULTI\r\n");
    for _ in 0..4 {
        client.send(request(&[b"SET", b"k", &[b'x'; 30_000]]));
    }
    assert!(closed(client).starts_with("+OK\n+QUEUED\n"));
    // In the middle of a large reply nothing can be said that would be understood.
    let mut client = Client::new(&host(limits));
    client.send("GET k\r\n");
    client.answer(Ok(vec![b'x'; 90_000].into()));
    client.connection.on_sent(1);
    client.connection.evict();
    assert!(client.connection.is_closed() && client.connection.has_last_word());
}

/// Input that has come and gone counts for nothing: not against the room for a pipeline, and not as
/// memory.
#[test]
fn memory_is_given_back() {
    let host = host(Limits {
        client_bytes: 300_000,
        ..Limits::default()
    });
    let (mut client, mut cluster) = (Client::new(&host), Cluster::default());
    for _ in 0..20 {
        client.send("PING\r\n".repeat(10_000));
        client.finish(&mut cluster);
        client.send(request(&[b"SET", b"k", &[b'x'; 40_000]]));
        client.finish(&mut cluster);
        client.send(b"MULTI\r\nGET k\r\nEXEC\r\nWATCH k\r\nUNWATCH\r\n");
        client.finish(&mut cluster);
    }
    assert!(
        client.connection.held() < 1000,
        "{} bytes are held for nothing",
        client.connection.held()
    );
    // A word of a command that is not complete does not keep alive what came with it.
    client.send([&b"PING\r\n".repeat(1000)[..], b"*3\r\n$3\r\nSET\r\n"].concat());
    client.finish(&mut cluster);
    assert!(
        client.connection.held() < 1000,
        "{}",
        client.connection.held()
    );
}

/// Neither what the command had so far nor what it announced.
#[test]
fn a_command_that_breaks_the_protocol_uses_no_memory() {
    let word = [&b"$4000000\r\n"[..], &[b'x'; 4_000_000], b"\r\n"].concat();
    let too_large = "invalid bulk length: a command has at most 8388608 bytes";
    for (breaks, error) in [
        ("$1000000000", too_large),
        ("$999999999999", too_large),
        ("$8000000", too_large),
        ("$-1", "invalid bulk length"),
        ("!", "expected '$', got '!'"),
        (&"$".repeat(70_000), "too big bulk count string"),
    ] {
        let mut client = client();
        client.send([&b"*3\r\n"[..], &word, breaks.as_bytes(), b"\r\n"].concat());
        let held = client.connection.held();
        assert!(held < 1000, "{error}: {held} bytes are counted");
        assert_eq!(
            text(&client.take()),
            format!("-ERR Protocol error: {error}\n")
        );
    }
}

/// What remains of a connection that is closing can still be taken away.
#[test]
fn a_closing_connection_can_be_evicted() {
    let mut client = client();
    client.send("GET k\r\n*2\r\n$3\r\nGET\r\n$9000\r\nxxx");
    client.connection.end_input();
    client.answer(Ok(vec![b'x'; 900_000].into()));
    assert!(client.connection.is_closing() && client.connection.held() >= 900_000);
    client.connection.evict();
    assert!(client.connection.is_closed());
    assert_eq!(client.connection.held(), 0);
}

#[test]
fn a_client_that_ends_its_input_still_gets_its_replies() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    client.send("SET a 1\r\nPING\r\nGET a\r\nGET");
    client.connection.end_input();
    assert!(!client.connection.is_closed());
    assert_eq!(client.finish(&mut cluster), b"+OK\r\n+PONG\r\n$1\r\n1\r\n");
    assert!(client.connection.is_closed());
}

#[test]
fn quit_and_protocol_errors_come_after_the_replies_before() {
    let mut cluster = Cluster::default();
    for (last, reply) in [
        ("QUIT", "+OK\n"),
        ("*x", "-ERR Protocol error: invalid multibulk length\n"),
    ] {
        let mut client = client();
        let replies = client.ask(&mut cluster, &format!("INCR a\nPING\nINCR a\n{last}\nPING"));
        assert!(replies.ends_with(&format!("\n{reply}")), "{replies}");
        assert_eq!(replies.lines().count(), 4);
        assert!(client.connection.is_closed());
    }
}

#[test]
fn http_is_cut_off() {
    for line in [
        "POST / HTTP/1.1",
        "Host: localhost",
        "GET a\r\nhost: localhost",
    ] {
        let mut client = client();
        client.send(format!("{line}\r\nPING\r\n"));
        assert!(
            client.connection.is_closed() && client.take().is_empty(),
            "{line}"
        );
    }
}

#[test]
fn nulls_in_both_protocols() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    assert_eq!(
        client.ask(&mut cluster, "SET a $-1\nMGET a b\nGET b"),
        "+OK\n*2\n$3\n$-1\n$-1\n$-1\n"
    );
    // The protocol changes between the reply before and the reply behind.
    let replies = client.ask(
        &mut cluster,
        "GET b\nHELLO 3\nMGET a b\nGET b\nHELLO 2\nGET b",
    );
    assert!(replies.starts_with("$-1\n%7\n"), "{replies}");
    assert!(replies.contains("*2\n$3\n$-1\n_\n_\n*14\n"), "{replies}");
    assert!(replies.ends_with("$-1\n"), "{replies}");
}

/// The machine stops a pipeline when its replies have become large. The rest goes as further
/// compounds, in order, and a write behind large reads takes effect once.
#[test]
fn a_pipeline_with_large_replies_goes_in_several_compounds() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    let large = vec![b'x'; 300 << 10];
    client.send(request(&[b"SET", b"large", &large]));
    client.finish(&mut cluster);
    client.operations.clear();
    let reply = [b"$307200\r\n", &large[..], b"\r\n"].concat();
    client.send(
        [
            request(&[b"GET", b"large"]).repeat(10),
            request(&[b"INCR", b"n"]).repeat(2),
        ]
        .concat(),
    );
    let replies = client.finish(&mut cluster);
    assert!(
        replies == [reply.repeat(10), b":1\r\n:2\r\n".to_vec()].concat(),
        "{} bytes",
        replies.len()
    );
    // Four values are above a megabyte: 4 + 4 + 2 reads, then the writes.
    assert_eq!(client.operations, [READ, READ, READ, WRITE]);
    client.send(
        [
            request(&[b"INCR", b"n"]),
            request(&[b"GET", b"large"]).repeat(5),
        ]
        .concat(),
    );
    let replies = client.finish(&mut cluster);
    assert!(
        replies == [b":3\r\n".to_vec(), reply.repeat(5)].concat(),
        "{} bytes",
        replies.len()
    );
}
