//! As whom a command uses a gateway.

use anyhow::{Context, Result, bail};
use clap::Args;
use ionian_redis_client::{Connection, Reply};
use std::path::PathBuf;

/// The variable with the password: other users of the machine do not see it, unlike arguments.
const VARIABLE: &str = "IONIAN_PASSWORD";

/// Options that name a user of the cluster.
#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Log in as this user. The password comes from --password-file or the environment variable
    /// IONIAN_PASSWORD [default: the user `default`, if there is a password]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl Login {
    /// Logs in, if a user or a password is given.
    ///
    /// # Errors
    /// If there is no password, or the gateway refuses it.
    pub(crate) fn log_in(&self, connection: &mut Connection) -> Result<()> {
        let password = match (&self.password_file, std::env::var(VARIABLE)) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file);
                let text = text.with_context(|| format!("cannot read {}", file.display()))?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            (None, Ok(password)) => password,
            (None, Err(_)) if self.user.is_none() => return Ok(()),
            (None, Err(_)) => bail!("--user needs --password-file FILE or the variable {VARIABLE}"),
        };
        let user = self.user.as_deref().unwrap_or("default");
        match connection.call(&[b"AUTH", user.as_bytes(), password.as_bytes()])? {
            Reply::Error(error) => bail!("the gateway refuses user {user}: {error}"),
            _ => Ok(()),
        }
    }
}
