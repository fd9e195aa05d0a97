//! Runs commands that query a running cluster and may wait.

use anyhow::Result;
use ionian_program::INTERRUPTED;
use std::future::Future;

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
