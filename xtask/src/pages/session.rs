//! Runs the commands of a page as a reader would who has just cloned the repository: in a copy of
//! what is in it, with `bash`, with nothing but the tools that the page has them install.

use super::blocks::{Block, What, fits};
use crate::process::{self, End, Group};
use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A command may take this long, building included.
const COMMAND_LIMIT: Duration = Duration::from_secs(40 * 60);

/// A server may take this long until it says that it is ready, building included.
const READY_LIMIT: Duration = COMMAND_LIMIT;

/// How long a server may take to stop in order.
const GRACE: Duration = Duration::from_secs(15);

/// Ports that pages use: what is there already would be taken for the page's.
const PORTS: [std::ops::Range<u16>; 2] = [7379..7383, 17400..17419];

/// The last lines of what a command said that an error shows.
const SHOWN: usize = 30;

/// A copy of the repository, and the tools beside it. It is deleted when this is dropped.
pub(super) struct Clone {
    root: PathBuf,
    /// What pages build goes to the repository's own target folder, so that it is built once.
    target: PathBuf,
}

impl Clone {
    /// Copies what git has, or would add, of `repository`. Times of files are kept, so that what
    /// was built there is not built again.
    pub(super) fn make(repository: &Path) -> Result<Clone, Box<dyn Error>> {
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(repository)
            .output()?;
        if !listed.status.success() {
            return Err(
                format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)).into(),
            );
        }
        let target = crate::target();
        let root = target.join("pages");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let clone = Clone { root, target };
        for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
            let (from, to) = (repository.join(name), clone.directory().join(name));
            // What was deleted and not committed yet is still listed.
            if !from.exists() {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::copy(&from, &to)?;
            File::options()
                .write(true)
                .open(&to)?
                .set_modified(from.metadata()?.modified()?)?;
        }
        // Where a reader finds what was built.
        std::os::unix::fs::symlink(&clone.target, clone.directory().join("target"))?;
        clone.provide_redis_cli()?;
        Ok(clone)
    }

    /// Where commands are run.
    fn directory(&self) -> PathBuf {
        self.root.join("ionian")
    }

    fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Pages show what `redis-cli` prints on a terminal, and there is none here. Where it is not
    /// installed, `ionian exec` stands in for it.
    fn provide_redis_cli(&self) -> Result<(), Box<dyn Error>> {
        let installed = Command::new("sh")
            .args(["-c", "command -v redis-cli"])
            .output()?;
        let installed = String::from_utf8(installed.stdout)?;
        let script = match installed.trim() {
            "" => {
                eprintln!(
                    "==> NOT CHECKED: redis-cli itself. It is not installed; `ionian exec` stands in for it."
                );
                STAND_IN.to_owned()
            }
            path => format!("#!/bin/sh\nexec {path} --no-raw \"$@\"\n"),
        };
        fs::create_dir_all(self.bin())?;
        let path = self.bin().join("redis-cli");
        fs::write(&path, script)?;
        let mut permissions = path.metadata()?.permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        Ok(fs::set_permissions(&path, permissions)?)
    }

    fn shell(&self, script: &str) -> Result<Command, Box<dyn Error>> {
        let built = self.target.join("release");
        let installed = self.root.join("installed");
        let path = env::var_os("PATH").unwrap_or_default();
        let path = [self.bin(), installed.join("bin"), built]
            .into_iter()
            .chain(env::split_paths(&path));
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.directory())
            .env("PATH", env::join_paths(path)?)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INSTALL_ROOT", installed)
            .envs([crate::UNOPTIMIZED_RELEASE])
            // Set by the cargo that runs this program, and of no meaning to the one that a reader
            // runs.
            .env_remove("CARGO")
            .stdin(Stdio::null());
        crate::without_package(&mut command);
        Ok(command)
    }
}

impl Drop for Clone {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            eprintln!("==> {} cannot be deleted: {error}", self.root.display());
        }
    }
}

/// `redis-cli -p PORT WORDS..` as it prints on a terminal.
const STAND_IN: &str = r#"#!/usr/bin/env bash
set -euo pipefail
port=6379
if [ "$1" = "-p" ]; then port=$2; shift 2; fi
# `exec` prints as redis-cli does on a terminal when it has one; a bulk string is in quotation marks there.
reply=$(ionian exec --at "127.0.0.1:$port" "$@")
case "${1,,}:$reply" in
  get:?*|xadd:?*) printf '"%s"\n' "$reply" ;;
  get:) echo '(nil)' ;;
  incr:*|del:*|exists:*|dbsize:*) echo "(integer) $reply" ;;
  *) printf '%s\n' "$reply" ;;
