//! The audit log of real processes.

use crate::cluster::{
    Directory, eventually, fails, free_port, run, run_node, text, unfolded, works,
};
use crate::resp::{Client, Reply};
use crate::secured::Secured;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(crate) const PASSWORD: &str = "correct-horse-battery-staple";

/// Each node has an audit log; the first one changes nothing without it.
pub(crate) fn audited() -> Secured {
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

pub(crate) fn ok(client: &mut Client, words: &[&str]) {
    let answer = client.call(words).unwrap();
    assert_eq!(answer, Reply::Status("OK".into()), "{words:?}");
}

pub(crate) fn refused(client: &mut Client, words: &[&str]) -> String {
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
    for outcome in ["permitted", "done"] {
        let change = [
            ("request", "ACL SETUSER"),
            ("user", "default"),
            ("object", "eva"),
            ("outcome", outcome),
        ];
        expect(&file, &change);
    }
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
        ("object", "undo"),
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
    // The replicas may have just been started: status counts them as failed at first.
    let said = eventually("it serves", || {
        let status = run(&["status", "--config", &config, "--tls", &tls]);
        (status.status.code() == Some(3)).then(|| unfolded(&status.stdout))
    });
    assert!(
        said.contains(&format!("node n0 refuses changes: {reason}")),
        "{said}"
    );
    ok(best_effort, &["ACL", "SETUSER", "max", "on"]);
    works(&[&["drain", "n1"][..], &drain[2..]].concat());
    // Changes of the members and options go through a node that takes them.
    let set = ["options", "set", "heartbeat_ms=77"];
    works(&[&set[..], &drain[3..]].concat());
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

/// Adds a node that is a gateway alone.
fn addition(cluster: &Secured, name: &str) -> Vec<String> {
    let [address, gateway] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let (config, tls) = (cluster.path("given.toml"), cluster.path("certs/operator"));
    let add = ["member", "add", name, "--no-wait", "--address", &address];
    let rest = ["--gateway", &gateway, "--config", &config, "--tls", &tls];
    let words = add.into_iter().chain(rest);
    words.map(str::to_owned).collect()
}

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

#[test]
fn a_change_of_the_cluster_says_what_it_is_and_what_became_of_it() {
    let cluster = audited();
    cluster.client(0, "any");
    let file = cluster.directory.path("n0.audit");
    let expect_change = |object: &str, outcome: &str| {
        let caller = ("caller", "ionian://ionian/operator/default");
        let change = [
            caller,
            ("request", "change"),
            ("object", object),
            ("outcome", outcome),
        ];
        expect(&file, &change)
    };
    let (config, tls) = (cluster.path("given.toml"), cluster.path("certs/operator"));
    let of_cluster = ["--config", &config, "--tls", &tls];
    works(&[&["options", "set", "heartbeat_ms=77"], &of_cluster[..]].concat());
    expect_change("heartbeat_ms=77", "permitted");
    assert_eq!(
        expect_change("heartbeat_ms=77", "done")["result"],
        "epoch 1 begins"
    );
    // To have nodes note what they do is one, too.
    let record = ["trace", "record", "--one-in", "7", "--seconds", "60"];
    works(&[&record, &of_cluster[..]].concat());
    let object = ("object", "one in 7 commands for 60 s");
    expect(
        &file,
        &[("request", "record"), object, ("outcome", "permitted")],
    );
    let monitor = cluster.path("certs/monitor");
    let by_monitor = ["--config", &config, "--tls", &monitor];
    let reason = "the request to record for traces is refused: the certificate is of";
    fails(&[&record, &by_monitor[..]].concat(), 1, reason);
    expect(
        &file,
        &[("request", "record"), object, ("outcome", "refused")],
    );
    works(&[&["trace", "kept"], &by_monitor[..]].concat());
    works(&words(&addition(&cluster, "n3")));
    expect_change("add n3", "permitted");
    assert_eq!(expect_change("add n3", "done")["result"], "epoch 2 begins");
}

/// What can be read of a pipe now.
fn drained(pipe: &mut File) -> String {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = pipe.read(&mut some) {
        all.extend_from_slice(&some[..count]);
    }
    text(&all)
}

fn reader(pipe: &Path) -> File {
    let mut options = File::options();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    options.open(pipe).unwrap()
}

/// Waits until a node refuses to change users, with this reason.
fn until_refused(client: &mut Client, reason: &str) {
    eventually(reason, || {
        match client.call(&["ACL", "SETUSER", "eva", "on"]).unwrap() {
            Reply::Error(why) => why.contains(reason).then_some(()),
            _ => None,
        }
    });
}

/// The first one writes to a pipe, the others to a full disk.
#[test]
fn full_disk_and_pipe_that_is_not_read_take_no_lines() {
    let pipe = RefCell::new(None);
    let cluster = Secured::start(&["--audit-mode", "required"], |directory, node| {
        let file = match node {
            "n0" => {
                let path = directory.path("audit.pipe");
                mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
                pipe.replace(Some(reader(&path)));
                path
            }
            _ => "/dev/full".into(),
        };
        ["--audit", file.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec()
    });
    let path = cluster.directory.path("audit.pipe");
    let mut pipe = pipe.take().expect("n0 has one");
    let mut clients = [0, 1, 2].map(|node| cluster.client(node, "any"));
    for client in &mut clients[1..] {
        until_refused(client, "(--audit-mode required): No space left on device");
        ok(client, &["SET", "k", "v"]);
    }
    let first = &mut clients[0];
    ok(first, &["ACL", "SETUSER", "max", "on"]);
    let mut lines = String::new();
    eventually("the reader has the lines", || {
        lines += &drained(&mut pipe);
        let has = |text: &str| lines.contains(text);
        (has("\"start\"") && has("\"object\":\"max\"")).then_some(())
    });
    // A pipe that is full, as its reader does not read.
    fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    until_refused(
        first,
        "(--audit-mode required): Resource temporarily unavailable",
    );
    // There is room again. What is refused has lines, too.
    fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
    eventually("the reader reads on", || {
        drained(&mut pipe);
        let answer = first.call(&["ACL", "SETUSER", "tom", "on"]).unwrap();
        (answer == Reply::Status("OK".into())).then_some(())
    });
    drop(pipe);
    let no_reader = "(--audit-mode required): it is a pipe that no process reads";
    until_refused(first, no_reader);
    // Now no node permits anything that must be audited, and each one serves its clients.
    let refused = format!("the audit log of this node cannot be written {no_reader}");
    let add = addition(&cluster, "n3");
    fails(&words(&add), 1, &format!("node n0 refuses: {refused}"));
    let (config, tls) = (cluster.path("given.toml"), cluster.path("certs/operator"));
    let of_cluster = ["--config", &config, "--tls", &tls];
    let saved = cluster.path("saved");
    let save = [&["snapshot", "save", &saved], &of_cluster[..]].concat();
    fails(
        &save,
        1,
        "the audit log of this node cannot be written (--audit-mode",
    );
    assert!(!fs::exists(&saved).unwrap());
    let record = ["trace", "record", "--seconds", "60"];
    fails(&[&record, &of_cluster[..]].concat(), 1, &refused);
    for client in &mut clients {
        ok(client, &["SET", "k", "w"]);
    }
    // A node does not begin with a pipe that is not read.
    let (data, certificate) = (Directory::new().path(""), cluster.path("certs/nodes/n0"));
    let node = ["n0", "--config", &config, "--data", data.to_str().unwrap()];
    let audit = ["--tls", &certificate, "--audit", path.to_str().unwrap()];
    let (code, log) = run_node(&[&node[..], &audit].concat());
    assert!(
        code == Some(1) && log.contains("audit.pipe: it is a pipe that no process reads"),
        "{log}"
    );
    // Lines that have waited are not lost.
    let (mut pipe, mut lines) = (reader(&path), String::new());
    eventually("they come", || {
        lines += &drained(&mut pipe);
        (lines.contains("\"request\":\"record\"")).then_some(())
    });
    works(&words(&add));
    eventually("the change has its lines", || {
        lines += &drained(&mut pipe);
        lines.contains("epoch 1 begins").then_some(())
    });
}
