//! The audit log of real processes, and what is neither in it nor anywhere else.

use crate::cluster::{eventually, fails, run, text, works};
use crate::resp::{Client, Reply};
use crate::secured::Secured;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PASSWORD: &str = "correct-horse-battery-staple";

/// Each node has an audit log; the first one changes nothing without it.
fn audited() -> Secured {
    Secured::start(&["--audit-mode"], |directory, node| {
        let mode = if node == "n0" {
            "required"
        } else {
            "best-effort"
        };
        let file = directory.path(&format!("{node}.audit"));
        [mode, "--audit", file.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec()
    })
}

fn ok(client: &mut Client, words: &[&str]) {
    let answer = client.call(words).unwrap();
    assert_eq!(answer, Reply::Status("OK".into()), "{words:?}");
}

fn refused(client: &mut Client, words: &[&str]) -> String {
    match client.call(words).unwrap() {
        Reply::Error(why) => why,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = |line| serde_json::from_str(line).expect("a line of JSON");
    text.lines().map(line).collect()
}

/// Waits for a line with these values.
fn expect(file: &Path, values: &[(&str, &str)]) -> Value {
    let fits = |line: &Value| values.iter().all(|(key, value)| line[key] == *value);
    eventually(&format!("{} has {values:?}", file.display()), || {
        lines(file).into_iter().find(&fits)
    })
}

#[test]
fn each_event_is_a_line_also_after_a_rotation() {
    let mut cluster = audited();
    let mut client = cluster.client(0, "any");
    let file = cluster.directory.path("n0.audit");
    let begun = expect(&file, &[("request", "start"), ("node", "n0")]);
    assert!(begun["time"].is_string(), "{begun}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let wrong = ["AUTH", "eva", PASSWORD];
    assert!(refused(&mut client, &wrong).starts_with("WRONGPASS"));
    let login = [("request", "AUTH"), ("user", "eva"), ("outcome", "refused")];
    let from = expect(&file, &login)["from"].as_str().unwrap().to_owned();
    assert!(from.starts_with("127.0.0.1:"), "{from}");
    let rule = format!(">{PASSWORD}");
    ok(&mut client, &["ACL", "SETUSER", "eva", "on", &rule]);
    let change = [
        ("request", "ACL SETUSER"),
        ("user", "default"),
        ("object", "eva"),
        ("outcome", "permitted"),
    ];
    expect(&file, &change);
    // What is refused again and again is one line a minute.
    ok(
        &mut client,
        &["ACL", "SETUSER", "eva", "quota:commands=1", "+@all"],
    );
    ok(&mut client, &["AUTH", "eva", PASSWORD]);
    let is_busy = |client: &mut Client| matches!(client.call(&["PING"]).unwrap(), Reply::Error(_));
    assert!((0..4).filter(|_| is_busy(&mut client)).count() > 1);
    let quota = [
        ("request", "command"),
        ("user", "eva"),
        ("outcome", "over its quota"),
    ];
    expect(&file, &quota);
    let of_quota = |line: &Value| line["outcome"] == "over its quota";
    let count = lines(&file).iter().filter(|line| of_quota(line)).count();
    assert_eq!(count, 1);
    // After a rotation.
    fs::rename(&file, cluster.path("n0.audit.1")).unwrap();
    let config = cluster.path("given.toml");
    let renew = ["certs", "renew", "--config", &config, "--out"];
    works(&[&renew[..], &[&cluster.path("certs")]].concat());
    kill(cluster.pid(0), Signal::SIGHUP).unwrap();
    let exchanged = [("request", "certificates"), ("outcome", "exchanged")];
    let line = expect(&file, &exchanged);
    assert_eq!(line["object"], "ionian://ionian/node/n0");
    let tls = cluster.path("certs/operator");
    let drain = ["drain", "n0", "--undo", "--config", &config, "--tls", &tls];
    works(&drain);
    let operator = [
        ("request", "drain"),
        ("caller", "ionian://ionian/operator/default"),
        ("outcome", "permitted"),
    ];
    expect(&file, &operator);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(client);
    kill(cluster.pid(0), Signal::SIGTERM).unwrap();
    eventually("it stops", || cluster.nodes.0[0].try_wait().unwrap());
    let last = lines(&file).pop().expect("a line");
    assert_eq!(
        (&last["request"], &last["outcome"]),
        (&"stop".into(), &"done".into())
    );
}

#[test]
fn what_must_be_audited_is_refused_while_the_log_cannot_be_written() {
    let cluster = audited();
    let mut clients = [0, 1].map(|node| cluster.client(node, "any"));
    let files = ["n0.audit", "n1.audit"].map(|name| cluster.directory.path(name));
    for (file, client) in files.iter().zip(&mut clients) {
        fs::rename(file, file.with_extension("old")).unwrap();
        fs::create_dir(file).unwrap();
        // A line that cannot be written.
        refused(client, &["AUTH", "none", "x"]);
    }
    let [required, best_effort] = &mut clients;
    let change = ["ACL", "SETUSER", "eva", "on"];
    let why = eventually("it is refused", || match required.call(&change).unwrap() {
        Reply::Error(why) => Some(why),
        _ => None,
    });
    let reason =
        "the audit log of this node cannot be written (--audit-mode required): Is a directory";
    assert!(why.contains(reason), "{why}");
    assert!(why.contains("nothing was changed"), "{why}");
    let limit = ["CONFIG", "SET", "maxmemory", "1gb"];
    assert!(refused(required, &limit).contains("audit log"));
    let (config, tls) = (cluster.path("given.toml"), cluster.path("certs/operator"));
    let drain = ["drain", "n0", "--undo", "--config", &config, "--tls", &tls];
    fails(&drain, 1, reason);
    // All else goes on, as does the other node.
    ok(required, &["SET", "k", "v"]);
    assert_eq!(required.get("k").as_deref(), Some("v"));
    let status = run(&["status", "--config", &config, "--tls", &tls]);
    let said = text(&status.stdout);
    assert_eq!(status.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("node n0 refuses changes: {reason}")),
        "{said}"
    );
    ok(best_effort, &["ACL", "SETUSER", "max", "on"]);
    works(&[&["drain", "n1"][..], &drain[2..]].concat());
    // When there is a file again, it gets the lines that have waited.
    for file in &files {
        fs::remove_dir(file).unwrap();
    }
    expect(&files[0], &[("request", "AUTH"), ("user", "none")]);
    expect(&files[0], &[("request", "drain"), ("outcome", "refused")]);
    expect(&files[1], &[("request", "ACL SETUSER"), ("object", "max")]);
    ok(required, &change);
    works(&drain);
}

/// All files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let below = entries.flat_map(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path()),
            kind if kind.is_file() => vec![entry.path()],
            _ => Vec::new(),
        }
    });
    below.collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

