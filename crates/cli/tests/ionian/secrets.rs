//! Passwords and their hashes: where they must be, and where they must not.

use crate::audit::{PASSWORD, audited, ok, refused};
use crate::cluster::{eventually, text, works};
use crate::resp::Client;
use crate::secured::Secured;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a command has besides its name.
const ARGUMENT: &str = "what-a-client-asks-for-39fe";

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
    has(bytes, text.as_bytes())
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}

/// Which of these are in a large file, most of which is a hole. Each is shorter than a piece.
fn found_in<const N: usize>(file: &Path, wanted: [&[u8]; N]) -> [bool; N] {
    const PIECE: usize = 1 << 16;
    let (mut file, zeros) = (File::open(file).unwrap(), vec![0; PIECE]);
    let (mut found, mut window) = ([false; N], vec![0; 2 * PIECE]);
    loop {
        // The end of a piece, and the next one.
        window.copy_within(PIECE.., 0);
        let count = file.read(&mut window[PIECE..]).unwrap();
        if count == 0 {
            return found;
        }
        window[PIECE + count..].fill(0);
        if window[PIECE..] != zeros || window[..PIECE] != zeros {
            for (found, wanted) in found.iter_mut().zip(wanted) {
                *found |= has(&window, wanted);
            }
        }
    }
}

/// A program whose memory the system may write to a file.
fn leaving_memory() -> Command {
    let mut shell = Command::new("sh");
    let begin = "ulimit -c $(ulimit -H -c) && exec \"$@\"";
    shell.args(["-c", begin, "sh", env!("CARGO_BIN_EXE_ionian")]);
    shell
}

/// The memory of a node at its end, where the system writes that into the directory of the process.
fn core_of(cluster: &mut Secured, node: usize) -> Option<PathBuf> {
    kill(cluster.pid(node), Signal::SIGABRT).unwrap();
    let ended = cluster.nodes.0[node].wait().unwrap();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let (_, most) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    if most == 0 || pattern.contains(['|', '/']) {
        eprintln!("not tested: the memory of a node; core files: {most} bytes, to {pattern}");
        return None;
    }
    assert!(ended.core_dumped(), "{ended}");
    let mut files = fs::read_dir(cluster.directory.path("")).unwrap();
    let core = files.find_map(|file| {
        let path = file.unwrap().path();
        let is_core = path.file_name()?.to_str()?.starts_with("core");
        is_core.then_some(path)
    });
    Some(core.expect("it is there"))
}

/// A gateway sends the hash of a password to the others. What it has received itself is in its
/// memory until that is used again.
#[test]
fn memory_of_other_nodes_has_the_hash_of_a_password_alone() {
    let mut cluster = Secured::start_by(leaving_memory, &[], |_, _| Vec::new());
    let mut client = cluster.client(1, "any");
    let rule = format!(">{PASSWORD}");
    ok(
        &mut client,
        &["ACL", "SETUSER", "eva", "on", &rule, "+@all"],
    );
    ok(&mut client, &["AUTH", "eva", PASSWORD]);
    let user = format!("{:?}", client.call(&["ACL", "GETUSER", "eva"]).unwrap());
    let hash = hash_in(&user);
    // Its replica has executed the change.
    cluster.client(0, "any");
    let bytes: Vec<u8> = (0..32)
        .map(|place| u8::from_str_radix(&hash[2 * place..2 * place + 2], 16).unwrap())
        .collect();
    if let Some(core) = core_of(&mut cluster, 0) {
        let wanted = [PASSWORD.as_bytes(), hash.as_bytes(), &bytes];
        let [password, hash, bytes] = found_in(&core, wanted);
        assert!(hash || bytes, "it knows the user");
        assert!(!password, "the password is in {}", core.display());
    }
}

/// The hash in what a gateway says of a user.
fn hash_in(user: &str) -> String {
    let is_hash = |part: &&str| part.len() == 64 && part.bytes().all(|it| it.is_ascii_hexdigit());
    user.split('"')
        .find(is_hash)
        .expect("it has one")
        .to_owned()
}

/// Reads a key with a secret name while the cluster is stopped for a while, so that the
/// command is slow, and traced. Returns what SLOWLOG says.
fn slow_read(cluster: &Secured, client: &mut Client) -> String {
    ok(client, &["CLIENT", "TRACE", "ON"]);
    let others = [0, 2].map(|node| cluster.pid(node));
    let told = eventually("a command is slow", || {
        others
            .iter()
            .for_each(|other| kill(*other, Signal::SIGSTOP).unwrap());
        // The answer needs a quorum.
        let goes_on = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            others
                .iter()
                .for_each(|other| kill(*other, Signal::SIGCONT).unwrap());
        });
        // Without an answer, if the cluster has no leader then.
        let _ = client.call(&["GET", ARGUMENT]).unwrap();
        goes_on.join().unwrap();
        let told = format!("{:?}", client.call(&["SLOWLOG", "GET"]).unwrap());
        told.contains("\"get\"").then_some(told)
    });
    ok(client, &["CLIENT", "TRACE", "OFF"]);
    told
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
    let hash = hash_in(&user);
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
    let slow = slow_read(&cluster, &mut client);
    let config = cluster.path("given.toml");
    let of_cluster = ["--config", &config, "--tls", &tls];
    let kept = works(&[&["trace", "kept", "--json"], &of_cluster[..]].concat());
    assert!(kept.contains("\"get\""), "{kept}");
    let status = ["status", "--json", "--config", &config, "--tls", &tls];
    let mut places = vec![
        ("status".to_owned(), works(&status).into_bytes()),
        ("trace kept".to_owned(), kept.into_bytes()),
        ("SLOWLOG GET".to_owned(), slow.into_bytes()),
    ];
    for words in ["ACL LOG", "CLIENT LIST", "INFO all"] {
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
        for secret in [PASSWORD, ARGUMENT, &hash] {
            assert!(!contains(bytes, secret), "{place}: {}", text(bytes));
        }
    }
    // So has a snapshot.
    let saved = cluster.path("saved");
    works(&[&["snapshot", "save", &saved], &of_cluster[..]].concat());
    let saved = fs::read(saved).unwrap();
    assert!(!contains(&saved, PASSWORD) && contains(&saved, &hash));
    // The data has the hash alone.
    let mut hashes = 0;
    for file in files_below(&cluster.directory.path("data")) {
        let bytes = fs::read(&file).unwrap();
        assert!(!contains(&bytes, PASSWORD), "{}", file.display());
        hashes += usize::from(contains(&bytes, &hash));
    }
    assert!(hashes > 0, "it is there");
}
