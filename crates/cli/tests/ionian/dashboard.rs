//! The dashboard of a cluster, over HTTP and in a browser.

use crate::cluster::{Cluster, eventually, text};
use crate::metrics::{free_ports, get, get_own, request};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

const BROWSER_TEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring/browser");
const PICTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/images/dashboard.png"
);

/// The looks that the node at this port sends to a page.
fn looks(port: u16) -> impl Iterator<Item = Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(crate::cluster::LIMIT))
        .unwrap();
    let head = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines();
    lines.filter_map(|line| {
        let line = line.expect("the stream goes on");
        let data = line.strip_prefix("data: ")?;
        Some(serde_json::from_str(data).unwrap())
    })
}

/// The keys of all objects in a document, with those of the objects around them. Entries of a list
/// are not told apart.
fn paths(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{above}.{key}");
                paths(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, above, found)),
        _ => {}
    }
}

#[test]
fn every_node_shows_the_whole_cluster_and_judges_as_ionian_status() {
    let first = free_ports();
    let flag = format!("--http=127.0.0.1:{first}");
    // With certificates: nodes ask each other in their own names.
    let flags = [&flag, "--tls", "--no-restart"];
    let mut cluster = Cluster::start("colocated", &["durability=disk"], &flags);
    page(first);
    same_document(&cluster, first + 1);

    let mut looks = looks(first);
    let mut look_until = |what: &str, holds: &dyn Fn(&Value) -> bool| -> Value {
        // A look comes every 2 s, and each read has a limit.
        let found = looks.by_ref().take(60).find(|look| holds(look));
        found.unwrap_or_else(|| panic!("no look in which {what}"))
    };
    let all = look_until("the cluster is whole, and rates are known", &|look| {
        look["nodes"][2]["busy"].is_number()
            && (&look["health"], &look["failure_tolerance"]) == (&"healthy".into(), &1.into())
    });
    for node in all["nodes"].as_array().unwrap() {
        assert_eq!(node["state"], "serves", "{node}");
        assert!(
            node["certificate_ends"].is_number() && node["wait"].is_number(),
            "{node}"
        );
        assert!(
            node["memory_bytes"].as_u64() > Some(1 << 20) && node["disk_free_bytes"].is_number(),
            "{node}"
        );
    }
    let kinds = all["kinds"].as_array().unwrap();
    assert!(
        kinds
            .iter()
            .all(|kind| kind["instances"].as_array().unwrap().len() == 3)
    );

    // One that is not asked about, and does not lead.
    let victim = (1..3)
        .find(|node| all["leader"] != format!("n{node}"))
        .unwrap();
    cluster.signal(victim, Signal::SIGKILL);
    let name = format!("n{victim}");
    let failed = look_until("the killed node alone is down", &|look| {
        look["nodes"][victim]["error"].is_string()
            && (&look["health"], &look["failure_tolerance"]) == (&"degraded".into(), &0.into())
    });
    assert_eq!(failed["nodes"][victim]["state"], "no answer");
    assert_eq!(failed["troubles"][0]["id"], "node_down");
    assert_eq!(failed["troubles"][0]["alert"], "IonianNodeDown");
    let events = failed["events"].to_string();
    assert!(
        events.contains(&format!("{name} does not answer any more")),
        "{events}"
    );
    let instances = failed["kinds"][0]["instances"].as_array().unwrap();
    let down = instances.iter().find(|it| it["node"] == *name).unwrap();
    assert_eq!(down["up"], false);

    let history = |of: &str| {
        let path = format!("/api/v1/history?of={of}&seconds=300");
        let (code, body) = get_own(first, &path);
        assert_eq!(code, 200);
        serde_json::from_str::<Value>(&body).unwrap()
    };
    for of in ["node", "cluster"] {
        let busiest = &history(of)["series"]["busiest_loop"];
        assert!(
            busiest.as_array().unwrap().iter().any(Value::is_number),
            "{of}: {busiest}"
        );
    }
    cluster.stop(Signal::SIGTERM);
}

/// The page and its files, with a policy that forbids scripts within the page.
fn page(port: u16) {
    for path in [
        "/",
        "/dashboard.css",
        "/dashboard.js",
        "/api/v1/cluster",
        "/api/v1/history",
    ] {
        let answer = request(port, path);
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self'; ";
        assert!(head.contains(policy) && !head.contains("unsafe"), "{head}");
        assert!(head.contains("x-frame-options: DENY"), "{head}");
        assert!(!head.contains("access-control"), "{head}");
    }
    for path in [
        "/",
        "/dashboard.js",
        "/api/v1/cluster",
        "/api/v1/events",
        "/api/v1/history",
    ] {
        assert_eq!(get(port, path, "Host: evil.example").0, 403, "{path}");
    }
}

/// `/api/v1/cluster` is what `ionian status --json` prints. They are two looks at a cluster that
/// may still be starting: both are taken until the cluster is whole in both.
fn same_document(cluster: &Cluster, port: u16) {
    let (page, printed) = eventually("the cluster is whole in both", || {
        let (code, body) = get_own(port, "/api/v1/cluster");
        assert_eq!(code, 200);
        let page = serde_json::from_str::<Value>(&body).unwrap();
        let printed = cluster.status();
        let whole = |look: &Value| look["health"] == "healthy" && look["failure_tolerance"] == 1;
        (whole(&page) && whole(&printed)).then_some((page, printed))
    });
    let [mut here, mut there] = [BTreeSet::new(), BTreeSet::new()];
    paths(&page, "", &mut here);
    paths(&printed, "", &mut there);
    assert_eq!(here, there);
    for key in [
        "health",
        "failure_tolerance",
        "tolerance_by_role",
        "cluster",
        "founding",
        "troubles",
    ] {
        assert_eq!(page[key], printed[key], "{key}");
    }
    let processes = |document: &Value| -> Vec<Value> {
        let nodes = document["nodes"].as_array().unwrap();
        nodes
            .iter()
            .map(|node| node["status"]["pid"].clone())
            .collect()
    };
    assert_eq!(processes(&page), processes(&printed));
    assert!(here.contains(".nodes.status.work.loop_sync_us"), "{here:?}");
}

#[test]
fn the_page_works_in_a_browser() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let libraries = format!("{BROWSER_TEST}/node_modules");
    if !has("chromium") || !has("node") || !std::fs::exists(&libraries).unwrap() {
        return eprintln!(
            "skipped: it takes chromium, node, and `npm install` in monitoring/browser"
        );
    }
    let first = free_ports();
    let flag = format!("--http=127.0.0.1:{first}");
    let cluster = Cluster::start("colocated", &[], &[&flag, "--no-restart"]);
    let (url, gateway) = (
        format!("http://127.0.0.1:{first}/"),
        format!("127.0.0.1:{}", cluster.gateways()[0]),
    );
    let pid = eventually("the node runs", || cluster.pid(2)).to_string();
    let words = [
        "--url",
        &url,
        "--gateway",
        &gateway,
        "--kill",
        &pid,
        "--node",
        "n2",
    ];
    let written = std::env::var_os("WRITE_DOCS").map(|_| ["--picture", PICTURE]);
    let output = Command::new("node")
        .arg(format!("{BROWSER_TEST}/dashboard.mjs"))
        .args(words)
        .args(written.into_iter().flatten())
        .output()
        .unwrap();
    let found = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{found}");
}