/// The hash of a password suffices to log in by a faster guess, so only the data may have it.
#[test]
fn passwords_and_hashes_are_where_they_must_be_and_nowhere_else() {
    let cluster = audited();
    let mut client = cluster.client(1, "any");
    let rule = format!(">{PASSWORD}");
    let rules = ["ACL", "SETUSER", "eva", "on", &rule, "~*", "+@all"];
    ok(&mut client, &rules);
    ok(&mut client, &["AUTH", "eva", PASSWORD]);
    // Errors about what has it, which name the rest.
    refused(&mut client, &["AUTH", "none", PASSWORD]);
    refused(&mut client, &["ACL", "SETUSER", "max", &rule, "wrong"]);
    let user = client.call(&["ACL", "GETUSER", "eva"]).unwrap();
    let user = format!("{user:?}");
    let is_hash = |part: &&str| part.len() == 64 && part.bytes().all(|it| it.is_ascii_hexdigit());
    let hash = user
        .split('"')
        .find(is_hash)
        .expect("it has one")
        .to_owned();
    let file = cluster.path("password");
    fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (at, tls) = (cluster.gateway(2), cluster.path("certs/operator"));
    let login = [
        "exec",
        "--at",
        at,
        "--tls",
        &tls,
        "--user",
        "eva",
        "--password-file",
        &file,
    ];
    assert_eq!(works(&[&login[..], &["ACL", "WHOAMI"]].concat()), "eva\n");
    let config = cluster.path("given.toml");
    let status = ["status", "--json", "--config", &config, "--tls", &tls];
    let mut places = vec![("status".to_owned(), works(&status).into_bytes())];
    for words in ["ACL LOG", "SLOWLOG GET", "CLIENT LIST", "INFO all"] {
        let words: Vec<_> = words.split(' ').collect();
        let answer = format!("{:?}", client.call(&words).unwrap());
        places.push((words.join(" "), answer.into_bytes()));
    }
    for node in 0..3 {
        for part in ["environ", "cmdline", "status"] {
            let path = format!("/proc/{}/{part}", cluster.pid(node));
            places.push((path.clone(), fs::read(path).unwrap()));
        }
        let name = &cluster.deployment.nodes[node].name;
        for kind in ["log", "audit"] {
            let path = cluster.path(&format!("{name}.{kind}"));
            places.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    for (place, bytes) in &places {
        assert!(!bytes.is_empty(), "{place}");
        for secret in [PASSWORD, &hash] {
            assert!(!contains(bytes, secret), "{place}: {}", text(bytes));
        }
    }
    // The data has the hash alone.
    let mut hashes = 0;
    for file in files_below(&cluster.directory.path("data")) {
        let bytes = fs::read(&file).unwrap();
        assert!(!contains(&bytes, PASSWORD), "{}", file.display());
        hashes += usize::from(contains(&bytes, &hash));
    }
    assert!(hashes > 0, "it is there");
}
