//! A cluster under `ionian up`, on its own ports and in its own directory.

pub(crate) use crate::common::{Directory, LIMIT, eventually, text};
use crate::resp::Client;
use ionian_deployment::{Deployment, PresetOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};

static COUNTER: AtomicU64 = AtomicU64::new(0);

pub(crate) fn ionian() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ionian"))
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    ionian().args(arguments).output().unwrap()
}

/// Runs a command that must work; returns its output.
pub(crate) fn works(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    text(&output.stdout)
}

/// The output of `ionian status`, with what continues a line at its end.
pub(crate) fn unfolded(bytes: &[u8]) -> String {
    text(bytes).replace("\n  ", " ")
}

/// Runs a command that must fail with this exit code and an error that contains `says`.
pub(crate) fn fails(arguments: &[&str], code: i32, says: &str) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
}

/// Like [`run`], for a node that should end by itself: its exit code and its output. If it does not
/// end, it is killed and the test fails.
pub(crate) fn run_node(arguments: &[&str]) -> (Option<i32>, String) {
    let directory = Directory::new();
    let log = directory.path("stderr");
    let stderr = fs::File::create(&log).unwrap();
    let child = ionian()
        .arg("node")
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut node = Nodes(vec![child]);
    let status = eventually("the node ends", || node.0[0].try_wait().unwrap());
    (status.code(), fs::read_to_string(log).unwrap())
}

/// Checks that `ionian up` in this directory ends with code 1 and an error that contains `says`. If
/// it does not end, it is killed and the test fails.
pub(crate) fn up_refuses(data: &str, says: &str) {
    let directory = Directory::new();
    let log = directory.path("stderr");
    let mut up = ionian();
    up.args(["up", "--no-http", "--data", data]);
    up.stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let mut up = Nodes(vec![up.spawn().unwrap()]);
    let status = eventually(says, || up.0[0].try_wait().unwrap());
    let error = fs::read_to_string(log).unwrap();
    assert!(status.code() == Some(1) && error.contains(says), "{error}");
}

