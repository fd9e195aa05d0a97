//! What can be wrong with a set of certificates, or with the certificate of another process.

use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

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
    #[error("{}: the certificate {found} is not valid: {}", path.display(), in_words(source))]
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

/// A time in seconds since 1970, in the form of RFC 3339.
pub fn date(seconds: i64) -> String {
    let since = Duration::from_secs(seconds.max(0) as u64);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}

/// Why a certificate is not valid, with times as people read them.
pub(crate) fn in_words(error: &rustls::Error) -> String {
    let date = |time: &UnixTime| date(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let rustls::Error::InvalidCertificate(why) = error else {
        return error.to_string();
    };
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("it has expired at {}", date(not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("it is not valid yet, but from {}", date(not_before))
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::Error;

    #[test]
    fn times_of_certificates_are_dates() {
        let [time, other] = [86_400, 1_700_000_000].map(Duration::from_secs);
        let [time, other] = [time, other].map(UnixTime::since_unix_epoch);
        let words = |why| in_words(&Error::InvalidCertificate(why));
        let not_after = time;
        let ended = CertificateError::ExpiredContext {
            time: other,
            not_after,
        };
        assert_eq!(words(ended), "it has expired at 1970-01-02T00:00:00Z");
        let not_before = other;
        let early = CertificateError::NotValidYetContext { time, not_before };
        let text = "it is not valid yet, but from 2023-11-14T22:13:20Z";
        assert_eq!(words(early), text);
    }
}
