use super::*;

fn command(words: &[&[u8]]) -> Command {
    let words: Vec<Bytes> = words
        .iter()
        .map(|word| Bytes::copy_from_slice(word))
        .collect();
    Command::parse(&words).expect("a command")
}

#[test]
fn a_pipeline_stops_when_its_replies_are_large() {
    let mut kv = Kv::default();
    let large = vec![b'x'; PIPELINE_REPLY_BYTES / 2];
    let mut apply = |commands: Vec<Command>| {
        let mut reply = b"kept".to_vec();
        kv.apply(
            Timestamp(1),
            &Compound::Pipeline(commands).encode(),
            &mut reply,
        );
        answered(&Bytes::from(reply.split_off(4)))
    };
    assert_eq!(
        apply(vec![command(&[b"SET", b"k", &large])]),
        (None, Bytes::from_static(b"+OK\r\n"))
    );
    let (get, set) = (
        || command(&[b"GET", b"k"]),
        || command(&[b"SET", b"k", b"small"]),
    );
    let (done, replies) = apply(vec![get(), get(), set(), get()]);
    assert_eq!(done, Some(2), "the write behind the limit was not executed");
    assert!(replies.starts_with(b"$524288\r\nxxx") && replies.len() > PIPELINE_REPLY_BYTES);
    // All at the limit, but none left out.
    assert_eq!(apply(vec![get(), get()]).0, None);
    assert_eq!(
        apply(vec![set(), get()]),
        (None, Bytes::from_static(b"+OK\r\n$5\r\nsmall\r\n"))
    );
}

/// Commands that answer values, the longest that there are too, alone and with others, executed
/// and read. One whose reply has no room is refused, and changes nothing.
#[test]
fn every_reply_fits_into_a_message() {
    let mut kv = Kv::default();
    let mut ask = |compound: Compound, reads: bool| {
        let (encoded, mut reply) = (compound.encode(), b"kept".to_vec());
        match reads {
            true => kv.read(Timestamp(1), &encoded, &mut reply).unwrap(),
            false => kv.apply(Timestamp(1), &encoded, &mut reply),
        }
        assert!(reply.len() <= 4 + MAX_ANSWER_BYTES, "{}", reply.len());
        reply.split_off(4)
    };
    let long = (MAX_VALUE_LEN - 1).to_string();
    let set = |key: &[u8], last: &str| command(&[b"SETRANGE", key, last.as_bytes(), b"x"]);
    ask(Compound::Pipeline(vec![set(b"longest", &long)]), false);
    ask(Compound::Pipeline(vec![set(b"large", "40000000")]), false);
    let refusal = ["-", reply::TOO_LARGE, "\r\n"].concat().into_bytes();
    let commands: [&[&[u8]]; 7] = [
        &[b"GET"],
        &[b"GETRANGE", b"", b"0", b"-1"],
        &[b"MGET"],
        &[b"GETDEL"],
        &[b"GETEX", b"", b"PX", b"5"],
        &[b"GETSET", b"", b"new"],
        &[b"SET", b"", b"new", b"GET"],
    ];
    for words in commands {
        let of = |key| {
            let key: [&[u8]; 1] = [key];
            let words = [&words[..1], &key, words.get(2..).unwrap_or_default()];
            command(&words.concat())
        };
        let reads = of(b"longest").is_read();
        let alone = ask(Compound::Pipeline(vec![of(b"longest")]), reads);
        assert!(alone == refusal, "{words:?}");
        // The first has room, the second has not.
        let two = |key| vec![of(b"large"), of(key)];
        let sent = Compound::Pipeline(two(b"longest"));
        let (done, replies) = answered(&Bytes::from(ask(sent, reads)));
        assert_eq!(done, Some(1), "{words:?}");
        assert!(replies.len() > 40_000_000);
        if !reads {
            ask(Compound::Pipeline(vec![set(b"large", "40000000")]), false);
        }
        let all = Compound::Transaction {
            watched: Vec::new(),
            commands: two(b"longest"),
        };
        let replies = ask(all, reads);
        assert!(replies.ends_with(&refusal) && replies.len() > 40_000_000);
        if !reads {
            ask(Compound::Pipeline(vec![set(b"large", "40000000")]), false);
        }
    }
    let len = command(&[b"STRLEN", b"longest"]);
    let len = ask(Compound::Pipeline(vec![len]), true);
    assert_eq!(len, b":67108864\r\n", "nothing has changed it");
}

/// What follows the values has room: errors, and what commands bring with them.
#[test]
fn many_short_replies_fit_into_a_message_with_the_values() {
    let mut kv = Kv::default();
    let last = (MAX_ANSWER_BYTES - (20 << 20)).to_string();
    let set = command(&[b"SETRANGE", b"k", last.as_bytes(), b"x"]);
    kv.apply(
        Timestamp(1),
        &Compound::Pipeline(vec![set]).encode(),
        &mut Vec::new(),
    );
    let get = || command(&[b"GETEX", b"k"]);
    let commands = std::iter::repeat_with(get).take(65_536).collect();
    let mut reply = Vec::new();
    let watched = Vec::new();
    let all = Compound::Transaction { watched, commands };
    kv.apply(Timestamp(1), &all.encode(), &mut reply);
    assert!(reply.len() > MAX_ANSWER_BYTES - (20 << 20) && reply.len() <= MAX_ANSWER_BYTES);
}

#[test]
fn a_command_removes_a_few_expired_keys() {
    let mut kv = Kv::default();
    for i in 0..PURGED_PER_COMMAND + 8 {
        kv.store
            .set(Key::new(format!("k{i}").as_bytes()), b"v", Some(5), 0);
    }
    for left in [PURGED_PER_COMMAND + 8, 8, 0] {
        // At time zero all that is still there counts.
        assert_eq!(kv.store.live_len(0), left);
        kv.apply(
            Timestamp(5),
            &Compound::Pipeline(Vec::new()).encode(),
            &mut Vec::new(),
        );
    }
}
