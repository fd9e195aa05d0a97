//! The name in a certificate: `ionian://CLUSTER/KIND/NAME`, a URI among its alternative names.

use crate::error::TlsError;
use std::fmt;
use std::str::FromStr;
use std::time::UNIX_EPOCH;
use x509_parser::extensions::GeneralName;

const SCHEME: &str = "ionian://";

/// The longest name that is read: longer ones would only fill logs.
const MAX_NAME: usize = 512;

/// What the owner of a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A node of the cluster.
    Node,
    /// An operator, who may do everything that `ionian` can.
    Operator,
    /// A monitor, which may read the status and the membership.
    Monitor,
    /// A client of the gateway.
    Client,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Node, Kind::Operator, Kind::Monitor, Kind::Client];

    /// The word in a name.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Operator => "operator",
            Kind::Monitor => "monitor",
            Kind::Client => "client",
        }
    }
}

/// The identity of the owner of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The name of the cluster.
    pub cluster: String,
    /// What the owner is.
    pub kind: Kind,
    /// The name of the node, operator, monitor or client.
    pub name: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name {
            cluster,
            kind,
            name,
        } = self;
        write!(f, "{SCHEME}{cluster}/{}/{name}", kind.word())
    }
}

impl FromStr for Name {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        let parts = || {
            let mut parts = text.strip_prefix(SCHEME)?.split('/');
            let (cluster, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
            let kind = Kind::ALL.into_iter().find(|known| known.word() == kind)?;
            let is_part = |part: &str| !part.is_empty() && part.chars().all(is_allowed);
            (parts.next().is_none() && is_part(cluster) && is_part(name)).then(|| Name {
                cluster: cluster.to_owned(),
                kind,
                name: name.to_owned(),
            })
        };
        parts().ok_or_else(|| {
            TlsError::Name(format!(
                "{text:?} is not a name: expected {SCHEME}CLUSTER/KIND/NAME, where KIND is node, \
                 operator, monitor or client, and the others consist of letters, digits, '-', '_' \
                 and '.'"
            ))
        })
    }
}

/// The characters of a part: those of a URI that need no escape, so that one name has one form.
fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.".contains(letter)
}

/// Whose certificate is expected. `None` stands for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The cluster.
    pub cluster: Option<String>,
    /// The kinds that are allowed.
    pub kinds: Vec<Kind>,
    /// The name of the node, operator, monitor or client.
    pub name: Option<String>,
}

impl Expected {
    /// Any name of any cluster.
    pub fn any() -> Self {
        Expected {
            kinds: Kind::ALL.to_vec(),
            ..Expected::default()
        }
    }

    /// A node of this cluster: the one with this name, or any.
    pub fn node(cluster: &str, name: Option<&str>) -> Self {
        Expected {
            cluster: Some(cluster.to_owned()),
            kinds: vec![Kind::Node],
            name: name.map(str::to_owned),
        }
    }

    /// Checks a name.
    ///
    /// # Errors
    /// [`TlsError::Mismatch`], with both names.
    pub fn check(&self, found: &Name) -> Result<(), TlsError> {
        let is_any = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let fits = is_any(&self.cluster, &found.cluster)
            && self.kinds.contains(&found.kind)
            && is_any(&self.name, &found.name);
        match fits {
            true => Ok(()),
            false => Err(TlsError::Mismatch {
                expected: self.to_string(),
                found: found.to_string(),
            }),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |part: &Option<String>| part.clone().unwrap_or_else(|| "*".to_owned());
        for (at, kind) in self.kinds.iter().enumerate() {
            let or = if at > 0 { " or " } else { "" };
            let (cluster, kind, name) = (any(&self.cluster), kind.word(), any(&self.name));
            write!(f, "{or}{SCHEME}{cluster}/{kind}/{name}")?;
        }
        Ok(())
    }
}

/// The name in a certificate, which must have exactly one.
///
/// # Errors
/// [`TlsError::Name`] if it has none, two, or one that is malformed.
pub fn name_of(certificate: &[u8]) -> Result<Name, TlsError> {
    let wrong = |what: String| TlsError::Name(what);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| wrong(format!("the certificate cannot be read: {error}")))?;
    let alternatives = parsed.subject_alternative_name().map_err(|error| {
        wrong(format!(
            "the names of the certificate cannot be read: {error}"
        ))
    })?;
    let names: Vec<&str> = alternatives
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
            _ => None,
        })
        .collect();
    match names[..] {
        [name] if name.len() <= MAX_NAME => name.parse(),
        [_] => Err(wrong(format!(
            "the name in the certificate has more than {MAX_NAME} bytes"
        ))),
        [] => Err(wrong(format!(
            "the certificate has no name: expected one URI {SCHEME}CLUSTER/KIND/NAME among its \
             alternative names"
        ))),
        [first, second, ..] => Err(wrong(format!(
            "the certificate has {} names, {first:?} and {second:?} among them: exactly one is \
             allowed",
            names.len()
        ))),
    }
}

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The name of its owner: the [`Name`], or else the X.509 subject.
    pub subject: String,
    /// The X.509 name of the authority that signed it.
    pub issuer: String,
    /// The beginning of its validity, in seconds since 1970.
    pub not_before: i64,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
}

