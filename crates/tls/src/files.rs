//! The files of a set.

use crate::error::TlsError;
use crate::name::{Described, describe};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3Default;
use zeroize::Zeroizing;

/// The largest file that is read. A bundle of a hundred certificates has a tenth of it.
const MAX_FILE: u64 = 1 << 20;

/// The files of one set: PEM, the key unencrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those that lead from it to the bundle.
    pub certificate: PathBuf,
    /// Its private key, which only the owner may read.
    pub key: PathBuf,
    /// The certificate authorities that this process trusts.
    pub bundle: PathBuf,
}

impl Files {
    /// `tls.crt`, `tls.key` and `ca.crt` in a directory.
    pub fn within(directory: &Path) -> Self {
        Files {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
            bundle: directory.join("ca.crt"),
        }
    }

    /// Which files there are now. It blocks for as long as the storage takes, but not at a pipe.
    ///
    /// # Errors
    /// If there is not each of them.
    pub fn identity(&self) -> Result<Identity, TlsError> {
        let number = |path: &Path| -> Result<(u64, u64), TlsError> {
            let metadata = path.metadata().map_err(|source| TlsError::Read {
                path: path.to_owned(),
                source,
            })?;
            Ok((metadata.dev(), metadata.ino()))
        };
        Ok(Identity([
            number(&self.certificate)?,
            number(&self.key)?,
            number(&self.bundle)?,
        ]))
    }

    /// Reads all files. `begin` is called with each before.
    pub(crate) fn read(&self, begin: &dyn Fn(&Path)) -> Result<Contents, TlsError> {
        let read = |path: &Path, is_secret| {
            begin(path);
            read(path, is_secret)
        };
        Ok(Contents {
            certificate: read(&self.certificate, false)?,
            key: read(&self.key, true)?,
            bundle: read(&self.bundle, false)?,
        })
    }

    pub(crate) fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<Der>, TlsError> {
        let found: Result<Vec<Der>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let wrong = |what| {
            Err(TlsError::Contents {
                path: path.to_owned(),
                what,
            })
        };
        match found {
            Err(error) => wrong(format!("not valid PEM: {error}")),
            Ok(found) if found.is_empty() => {
                wrong("holds no certificate; expected PEM with BEGIN CERTIFICATE".to_owned())
            }
            Ok(found) => Ok(found),
        }
    }

    pub(crate) fn private_key(&self, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
        let is_encrypted = String::from_utf8_lossy(pem).contains("ENCRYPTED");
        PrivateKeyDer::from_pem_slice(pem).map_err(|error| TlsError::Contents {
            path: self.key.clone(),
            what: match is_encrypted {
                true => "the key is encrypted; only an unencrypted PEM key is allowed".to_owned(),
                false => format!("holds no private key: {error}; expected unencrypted PEM"),
            },
        })
    }
}

/// What the first certificate of a file says of itself.
///
/// # Errors
/// If the file cannot be read, or has none.
pub fn describe_file(path: &Path) -> Result<Described, TlsError> {
    let found = Files::certificates(path, &read(path, false)?)?;
    Ok(describe(&found[0]))
}

type Der = CertificateDer<'static>;

/// Which three files there are under the names of a set at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity([(u64, u64); 3]);

/// What the files of a set hold.
pub struct Contents {
    pub(crate) certificate: Bytes,
    pub(crate) key: Bytes,
    pub(crate) bundle: Bytes,
}

/// Overwritten when it is freed.
type Bytes = Zeroizing<Vec<u8>>;

impl Contents {
    /// Differs if any file differs. It recognizes changes and is no secret's hash: it stays in
    /// memory.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        for file in [&self.certificate, &self.key, &self.bundle] {
            digest.update(&(file.len() as u64).to_le_bytes());
            digest.update(file.as_slice());
        }
        digest.digest()
    }
}

pub(crate) fn read(path: &Path, is_secret: bool) -> Result<Bytes, TlsError> {
    let failed = |source| TlsError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if is_secret && mode & 0o077 != 0 {
        return Err(TlsError::KeyMode {
            path: path.to_owned(),
            mode,
        });
    }
    // With room for all, so that no smaller copy is left behind.
    let room = metadata.len().min(MAX_FILE) as usize + 64;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let wrong = |what: String| {
        Err(TlsError::Contents {
            path: path.to_owned(),
            what,
        })
    };
    match bytes.len() as u64 {
        0 => wrong("the file is empty".to_owned()),
        length if length > MAX_FILE => wrong(format!("has more than {MAX_FILE} bytes")),
        _ => Ok(bytes),
    }
}
