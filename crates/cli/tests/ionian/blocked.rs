//! Nothing that hangs and that a node can do without holds it up: it serves, and ends when it is
//! asked to.

use crate::cluster::{Directory, LIMIT, deployment, text};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a script of the shell, as root of a network of its own with a loopback device, where no
/// name server answers. `None` where the system permits no such network.
fn without_name_servers(directory: &Directory, script: &str) -> Option<Child> {
    let servers = directory.path("resolv.conf");
    // Longer than the test waits.
    let text = "nameserver 192.0.2.1\noptions timeout:30 attempts:5\n";
    fs::write(&servers, text).unwrap();
    let bind = format!("mount --bind {} /etc/resolv.conf", servers.display());
    // What is sent there is dropped without an error.
    let black_hole = "ip link set lo up && ip route add 192.0.2.0/24 dev lo";
    let begin = |script: &str| {
        Command::new("unshare")
            .args([
                "--map-root-user",
                "--user",
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["sh", "-c", &format!("{bind} && {black_hole} && {script}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let is_permitted =
        begin("true").is_ok_and(|it| it.wait_with_output().unwrap().status.success());
    is_permitted.then(|| begin(script).unwrap())
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
    let Some(mut shell) = without_name_servers(&directory, &script) else {
        println!("skipped: the system permits no network of its own");
        return;
    };
    let end = Instant::now() + 2 * LIMIT;
    while shell.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let has_ended = shell.try_wait().unwrap().is_some();
    let _ = shell.kill();
    let output = shell.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(has_ended, "it hangs: {said}");
    let why = ": the name in \"n0.example:";
    assert!(
        said.contains(why) && said.contains(" was not resolved within 2s"),
        "{said}"
    );
    assert!(said.contains("health: DEGRADED"), "{said}");
    assert!(said.ends_with("\n0\n0\n"), "{said}");
}
