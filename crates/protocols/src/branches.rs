//! Lists of rare branches: what roles say that they have
//! [reached](ionian_kernel::role::Out::reached), so that the simulator can tell which no seed has.

/// Declares branches and the list of all of them.
macro_rules! branches {
    ($($name:ident = $text:literal,)*) => {
        $(#[doc = $text] pub(crate) const $name: &str = $text;)*
        /// All of these.
        pub(crate) const ALL: &[&str] = &[$($name),*];
    };
}

pub(crate) use branches;
