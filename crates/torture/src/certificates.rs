//! The certificates of a cluster, its operator and its client: short-lived, and replaced while
//! everything runs; the authority that signs them, and its exchange.

use anyhow::{Context, Result};
use ionian_kernel::random::Random;
use ionian_runtime::status::TlsStatus;
use ionian_runtime::{NodeTls, TlsMode};
use ionian_tls::rustls::pki_types::CertificateDer;
use ionian_tls::rustls::pki_types::pem::PemObject;
use ionian_tls::{
    Authority, ClientAuth, Expected, Files, Hosts, Kind, Live, Name, Reload, describe, fingerprint,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long an authority is valid.
const AUTHORITY: Duration = Duration::from_secs(30 * 86_400);

/// The name of the operator and of the client.
const NAME: &str = "torture";

/// See the top of this file.
pub(crate) struct Certificates {
    directory: PathBuf,
    cluster: String,
    /// How long a certificate is valid.
    valid: Duration,
    /// The trusted authorities: one, or during an exchange the old one and the new one.
    trusted: Vec<Trusted>,
    /// The place of the authority that signs.
    signer: usize,
    owners: Vec<Owner>,
    random: Random,
    client: Arc<Live>,
    operator: NodeTls,
}

struct Trusted {
    authority: Authority,
    subject: String,
    fingerprint: String,
}

/// The owner of a certificate, and the latest one.
struct Owner {
    name: Name,
    issuer: String,
    fingerprint: String,
    /// When it will be replaced.
    due: Instant,
}

impl Certificates {
    /// Makes an authority and certificates for these nodes, an operator and a client, each in its
    /// own directory below `directory`.
    pub(crate) fn create(
        directory: PathBuf,
        cluster: &str,
        nodes: &[&str],
        valid: Duration,
        seed: u64,
    ) -> Result<Self> {
        let trusted = vec![Trusted::create(cluster)?];
        let name = |kind, name: &str| Name {
            cluster: cluster.to_owned(),
            kind,
            name: name.to_owned(),
        };
        let mut owners = vec![name(Kind::Operator, NAME), name(Kind::Client, NAME)];
        owners.extend(nodes.iter().map(|node| name(Kind::Node, node)));
        let mut random = Random::new(seed);
        let mut made = Vec::new();
        for owner in owners {
            let path = path(&directory, &owner);
            write(&path.join("ca.crt"), &bundle(&trusted), 0o644)?;
            made.push(Owner::issue(owner, &trusted[0], &path, valid, &mut random)?);
        }
        let live = |owner: &Owner| {
            let expected = Expected {
                cluster: Some(cluster.to_owned()),
                kinds: vec![owner.name.kind],
                name: Some(NAME.to_owned()),
            };
            let files = Files::within(&path(&directory, &owner.name));
            Live::open(files, expected, ClientAuth::None).map(Arc::new)
        };
        Ok(Certificates {
            operator: NodeTls::new(TlsMode::Required, live(&made[0])?),
            client: live(&made[1])?,
            directory,
            cluster: cluster.to_owned(),
            valid,
            trusted,
            signer: 0,
            owners: made,
            random,
        })
    }

    /// The directory with one directory for each node.
    pub(crate) fn nodes(&self) -> PathBuf {
        self.directory.join(Kind::Node.word())
    }

    /// The identity of this program as a client.
    pub(crate) fn client(&self) -> Arc<Live> {
        self.client.clone()
    }

    /// The identity of this program as an operator.
    pub(crate) fn operator(&self) -> NodeTls {
        self.operator.clone()
    }

    /// How long a certificate is valid.
    pub(crate) fn valid(&self) -> Duration {
        self.valid
    }

    /// Makes the first certificate of a further node.
    pub(crate) fn add(&mut self, node: &str) -> Result<()> {
        let name = Name {
            cluster: self.cluster.clone(),
            kind: Kind::Node,
            name: node.to_owned(),
        };
        let path = path(&self.directory, &name);
        write(&path.join("ca.crt"), &bundle(&self.trusted), 0o644)?;
        let signer = &self.trusted[self.signer];
        let owner = Owner::issue(name, signer, &path, self.valid, &mut self.random)?;
        self.owners.push(owner);
        Ok(())
    }

    /// A node has left permanently.
    pub(crate) fn remove(&mut self, node: &str) {
        self.owners.retain(|owner| !owner.is_node(node));
    }

    /// The nodes whose certificates are due to be replaced.
    pub(crate) fn due(&self, now: Instant) -> Vec<String> {
        let due = self.owners.iter().filter(|owner| owner.due <= now);
        due.filter(|owner| owner.name.kind == Kind::Node)
            .map(|owner| owner.name.name.clone())
            .collect()
    }

    /// Replaces every certificate that is due. Returns how many.
    pub(crate) fn renew(&mut self, now: Instant) -> Result<u64> {
        let signer = &self.trusted[self.signer];
        let mut renewed = 0;
        for owner in self.owners.iter_mut().filter(|owner| owner.due <= now) {
            let (name, path) = (owner.name.clone(), path(&self.directory, &owner.name));
            *owner = Owner::issue(name, signer, &path, self.valid, &mut self.random)?;
            renewed += 1;
        }
        self.reload()?;
        Ok(renewed)
    }

    /// The first step of an exchange of the authority: everyone trusts the new one as well.
    pub(crate) fn trust_another(&mut self) -> Result<()> {
        self.trusted.push(Trusted::create(&self.cluster)?);
        self.write_bundles()
    }

    /// The second step: the new one signs. Certificates are replaced when they are due.
    pub(crate) fn sign_with_another(&mut self) {
        self.signer = 1;
    }

    /// Whether the authority that signs has signed every certificate.
    pub(crate) fn is_signed_by_another(&self) -> bool {
        let signer = &self.trusted[self.signer].subject;
        self.owners.iter().all(|owner| owner.issuer == *signer)
    }

    /// The third step: the old one is trusted no longer.
    pub(crate) fn drop_first(&mut self) -> Result<()> {
        self.trusted.remove(0);
        self.signer = 0;
        self.write_bundles()
    }

    /// Whether a node with this status trusts the authorities that its files name.
    pub(crate) fn is_trusted_by(&self, status: &TlsStatus) -> bool {
        let all = self.trusted.iter().map(|trusted| &trusted.fingerprint);
        let found = status.trusted.iter().map(|trusted| &trusted.fingerprint);
        all.collect::<BTreeSet<_>>() == found.collect()
    }

    /// Whether a node with this status presents a certificate of the authority that signs.
    pub(crate) fn is_signer_of(&self, status: &TlsStatus) -> bool {
        status.certificate.issuer == self.trusted[self.signer].subject
    }

    /// Whether this node presents its latest certificate, by its status.
    pub(crate) fn is_latest(&self, node: &str, status: &TlsStatus) -> bool {
        let owner = self.owners.iter().find(|owner| owner.is_node(node));
        owner.is_some_and(|owner| owner.fingerprint == status.certificate.fingerprint)
    }

    fn write_bundles(&mut self) -> Result<()> {
        let bundle = bundle(&self.trusted);
        for owner in &self.owners {
            let path = path(&self.directory, &owner.name);
            write(&path.join("ca.crt"), &bundle, 0o644)?;
        }
        self.reload()
    }

    /// Takes the present certificates of this program.
    fn reload(&self) -> Result<()> {
        for live in [&self.operator.live, &self.client] {
            if let Reload::Refused(error) = live.reload() {
                return Err(error).context("the certificate of this program");
            }
        }
        Ok(())
    }
}

impl Trusted {
    fn create(cluster: &str) -> Result<Self> {
        let (authority, _) = Authority::create(cluster, AUTHORITY)?;
        let der = der(authority.certificate())?;
        let (subject, fingerprint) = (describe(&der).issuer, fingerprint(&der));
        Ok(Trusted {
            authority,
            subject,
            fingerprint,
        })
    }
}

impl Owner {
    /// Signs a certificate and writes it with its key, as `ionian certs` does: first the key, then
    /// the certificate, and a reader in between finds that they do not fit.
    fn issue(
        name: Name,
        signer: &Trusted,
        directory: &Path,
        valid: Duration,
        random: &mut Random,
    ) -> Result<Self> {
        let hosts = Hosts {
            names: Vec::new(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        };
        let (from, uris) = (SystemTime::now(), [name.to_string()]);
        let issued = signer
            .authority
            .sign(name.kind, &uris, &hosts, from, valid)?;
        write(&directory.join("tls.key"), &issued.key, 0o600)?;
        write(&directory.join("tls.crt"), &issued.certificate, 0o644)?;
        let most = valid.as_millis() as u64 / 2;
        let after = Duration::from_millis(random.between(most * 2 / 3, most));
        Ok(Owner {
            name,
            issuer: signer.subject.clone(),
            fingerprint: fingerprint(&der(&issued.certificate)?),
            due: Instant::now() + after,
        })
    }

    fn is_node(&self, name: &str) -> bool {
        self.name.kind == Kind::Node && self.name.name == name
    }
}

fn der(pem: &str) -> Result<CertificateDer<'static>> {
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())?)
}

