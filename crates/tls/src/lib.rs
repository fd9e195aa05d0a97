//! Certificates of nodes, operators and clients.
//!
//! A process has one set of files: its certificate, the key and the bundle of certificate
//! authorities that it trusts. [`CertificateSet`] loads the set and checks it whole; [`Live`] keeps
//! the set in force and exchanges it while the process runs. The settings for `rustls` are made
//! from a set that passed.
//!
//! An identity is a URI in the certificate: [`Name`]. `rustls` decides whether a certificate is
//! valid; this crate only reads the name in it.
//!
//! Reading order: a file imports only from files above it in this table.
//!
//! | file | job |
//! |---|---|
//! | `error` | what can be wrong with a set or a certificate |
//! | `name` | the name in a certificate, and what was expected |
//! | `files` | the files of a set, read with their limits |
//! | `set` | a set, checked whole |
//! | `config` | settings of `rustls` |
//! | `seen` | the trusted authorities of the certificates that others have shown |
//! | `live` | the set in force, and its exchange |
//! | `session` | the encryption of one connection |
//! | `issue` | makes certificates: the CA and those that it signs |
#![forbid(unsafe_code)]

mod config;
mod error;
mod files;
mod issue;
mod live;
mod name;
mod seen;
mod session;
mod set;

pub use config::{ClientAuth, readable};
pub use error::{TlsError, date};
pub use files::{Contents, Files, Identity, describe_file};
pub use issue::{Authority, Hosts, Issued};
pub use live::{Live, Loaded, Reload};
pub use name::{Described, Expected, Kind, Name, describe, is_near_end, name_of, now};
pub use rustls;
pub use seen::SeenIssuer;
pub use session::Session;
pub use set::{CertificateSet, fingerprint};
