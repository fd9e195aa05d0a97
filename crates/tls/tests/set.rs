//! A set of certificates is taken whole or not at all.

use ionian_tls::rustls::pki_types::CertificateDer;
use ionian_tls::rustls::pki_types::pem::PemObject;
use ionian_tls::{
    Authority, CertificateSet, ClientAuth, Expected, Files, Hosts, Issued, Kind, Live, Name, Reload,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);

/// A directory with a set, deleted with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ionian-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }

    fn put(&self, issued: &Issued) {
        self.write("tls.crt", &issued.certificate);
        self.write("tls.key", &issued.key);
    }

    fn load(&self) -> Result<CertificateSet, String> {
        CertificateSet::load(&Files::within(&self.0), &expected(), &|_| ())
            .map_err(|e| e.to_string())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn expected() -> Expected {
    Expected::node("shop", Some("n0"))
}

fn authority() -> Authority {
    Authority::create("shop", HOUR).unwrap().0
}

fn node(authority: &Authority, name: &str) -> Issued {
    node_of(authority, "shop", name)
}

fn node_of(authority: &Authority, cluster: &str, name: &str) -> Issued {
    let name = Name {
        cluster: cluster.into(),
        kind: Kind::Node,
        name: name.into(),
    };
    authority.issue(&name, &Hosts::default(), HOUR).unwrap()
}

#[test]
fn set_with_any_wrong_file_is_refused_with_the_reason() {
    let (authority, directory) = (authority(), Directory::new());
    let good = node(&authority, "n0");
    directory.put(&good);
    directory.write("ca.crt", authority.certificate());
    assert_eq!(
        directory.load().unwrap().name().to_string(),
        "ionian://shop/node/n0"
    );

    let now = SystemTime::now();
    let signed = |uris: &[&str], from, valid| {
        let uris: Vec<String> = uris.iter().map(|uri| uri.to_string()).collect();
        authority
            .sign(Kind::Node, &uris, &Hosts::default(), from, valid)
            .unwrap()
    };
    let own = "ionian://shop/node/n0";
    let cases = [
        (
            node(&authority, "n1"),
            "the certificate is of ionian://shop/node/n1; expected ionian://shop/node/n0",
        ),
        (
            signed(&["ionian://blue/node/n0"], now, HOUR),
            "the certificate is of ionian://blue/node/n0; expected ionian://shop/node/n0",
        ),
        (signed(&[], now, HOUR), "the certificate has no name"),
        (
            signed(&[own, "ionian://shop/operator/eva"], now, HOUR),
            "the certificate has 2 names",
        ),
        (signed(&[own], now - 2 * HOUR, HOUR), "it has expired at 20"),
        (
            signed(&[own], now + HOUR, HOUR),
            "it is not valid yet, but from 20",
        ),
        (
            node(&Authority::create("shop", HOUR).unwrap().0, "n0"),
            "invalid peer certificate: UnknownIssuer",
        ),
    ];
    for (issued, reason) in cases {
        directory.put(&issued);
        let refused = directory.load().unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
    directory.put(&good);
    directory.write("tls.key", &node(&authority, "n0").key);
    assert!(
        directory
            .load()
            .unwrap_err()
            .contains("the key does not fit the certificate")
    );
    directory.write("tls.key", "");
    assert!(
        directory
            .load()
            .unwrap_err()
            .ends_with("tls.key: the file is empty")
    );
    directory.put(&good);
    let key = directory.0.join("tls.key");
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    assert!(directory.load().unwrap_err().contains("mode 0640"));
    directory.put(&good);
    directory.write("ca.crt", "no certificate");
    assert!(
        directory
            .load()
            .unwrap_err()
            .contains("ca.crt: holds no certificate")
    );
}

/// A node may start at the moment at which its certificate is replaced.
#[test]
fn set_whose_files_are_being_replaced_is_read_again() {
    let (authority, directory) = (authority(), Directory::new());
    let [old, new] = [(); 2].map(|()| node(&authority, "n0"));
    directory.write("ca.crt", authority.certificate());
    directory.write("tls.crt", &old.certificate);
    // Who reads the key waits for it, and has read the certificate before.
    let key = directory.0.join("tls.key");
    let made = Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&key)
        .status();
    assert!(made.unwrap().success());
    let path = directory.0.clone();
    let certificate = new.certificate.clone();
    std::thread::spawn(move || {
        let mut pipe = File::options().write(true).open(&key).unwrap();
        let directory = ManuallyDrop::new(Directory(path));
        directory.write("new.key", &new.key);
        fs::rename(directory.0.join("new.key"), &key).unwrap();
        directory.write("tls.crt", &new.certificate);
        pipe.write_all(new.key.as_bytes()).unwrap();
    });
    let set = directory.load().unwrap();
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    assert_eq!(set.certificate(), &der[..]);
}

/// A set of another cluster is right by itself: its name, and its own authority.
#[test]
fn set_of_another_cluster_is_refused_by_a_running_process() {
    let (authority, directory) = (authority(), Directory::new());
    directory.put(&node(&authority, "n0"));
    directory.write("ca.crt", authority.certificate());
    let any_cluster = Expected {
        cluster: None,
        ..expected()
    };
    let live = Live::open(Files::within(&directory.0), any_cluster, ClientAuth::None).unwrap();
    let before = live.loaded().set.certificate().to_vec();
    let other = Authority::create("other", HOUR).unwrap().0;
    directory.put(&node_of(&other, "other", "n0"));
    directory.write("ca.crt", other.certificate());
    let Reload::Refused(why) = live.reload() else {
        panic!("another cluster's certificate is in force");
    };
    let why = why.to_string();
    for part in ["ionian://other/node/n0", "ionian://shop/node/n0"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(live.loaded().set.certificate(), before);
}

#[test]
fn bad_set_is_reported_once_and_the_old_one_stays() {
    let (authority, directory) = (authority(), Directory::new());
    let first = node(&authority, "n0");
    directory.put(&first);
    directory.write("ca.crt", authority.certificate());
    let live = Live::open(Files::within(&directory.0), expected(), ClientAuth::None).unwrap();
    assert!(matches!(live.reload(), Reload::Unchanged));
    assert_eq!((live.reads(), live.refusal()), (2, None));
    let in_force = |live: &Live| live.loaded().set.certificate().to_vec();
    let before = in_force(&live);

    // A pair of which one half is written.
    let second = node(&authority, "n0");
    directory.write("tls.crt", &second.certificate);
    assert!(matches!(live.reload(), Reload::Refused(_)));
    assert!(matches!(live.reload(), Reload::Unchanged));
    assert_eq!((in_force(&live) == before, live.failures()), (true, 1));
    let why = live.refusal().expect("they are refused");
    assert!(why.contains("tls.key"), "{why}");
    assert_eq!(live.reads(), 4);

    directory.write("tls.key", &second.key);
    assert!(matches!(live.reload(), Reload::Exchanged));
    assert_eq!(live.refusal(), None);
    assert_eq!(
        (in_force(&live) != before, live.loaded().generation),
        (true, 0)
    );

    // Two authorities, then only the new one: each is another trust.
    let next = Authority::create("shop", HOUR).unwrap().0;
    let both = format!("{}{}", authority.certificate(), next.certificate());
    directory.write("ca.crt", &both);
    assert!(matches!(live.reload(), Reload::Exchanged));
    assert_eq!(live.loaded().generation, 1);
    directory.write("ca.crt", next.certificate());
    assert!(
        matches!(live.reload(), Reload::Refused(_)),
        "its own certificate is of the old one"
    );
    directory.put(&node(&next, "n0"));
    assert!(matches!(live.reload(), Reload::Exchanged));
    assert_eq!((live.loaded().generation, live.failures()), (2, 2));

    // Files that cannot be read are counted once, and the reason is always that of now.
    for missing in ["tls.crt", "ca.crt"] {
        fs::remove_file(directory.0.join(missing)).unwrap();
        live.reload();
        let why = live.refusal().expect("they are refused");
        assert!(why.contains(missing), "{missing}: {why}");
        directory.put(&node(&next, "n0"));
    }
    assert_eq!(live.failures(), 3);
}

/// An authority named `name`, of another one or of itself; its certificate is DER as well.
fn named_authority(
    name: &str,
    of: Option<&Issuer<'static, KeyPair>>,
) -> (CertificateDer<'static>, Authority, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let made = match of {
        Some(issuer) => params.signed_by(&key, issuer).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    let authority = Authority::open(&made.pem(), &key.serialize_pem()).unwrap();
    (made.der().clone(), authority, Issuer::new(params, key))
}

/// What a caller sends after its own certificate is not verified, and counts for nothing.
#[test]
fn authorities_of_those_who_were_admitted_are_those_that_were_verified() {
    let (_, root, signer) = named_authority("root", None);
    let (between, intermediate, _) = named_authority("intermediate", Some(&signer));
    let (_, other, _) = named_authority("other", None);
    let directory = Directory::new();
    let trust = |authorities: &[&Authority]| {
        let bundle = authorities.iter().map(|it| it.certificate());
        directory.write("ca.crt", &bundle.collect::<String>());
    };
    let own = node(&intermediate, "n0");
    let between_pem = intermediate.certificate();
    directory.write("tls.key", &own.key);
    directory.write("tls.crt", &format!("{}{between_pem}", own.certificate));
    trust(&[&root, &other]);
    let live = Live::open(Files::within(&directory.0), expected(), ClientAuth::None).unwrap();
    let leaf_of = |authority: &Authority| {
        let issued = node(authority, "n1");
        CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
    };
    let seen = || {
        let issuers = live.admitted().1.into_iter();
        issuers.map(|it| it.issuer).collect::<Vec<_>>()
    };
    // Junk with the name of a trusted authority, and with any other.
    let leaf = leaf_of(&root);
    for junk in [&leaf_of(&named_authority("other", None).1), &between, &leaf] {
        live.has_admitted(&[leaf.clone(), junk.clone()]);
    }
    live.has_admitted(&[leaf.clone(), leaf_of(&named_authority("junk", None).1)]);
    assert_eq!(seen(), ["CN=root"]);
    assert_eq!(live.loaded().set.own_signers(), ["CN=root"]);
    // The last certificate says that the root has signed it: both are trusted, and both count.
    trust(&[&intermediate, &other]);
    assert!(matches!(live.reload(), Reload::Exchanged));
    assert_eq!(seen(), [""; 0], "the root is not trusted any more");
    let chain = [leaf_of(&intermediate), between];
    live.has_admitted(&chain);
    assert_eq!(seen(), ["CN=intermediate"]);
    trust(&[&intermediate, &other, &root]);
    assert!(matches!(live.reload(), Reload::Exchanged));
    live.has_admitted(&chain);
    assert_eq!(seen(), ["CN=intermediate", "CN=root"]);
    let own = live.loaded().set.own_signers();
    assert_eq!(own, ["CN=intermediate", "CN=root"]);
}