esac
"#;

/// One page at a time: servers go on until its end.
pub(super) struct Session<'a> {
    clone: &'a Clone,
    page: &'a str,
    servers: Vec<Group>,
    said: usize,
}

impl<'a> Session<'a> {
    /// Begins where the page before has left nothing behind but files.
    pub(super) fn begin(clone: &'a Clone, page: &'a str) -> Result<Self, Box<dyn Error>> {
        for port in PORTS.into_iter().flatten() {
            TcpListener::bind(("127.0.0.1", port)).map_err(|error| {
                format!(
                    "port {port}, which the commands of {page} use, cannot be listened on: {error}. Stop what is there"
                )
            })?;
        }
        Ok(Session {
            clone,
            page,
            servers: Vec::new(),
            said: 0,
        })
    }

    /// Does what a block says.
    pub(super) fn run(&mut self, block: &Block) -> Result<(), Box<dyn Error>> {
        match &block.what {
            What::Skip => Ok(()),
            What::Script(script) => self.command(block.line, script, None),
            What::Server { script, ready } => self.server(block.line, script, ready),
            What::Session(commands) => commands
                .iter()
                .try_for_each(|(command, output)| self.command(block.line, command, Some(output))),
        }
    }

    /// The files that take what a command says. Not pipes: these need no reader, and no process can
    /// keep one open.
    fn outputs(&mut self) -> Result<(PathBuf, PathBuf), Box<dyn Error>> {
        self.said += 1;
        let name = |kind| self.clone.root.join(format!("{}.{kind}", self.said));
        Ok((name("out"), name("err")))
    }

    fn command(
        &mut self,
        line: usize,
        script: &str,
        expected: Option<&[String]>,
    ) -> Result<(), Box<dyn Error>> {
        eprintln!(
            "==> {}:{line}: {}",
            self.page,
            script.replace('\n', "\n      ")
        );
        let (out, err) = self.outputs()?;
        let mut command = self.clone.shell(script)?;
        let end = process::run(
            command
                .stdout(File::create(&out)?)
                .stderr(File::create(&err)?),
            COMMAND_LIMIT,
        )?;
        let said = fs::read_to_string(&out)?;
        let fail = |what: String| -> Box<dyn Error> {
            let errors = fs::read_to_string(&err).unwrap_or_default();
            format!(
                "{}:{line}: {script}\n{what}. It said:\n{}{}",
                self.page,
                tail(&said),
                tail(&errors)
            )
            .into()
        };
        match end {
            End::Done(status) if !status.success() => {
                return Err(fail(format!("It has failed ({status})")));
            }
            End::Done(_) => {}
            End::TooLong => {
                return Err(fail(format!(
                    "It has not ended within {} s",
                    COMMAND_LIMIT.as_secs()
                )));
            }
            End::Interrupted => return Err("interrupted".into()),
        }
        let Some(expected) = expected else {
            return Ok(());
        };
        let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
        match fits(&lines, &said.lines().collect::<Vec<_>>()) {
            true => Ok(()),
            false => Err(fail(format!(
                "The page shows something else:\n{}",
                lines.join("\n")
            ))),
        }
    }

    fn server(&mut self, line: usize, script: &str, ready: &str) -> Result<(), Box<dyn Error>> {
        eprintln!(
            "==> {}:{line}: {script}   (until the end of the page)",
            self.page
        );
        let (out, err) = self.outputs()?;
        let mut command = self.clone.shell(script)?;
        let mut group = Group::start(
            command
                .stdout(File::create(&out)?)
                .stderr(File::create(&err)?),
        )?;
        let deadline = Instant::now() + READY_LIMIT;
        let is_ready = || {
            fs::read_to_string(&out)
                .is_ok_and(|said| said.lines().any(|line| line.starts_with(ready)))
        };
        while !is_ready() {
            let ended = !matches!(group.wait(Duration::from_millis(100))?, End::TooLong);
            if ended || Instant::now() >= deadline {
                let (said, errors) = (fs::read_to_string(&out)?, fs::read_to_string(&err)?);
                let (page, what) = (
                    self.page,
                    if ended { "has ended" } else { "takes too long" },
                );
                let said = format!("{}{}", tail(&said), tail(&errors));
                return Err(format!(
                    "{page}:{line}: {script}\nIt {what} without saying {ready:?}:\n{said}"
                )
                .into());
            }
        }
        self.servers.push(group);
        Ok(())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.servers.drain(..).for_each(|server| server.stop(GRACE));
    }
}

/// The end of a long text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..]
        .iter()
        .map(|line| format!("  {line}\n"))
        .collect()
}
