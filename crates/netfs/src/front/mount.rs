//! Mounts a directory, and unmounts it.

use super::requests::Requests;
use super::volume::Volume;
use crate::client::Transport;
use crate::errno::Errno;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that take requests of the kernel. Each waits for the cluster, so this is how many
/// requests are under way at once.
const THREADS: usize = 16;

/// How a directory is mounted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How long the kernel may use names, attributes and pages without asking the cluster: what
    /// another mount changes can remain unseen for this long.
    pub stale: Duration,
    /// Whether other users than the one who mounts may use it; root always may.
    pub allow_other: bool,
}

/// Why a directory is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// This system has no FUSE.
    #[error(
        "/dev/fuse cannot be opened: {0}; load the kernel module fuse, or give the container the device"
    )]
    NoFuse(io::Error),
    /// This user may not use FUSE.
    #[error("/dev/fuse cannot be opened: {0}; this user needs the right to read and write it")]
    NoRight(io::Error),
    /// An earlier mount there has ended without unmounting.
    #[error("{0}: an earlier mount has ended without unmounting; remove it: umount -l {0}")]
    Stale(String),
    /// The directory is mounted already.
    #[error("{0} is a mount of netfs already; unmount it: umount {0}")]
    Mounted(String),
    /// It is no directory, or cannot be looked at.
    #[error("{0}: {1}")]
    Directory(String, io::Error),
    /// The state machine refuses it.
    #[error("the cluster refuses the mount: {0}")]
    Refused(Errno),
    /// This user may not mount, and there is no program that may.
    #[error("only root may mount without the program fusermount3; install the package fuse3")]
    NoHelper,
    /// The system refuses it.
    #[error("the system refuses to mount {0}: {1}")]
    System(String, io::Error),
}

/// A mounted directory. Dropping it unmounts it.
pub struct Mount {
    directory: PathBuf,
    unmounter: SessionUnmounter,
    attendant: Option<JoinHandle<()>>,
    volume: Arc<Volume>,
}

/// Whether the error is that of a mount whose process has ended.
fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::ENOTCONN)
}

/// Checks the directory, and returns its path without links.
fn check(directory: &Path) -> Result<PathBuf, MountError> {
    let shown = directory.display().to_string();
    let wrong = |error: io::Error| match is_stale(&error) {
        true => MountError::Stale(shown.clone()),
        false => MountError::Directory(shown.clone(), error),
    };
    let path = directory.canonicalize().map_err(wrong)?;
    if !fs::metadata(&path).map_err(wrong)?.is_dir() {
        return Err(wrong(io::ErrorKind::NotADirectory.into()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The fifth word is the directory; behind a dash come the type and the source.
    let is_mounted = mounts.lines().any(|line| {
        let mut words = line.split(' ');
        let is_here = words.nth(4).is_some_and(|it| Path::new(it) == path);
        let mut behind = words.skip_while(|word| *word != "-").skip(1);
        is_here
            && behind.next().is_some_and(|it| it.starts_with("fuse"))
            && behind.next() == Some(SOURCE)
    });
    if is_mounted {
        return Err(MountError::Mounted(shown));
    }
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    device.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => MountError::NoRight(error),
        _ => MountError::NoFuse(error),
    })?;
    Ok(path)
}

/// What the system lists as the source of the file system.
const SOURCE: &str = "ionian";

impl Mount {
    /// Mounts the file system; `on_end` is called when it is not mounted any more.
    ///
    /// # Errors
    /// Says why it cannot be mounted, and what to do.
    pub fn new(
        directory: &Path,
        transport: Box<dyn Transport>,
        options: Options,
        on_end: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<Mount, MountError> {
        let directory = check(directory)?;
        let volume = Volume::begin(transport).map_err(MountError::Refused)?;
        let volume = Arc::new(volume);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(SOURCE.to_owned()),
            MountOption::Subtype("netfs".to_owned()),
            MountOption::DefaultPermissions,
        ];
        config.acl = match options.allow_other {
            true => SessionACL::All,
            false => SessionACL::Owner,
        };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let requests = Requests {
            volume: volume.clone(),
            stale: options.stale,
        };
        let refused = |error: io::Error| match error.kind() {
            // The directory and the device are there, so it is the program.
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::System(directory.display().to_string(), error),
        };
        let mut session = Session::new(requests, &directory, &config).map_err(refused)?;
        let unmounter = session.unmount_callable();
        let attended = volume.clone();
        let attendant = std::thread::spawn(move || attended.attend());
        std::thread::spawn(move || on_end(session.run()));
        Ok(Mount {
            directory,
            unmounter,
            attendant: Some(attendant),
            volume,
        })
    }

    /// Unmounts it. If programs still use it, it is detached: no path leads to it any more, and
    /// they get errors when this process ends. Returns whether it was.
    ///
    /// # Errors
    /// If the system refuses both.
    pub fn unmount(&mut self) -> io::Result<bool> {
        let Err(error) = self.unmounter.unmount() else {
            return Ok(false);
        };
        if error.raw_os_error() != Some(nix::libc::EBUSY) {
            return Err(error);
        }
        nix::mount::umount2(&self.directory, nix::mount::MntFlags::MNT_DETACH)?;
        self.volume.end();
        Ok(true)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(
                id = "E0702",
                "{} is not unmounted: {error}",
                self.directory.display()
            );
        }
        self.volume.stop_attending();
        if let Some(attendant) = self.attendant.take() {
            // A panic there has been printed.
            let _ = attendant.join();
        }
    }
}
