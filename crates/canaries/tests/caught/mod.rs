//! A test that another test finds a canary.

use ionian_canaries::canary::ALL;
use std::panic::catch_unwind;

/// The test must pass without the defect and fail with it.
pub(crate) fn is_caught(id: &str, test: fn()) {
    let canary = ALL.iter().find(|canary| canary.id == id);
    let canary = canary.unwrap_or_else(|| panic!("there is no canary {id}"));
    test();
    let active = canary.activate();
    let result = catch_unwind(test);
    drop(active);
    assert!(result.is_err(), "{id}: the test passes with it as well");
}

/// For each canary and test, a test that the latter finds the former.
macro_rules! caught {
    ($($id:literal: $module:ident::$test:ident,)*) => {
        mod canaries {
            $(
                #[allow(non_snake_case)]
                mod $test {
                    #[test]
                    fn finds_its_canary() {
                        crate::caught::is_caught($id, crate::$module::$test);
                    }
                }
            )*
        }
    };
}

pub(crate) use caught;
