//! A timer for an event loop, finer than the millisecond that the event queue counts in. Where the
//! system has none, an open loop begins its commands up to a millisecond late, which its latencies
//! say.

pub(crate) use system::Alarm;

#[cfg(target_os = "linux")]
mod system {
    use anyhow::{Context, Result};
    use mio::{Interest, Registry, Token, unix::SourceFd};
    use nix::sys::time::{TimeSpec, TimeValLike};
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use std::os::fd::{AsFd, AsRawFd};

    /// See the top of this file.
    pub(crate) struct Alarm {
        timer: TimerFd,
    }

    impl Alarm {
        /// An alarm that the event queue tells under this token. What it tells needs no reading.
        pub(crate) fn new(registry: &Registry, token: Token) -> Result<Self> {
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK);
            let timer = timer.context("the system has no timer")?;
            registry.register(
                &mut SourceFd(&timer.as_fd().as_raw_fd()),
                token,
                Interest::READABLE,
            )?;
            Ok(Alarm { timer })
        }

        /// Fires after this number of nanoseconds, at least one, and not at the time that was set
        /// before. Returns whether there is such a thing.
        pub(crate) fn set(&self, after: u64) -> Result<bool> {
            let after = TimeSpec::nanoseconds(i64::try_from(after.max(1)).unwrap_or(i64::MAX));
            self.timer
                .set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?;
            Ok(true)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use anyhow::Result;
    use mio::{Registry, Token};

    /// See the top of this file.
    pub(crate) struct Alarm;

    impl Alarm {
        /// None.
        pub(crate) fn new(_: &Registry, _: Token) -> Result<Self> {
            Ok(Alarm)
        }

        /// Returns whether there is such a thing.
        pub(crate) fn set(&self, _: u64) -> Result<bool> {
            Ok(false)
        }
    }
}