/// The certificates of these authorities, PEM.
fn bundle(trusted: &[Trusted]) -> String {
    let all = trusted
        .iter()
        .map(|trusted| trusted.authority.certificate());
    all.collect()
}

fn path(directory: &Path, owner: &Name) -> PathBuf {
    directory.join(owner.kind.word()).join(&owner.name)
}

/// Writes a file under another name and renames it: readers never see half of it.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().expect("it is in a directory"))?;
        let new = path.with_extension("new");
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_runtime::status::CertificateStatus;
    use ionian_tls::CertificateSet;

    fn status(files: &Files) -> TlsStatus {
        let expected = Expected::node("c", None);
        let set = CertificateSet::load(files, &expected, &|_| ()).unwrap();
        let described = |der: &[u8]| CertificateStatus {
            subject: describe(der).subject,
            issuer: describe(der).issuer,
            not_before: 0,
            not_after: describe(der).not_after,
            fingerprint: fingerprint(der),
        };
        TlsStatus {
            mode: "required".to_owned(),
            certificate: described(set.certificate()),
            trusted: set.bundle().map(described).collect(),
            ..TlsStatus::default()
        }
    }

    /// A node that reads its files at any time between two steps has a set that passes, and its
    /// status tells which step it has seen.
    #[test]
    fn certificates_and_authorities_are_exchanged_step_by_step() {
        let directory = std::env::temp_dir().join(format!("torture-tls-{}", std::process::id()));
        let valid = Duration::from_secs(60);
        let mut certificates =
            Certificates::create(directory.clone(), "c", &["n0"], valid, 1).unwrap();
        let files = Files::within(&certificates.nodes().join("n0"));
        let first = status(&files);
        assert!(certificates.is_latest("n0", &first) && certificates.is_trusted_by(&first));
        let now = Instant::now();
        assert_eq!(certificates.renew(now).unwrap(), 0, "none is due yet");
        let later = now + valid / 2;
        assert_eq!(certificates.due(later), ["n0"]);
        // The operator and the client too.
        assert_eq!(certificates.renew(later).unwrap(), 3);
        assert!(!certificates.is_latest("n0", &first));
        assert!(certificates.is_latest("n0", &status(&files)));

        certificates.trust_another().unwrap();
        assert!(!certificates.is_trusted_by(&first));
        assert!(certificates.is_trusted_by(&status(&files)));
        certificates.sign_with_another();
        assert!(!certificates.is_signed_by_another());
        assert!(!certificates.is_signer_of(&status(&files)));
        certificates.renew(later + valid).unwrap();
        assert!(certificates.is_signed_by_another());
        let both = status(&files);
        assert!(certificates.is_signer_of(&both) && certificates.is_trusted_by(&both));
        certificates.drop_first().unwrap();
        assert!(!certificates.is_trusted_by(&both));
        assert!(certificates.is_trusted_by(&status(&files)));

        certificates.add("m0").unwrap();
        status(&Files::within(&certificates.nodes().join("m0")));
        certificates.remove("n0");
        assert_eq!(certificates.due(later + valid), ["m0"]);
        fs::remove_dir_all(directory).unwrap();
    }
}
