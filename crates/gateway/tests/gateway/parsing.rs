//! Requests however they are cut, and what is no request.

use crate::common::{Client, Cluster, client, host, request, text};
use bytes::Bytes;
use ionian_gateway::{Limits, Parser, ProtocolError};
use proptest::prelude::*;
use redis_protocol::resp2::types::{BytesFrame, Resp2Frame};

/// All commands of `bytes` cut as `cuts` says, and how it ended.
fn parse(
    bytes: &[u8],
    cuts: &[usize],
    limits: &Limits,
) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
    let mut parser = Parser::default();
    let (mut commands, mut rest) = (Vec::new(), bytes);
    let mut cuts = cuts.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cuts.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        rest = after;
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match parser.next(&mut input, limits) {
                Ok(true) => commands.push(parser.words().to_vec()),
                Ok(false) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        assert!(input.is_empty(), "all input is used up");
    }
    (commands, None)
}

fn small() -> Limits {
    Limits {
        args: 8,
        bulk_bytes: 64,
        inline_bytes: 100,
        ..Limits::default()
    }
}

#[test]
fn cut_at_every_byte_a_session_is_the_same() {
    let session = [
        &request(&[b"SET", b"a", b"\r\n$-1\r\n*1\r\n"])[..],
        b"PING\r\n\r\n*0\r\n*-1\r\nget a\n",
        &request(&[b"MULTI"]),
        &request(&[b"APPEND", b"a", b""]),
        b"echo \"x y\\x41\\n\" ''\r\nexec\r\nGET 'a b'\r\nincr n\r\nHELLO 3\r\nget nope\r\nquit\r\n",
    ]
    .concat();
    let mut whole = client();
    whole.send(&session);
    let expected = whole.finish(&mut Cluster::default());
    assert!(text(&expected).contains("+PONG\n$11\n"));
    for cut in 1..session.len() {
        let (mut client, mut cluster) = (client(), Cluster::default());
        client.send(&session[..cut]);
        let mut replies = client.finish(&mut cluster);
        client.send(&session[cut..]);
        replies.extend(client.finish(&mut cluster));
        assert_eq!(text(&replies), text(&expected), "cut at {cut}");
    }
    let (mut single, mut cluster) = (client(), Cluster::default());
    single.send_pieces(&session, 1);
    assert_eq!(text(&single.finish(&mut cluster)), text(&expected));
}

const TOO_LARGE: &str = "invalid bulk length: a command has at most 8388608 bytes";

#[test]
fn protocol_errors_as_in_redis() {
    let long = |head: &str| format!("{head}{}", "1".repeat(70_000));
    let cases = [
        ("*abc\r\n".into(), "invalid multibulk length"),
        ("*+1\r\n".into(), "invalid multibulk length"),
        ("*01\r\n".into(), "invalid multibulk length"),
        ("*1\n$4\r\nPING\r\n".into(), "invalid multibulk length"),
        ("*\r\n".into(), "invalid multibulk length"),
        ("*65537\r\n".into(), "invalid multibulk length"),
        (
            "*9999999999999999999999\r\n".into(),
            "invalid multibulk length",
        ),
        ("*1\r\n$abc\r\n".into(), "invalid bulk length"),
        ("*1\r\n$-1\r\n".into(), "invalid bulk length"),
        ("*1\r\n$8388609\r\n".into(), TOO_LARGE),
        ("*2\r\n$1\r\na\r\n$8388608\r\n".into(), TOO_LARGE),
        (
            "*1\r\n$9223372036854775807\r\n".into(),
            "invalid bulk length",
        ),
        ("*1\r\nGET\r\n".into(), "expected '$', got 'G'"),
        ("*2\r\n$3\r\nGET\r\n*1\r\n".into(), "expected '$', got '*'"),
        ("*1\r\n\r\n".into(), "expected '$', got ' '"),
        ("GET 'a\r\n".into(), "unbalanced quotes in request"),
        ("GET \"a\"b\r\n".into(), "unbalanced quotes in request"),
        (long("x"), "too big inline request"),
        (long("*"), "too big mbulk count string"),
        (long("*1\r\n$"), "too big bulk count string"),
    ];
    for (input, expected) in cases {
        for piece in [1, 7, 64 << 10] {
            let mut client = client();
            client.send_pieces(input.as_bytes(), piece);
            let head: String = input.chars().take(30).collect();
            assert_eq!(
                text(&client.take()),
                format!("-ERR Protocol error: {expected}\n"),
                "{head}"
            );
            assert!(client.connection.is_closed());
        }
    }
}

#[test]
fn what_redis_forgives_is_forgiven() {
    let (mut client, mut cluster) = (client(), Cluster::default());
    // The two bytes behind a word are not looked at.
    client.send("*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n\r\n*0\r\n*-5\r\n\n  \r\nPING\n");
    assert_eq!(text(&client.finish(&mut cluster)), "+PONG\n".repeat(3));
}

