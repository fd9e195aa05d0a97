//! Delay and bandwidth between sites: no byte is early, and order is kept.

use crate::common::{DEADLINE, bind, layout, settings, start, start_with};
use bytes::Bytes;
use ionian_deployment::{Configuration, Deployment, Network, PresetOptions};
use ionian_kernel::client::{Operation, Reply, Request};
use ionian_kernel::id::ClientId;
use ionian_runtime::{Application, LaneHandle, NodeSettings};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(40);

/// Forwards the answers.
struct Replies(mpsc::Sender<Reply>);

impl Application for Replies {
    fn on_reply(&mut self, _: ClientId, reply: Reply) {
        self.0.send(reply).unwrap();
    }
}

/// The configuration of a deployment whose nodes are at different sites. The roles are those of the
/// toy protocol.
fn apart(mbps: Option<u64>) -> Configuration {
    let deployment = Deployment::preset("colocated", &PresetOptions::default())
        .unwrap()
        .apart(0);
    let network = Network {
        delay_ms: DELAY.as_millis() as u64,
        mbps,
        links: Vec::new(),
    };
    Configuration::founded(Deployment {
        network: Some(network),
        ..deployment
    })
}

/// Sends all these requests to an echo on another node at once. Returns the tokens in the order of
/// the answers, and the time until the first and the last answer.
fn ask(configuration: Configuration, payloads: Vec<Bytes>) -> (Vec<u64>, Duration, Duration) {
    let (layout, listeners) = (layout(&[0], &[1]), [bind(), bind()]);
    let addresses = listeners
        .each_ref()
        .map(|listener| listener.local_addr().unwrap());
    let [here, there] = listeners;
    let of = |node, listener| NodeSettings {
        configuration: Some(configuration.clone()),
        ..settings(node, listener, &addresses, &layout)
    };
    let count = payloads.len();
    let (answer, answers) = mpsc::channel();
    let began = Instant::now();
    let asking = start_with(of(0, here), move |handle: LaneHandle| {
        for (token, payload) in (0..).zip(payloads) {
            handle.submit(
                ClientId(0),
                Request {
                    token,
                    operation: Operation::Write,
                    payload,
                },
            );
        }
        Box::new(Replies(answer))
    });
    let answering = start(of(1, there));
    let answers: Vec<_> = (0..count)
        .map(|_| {
            (
                answers.recv_timeout(DEADLINE).unwrap().token,
                began.elapsed(),
            )
        })
        .collect();
    assert_eq!(asking.status().peers[0].dropped, 0);
    asking.stop().unwrap();
    answering.stop().unwrap();
    (
        answers.iter().map(|(token, _)| *token).collect(),
        answers[0].1,
        answers[count - 1].1,
    )
}

#[test]
fn messages_to_another_site_and_back_take_twice_the_delay_in_order() {
    let payloads: Vec<Bytes> = (0..200)
        .map(|index| vec![b'x'; 1 + index * 7 % 300].into())
        .collect();
    let (tokens, first, _) = ask(apart(None), payloads);
    assert!(tokens.iter().copied().eq(0..200), "{tokens:?}");
    assert!(first >= 2 * DELAY, "{first:?}");
}

#[test]
fn transfer_time_follows_the_bandwidth() {
    // 100 kB at 4 Mbps, which is half a MB a second, and at least as much back.
    let payloads: Vec<Bytes> = (0..100).map(|_| vec![b'x'; 1000].into()).collect();
    let (tokens, _, last) = ask(apart(Some(4)), payloads);
    assert!(tokens.iter().copied().eq(0..100), "{tokens:?}");
    assert!(last >= 2 * DELAY + Duration::from_millis(200), "{last:?}");
}
