//! The registry of protocols: one list, from which follow their names, their descriptions, and the
//! way from a name to a type.

use ionian_kernel::protocol::{AnyProtocol, Description, Protocol, any};

/// Work that is done alike for every protocol.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Does it for `P`.
    fn run<P: Protocol>(self) -> Self::Output;
}

macro_rules! protocols {
    // The macro that this one defines needs a dollar sign of its own.
    ($dollar:tt $($(#[$when:meta])? $module:ident::$protocol:ident,)*) => {
        /// The protocols, by their types.
        pub mod types {
            $($(#[$when])? pub use crate::$module::$protocol;)*
        }

        /// What each protocol says of itself.
        pub const ALL: &[Description] = &[$($(#[$when])? Description::of::<types::$protocol>()),*];

        /// The names of all protocols, as deployment files give them.
        pub const NAMES: &[&str] = &[$($(#[$when])? types::$protocol::NAME),*];

        /// The protocol of this name, without its type. `None` when there is none.
        pub fn protocol(name: &str) -> Option<&'static dyn AnyProtocol> {
            match name {
                $($(#[$when])? types::$protocol::NAME => Some(any::<types::$protocol>()),)*
                _ => None,
            }
        }

        /// Does `work` for the protocol of this name. `None` when there is none.
        pub fn with_protocol<W: Work>(name: &str, work: W) -> Option<W::Output> {
            match name {
                $($(#[$when])? types::$protocol::NAME => Some(work.run::<types::$protocol>()),)*
                _ => None,
            }
        }

        /// Gives the list of protocols, each as `module::Type`, to a macro: for tests that every
        /// protocol gets with its line here.
        #[macro_export]
        macro_rules! for_each_protocol {
            ($dollar tests:ident) => {
                $dollar tests! { $($(#[$when])? $module::$protocol,)* }
            };
        }
    };
}

protocols! {
    $
    multipaxos::MultiPaxos,
    mencius::Mencius,
    spaxos::SPaxos,
    epaxos::EPaxos,
    unreplicated::Unreplicated,
    psmr::PSmr,
    craq::Craq,
    scalog::Scalog,
    #[cfg(feature = "toy")]
    toy::Toy,
}

/// What the protocol of this name says of itself. `None` when there is none.
pub fn description(name: &str) -> Option<&'static Description> {
    ALL.iter().find(|protocol| protocol.name == name)
}
