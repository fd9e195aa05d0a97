//! As whom a command uses a gateway.

use crate::waiting;
use anyhow::{Result, bail};
use clap::Args;
use ionian_program::Credentials;
use ionian_redis_client::{Connection, Reply};

/// Options that name a user of the cluster.
#[derive(Debug, Args)]
pub(crate) struct Login {
    #[command(flatten)]
    credentials: Credentials,
}

impl Login {
    /// Logs in, if a user or a password is given.
    ///
    /// # Errors
    /// If there is no password, or the gateway refuses it.
    pub(crate) fn log_in(&self, connection: &mut Connection) -> Result<()> {
        // Only the option knows its file.
        let found = waiting::for_file("--password-file".as_ref(), || self.credentials.find());
        let Some((user, password)) = found? else {
            return Ok(());
        };
        match connection.call(&[b"AUTH", user.as_bytes(), password.as_bytes()])? {
            Reply::Error(error) => bail!("the gateway refuses user {user}: {error}"),
            _ => Ok(()),
        }
    }
}
