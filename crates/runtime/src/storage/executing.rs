//! The file `executing`: which commands a process was executing when it ended without saying why,
//! by an abort, for want of memory, by a watchdog or by SIGKILL.
//!
//! As long as all goes well the file says only that a process runs. After a process that has ended
//! without saying why, the next one writes each command into the file before it executes it, for a
//! minute: a command that ends the process once more has its name in it. If one has, the time is
//! longer. ([Why](../../../../docs/decisions/0030-poison.md).)
//!
//! Nothing is synced: what a process has written survives it. When the machine was restarted, what
//! the file says is of no use.

use super::error::{LogError, io_error};
use super::skips::CommandName;
use ionian_kernel::guard::LogCommand;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const FILE: &str = "executing";

/// The length of the file, which is replaced by one write.
const LENGTH: usize = 4096;

/// How many commands are named, if several threads execute some.
const NAMED: usize = 4;

/// How long commands are noted.
const NOTED_FOR: Duration = Duration::from_secs(60);

/// How long they are noted if the file names one. The node may have to wait for others.
const NOTED_FOR_IF_NAMED: Duration = Duration::from_secs(600);

/// Where Linux says which start of the machine this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A command that a process was executing when it ended without saying why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Its name.
    pub command: CommandName,
    /// The length of its bytes.
    pub bytes: usize,
    /// How many processes have ended so, one after the other.
    pub ends: u32,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unfinished {
            command,
            bytes,
            ends,
        } = self;
        let times = match ends {
            1 => "once".to_owned(),
            ends => format!("{ends} times"),
        };
        write!(
            formatter,
            "the process ended {times} while it executed a command, in slot {}: {command}, {bytes} bytes",
            command.slot.0
        )
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Content {
    boot: String,
    /// Whether the process has ended, and said why.
    has_ended: bool,
    /// What is being executed.
    executing: Vec<Unfinished>,
    /// What was being executed when processes before ended.
    before: Vec<Unfinished>,
}

