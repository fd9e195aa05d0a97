//! Which authorities have signed the certificates that were shown to this process.

use crate::name::{Kind, name_of, now};
use rustls::pki_types::CertificateDer;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An authority of the set in force to which certificates of owners of one kind lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenIssuer {
    /// The name of the authority.
    pub issuer: String,
    /// What the owners are.
    pub kind: Kind,
    /// When the last of them connected, in seconds since 1970.
    pub last: i64,
}

/// Those that were seen since the start of the process.
#[derive(Debug)]
pub(crate) struct Seen {
    since: i64,
    issuers: Mutex<Vec<SeenIssuer>>,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Seen {
            since: now(),
            issuers: Mutex::default(),
        }
    }

    pub(crate) fn since(&self) -> i64 {
        self.since
    }

    /// Notes that an owner was admitted with this chain of certificates, its own first. What it has
    /// sent says nothing of its authorities: `signers` are the names of those that were verified.
    pub(crate) fn add(
        &self,
        chain: &[CertificateDer<'_>],
        signers: Vec<String>,
        is_trusted: impl Fn(&str) -> bool,
        now: i64,
    ) {
        let Some(Ok(owner)) = chain.first().map(|leaf| name_of(leaf)) else {
            return;
        };
        let mut issuers = self.trusted(&is_trusted);
        // Another set may have come in force since they were verified.
        for issuer in signers.into_iter().filter(|name| is_trusted(name)) {
            let known = |it: &&mut SeenIssuer| (it.kind, &it.issuer) == (owner.kind, &issuer);
            match issuers.iter_mut().find(known) {
                Some(known) => known.last = now,
                None => issuers.push(SeenIssuer {
                    issuer,
                    kind: owner.kind,
                    last: now,
                }),
            }
        }
    }

    pub(crate) fn all(&self, is_trusted: impl Fn(&str) -> bool) -> Vec<SeenIssuer> {
        self.trusted(is_trusted).clone()
    }

    /// Forgets all but the authorities that are trusted now. So there are at most as many entries
    /// as kinds of owners for each of these.
    fn trusted(&self, is_trusted: impl Fn(&str) -> bool) -> MutexGuard<'_, Vec<SeenIssuer>> {
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        issuers.retain(|it| is_trusted(&it.issuer));
        issuers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::{Authority, Hosts};
    use crate::name::Name;
    use rustls::pki_types::pem::PemObject;
    use std::time::Duration;

    #[test]
    fn the_last_time_of_each_trusted_authority_and_kind_is_kept() {
        let hour = Duration::from_secs(3600);
        let authority = Authority::create("blue", hour).unwrap().0;
        let seen = Seen::new();
        let (any, no_old) = (|_: &str| true, |name: &str| name != "old");
        let show = |signers: &[&str], kind, is_trusted: fn(&str) -> bool, at| {
            let name = Name {
                cluster: "blue".into(),
                kind,
                name: "x".into(),
            };
            let issued = authority.issue(&name, &Hosts::default(), hour).unwrap();
            let leaf = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
            let signers = signers.iter().map(|name| name.to_string()).collect();
            seen.add(&[leaf], signers, is_trusted, at);
        };
        let one = |issuer: &str, kind, last| SeenIssuer {
            issuer: issuer.to_owned(),
            kind,
            last,
        };
        show(&["old"], Kind::Client, any, 1);
        show(&["new"], Kind::Client, any, 2);
        show(&["old", "new"], Kind::Operator, any, 3);
        show(&["old"], Kind::Client, any, 4);
        let all = [
            one("old", Kind::Client, 4),
            one("new", Kind::Client, 2),
            one("old", Kind::Operator, 3),
            one("new", Kind::Operator, 3),
        ];
        assert_eq!(seen.all(any), all);
        seen.add(&[], vec!["new".into()], any, 5);
        let broken = CertificateDer::from(vec![1, 2, 3]);
        seen.add(&[broken], vec!["new".into()], any, 5);
        assert_eq!(seen.all(any), all);
        // Those that are not trusted any more are forgotten, and come back only when they are.
        let new = [all[1].clone(), all[3].clone()];
        assert_eq!(seen.all(no_old), new);
        show(&["old"], Kind::Client, no_old, 6);
        assert_eq!(seen.all(any), new);
        show(&["old"], Kind::Monitor, any, 7);
        show(&[], Kind::Monitor, no_old, 8);
        assert_eq!(seen.all(any), new);
    }
}