/// The certificate of a node, operator, monitor or client is renewed this long before its end.
const RENEW_SECONDS: i64 = 14 * DAY_SECONDS;

/// An authority is replaced this long before its end: that takes three steps.
const REPLACE_SECONDS: i64 = 90 * DAY_SECONDS;

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The present time in seconds since 1970, as certificates have it.
pub fn now() -> i64 {
    let since = UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_secs() as i64)
}

/// Whether a certificate, valid between these times, must be renewed now, or an authority be
/// replaced: 14 days before its end, an authority 90 days, or when three quarters of its time are
/// over, if that is later. All times are in seconds since 1970.
pub fn is_near_end((not_before, not_after): (i64, i64), is_authority: bool, now: i64) -> bool {
    let before = if is_authority {
        REPLACE_SECONDS
    } else {
        RENEW_SECONDS
    };
    let quarter = not_after.saturating_sub(not_before) / 4;
    not_after.saturating_sub(now) < before.min(quarter)
}

/// Describes a certificate (DER), which `rustls` has accepted before.
pub fn describe(certificate: &[u8]) -> Described {
    match x509_parser::parse_x509_certificate(certificate) {
        Err(error) => Described {
            subject: error.to_string(),
            issuer: String::new(),
            not_before: 0,
            not_after: 0,
        },
        Ok((_, parsed)) => Described {
            subject: name_of(certificate)
                .map_or_else(|_| parsed.subject().to_string(), |name| name.to_string()),
            issuer: parsed.issuer().to_string(),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        let name: Name = "ionian://shop-1/operator/eva".parse().unwrap();
        assert_eq!((name.kind, &*name.name), (Kind::Operator, "eva"));
        assert_eq!(name.to_string(), "ionian://shop-1/operator/eva");
        for wrong in [
            "ionian://shop/node/",
            "ionian:///node/n0",
            "ionian://shop/root/n0",
            "ionian://shop/node/n0/x",
            "ionian://shop/node/n%30",
            "ionian://shop/node/n0\n",
            "https://shop/node/n0",
        ] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn certificates_are_renewed_in_time() {
        let days = |days: i64| days * DAY_SECONDS;
        let ends_soon =
            |life, authority, left| is_near_end((0, days(life)), authority, days(life - left));
        assert_eq!(
            [15, 14, 13, -1].map(|left| ends_soon(90, false, left)),
            [false, false, true, true]
        );
        assert_eq!(
            [91, 89].map(|left| ends_soon(3650, true, left)),
            [false, true]
        );
        // One of a minute, which something renews each half a minute.
        assert!(!is_near_end((0, 60), false, 30) && is_near_end((0, 60), false, 50));
    }

    #[test]
    fn mismatch_reports_both_names() {
        let found: Name = "ionian://shop/node/n1".parse().unwrap();
        let mut expected = Expected::node("shop", Some("n0"));
        assert_eq!(
            expected.check(&found).unwrap_err().to_string(),
            "the certificate is of ionian://shop/node/n1; expected ionian://shop/node/n0"
        );
        expected.name = None;
        expected.check(&found).unwrap();
        expected.kinds = vec![Kind::Operator, Kind::Monitor];
        assert_eq!(
            expected.check(&found).unwrap_err().to_string(),
            "the certificate is of ionian://shop/node/n1; expected ionian://shop/operator/* or \
             ionian://shop/monitor/*"
        );
    }
}
