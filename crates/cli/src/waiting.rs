//! Commands that ask a running cluster, and may wait for it long.

use anyhow::Result;
use ionian_program::INTERRUPTED;
use std::future::Future;

/// Does the work; Ctrl-C ends the program, also where SIGINT was ignored when it started, as
/// scripts have it for what they start in the background.
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
