//! `SharedLog` at its ends: no entries, the greatest position, entries of other clients.

use bytes::Bytes;
use ionian::{Client, Kv, SharedLog, SharedLogError};
use ionian_machines::kv::{Command, Compound, log::Unexpected};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Appends an entry with this ID, as another client may.
async fn add(client: &Client, id: &str) {
    let words = ["xadd", "log", id, "e", "v"].map(|word| Bytes::copy_from_slice(word.as_bytes()));
    let add = Command::parse(&words).expect("a command");
    let payload = Compound::Pipeline(vec![add]).encode();
    let reply = client.write(payload).await.expect("it is executed");
    assert!(reply.starts_with(b"$"), "{reply:?}");
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let cluster = ionian::start::<Kv>("colocated").expect("a cluster");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(test(cluster.client()));
}

#[test]
fn a_subscription_ends_at_the_greatest_position() {
    run(|client| async move {
        let log = SharedLog::new(client.clone(), "log");
        add(&client, &format!("0-{}", u64::MAX)).await;
        let mut entries = log.subscribe(u64::MAX);
        let last = (u64::MAX, Bytes::from("v"));
        assert_eq!(entries.next().await.expect("an entry"), last);
        assert_eq!(entries.next_position(), None);
        let again = pin!(entries.next());
        let polled = again.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending), "{polled:?}");
    });
}

#[test]
fn reads_give_what_precedes_an_entry_of_another_client() {
    run(|client| async move {
        let log = SharedLog::new(client.clone(), "log");
        assert_eq!(log.append("a").await.expect("appended"), 1);
        add(&client, "5-1").await;
        let one = vec![(1, Bytes::from("a"))];
        assert_eq!(log.read(1, u64::MAX).await.expect("read"), one);
        assert_eq!(log.read(1, 0).await.expect("read"), []);
        let error = log.read(2, 1).await.expect_err("it has no position");
        let foreign = Unexpected::NoPosition("5-1".into());
        assert!(
            matches!(&error, SharedLogError::NoLog(it) if *it == foreign),
            "{error}"
        );
        log.append("b").await.expect_err("no position is left");
    });
}
