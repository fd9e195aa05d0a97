//! What can be tuned: each setting is a number with a key, a range and a meaning. Most are fields
//! of [`Options`] and mean the same for every protocol; the others belong to the protocols that
//! declare them in [`Protocol::SETTINGS`](crate::protocol::Protocol::SETTINGS).

use crate::layout::Options;
use core::ops::RangeInclusive;

/// One key of the `[options]` table of a deployment file.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key; the key of a time ends with its unit.
    pub key: &'static str,
    /// What it means, in one line.
    pub about: &'static str,
    /// The values that it may have.
    pub allowed: RangeInclusive<u64>,
    /// Whether all nodes must agree on it, so that it counts for the digest of a deployment. The
    /// others can be changed node by node while the cluster runs.
    pub shared: bool,
    /// Where its value is.
    pub place: Place,
}

/// Where the value of a setting is.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a field of the [`Options`] of every protocol.
    Field {
        /// Reads the field.
        get: fn(&Options) -> u64,
        /// Writes the field.
        put: fn(&mut Options, u64),
    },
    /// In [`Options::own`], if it is not the default: a setting that a protocol
    /// declares.
    Own {
        /// Its value where none is stated.
        default: u64,
        /// The values that the simulator tries, each as often as it is listed, beside these
        /// options of all protocols. None: that of the deployment.
        trials: fn(&Options) -> &'static [u64],
    },
}

impl Setting {
    /// The value that it has in `options`.
    pub fn value(&self, options: &Options) -> u64 {
        match self.place {
            Place::Field { get, .. } => get(options),
            Place::Own { default, .. } => options.own.get(self.key).copied().unwrap_or(default),
        }
    }

    /// Gives it a value in `options`. Whether the value is [allowed](Setting::allowed) is not
    /// checked.
    pub fn state(&self, options: &mut Options, value: u64) {
        match self.place {
            Place::Field { put, .. } => put(options, value),
            Place::Own { .. } => {
                options.own.insert(self.key, value);
            }
        }
    }

    /// Its value where none is stated.
    pub fn default(&self) -> u64 {
        self.value(&Options::default())
    }
}
