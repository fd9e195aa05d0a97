//! Programs that may not run without a limit: each is the head of a process group of its own, which
//! is killed when its time is up, when Ctrl-C or SIGTERM ends this program, and when its handle is
//! dropped. So nothing that a gate has started outlives it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Set by SIGINT and SIGTERM.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // It fails for signals that cannot be caught only.
        let _ = signal_hook::flag::register(signal, flag.clone());
    }
    flag
});

/// A program that runs, with all that it starts.
pub(crate) struct Group {
    child: Child,
    ended: Option<ExitStatus>,
}

/// How it went.
pub(crate) enum End {
    /// It ended by itself.
    Done(ExitStatus),
    /// It took too long and was killed.
    TooLong,
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

/// Whether Ctrl-C or SIGTERM has come.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

impl Group {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> io::Result<Group> {
        // Before there is anything to be killed.
        LazyLock::force(&INTERRUPTED);
        Ok(Group {
            child: command.process_group(0).spawn()?,
            ended: None,
        })
    }

    /// How it has ended, if it has.
    pub(crate) fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<End> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.status()? {
                return Ok(End::Done(status));
            }
            if is_interrupted() {
                return Ok(End::Interrupted);
            }
            if Instant::now() >= deadline {
                return Ok(End::TooLong);
            }
            sleep(LOOK_EVERY);
        }
    }

    /// Asks all of the group to end, by SIGTERM, and waits for it; what is left after `grace` is
    /// killed.
    pub(crate) fn stop(mut self, grace: Duration) {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + grace;
        while self.is_alive() && Instant::now() < deadline {
            sleep(LOOK_EVERY);
        }
    }

    /// Whether a process of the group is left.
    fn is_alive(&mut self) -> bool {
        // The head is a zombie until it is asked for.
        let _ = self.status();
        killpg(self.id(), None).is_ok()
    }

    fn signal(&self, signal: Signal) {
        // It fails when no process is left.
        let _ = killpg(self.id(), signal);
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        // Reaped here: killed by SIGKILL, it ends at once.
        if self.ended.is_none() {
            let _ = self.child.wait();
        }
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command, limit: Duration) -> io::Result<End> {
    Group::start(command)?.wait(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    /// The state of a process, of Linux: absent when there is none.
    fn state(process: &str) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn what_takes_too_long_is_killed_with_what_it_started() {
        let file = std::env::temp_dir().join(format!("ionian-xtask-group-{}", std::process::id()));
        let script = format!(
            "sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait",
            file.display()
        );
        let mut group = Group::start(&mut shell(&script)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !file.exists() {
            assert!(Instant::now() < deadline, "the shell does not start");
            assert!(matches!(group.wait(LOOK_EVERY), Ok(End::TooLong)));
        }
        let grandchild = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        drop(group);
        // It is another's to reap: it may still be seen as a zombie.
        while !matches!(state(&grandchild), None | Some('Z')) {
            assert!(
                Instant::now() < deadline,
                "process {grandchild} outlives its group"
            );
            sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn what_ends_is_told() {
        let end = run(&mut shell("exit 3"), Duration::from_secs(60)).unwrap();
        assert!(matches!(end, End::Done(status) if status.code() == Some(3)));
    }
}