impl Content {
    /// The content of the file; `None` if there is none that is of use.
    fn stored(data: &Path) -> Result<Option<Content>, LogError> {
        let path = data.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                let content = serde_json::from_slice(&bytes).ok();
                Ok(content.filter(|content: &Content| content.boot == boot()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read", &path)(error)),
        }
    }

    /// What was being executed when the last process ended, or one before if the last did not get
    /// so far.
    fn unfinished(self) -> Vec<Unfinished> {
        if self.executing.is_empty() {
            return self.before;
        }
        let ends = |it: &Unfinished| {
            let same = self.before.iter().find(|at| at.command == it.command);
            same.map_or(1, |at| at.ends.saturating_add(1))
        };
        let ended = self.executing.iter().map(|it| Unfinished {
            ends: ends(it),
            ..it.clone()
        });
        ended.collect()
    }
}

fn boot() -> String {
    // Elsewhere there is no such file, and no such distinction.
    fs::read_to_string(BOOT).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// The commands that a process was executing when it last ended without saying why, in its data
/// directory.
///
/// # Errors
/// If the file cannot be read.
pub fn unfinished(data: &Path) -> Result<Vec<Unfinished>, LogError> {
    let content = Content::stored(data)?;
    Ok(content.map_or_else(Vec::new, Content::unfinished))
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Executing {
    /// Whether commands are noted.
    notes: AtomicBool,
    since: Instant,
    file: Option<(PathBuf, File)>,
    content: Mutex<Content>,
}

impl Executing {
    /// Of a node without a data directory.
    pub(crate) fn nowhere() -> Executing {
        Executing {
            notes: AtomicBool::new(false),
            since: Instant::now(),
            file: None,
            content: Mutex::default(),
        }
    }

    /// Of a node that has locked its data directory.
    pub(crate) fn open(data: &Path) -> Result<Executing, LogError> {
        let stored = Content::stored(data)?;
        let has_ended = stored.as_ref().is_none_or(|content| content.has_ended);
        let before = stored.map_or_else(Vec::new, Content::unfinished);
        let path = data.join(FILE);
        let file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&path)
            .map_err(io_error("open", &path))?;
        let executing = Executing {
            notes: AtomicBool::new(!has_ended || !before.is_empty()),
            since: Instant::now(),
            file: Some((path, file)),
            content: Mutex::new(Content {
                boot: boot(),
                before,
                ..Content::default()
            }),
        };
        executing.write(&executing.content());
        Ok(executing)
    }

    /// What processes before were executing when they ended, and this one has not executed yet.
    pub(crate) fn unfinished(&self) -> Vec<Unfinished> {
        self.content().before.clone()
    }

    /// A command is about to be executed. Returns its name if it was noted.
    #[inline]
    pub(crate) fn begin(&self, command: &LogCommand<'_>) -> Option<CommandName> {
        match self.notes.load(Ordering::Relaxed) {
            false => None,
            true => self.note(command),
        }
    }

    #[cold]
    fn note(&self, command: &LogCommand<'_>) -> Option<CommandName> {
        let mut content = self.content();
        let limit = match content.before.is_empty() {
            true => NOTED_FOR,
            false => NOTED_FOR_IF_NAMED,
        };
        if self.since.elapsed() > limit {
            self.notes.store(false, Ordering::Relaxed);
            return None;
        }
        let name = CommandName::of(command);
        if content.executing.len() < NAMED {
            content.executing.push(Unfinished {
                command: name,
                bytes: command.payload.len(),
                ends: 1,
            });
            self.write(&content);
        }
        Some(name)
    }

    /// A command was executed or left out.
    pub(crate) fn end(&self, name: CommandName) {
        let mut content = self.content();
        content.executing.retain(|it| it.command != name);
        content.before.retain(|it| it.command != name);
        self.write(&content);
    }

    /// The process ends, and says why.
    pub(crate) fn close(&self) {
        let mut content = self.content();
        content.has_ended = true;
        content.executing.clear();
        self.write(&content);
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        let content = self.content.lock();
        content.unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self, content: &Content) {
        let Some((path, file)) = &self.file else {
            return;
        };
        let mut bytes = serde_json::to_vec_pretty(content).expect("numbers and strings");
        bytes.resize(LENGTH - 1, b' ');
        bytes.push(b'\n');
        if let Err(error) = file.write_all_at(&bytes, 0) {
            self.notes.store(false, Ordering::Relaxed);
            tracing::warn!(
                id = "E0208",
                "cannot note what is executed in {}: {error}",
                path.display()
            );
        }
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_kernel::id::{SessionId, Slot};
    use ionian_kernel::level::Level;

    fn command(slot: u64) -> LogCommand<'static> {
        LogCommand {
            slot: Slot(slot),
            session: SessionId(3),
            number: slot,
            payload: b"x",
            level: Level::LATEST,
        }
    }

    /// The process ends without saying why.
    fn kill(executing: Executing) {
        std::mem::forget(executing);
    }

    fn ends(data: &Path) -> Vec<(u64, u32)> {
        let all = unfinished(data).expect("a file").into_iter();
        all.map(|it| (it.command.slot.0, it.ends)).collect()
    }

    #[test]
    fn a_command_that_ends_processes_is_named_and_counted_until_it_is_executed() {
        let directory = tempfile();
        let data = directory.as_path();
        let first = Executing::open(data).expect("a file");
        assert_eq!(first.begin(&command(7)), None, "all goes well");
        kill(first);
        for times in 1..=3 {
            let next = Executing::open(data).expect("a file");
            let before = next.begin(&command(6)).expect("it is noted");
            next.end(before);
            next.begin(&command(7)).expect("it is noted");
            kill(next);
            assert_eq!(ends(data), [(7, times)]);
        }
        // One that does not come so far knows it still.
        kill(Executing::open(data).expect("a file"));
        drop(Executing::open(data).expect("a file"));
        assert_eq!(ends(data), [(7, 3)]);
        let last = Executing::open(data).expect("a file");
        let name = last.begin(&command(7)).expect("it is noted");
        last.end(name);
        drop(last);
        assert_eq!(ends(data), []);
        let next = Executing::open(data).expect("a file");
        assert_eq!(next.begin(&command(8)), None, "all goes well");
        drop(next);
        fs::remove_dir_all(data).expect("it is there");
    }

    #[test]
    fn what_a_machine_was_doing_before_it_restarted_accuses_no_command() {
        let directory = tempfile();
        let data = directory.as_path();
        kill(Executing::open(data).expect("a file"));
        let next = Executing::open(data).expect("a file");
        next.begin(&command(7)).expect("it is noted");
        next.content().boot = "another".to_owned();
        next.write(&next.content());
        kill(next);
        assert_eq!(ends(data), []);
        let next = Executing::open(data).expect("a file");
        assert_eq!(next.begin(&command(8)), None);
        fs::remove_dir_all(data).expect("it is there");
    }

    fn tempfile() -> PathBuf {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ionian-executing-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        path
    }
}
