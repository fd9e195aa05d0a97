//! What can be wrong with a set of certificates, or with the certificate of another process.

use std::path::PathBuf;

/// Why a set or a certificate is refused.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of the set cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// Other users of the machine could read the key.
    #[error(
        "{}: the key has mode {mode:04o}; only its owner may read it: chmod 0600",
        path.display()
    )]
    KeyMode {
        /// The file of the key.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file has other contents than it must have.
    #[error("{}: {what}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// The certificate cannot be used.
    #[error("{}: the certificate {found} is not valid: {source}", path.display())]
    Invalid {
        /// The file of the certificate.
        path: PathBuf,
        /// The name in it.
        found: String,
        /// The reason.
        source: rustls::Error,
    },
    /// The name in a certificate is missing, ambiguous or malformed.
    #[error("{0}")]
    Name(String),
    /// The certificate is another's.
    #[error("the certificate is of {found}; expected {expected}")]
    Mismatch {
        /// The name or the names that are allowed.
        expected: String,
        /// The name in the certificate.
        found: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Issue(String),
}
