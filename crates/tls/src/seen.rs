//! Which authorities have signed the certificates that were shown to this process.

use crate::name::{Kind, describe, name_of, now};
use rustls::pki_types::CertificateDer;
use std::sync::{Mutex, PoisonError};

/// How many are kept. There are fewer: four kinds of owners for each trusted authority.
const MOST: usize = 64;

/// An authority whose certificates were shown by owners of one kind.
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

    /// Adds a chain of certificates, of which the last is the nearest to an authority.
    pub(crate) fn add(&self, chain: &[CertificateDer<'_>], now: i64) {
        let (Some(leaf), Some(last)) = (chain.first(), chain.last()) else {
            return;
        };
        let Ok(owner) = name_of(leaf) else {
            return;
        };
        let issuer = describe(last).issuer;
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |it: &&mut SeenIssuer| (it.kind, &it.issuer) == (owner.kind, &issuer);
        if let Some(known) = issuers.iter_mut().find(known) {
            known.last = now;
            return;
        }
        if issuers.len() == MOST {
            let oldest = (0..MOST).min_by_key(|place| issuers[*place].last);
            issuers.swap_remove(oldest.expect("the limit is not zero"));
        }
        issuers.push(SeenIssuer {
            issuer,
            kind: owner.kind,
            last: now,
        });
    }

    pub(crate) fn all(&self) -> Vec<SeenIssuer> {
        let issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        issuers.clone()
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
    fn the_last_time_of_each_authority_and_kind_is_kept_and_the_oldest_makes_room() {
        let hour = Duration::from_secs(3600);
        let seen = Seen::new();
        let show = |authority: &Authority, kind, at| {
            let name = Name {
                cluster: "blue".into(),
                kind,
                name: "x".into(),
            };
            let issued = authority.issue(&name, &Hosts::default(), hour).unwrap();
            let leaf = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
            seen.add(std::slice::from_ref(&leaf), at);
            describe(&leaf).issuer
        };
        let [old, new] = [(); 2].map(|()| Authority::create("blue", hour).unwrap().0);
        let one = |issuer: &str, kind, last| SeenIssuer {
            issuer: issuer.to_owned(),
            kind,
            last,
        };
        let (first, second) = (show(&old, Kind::Client, 1), show(&new, Kind::Client, 2));
        show(&old, Kind::Operator, 3);
        show(&old, Kind::Client, 4);
        let all = [
            one(&first, Kind::Client, 4),
            one(&second, Kind::Client, 2),
            one(&first, Kind::Operator, 3),
        ];
        assert_eq!(seen.all(), all);
        for at in 5..5 + MOST as i64 {
            let next = Authority::create("blue", hour).unwrap().0;
            show(&next, Kind::Monitor, at);
            assert!(seen.all().len() <= MOST);
        }
        assert!(seen.all().iter().all(|it| it.kind == Kind::Monitor));
        seen.add(&[], 0);
        seen.add(&[CertificateDer::from(vec![1, 2, 3])], 0);
        assert_eq!(seen.all().len(), MOST);
    }
}
