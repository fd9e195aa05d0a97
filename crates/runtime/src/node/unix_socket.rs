//! The node's Unix socket, on which processes of this machine administer it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::net::UnixListener;

/// The name of the socket in the data directory of a node.
pub const SOCKET: &str = "admin.sock";

/// Listens in the data directory of a node, which this process has locked. The node runs without
/// the socket if that fails: mostly the path is too long for one (108 bytes on Linux).
pub(crate) fn listen(data: &Path) -> Option<UnixListener> {
    let path = data.join(SOCKET);
    match bind(&path) {
        Ok(listener) => Some(listener),
        Err(error) => {
            let path = path.display();
            tracing::warn!(
                id = "E0902",
                "cannot listen on {path}, operators need certificates: {error}"
            );
            None
        }
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    // One of an earlier process of this node.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
