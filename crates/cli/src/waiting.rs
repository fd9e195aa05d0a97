//! Runs commands that query a running cluster and may wait, and reads files that may keep them
//! waiting.

use crate::output::say_on_stderr;
use anyhow::Result;
use ionian_deployment::{Deployment, DeploymentError};
use ionian_program::INTERRUPTED;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// After this time standard error names the file that a command waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Calls `read`, which calls its argument with each file before it reads it.
///
/// A pipe is read as any other file, because shells pass one for `<(command)`, and its writer may
/// take a while: the user decides how long to wait, and learns for what.
pub(crate) fn for_files<T>(read: impl FnOnce(&dyn Fn(&Path)) -> T) -> T {
    let (begins, begun) = channel::<PathBuf>();
    thread::spawn(move || {
        let mut file = begun.recv().ok();
        while let Some(path) = file {
            file = match begun.recv_timeout(PATIENCE) {
                Err(RecvTimeoutError::Timeout) => {
                    say_on_stderr!("waiting for the content of {}", path.display());
                    begun.recv().ok()
                }
                next => next.ok(),
            };
        }
    });
    // The thread ends when `begins` does.
    read(&move |path| drop(begins.send(path.to_owned())))
}

/// The same for one file.
pub(crate) fn for_file<T>(path: &Path, read: impl FnOnce() -> T) -> T {
    for_files(|begin| {
        begin(path);
        read()
    })
}

/// As [`Deployment::load`].
///
/// # Errors
/// As there.
pub(crate) fn for_deployment(file: &Path) -> Result<Deployment, DeploymentError> {
    for_file(file, || Deployment::load(file))
}

/// Runs `work` to completion. Ctrl-C ends the program even if SIGINT was ignored at its start, as
/// it is for background jobs of scripts.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let interrupted = async {
            match tokio::signal::ctrl_c().await {
                Ok(()) => std::process::exit(INTERRUPTED.into()),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            done = work => done,
            never = interrupted => never,
        }
    })
}
