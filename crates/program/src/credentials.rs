//! A user of the cluster, and its password.

use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The variable with the password: other users of the machine do not see it, unlike arguments.
const VARIABLE: &str = "IONIAN_PASSWORD";

/// How much of a password file is read, in bytes: more than the longest password.
const MAX_FILE: u64 = 64 << 10;

/// Options that name a user of the cluster.
#[derive(Clone, Debug, Args)]
pub struct Credentials {
    /// Log in as this user. The password comes from --password-file or the environment variable
    /// IONIAN_PASSWORD [default: the user `default`, if there is a password]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File whose first line is the password; only its owner may read it (mode 0600)
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl Credentials {
    /// Whether an option names some.
    pub fn are_named(&self) -> bool {
        self.user.is_some() || self.password_file.is_some()
    }

    /// The user and its password, if a user or a password is given.
    ///
    /// # Errors
    /// If there is no password, or it cannot be read.
    pub fn find(&self) -> Result<Option<(String, String)>> {
        let password = match (&self.password_file, std::env::var(VARIABLE)) {
            (Some(file), _) => first_line(file)?,
            (None, Ok(password)) => password,
            (None, Err(_)) if self.user.is_none() => return Ok(None),
            (None, Err(_)) => bail!("--user needs --password-file FILE or the variable {VARIABLE}"),
        };
        let user = self.user.as_deref().unwrap_or("default");
        Ok(Some((user.to_owned(), password)))
    }
}

/// The first line of a file that no other user of the machine may read.
fn first_line(path: &Path) -> Result<String> {
    let read = || {
        let file = File::open(path)?;
        let (metadata, mut text) = (file.metadata()?, String::new());
        file.take(MAX_FILE).read_to_string(&mut text)?;
        io::Result::Ok((metadata, text))
    };
    let (metadata, text) = read().with_context(|| format!("cannot read {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o7777;
    // A pipe of a shell is no file.
    if metadata.is_file() && mode & 0o077 != 0 {
        let path = path.display();
        bail!(
            "--password-file {path}: has mode {mode:04o}; only its owner may read it: chmod 0600"
        );
    }
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
