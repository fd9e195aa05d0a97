//! Makes certificates: a certificate authority for one cluster, and what it signs.

use crate::error::TlsError;
use crate::files::read;
use crate::name::{Kind, Name};
use crate::set::fingerprint;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use zeroize::Zeroizing;

/// A certificate is valid from some time before it is made: clocks of machines differ.
const BEFORE: Duration = Duration::from_secs(300);

/// A certificate and its key, PEM.
#[derive(Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key: a secret.
    pub key: String,
}

/// Under which host names and addresses clients reach a gateway.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// DNS names.
    pub names: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
}

/// The files of an authority.
const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";

/// A certificate authority that can sign.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority for a cluster.
    ///
    /// # Errors
    /// If the operating system has no random numbers, or the name is not allowed.
    pub fn create(cluster: &str, valid: Duration) -> Result<(Self, Issued), TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        // Authorities that follow one another have different names.
        let mut number = fingerprint(key.der_bytes());
        number.truncate(8);
        let title = format!("Ionian CA of {cluster} {number}");
        params.distinguished_name.push(DnType::CommonName, title);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, SystemTime::now() - BEFORE, valid + BEFORE);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        let issued = Issued {
            certificate: certificate.clone(),
            key: key.serialize_pem(),
        };
        Ok((Self::open(&certificate, &issued.key)?, issued))
    }

    /// The authority with this certificate and key, PEM.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn open(certificate: &str, key: &str) -> Result<Self, TlsError> {
        Self::parse(certificate, key, |_, error| failed(error))
    }

    /// `wrong` makes an error of the name of the file that cannot be used, and why.
    fn parse(
        certificate: &str,
        key: &str,
        wrong: impl Fn(&str, rcgen::Error) -> TlsError,
    ) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(key).map_err(|error| wrong(KEY, error))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key);
        Ok(Authority {
            certificate: certificate.to_owned(),
            issuer: issuer.map_err(|error| wrong(CERTIFICATE, error))?,
        })
    }

    /// The authority whose certificate and key are `ca.crt` and `ca.key` in a directory. `begin` is
    /// called with each file before it is read.
    ///
    /// # Errors
    /// If one of them cannot be read; names it.
    pub fn within(directory: &Path, begin: &dyn Fn(&Path)) -> Result<Self, TlsError> {
        let read = |name: &str| {
            let path = directory.join(name);
            begin(&path);
            let text = read(&path, false)?;
            Ok(Zeroizing::new(String::from_utf8_lossy(&text).into_owned()))
        };
        Self::parse(&read(CERTIFICATE)?, &read(KEY)?, |name, error| {
            TlsError::Contents {
                path: directory.join(name),
                what: format!("cannot be used to sign: {error}"),
            }
        })
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a certificate for this name, valid from now.
    ///
    /// # Errors
    /// If a host name is not allowed in a certificate.
    pub fn issue(&self, name: &Name, hosts: &Hosts, valid: Duration) -> Result<Issued, TlsError> {
        let names = [name.to_string()];
        self.sign(
            name.kind,
            &names,
            hosts,
            SystemTime::now() - BEFORE,
            valid + BEFORE,
        )
    }

    /// Signs a certificate with any URIs, valid from any time: what tests of refusals need.
    ///
    /// # Errors
    /// As [`issue`](Self::issue).
    pub fn sign(
        &self,
        kind: Kind,
        uris: &[String],
        hosts: &Hosts,
        from: SystemTime,
        valid: Duration,
    ) -> Result<Issued, TlsError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        let title = uris
            .first()
            .map_or("", |uri| uri.rsplit('/').next().unwrap_or(""));
        params.distinguished_name.push(DnType::CommonName, title);
        for uri in uris {
            let uri = uri.as_str().try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        for name in &hosts.names {
            let name = name.as_str().try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        let addresses = hosts
            .addresses
            .iter()
            .map(|address| SanType::IpAddress(*address));
        params.subject_alt_names.extend(addresses);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if kind == Kind::Node {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, from, valid);
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn set_validity(params: &mut CertificateParams, from: SystemTime, valid: Duration) {
    params.not_before = OffsetDateTime::from(from);
    params.not_after = OffsetDateTime::from(from + valid);
}

fn failed(error: rcgen::Error) -> TlsError {
    TlsError::Issue(error.to_string())
}
