//! A redis-server 7.0 as the measure, if one is installed.

use crate::common::text;
use crate::redis7_acl::Step;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A redis-server of its own, with two connections.
pub(crate) struct Theirs {
    server: Child,
    directory: PathBuf,
    /// Empty until it answers.
    clients: Vec<UnixStream>,
    asked: u64,
}

impl Theirs {
    /// Starts it; `None` if there is none of this version.
    pub(crate) fn new() -> Option<Theirs> {
        let version = Command::new("redis-server").arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        if !version.as_ref().is_ok_and(|it| it.contains(" v=7.0.")) {
            eprintln!("skipped: redis-server 7.0 is not installed ({version:?})");
            return None;
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("random numbers");
        let name = format!("ionian-redis7-{:x}", u64::from_le_bytes(random));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let socket = directory.join("socket");
        let mut server = Command::new("redis-server");
        server
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            // Without this MODULE LOAD is refused before it is judged.
            .args(["--enable-module-command", "yes", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&directory);
        let server = server.stdout(Stdio::null()).spawn();
        // Its end is that of the server.
        let mut theirs = Theirs {
            server: server.expect("a redis-server"),
            directory,
            clients: Vec::new(),
            asked: 0,
        };
        let since = Instant::now();
        let connect = || loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) if since.elapsed() > PATIENCE => panic!("redis-server: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        for client in [connect(), connect()] {
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            theirs.clients.push(client);
        }
        Some(theirs)
    }

    pub(crate) fn ask(&mut self, (by_admin, lines): &Step) -> String {
        self.asked += 1;
        let stream = &mut self.clients[usize::from(!by_admin)];
        // An unknown command has an answer whatever the rights are.
        let (end, lines) = (format!("end-{}", self.asked), lines.replace('\n', "\r\n"));
        let request = format!("{lines}\r\n{end}\r\n");
        stream.write_all(request.as_bytes()).expect("to write");
        let mut reply = Vec::new();
        let mark = format!("-ERR unknown command '{end}', with args beginning with: \r\n");
        while !reply.ends_with(mark.as_bytes()) {
            let mut some = [0; 4096];
            let read = stream.read(&mut some).expect("an answer");
            assert!(read > 0, "the server has closed the connection");
            reply.extend_from_slice(&some[..read]);
        }
        reply.truncate(reply.len() - mark.len());
        text(&reply)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let killed = self.server.kill().and_then(|()| self.server.wait());
        let removed = std::fs::remove_dir_all(&self.directory);
        if !std::thread::panicking() {
            killed.expect("to end the server");
            removed.expect("to remove its directory");
        }
    }
}
