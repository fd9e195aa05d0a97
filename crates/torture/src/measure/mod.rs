//! Measurements on real processes: one command each, on any machine.

mod arguments;
mod bench;
mod burden;
mod crowd;
mod curve;
mod figures;
mod group_commit;
mod load;
mod restart;
mod soak;
mod tail;

pub(crate) use self::arguments::{Measurement, Measurements};
pub(crate) use self::burden::{burn, run as burden};
pub(crate) use self::group_commit::run as group_commit;
pub(crate) use self::restart::run as restart_time;
pub(crate) use self::soak::run as soak;
