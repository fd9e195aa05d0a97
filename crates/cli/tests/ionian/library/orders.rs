//! The example `orders`: three processes with fronts for HTTP, one of which is killed while clients
//! order. What was acknowledged is there, and no more is sold than was delivered.

use super::{Node, three_of};
use crate::cluster::{Directory, LIMIT, eventually};
use ionian_deployment::Deployment;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The tea that is delivered, and the clients that want one each: more than there is.
const DELIVERED: usize = 200;
const CLIENTS: usize = 4;
const WANTED: usize = 60;

/// Sends one request to a node's front; returns the code and the body of its answer, if any comes.
fn ask(deployment: &Deployment, place: usize, request: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(deployment.nodes[place].gateway.as_ref()?).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

/// The same, repeated at the next node until one of them answers for the cluster: every request is
/// one that may be repeated.
fn answered(deployment: &Deployment, place: usize, request: &str, body: &str) -> (u16, String) {
    let mut places = (0..3).cycle().skip(place);
    eventually(request, || {
        let place = places.next()?;
        ask(deployment, place, request, body).filter(|(code, _)| !matches!(code, 429 | 503))
    })
}

fn tea(amount: usize) -> String {
    format!("{{\"item\": \"tea\", \"amount\": {amount}}}")
}

#[test]
fn a_shop_of_three_processes_sells_what_it_has_and_no_more() {
    let directory = Directory::new();
    let (deployment, file) = three_of("orders", &directory, "shop");
    let config = ["--config", &*file];
    let start = |name: &str| Node::start_of("orders", &directory, name, &config, "data");
    let mut nodes: Vec<Option<Node>> = ["n0", "n1", "n2"].map(|name| Some(start(name))).into();
    let delivery = tea(DELIVERED);
    assert_eq!(
        answered(&deployment, 0, "PUT /deliveries/monday", &delivery).0,
        201
    );
    // The same request again changes nothing, at any node.
    assert_eq!(
        answered(&deployment, 1, "PUT /deliveries/monday", &delivery).0,
        200
    );
    let (code, why) = answered(&deployment, 1, "PUT /deliveries/monday", &tea(1));
    assert_eq!((code, &*why), (409, "the key is taken\n"));

    let ordered = AtomicUsize::new(0);
    let sold: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (deployment, ordered) = (&deployment, &ordered);
                scope.spawn(move || {
                    let keys = (0..WANTED).map(|number| format!("{client}-{number}"));
                    let sold = keys.filter(|key| {
                        let request = format!("PUT /orders/{key}");
                        let (code, why) = answered(deployment, client % 3, &request, &tea(1));
                        ordered.fetch_add(1, Ordering::Relaxed);
                        assert!(matches!(code, 200 | 201 | 409), "{key}: {code} {why}");
                        code != 409
                    });
                    sold.collect::<Vec<_>>()
                })
            })
            .collect();
        eventually("some orders", || {
            (ordered.load(Ordering::Relaxed) > 20).then_some(())
        });
        nodes[0].take().expect("it runs").kill();
        clients
            .into_iter()
            .flat_map(|it| it.join().expect("a client"))
            .collect()
    });
    assert_eq!(sold.len(), DELIVERED);
    assert_eq!(
        answered(&deployment, 2, "GET /stock/tea", ""),
        (200, "0".to_owned())
    );
    // The killed node returns and knows all of them.
    nodes[0] = Some(start("n0"));
    eventually("n0 answers", || {
        ask(&deployment, 0, "GET /stock/tea", "").filter(|(code, _)| *code == 200)
    });
    for key in &sold {
        let (code, goods) = answered(&deployment, 0, &format!("GET /orders/{key}"), "");
        assert_eq!((code, &*goods), (200, "{\"item\":\"tea\",\"amount\":1}"));
    }
    let (code, metrics) = answered(&deployment, 0, "GET /metrics", "");
    assert_eq!(code, 200);
    assert!(metrics.contains("ionian_build_info{"), "{metrics}");
    let (code, _) = answered(&deployment, 1, "GET /orders/unknown", "");
    assert_eq!(code, 404);
    let (code, _) = answered(&deployment, 1, "PUT /orders/bad", "{\"item\": 7}");
    assert_eq!(code, 422);
}
