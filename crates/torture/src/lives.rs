//! Keys that expire: wrong clocks must not expire a key early, and must not keep it for longer.

use crate::gateway::Gateway;
use crate::settle::eventually;
use anyhow::{Result, bail, ensure};
use ionian_redis_client::Reply;
use std::time::{Duration, Instant};

const LONG: &[u8] = b"torture-lives-long";
const SHORT: &[u8] = b"torture-lives-short";

/// Lifetime of the short-lived key in milliseconds.
const SHORT_MS: &[u8] = b"500";

/// Allowed difference between time in the log and the time of this program: larger than the delays
/// of messages and elections on a busy machine, and much smaller than a clock fault.
const SLACK: Duration = Duration::from_secs(60);

/// A key that outlives the run, and one that does not.
pub(crate) struct Lives {
    begun: Instant,
    given: Duration,
}

impl Lives {
    /// Sets the keys on a cluster that serves. The run takes at least `run`.
    pub(crate) async fn begin(gateway: &Gateway, run: Duration) -> Result<Self> {
        let given = 10 * run + Duration::from_secs(3600);
        let text = given.as_millis().to_string();
        let begun = Instant::now();
        for (key, ms) in [(LONG, text.as_bytes()), (SHORT, SHORT_MS)] {
            let set = || async {
                let mut connection = gateway.open().await?;
                let set = [&b"SET"[..], key, b"1", b"PX", ms];
                Ok(connection.call_ok(&set).await?)
            };
            eventually("a key that lives for a while is set", set).await?;
        }
        Ok(Lives { begun, given })
    }

    /// Checks the keys at the end of the run.
    pub(crate) async fn check(&self, gateway: &Gateway) -> Result<()> {
        let ttl = async |key| match gateway.open().await?.call(&[b"PTTL", key]).await? {
            Reply::Integer(ms) => Ok(ms),
            other => bail!("PTTL is answered with {other:?}"),
        };
        let elapsed = self.begun.elapsed();
        judge(ttl(LONG).await?, ttl(SHORT).await?, self.given, elapsed)
    }
}

/// Checks the remaining lifetimes.
fn judge(long: i64, short: i64, given: Duration, elapsed: Duration) -> Result<()> {
    let most = given.as_millis() as i64;
    let least = (given - elapsed.min(given))
        .saturating_sub(SLACK)
        .as_millis() as i64;
    ensure!(
        (least..=most).contains(&long),
        "a key that was to live for {given:?} has {long} ms left after {elapsed:?}"
    );
    ensure!(
        short == -2 || elapsed < SLACK,
        "a key that was to live for half a second has {short} ms left after {elapsed:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_too_early_or_too_late_are_found() {
        let (given, elapsed) = (Duration::from_secs(7200), Duration::from_secs(600));
        let judge = |long, short| judge(long, short, given, elapsed);
        judge(6_600_000, -2).unwrap();
        judge(6_541_000, -2).unwrap();
        judge(-2, -2).unwrap_err();
        judge(6_000_000, -2).unwrap_err();
        judge(8_000_000, -2).unwrap_err();
        judge(6_600_000, 100).unwrap_err();
    }
}
