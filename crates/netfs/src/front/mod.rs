//! The file system that the kernel asks, through FUSE.
//!
//! | file | job |
//! |---|---|
//! | `mount` | mounts a directory, and unmounts it |
//! | `requests` | each request of the kernel as commands and queries |
//! | `volume` | the mount as the state machine knows it: its lease, its holds |
//! | `numbers` | the numbers of its changes |
//! | `holds` | the files that it holds |
//!
//! # What the kernel caches
//!
//! Names and attributes for [`Options::stale`], which is zero by default: each use asks the
//! cluster, by a linearizable query. Pages of files are cached, and are valid as long as the time
//! and the size of the file are what they were when the pages came (`FUSE_AUTO_INVAL_DATA`). By
//! default each read asks for these first, and each change of a file changes its time, so a read
//! never returns what another mount has replaced before the read began. Only memory that is mapped
//! is not asked for again until the file is opened or read.
//!
//! Writes are passed on before they are answered; the kernel holds none back, so fsync has nothing
//! to do.

mod creating;
mod holds;
mod mount;
mod numbers;
mod requests;
mod volume;

pub use mount::{Mount, MountError, Options};
pub use volume::Volume;
