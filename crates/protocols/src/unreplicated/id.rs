//! The name of the server.

ionian_kernel::ids! {
    /// The server of an unreplicated deployment.
    ServerId "server"
}
