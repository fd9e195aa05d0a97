//! Nothing that hangs and that a node can do without holds it up: it serves, and ends when it is
//! asked to.

use crate::cluster::{Directory, LIMIT, Nodes, deployment, eventually, ionian, run, unfolded};
use crate::secured::Secured;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Runs a script of the shell, as root of a network and of mounts of its own, after it has set them
/// up. Returns what it has written. `None` where the system permits no such thing.
fn isolated(set_up: &str, script: &str) -> Option<String> {
    let begin = |script: &str| {
        let spaces = ["--map-root-user", "--user", "--mount", "--net", "--pid"];
        Command::new("unshare")
            .args(spaces)
            .args(["--fork", "--kill-child", "bash", "-c"])
            .arg(format!(
                "ip link set lo up && {set_up} && {{ {script}; }} 2>&1"
            ))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let is_permitted =
        begin("true").is_ok_and(|it| it.wait_with_output().unwrap().status.success());
    if !is_permitted {
        println!("skipped: the system permits no network and no mounts of its own");
        return None;
    }
    let (mut shell, end) = (begin(script).unwrap(), Instant::now() + 20 * LIMIT);
    let mut said = shell.stdout.take().unwrap();
    // A pipe that is full would hold the script up.
    let said = std::thread::spawn(move || {
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        text
    });
    while shell.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let has_ended = shell.try_wait().unwrap().is_some();
    let _ = shell.kill();
    let said = said.join().unwrap();
    assert!(has_ended, "it hangs: {said}");
    Some(said)
}

/// The name of the first of three nodes is found at first.
#[test]
fn a_name_that_no_server_resolves_holds_up_neither_nodes_nor_tools() {
    let directory = Directory::new();
    let mut deployment = deployment("colocated", &[]);
    let first = &mut deployment.nodes[0].address;
    *first = first.replace("127.0.0.1", "n0.example");
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let [file, data, hosts] = ["given.toml", "data", "hosts"].map(path);
    fs::write(&file, deployment.to_toml()).unwrap();
    fs::write(&hosts, "127.0.0.1 n0.example\n").unwrap();
    let (ionian, gateway) = (
        env!("CARGO_BIN_EXE_ionian"),
        deployment.nodes[1].gateway.as_ref().unwrap(),
    );
    let script = format!(
        "mount --bind {hosts} /etc/hosts
        begin() {{ {ionian} node $1 --data {data} --config {file} 2>> {data}.$1 & }}
        serves() {{ until {ionian} exec --at {gateway} SET k v > {data}.set 2>&1; do sleep 0.1; done }}
        begin n0; first=$!; begin n1; second=$!; begin n2; third=$!
        serves; kill $first $second; wait $first $second
        : > {hosts}; begin n1; second=$!; serves
        {ionian} status --config {file} 2>&1
        kill $second $third; wait $second; echo $?; wait $third; echo $?"
    );
    // Longer than the test waits.
    let servers = "nameserver 192.0.2.1\noptions timeout:30 attempts:5\n";
    fs::write(path("resolv.conf"), servers).unwrap();
    // What is sent to that server is dropped without an error.
    let set_up = format!(
        "mount --bind {} /etc/resolv.conf && ip route add 192.0.2.0/24 dev lo",
        path("resolv.conf")
    );
    let Some(said) = isolated(&set_up, &script) else {
        return;
    };
    let said = unfolded(said.as_bytes());
    let why = ": the name in \"n0.example:";
    assert!(
        said.contains(why) && said.contains(" was not resolved within 2s"),
        "{said}"
    );
    assert!(said.contains("health: DEGRADED"), "{said}");
    assert!(said.ends_with("\n0\n0\n"), "{said}");
}

/// Runs three nodes on a disk of this size, and then this script of the shell, in which `ask`
/// sends a command to the gateway of n1, `$value` has 100,000 bytes, `$pids` are the nodes, and
/// `$data`, `$file` and `$ionian` are their directory, their deployment and the program. Returns
/// what it has written. `None` where the system permits no such thing.
fn on_one_disk(settings: &[&str], size: &str, script: &str) -> Option<String> {
    on_small_disks(settings, (size, "$data"), script)
}

/// The same, where each of these directories is a disk of this size.
fn on_small_disks(settings: &[&str], (size, disks): (&str, &str), script: &str) -> Option<String> {
    let directory = Directory::new();
    let deployment = deployment("colocated", settings);
    let path = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let [file, data] = ["given.toml", "data"].map(path);
    fs::write(&file, deployment.to_toml()).unwrap();
    fs::create_dir(&data).unwrap();
    let gateway = deployment.nodes[1].gateway.as_ref().unwrap();
    let set_up = format!(
        "data={data}; for disk in {disks}; do mkdir -p $disk; mount -t tmpfs -o size={size} tmpfs $disk; done"
    );
    let begin = format!(
        "file={file}; gateway={gateway}; ionian={}
        for n in n0 n1 n2; do $ionian node $n --data $data --config $file 2> $data.$n & pids=\"$pids $!\"; done
        ask() {{ $ionian exec --at {gateway} \"$@\" 2>&1; }}
        until ask SET k v; do sleep 0.1; done > $data.set
        value=$(head -c 100000 /dev/zero | tr '\\0' v)
        ",
        env!("CARGO_BIN_EXE_ionian"),
    );
    isolated(&set_up, &(begin + script))
}

/// The disks of all nodes are one. The log of a leader grows fastest, so its node may stop before
/// the gateway of another notices that the disk is full.
#[test]
fn full_disks_of_all_nodes_leave_reads_and_deletions() {
    // Of each node: the first file of the log and three more, of which one does not fit.
    let script = "i=0; while [ $i -lt 800 ]; do
            case $(ask SET k$i $value) in *MISCONF*) break;; esac; i=$((i+1))
        done
        [ $i -lt 800 ] && echo full; ask GET k; ask DEL k1; ask SET k w
        kill $pids; wait";
    let Some(said) = on_one_disk(&["durability=disk"], "140m", script) else {
        return;
    };
    let expected = "full\nv\n1\nMISCONF the disk of this node is full: ";
    assert!(said.contains(expected), "{said}");
}

/// What frees nothing fills the last file of the log: the nodes go on, and FLUSHALL leads out.
#[test]
fn full_logs_stop_no_node_and_flushall_makes_room_again() {
    // Deletions of keys that there are not: of 150 MB together, and of 12 MB in short commands. Of
    // the long ones some are executed if a snapshot has just made room.
    let script = r#"i=0; while [ $i -lt 2000 ]; do
            case $(ask SET k$i $value) in *MISCONF*) break;; esac; i=$((i+1))
        done
        exec 3<>/dev/tcp/${gateway/:/\/}
        delete() {
            yes DEL $(head -c $2 /dev/zero | tr '\0' x) | head -n $1 >&3 &
            head -n $1 <&3 | tr -d '\r' | sort -u
        }
        delete 2500 60000 | grep -v '^:0'; delete 4000 3000
        ask GET k; ask FLUSHALL
        until [ "$(ask SET k w)" = OK ]; do sleep 0.1; done
        kill $pids; for pid in $pids; do wait $pid; echo $?; done"#;
    let disks = "$data/nodes/n0 $data/nodes/n1 $data/nodes/n2";
    let Some(said) = on_small_disks(&["durability=disk"], ("150m", disks), script) else {
        return;
    };
    let refused = "-MISCONF the log of this node is full, and its disk: only reads and FLUSHALL are accepted\n";
    let long = "-MISCONF the disk of this node is full: commands and transactions of at most \
                4096 bytes are accepted\n";
    let expected = format!("{long}:0\nv\nOK\n0\n0\n0\n");
    assert_eq!(said.replace(refused, ""), expected);
}

/// The disks of all nodes are one, and another file takes the room of their next snapshots.
#[test]
fn snapshots_without_room_leave_reads_and_deletions_until_there_is_room() {
    // A snapshot has 20 MB, and 8 MiB are left. What is written then needs no file of the log.
    let script = "i=0; while [ $i -lt 200 ]; do ask SET k$i $value > $data.set; i=$((i+1)); done
        until [ $(ls $data/nodes/*/snapshots/*.previous | wc -l) = 3 ]; do sleep 0.1; done 2> $data.ls
        head -c $(( ($(df --output=avail $data | tail -1) - 8192) * 1024 )) /dev/zero > $data/other
        until $ionian status --config $file | grep -o 'node n. has [0-9]* MiB free'; do sleep 0.1; done
        i=0; while [ $i -lt 400 ]; do
            case $(ask SET t$i v) in *MISCONF*) echo full; break;; esac; i=$((i+1))
        done
        ask GET k; ask DEL k1; ask SET k w | cut -c 1-38
        $ionian status --config $file | grep -o 'the disk of node n1 is full'
        grep -ho 'no room for a snapshot' $data.n1
        rm $data/other
        until [ \"$(ask SET k w)\" = OK ]; do sleep 0.1; done; ask GET k
        kill $pids; for pid in $pids; do wait $pid; echo $?; done";
    let settings = ["durability=disk", "options.snapshot_slots=100"];
    let Some(said) = on_one_disk(&settings, "500m", script) else {
        return;
    };
    let (warning, rest) = said.split_once("full\n").expect(&said);
    assert!(warning.starts_with("node n"), "{said}");
    let expected = "v\n1\nMISCONF the disk of this node is full:\n\
        the disk of node n1 is full\nno room for a snapshot\nw\n0\n0\n0\n";
    assert_eq!(rest, expected, "{said}");
}

#[test]
fn a_node_that_waits_for_a_file_at_its_start_names_it_and_ends_when_it_is_asked_to() {
    let directory = Directory::new();
    let file = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    fs::create_dir(file("certs")).unwrap();
    let given = deployment("colocated", &[]).to_toml();
    let all = [
        "given.toml",
        "certs/tls.crt",
        "certs/tls.key",
        "certs/ca.crt",
    ];
    for hanging in all {
        for name in all {
            let _ = fs::remove_file(file(name));
            fs::write(file(name), &given).unwrap();
            fs::set_permissions(file(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::remove_file(file(hanging)).unwrap();
        nix::unistd::mkfifo(&*directory.path(hanging), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let log = directory.path("log");
        let mut node = ionian();
        node.args([
            "node",
            "n0",
            "--data",
            &file("data"),
            "--config",
            &file("given.toml"),
        ]);
        if hanging != all[0] {
            node.args(["--tls", &file("certs")]);
        }
        let node = node.stderr(fs::File::create(&log).unwrap()).spawn();
        let mut nodes = Nodes(vec![node.unwrap()]);
        let line = format!("it waits for {}", file(hanging));
        let said = || fs::read_to_string(&log).unwrap();
        eventually(hanging, || said().contains(&line).then_some(()));
        let pid = nix::unistd::Pid::from_raw(nodes.0[0].id() as i32);
        kill(pid, Signal::SIGTERM).unwrap();
        let ended = eventually("it ends", || nodes.0[0].try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{}", said());
    }
}

/// Every option and argument that names a small file. A pipe is read, as shells give one.
#[test]
fn a_command_that_waits_for_a_file_names_it_and_reads_what_comes() {
    let directory = Directory::new();
    let file = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let pipe = |name: &str| {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        nix::unistd::mkfifo(&*directory.path(name), mode).unwrap();
        file(name)
    };
    // It accepts connections and answers nothing.
    let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = gateway.local_addr().unwrap().to_string();
    let (given, plan) = (pipe("given.toml"), pipe("plan"));
    let password = pipe("password");
    let mut cases = Vec::new();
    let mut case = |line: &str, waits_for: &str| {
        let words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        cases.push((words, waits_for.to_owned()));
    };
    for command in ["status --config", "config check", "up"] {
        case(&format!("{command} {given}"), &given);
    }
    case(&format!("exec --config {given} PING"), &given);
    for command in ["create", "renew", "client web"] {
        let out = file("out");
        case(
            &format!("certs {command} --out {out} --config {given}"),
            &given,
        );
    }
    case(&format!("plan --file {plan}"), &plan);
    case(&format!("plan --writes 9 --demands {plan}"), &plan);
    let login = format!("exec --at {at} --password-file {password} PING");
    case(&login, "--password-file");
    let tls = ["tls.crt", "tls.key", "ca.crt"];
    for hanging in tls {
        fs::create_dir(file(&format!("of-{hanging}"))).unwrap();
        for name in tls.iter().map(|name| format!("of-{hanging}/{name}")) {
            if name.ends_with(&format!("/{hanging}")) {
                pipe(&name);
                continue;
            }
            fs::write(file(&name), "no certificate").unwrap();
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(file(&name), mode).unwrap();
        }
        let set = file(&format!("of-{hanging}"));
        let of_set = format!("{set}/{hanging}");
        case(&format!("status --at {at} --tls {set}"), &of_set);
        case(&format!("exec --at {at} --tls {set} PING"), &of_set);
    }
    let mut commands = Vec::new();
    for (words, _) in &cases {
        let log = directory.path(&format!("log-{}", commands.len()));
        let mut command = ionian();
        command
            .args(words)
            .stdout(Stdio::null())
            .current_dir(file(""));
        let started = command.stderr(fs::File::create(&log).unwrap()).spawn();
        commands.push((Nodes(vec![started.unwrap()]), log));
    }
    for ((words, waits_for), (_, log)) in cases.iter().zip(&mut commands) {
        let line = format!("waiting for the content of {waits_for}\n");
        let said = || fs::read_to_string(&*log).unwrap();
        eventually(&format!("{words:?}"), || (said() == line).then_some(()));
    }
    drop(commands);
    let check = ionian()
        .args(["config", "check", &given])
        .stdout(Stdio::piped())
        .spawn();
    fs::write(&given, deployment("colocated", &[]).to_toml()).unwrap();
    let checked = check.unwrap().wait_with_output().unwrap();
    assert!(checked.status.success());
}

/// Delays the syncs of a node by the milliseconds in the file NODE.delay, or until it is gone.
const DELAYS: &str = r#"
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn wait() {
    let node = std::env::args().nth(2).unwrap_or_default();
    let text = || std::fs::read_to_string(format!("{node}.delay")).unwrap_or_default();
    std::thread::sleep(Duration::from_millis(text().parse().unwrap_or(0)));
    while text() == "hang" {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn next(name: *const c_char, file: c_int) -> c_int {
    wait();
    // The next library that has it.
    let next = unsafe { dlsym(-1_isize as *mut c_void, name) };
    let next: extern "C" fn(c_int) -> c_int = unsafe { std::mem::transmute(next) };
    next(file)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(file: c_int) -> c_int {
    next(c"fdatasync".as_ptr(), file)
}

#[unsafe(no_mangle)]
pub extern "C" fn fsync(file: c_int) -> c_int {
    next(c"fsync".as_ptr(), file)
}
"#;

/// The program, on a disk whose syncs can be delayed.
fn on_slow_disk() -> Command {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let mut command = ionian();
    let library = LIBRARY.get_or_init(|| library("delays", DELAYS));
    command.env("LD_PRELOAD", library);
    command
}

/// Makes a library of this source, to be loaded before others.
pub(crate) fn library(name: &str, text: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let id = std::process::id();
    let source = directory.join(format!("{name}-{id}.rs"));
    let library = directory.join(format!("{name}-{id}.so"));
    fs::write(&source, text).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name"]);
    rustc.arg(name).arg("-o").arg(&library).arg(&source);
    assert!(rustc.status().unwrap().success());
    library
}

/// The status, and the index of the node that leads, if one does.
fn status(cluster: &Secured) -> (Value, Option<usize>) {
    let [config, tls] = ["given.toml", "certs/monitor"].map(|it| cluster.path(it));
    let output = run(&["status", "--json", "--config", &config, "--tls", &tls]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let leads = |node: &Value| {
        let roles = node["status"]["roles"].as_array();
        roles.is_some_and(|roles| roles.iter().any(|role| role["leads"]["own"] == true))
    };
    let leader = status["nodes"].as_array().unwrap().iter().position(leads);
    (status, leader)
}

fn median(cluster: &Secured, gateway: usize) -> Duration {
    let mut client = cluster.client(gateway, "any");
    let mut took: Vec<Duration> = (0..41)
        .map(|_| {
            let begin = Instant::now();
            client.call(&["SET", "k", "v"]).unwrap();
            begin.elapsed()
        })
        .collect();
    took.sort();
    took[20]
}

#[test]
fn a_leader_on_a_slow_disk_hands_over_and_one_that_hangs_answers_and_ends() {
    let cluster = Secured::start_by(on_slow_disk, &[], |_, _| Vec::new());
    cluster.client(0, "any");
    let leader = eventually("a node leads", || status(&cluster).1);
    let name = cluster.deployment.nodes[leader].name.clone();
    let other = (leader + 1) % 3;
    let normal = median(&cluster, other);
    let delay = |text: &str| fs::write(cluster.path(&format!("{name}.delay")), text).unwrap();
    delay("300");
    let mut client = cluster.client(other, "any");
    eventually("another node leads, and the slow one is named", || {
        client.call(&["SET", "k", "v"]).unwrap();
        let (status, now) = status(&cluster);
        let text = format!("the disk of node {name} is slow");
        (now? != leader && status.to_string().contains(&text)).then_some(())
    });
    assert!(
        cluster.log(leader).contains("E0206"),
        "{}",
        cluster.log(leader)
    );
    println!(
        "median of writes: {normal:?}, then {:?}",
        median(&cluster, other)
    );
    // A client of the node itself gets an answer while a sync never ends.
    let mut own = cluster.client(leader, "any");
    delay("hang");
    for _ in 0..3 {
        client.call(&["SET", "k", "w"]).unwrap();
        own.call(&["SET", "k", "v"]).unwrap();
    }
    kill(cluster.pid(leader), Signal::SIGTERM).unwrap();
    let directory = &cluster.directory;
    let mut nodes = cluster.nodes;
    eventually("it ends", || nodes.0[leader].try_wait().unwrap());
    let log = fs::read_to_string(directory.path(&format!("{name}.log"))).unwrap();
    assert!(log.contains("E0604"), "{log}");
}
