//! `host:port` as text. Host names are resolved at each use, because addresses change while a file
//! does not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const ALLOWED: &str =
    "host:port with a port from 1 to 65535, such as \"127.0.0.1:7400\"";

/// The parts of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
}

impl<'a> Endpoint<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_host = match host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty()
                    && host
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            }
        };
        let port = crate::words::digits(port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)?;
        is_host.then_some(Endpoint { host, port })
    }

    /// The address that the host is, if it is none of a machine's names.
    fn ip(self) -> Option<IpAddr> {
        match self.host.eq_ignore_ascii_case("localhost") {
            true => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            false => {
                let address = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
                address.ok().map(|it| it.to_canonical())
            }
        }
    }

    /// Whether the host is a wildcard: a node can listen there, but no other node can connect to
    /// it.
    pub(crate) fn is_wildcard(self) -> bool {
        self.ip().is_some_and(|it| it.is_unspecified())
    }

    /// Whether each machine has this host for itself.
    pub(crate) fn is_of_each_machine(self) -> bool {
        let is_of_each = |it: IpAddr| it.is_loopback() || it.is_unspecified();
        self.ip().is_some_and(is_of_each)
    }

    /// Whether both hosts are one, however they are written.
    pub(crate) fn same_host(self, other: Self) -> bool {
        match (self.ip(), other.ip()) {
            (None, None) => self.host.eq_ignore_ascii_case(other.host),
            (own, theirs) => own == theirs,
        }
    }

    /// Whether both hosts are on one machine, as far as their texts tell.
    pub(crate) fn same_machine(self, other: Self) -> bool {
        self.same_host(other) || (self.is_of_each_machine() && other.is_of_each_machine())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_and_addresses_with_a_port() {
        for (text, host, port) in [
            ("db-1.local:80", "db-1.local", 80),
            ("[::1]:7400", "[::1]", 7400),
        ] {
            assert_eq!(Endpoint::parse(text), Some(Endpoint { host, port }));
        }
        for text in [
            "",
            "host",
            ":80",
            "host:",
            "host:0",
            "host:65536",
            "host:+8",
            "a b:1",
            "::1:80",
            "[x]:80",
            "[]:1",
        ] {
            assert_eq!(Endpoint::parse(text), None, "{text}");
        }
    }

    #[test]
    fn wildcards_are_recognized() {
        let wildcard = |text| Endpoint::parse(text).unwrap().is_wildcard();
        assert!(wildcard("0.0.0.0:1") && wildcard("[::]:1"));
        assert!(!wildcard("127.0.0.1:1") && !wildcard("[::1]:1") && !wildcard("localhost:1"));
    }
}