/// Processes that end with the test.
pub(crate) struct Nodes(pub(crate) Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// A free port outside the range from which the system takes ports for outgoing connections, so
/// that no such connection takes it before the node does.
pub(crate) fn free_port() -> u16 {
    loop {
        let turn = COUNTER.fetch_add(1, Ordering::Relaxed) + u64::from(std::process::id()) * 997;
        let port = 20_000 + (turn % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A preset on free ports.
pub(crate) fn deployment(preset: &str, overrides: &[&str]) -> Deployment {
    let mut deployment = Deployment::preset(preset, &PresetOptions::default()).unwrap();
    for node in &mut deployment.nodes {
        node.address = format!("127.0.0.1:{}", free_port());
        if let Some(gateway) = &mut node.gateway {
            *gateway = format!("127.0.0.1:{}", free_port());
        }
    }
    deployment.with_overrides(overrides).unwrap()
}

pub(crate) struct Cluster {
    pub(crate) directory: Directory,
    pub(crate) deployment: Deployment,
    up: Child,
    stdout: Receiver<String>,
}

impl Cluster {
    /// Starts a preset and waits until it is ready.
    pub(crate) fn start(preset: &str, overrides: &[&str], flags: &[&str]) -> Cluster {
        let directory = Directory::new();
        let deployment = deployment(preset, overrides);
        fs::write(directory.path("given.toml"), deployment.to_toml()).unwrap();
        Self::start_in_with(directory, deployment, flags)
    }

    /// Kills `ionian up` and every node at once.
    pub(crate) fn kill_all(&mut self) {
        let pids = self.pids();
        self.up.kill().unwrap();
        self.up.wait().unwrap();
        for pid in &pids {
            // The node stops when `ionian up` has gone, so it may be gone already.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        eventually("all are gone", || {
            pids.iter().all(|pid| !is_alive(*pid)).then_some(())
        });
    }

    /// Starts the deployment in `given.toml` of the directory.
    pub(crate) fn start_in(directory: Directory, deployment: Deployment) -> Cluster {
        Self::start_in_with(directory, deployment, &[])
    }

    pub(crate) fn start_in_with(
        directory: Directory,
        deployment: Deployment,
        flags: &[&str],
    ) -> Cluster {
        let file = directory.path("given.toml");
        let arguments = [&[file.to_str().unwrap()], flags].concat();
        let (up, stdout) = spawn(&directory, &arguments);
        let cluster = Cluster {
            directory,
            deployment,
            up,
            stdout,
        };
        cluster.wait_until_ready();
        cluster
    }

    /// Starts `ionian up` once more in the same directory.
    pub(crate) fn start_again(&mut self, flags: &[&str]) {
        (self.up, self.stdout) = spawn(&self.directory, flags);
        self.wait_until_ready();
    }

    /// The same if this node cannot start.
    pub(crate) fn start_again_without(&mut self, node: &str) {
        (self.up, self.stdout) = spawn(&self.directory, &[]);
        self.wait_until_ready_but(Some(node));
    }

    fn wait_until_ready(&self) {
        self.wait_until_ready_but(None);
    }

    fn wait_until_ready_but(&self, missing: Option<&str>) {
        let ready = self
            .stdout
            .recv_timeout(LIMIT)
            .unwrap_or_else(|_| panic!("not ready: {}", self.stderr()));
        let there = self
            .deployment
            .nodes
            .iter()
            .filter(|node| Some(node.name.as_str()) != missing);
        let gateways: Vec<_> = there.filter_map(|node| node.gateway.clone()).collect();
        assert_eq!(ready, format!("ready {}", gateways.join(" ")));
    }

    pub(crate) fn data(&self) -> String {
        self.directory.path("data").to_str().unwrap().to_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.directory.path("stderr")).unwrap()
    }

    /// The gateway ports, node by node.
    pub(crate) fn gateways(&self) -> Vec<u16> {
        let gateways = self
            .deployment
            .nodes
            .iter()
            .filter_map(|node| node.gateway.as_ref());
        gateways
            .map(|text| text.rsplit_once(':').unwrap().1.parse().unwrap())
            .collect()
    }

    pub(crate) fn client(&self, gateway: usize) -> Client {
        Client::connect(self.gateways()[gateway])
    }

    /// The process of the node, unless the node is down.
    pub(crate) fn pid(&self, node: usize) -> Option<Pid> {
        let name = &self.deployment.nodes[node].name;
        let text = fs::read_to_string(self.directory.path(&format!("data/run/{name}.pid"))).ok()?;
        text.trim().parse().ok().map(Pid::from_raw)
    }

    /// The processes of all nodes that run, of those too that joined later.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        let files = fs::read_dir(self.directory.path("data/run"));
        let paths = files
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| file.path());
        let texts = paths
            .filter(|path| path.extension().is_some_and(|kind| kind == "pid"))
            .filter_map(|path| fs::read_to_string(path).ok());
        texts
            .filter_map(|text| text.trim().parse().ok().map(Pid::from_raw))
            .collect()
    }

    pub(crate) fn signal(&self, node: usize, signal: Signal) {
        kill(self.pid(node).expect("the node runs"), signal).unwrap();
    }

    pub(crate) fn status(&self) -> Value {
        let output = run(&["status", "--json", "--data", &self.data()]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    }

    /// The index of the node whose leader has the highest round.
    pub(crate) fn leader(&self) -> usize {
        eventually("a node leads", || {
            let status = self.status();
            let nodes = status["nodes"].as_array().unwrap().clone();
            let leading = nodes.iter().enumerate().flat_map(|(place, node)| {
                let roles = node["status"]["roles"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let leaders = roles
                    .into_iter()
                    .filter(|role| role["leads"]["own"] == true);
                leaders
                    .map(move |role| (role["round"].as_u64(), place))
                    .collect::<Vec<_>>()
            });
            leading.max().map(|(_, place)| place)
        })
    }

    /// Waits until every node is up, has its memory, and has executed as much as the others.
    pub(crate) fn wait_until_whole(&self) {
        self.wait_until_back(0);
    }

    /// The same while clients write: the replicas answer one after the other and never agree
    /// exactly.
    pub(crate) fn wait_until_whole_under_load(&self) {
        self.wait_until_back(100_000);
    }

    fn wait_until_back(&self, lag: u64) {
        eventually("all nodes are back and have caught up", || {
            let status = self.status();
            let nodes = status["nodes"].as_array().unwrap().clone();
            let mut executed = Vec::new();
            for node in &nodes {
                for role in node["status"]["roles"].as_array()? {
                    if role["remembers"] == false || role["has_session"] == false {
                        return None;
                    }
                    if role["role"] == "replica" {
                        executed.push(role["executed"].as_u64()?);
                    }
                }
            }
            let furthest = executed.iter().max().copied().unwrap_or(0);
            executed
                .iter()
                .all(|executed| furthest - executed <= lag)
                .then_some(())
        });
    }

    pub(crate) fn up_pid(&self) -> Pid {
        Pid::from_raw(self.up.id() as i32)
    }

    pub(crate) fn wait_for_up(&mut self) -> ExitStatus {
        let up = &mut self.up;
        eventually("`ionian up` ends", || up.try_wait().unwrap())
    }

    /// Stops in order and checks that no process is left.
    pub(crate) fn stop(&mut self, signal: Signal) {
        let pids = self.pids();
        kill(self.up_pid(), signal).unwrap();
        let status = self.wait_for_up();
        assert_eq!(status.code(), Some(0), "{}", self.stderr());
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "a process is left");
        assert!(self.pids().is_empty(), "a pid file is left");
        assert!(!self.stderr().contains("killing it"), "{}", self.stderr());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pids = self.pids();
        let _ = self.up.kill();
        let _ = self.up.wait();
        for pid in pids {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// Whether a thread of the process with this id runs. The first thread may have ended before the
/// others: only the last one to end closes the files, and with them the lock of the directory.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let runs = |task: PathBuf| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    tasks.is_ok_and(|tasks| tasks.flatten().any(|task| runs(task.path())))
}

fn spawn(directory: &Directory, flags: &[&str]) -> (Child, Receiver<String>) {
    let stderr = fs::File::create(directory.path("stderr")).unwrap();
    // Its ports could be those that another test has chosen.
    let has_http = flags.iter().any(|flag| flag.starts_with("--http"));
    let mut up = ionian()
        .arg("up")
        .args(flags)
        .args((!has_http).then_some("--no-http"))
        .args(["--data", directory.path("data").to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let (line, lines) = mpsc::channel();
    let stdout = BufReader::new(up.stdout.take().unwrap());
    std::thread::spawn(move || {
        stdout
            .lines()
            .map_while(Result::ok)
            .try_for_each(|text| line.send(text))
    });
    (up, lines)
}

/// Stops a process, and waits until each of its threads has stopped: the signal reaches one first.
pub(crate) fn stop_all_threads(id: Pid) {
    kill(id, Signal::SIGSTOP).unwrap();
    eventually("each thread is stopped", || {
        let mut threads = fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let stat = |it: &Path| fs::read_to_string(it.join("stat")).ok();
        let is_stopped = |stat: String| stat.rsplit_once(") ").unwrap().1.starts_with('T');
        let all = threads.all(|it| stat(&it.unwrap().path()).is_none_or(is_stopped));
        all.then_some(())
    });
}
