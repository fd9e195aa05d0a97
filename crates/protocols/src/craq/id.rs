//! The names of chain nodes and of chain configurations.

ionian_kernel::ids! {
    /// A node that can be a member of the chain.
    ChainNodeId "chain node"
}

ionian_kernel::positions! {
    /// A configuration of the chain: how many came before it. It is no
    /// [`Epoch`](ionian_kernel::id::Epoch), which counts changes of the deployment.
    ChainEpoch,
}