#[test]
fn inline_quotes() {
    let line = br#"SET "a\x41\n\"" 'b\'\n' c\d "" "\xzz"  e"f" "#;
    let (commands, error) = parse(
        &[&line[..], b"\x0b\t\r\n"].concat(),
        &[],
        &Limits::default(),
    );
    assert_eq!(error, None);
    let words: Vec<&[u8]> = commands[0].iter().map(|word| &word[..]).collect();
    assert_eq!(
        words,
        [
            &b"SET"[..],
            b"aA\n\"",
            b"b'\\n",
            b"c\\d",
            b"",
            b"xzz",
            b"ef"
        ]
    );
}

#[test]
fn a_large_value_is_looked_at_once() {
    // Single bytes of 8 MiB, and 65,536 words in pieces: what starts over with each piece takes
    // minutes.
    let value = vec![b'x'; (8 << 20) - 4];
    let bytes = request(&[b"SET", b"k", &value]);
    let (commands, error) = parse(&bytes, &[1], &Limits::default());
    assert_eq!((commands.len(), error), (1, None));
    assert_eq!(commands[0][2], value);
    let words = vec![&b"word"[..]; 65_536];
    let (commands, error) = parse(&request(&words), &[1], &Limits::default());
    assert_eq!((commands[0].len(), error), (65_536, None));
}

#[test]
fn an_announced_value_takes_no_memory_before_it_comes() {
    let limits = Limits {
        bulk_bytes: usize::MAX / 2,
        ..Limits::default()
    };
    let mut client = Client::new(&host(limits));
    client.send("*65536\r\n$999999999999999999\r\nabc");
    assert!(client.connection.wants_input() && client.connection.output().is_empty());
}

/// Bytes that come near to being requests.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        Just(b"*9\r\n".to_vec()),
        Just(b"$3\r\n".to_vec()),
        Just(b"$0\r\n".to_vec()),
        Just(b"$65\r\n".to_vec()),
        Just(b"$1000000000\r\n".to_vec()),
        Just(b"GET a\r\n".to_vec()),
        Just(b"set a 'b c'\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"MULTI\r\n".to_vec()),
        Just(b"PING\r\nEXEC\r\n".to_vec()),
        Just(b"WATCH a\r\n".to_vec()),
        Just(b"HELLO 3\r\n".to_vec()),
        Just(b"incr a\r\n".to_vec()),
        Just(request(&[b"SET", b"a", b"b\r\n"])),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6)
}

proptest! {
    #[test]
    fn garbage_is_the_same_however_it_is_cut(bytes in noise(), cuts in proptest::collection::vec(1usize..20, 1..10)) {
        let limits = small();
        let whole = parse(&bytes, &[], &limits);
        prop_assert_eq!(&parse(&bytes, &cuts, &limits), &whole);
        prop_assert_eq!(&parse(&bytes, &[1], &limits), &whole);
        for command in &whole.0 {
            prop_assert!(!command.is_empty());
        }
    }

    #[test]
    fn a_session_of_garbage_is_the_same_however_it_is_cut(bytes in noise(), piece in 1usize..50) {
        let answers = |piece: usize| {
            let (mut client, mut cluster) = (Client::new(&host(small())), Cluster::default());
            client.send_pieces(&bytes, piece);
            let replies = client.finish(&mut cluster);
            (replies, client.connection.is_closed())
        };
        prop_assert_eq!(answers(piece), answers(usize::MAX));
    }

    /// An announced length is not memory, whether it was accepted or refused.
    #[test]
    fn a_connection_counts_only_memory_for_bytes_that_have_arrived(bytes in noise(), piece in 1usize..50) {
        for limits in [small(), Limits { bulk_bytes: 2_000_000_000, ..small() }] {
            let (mut client, mut cluster) = (Client::new(&host(limits)), Cluster::default());
            client.send_pieces(&bytes, piece);
            client.finish(&mut cluster);
            // A word has at least 6 bytes on the wire, and takes 32 in a list with spare capacity.
            let (held, most) = (client.connection.held(), 16 * bytes.len() + 1024);
            prop_assert!(held <= most, "{held} bytes are counted, {} have arrived", bytes.len());
        }
    }

    #[test]
    fn requests_are_what_redis_protocol_says(
        requests in proptest::collection::vec(words(), 1..10),
        cuts in proptest::collection::vec(1usize..100, 1..10),
    ) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for words in &requests {
            let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let request = Bytes::from(request(&words));
            let (frame, len) = redis_protocol::resp2::decode::decode_bytes(&request).unwrap().unwrap();
            prop_assert_eq!(len, request.len());
            let BytesFrame::Array(frames) = frame else { panic!("{frame:?}") };
            expected.push(frames.iter().map(|frame| Bytes::copy_from_slice(frame.as_bytes().unwrap())).collect());
            bytes.extend_from_slice(&request);
        }
        prop_assert_eq!(parse(&bytes, &cuts, &Limits::default()), (expected, None));
    }
}
