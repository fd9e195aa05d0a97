//! The protocols with known defects: `ionian-canaries`, in a program that is built with the feature
//! `canaries`. They are a copy of all protocols, which takes a minute to compile.

#[cfg(not(feature = "canaries"))]
pub(crate) use absent::{Canary, named};
#[cfg(feature = "canaries")]
pub(crate) use ionian_canaries::{canary::Canary, simulated::named};

/// Of a program without the feature.
#[cfg(not(feature = "canaries"))]
mod absent {
    use ionian_sim::Simulated;

    /// A defect of roles. There is none.
    #[derive(Debug, PartialEq)]
    pub(crate) struct Canary {
        pub(crate) protocol: &'static str,
        pub(crate) name: &'static str,
        pub(crate) preset: Option<&'static str>,
        pub(crate) set: &'static [&'static str],
        pub(crate) durability: Option<&'static str>,
        pub(crate) changes: bool,
        pub(crate) seeds: Option<&'static str>,
    }

    impl Canary {
        /// The canaries that a protocol can have: none.
        pub(crate) fn of(_: &str) -> impl Iterator<Item = &'static Canary> {
            std::iter::empty()
        }

        /// The canary of this name: none.
        pub(crate) fn named(_: &str, _: &str) -> Option<&'static Canary> {
            None
        }

        /// Makes the defect the active one on this thread.
        pub(crate) fn activate(&self) {}
    }

    /// The changed protocol of this name: none.
    pub(crate) fn named(_: &str) -> Option<Simulated> {
        None
    }
}
