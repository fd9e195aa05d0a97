//! What can be typed.

/// To be written.
#[derive(Debug, clap::Args)]
pub struct Load {}
