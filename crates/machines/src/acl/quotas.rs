//! Quotas: how much of each gateway a user may take. Redis has none. The machine stores them with
//! the user's rules; gateways keep to them.

use super::selector::RuleError;

/// The largest quota.
const MAX: u64 = 1 << 40;

/// The smallest quota of bytes a second. A smaller one would refuse the command that takes it away.
const MIN_BYTES: u64 = 16 << 10;

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Connections at once.
    Connections,
    /// Commands a second.
    Commands,
    /// Bytes of commands a second.
    Bytes,
    /// Bytes of commands without an answer.
    Flight,
}

impl Quota {
    const ALL: [(Quota, &'static str); 4] = [
        (Quota::Connections, "connections"),
        (Quota::Commands, "commands"),
        (Quota::Bytes, "bytes"),
        (Quota::Flight, "flight"),
    ];
}

/// The quotas of a user, zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas([u64; Quota::ALL.len()]);

impl Quotas {
    /// What is allowed; `None` if everything is.
    #[inline]
    pub fn get(&self, quota: Quota) -> Option<u64> {
        Some(self.0[quota as usize]).filter(|allowed| *allowed > 0)
    }

    /// Sets one as a rule says it after `quota:`, such as `commands=100`.
    pub(super) fn set(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let equals = rule.iter().position(|byte| *byte == b'=');
        let (name, value) = rule.split_at(equals.ok_or(RuleError::NoQuota)?);
        let known = Quota::ALL.iter().find(|known| known.1.as_bytes() == name);
        let (quota, _) = *known.ok_or(RuleError::NoQuota)?;
        let digits = &value[1..];
        let is_number = digits.iter().all(u8::is_ascii_digit);
        let value = std::str::from_utf8(digits).ok().filter(|_| is_number);
        let value: Option<u64> = value.and_then(|digits| digits.parse().ok());
        let least = if quota == Quota::Bytes { MIN_BYTES } else { 0 };
        let is_valid = |value: &u64| *value == 0 || (least..=MAX).contains(value);
        self.0[quota as usize] = value.filter(is_valid).ok_or(RuleError::QuotaValue)?;
        Ok(())
    }

    /// The rules that set those that are set.
    pub fn rules(&self) -> impl Iterator<Item = Vec<u8>> {
        let all = Quota::ALL.into_iter().zip(self.0);
        all.filter(|(_, allowed)| *allowed > 0)
            .map(|((_, name), allowed)| format!("quota:{name}={allowed}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_names_is_that_of_the_places() {
        for (place, (quota, _)) in Quota::ALL.into_iter().enumerate() {
            assert_eq!(quota as usize, place);
        }
    }

    #[test]
    fn rules_set_quotas_and_are_made_from_them() {
        let mut quotas = Quotas::default();
        assert_eq!(quotas.rules().count(), 0);
        for rule in ["flight=1", "bytes=16384", "commands=1099511627776"] {
            quotas.set(rule.as_bytes()).unwrap();
        }
        assert_eq!(quotas.get(Quota::Flight), Some(1));
        assert_eq!(quotas.get(Quota::Bytes), Some(16_384));
        assert_eq!(quotas.get(Quota::Commands), Some(1 << 40));
        assert_eq!(quotas.get(Quota::Connections), None);
        let mut again = Quotas::default();
        let rules: Vec<_> = quotas.rules().collect();
        assert_eq!(
            rules.last().map(|rule| &rule[..]),
            Some(&b"quota:flight=1"[..])
        );
        for rule in rules {
            again.set(rule.strip_prefix(b"quota:").unwrap()).unwrap();
        }
        assert_eq!(again, quotas);
        quotas.set(b"bytes=0").unwrap();
        assert_eq!(quotas.get(Quota::Bytes), None);
    }

    #[test]
    fn what_is_no_quota_changes_nothing() {
        let mut quotas = Quotas::default();
        for rule in ["", "=", "=5", "commands", "command=5", "commands =5"] {
            assert_eq!(
                quotas.set(rule.as_bytes()),
                Err(RuleError::NoQuota),
                "{rule}"
            );
        }
        for rule in [
            "commands=",
            "commands=-1",
            "commands=+1",
            "commands=1.5",
            "commands=5k",
            "commands=1099511627777",
            "commands=99999999999999999999",
            "commands=5=5",
            "bytes=16383",
        ] {
            let refused = Err(RuleError::QuotaValue);
            assert_eq!(quotas.set(rule.as_bytes()), refused, "{rule}");
        }
        assert_eq!(quotas, Quotas::default());
    }
}
